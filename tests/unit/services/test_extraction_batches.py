"""How messages are gathered into batches, and what of them the vault keeps."""

import asyncio
import json
from dataclasses import replace

import pytest
from mnemon_server.domain.bridge import RoutingPolicy
from mnemon_server.domain.bridge.extraction import Extraction, ExtractionRequest, ExtractMode
from mnemon_server.domain.events import Event
from mnemon_server.domain.records import Scope
from mnemon_server.services.bridge.bridge import Bridge
from mnemon_server.services.bridge.extracting import ExtractionSettings, Extractors
from mnemon_server.services.bridge.ledger import BridgeLedger
from mnemon_server.services.bridge.pending import PREFIX, BatchLimits, PendingBatch, PendingBatches
from mnemon_server.services.extraction.desk import ExtractorDesk, ExtractorLimits
from mnemon_server.services.extraction.extractor import BudgetSpentError, ExtractorAwayError

from tests.support.bridge_stores import BridgedStores, happening
from tests.support.semantic_stores import ADA, eventually


class Away:
    """An extractor that is away."""

    async def extract(self, request: ExtractionRequest) -> Extraction:
        raise ExtractorAwayError("it is away")

    async def aclose(self) -> None:
        """Nothing to close."""


class Silent(Away):
    """An extractor that finds nothing to keep."""

    async def extract(self, request: ExtractionRequest) -> Extraction:
        return Extraction(statements=(), tokens=60)


def bridge(stores: BridgedStores, limits: BatchLimits) -> Bridge:
    desk = ExtractorDesk(Away(), ExtractorLimits())
    extractors = Extractors({ExtractMode.MODEL: desk}, ExtractionSettings(batch=limits))
    return Bridge(
        stores.vault,
        stores.semantic,
        quarantine=stores.quarantine,
        offload=stores.offload,
        extractors=extractors,
    )


def message(event_id: str, content: str = "", conversation: str = "c1", scope: Scope = ADA) -> Event:
    return replace(happening(event_id, content, event_type="message", scope=scope), conversation=conversation)


async def batches(stores: BridgedStores, limits: BatchLimits, *events: Event) -> list[tuple[bool, int]]:
    """Of each stored batch: whether it is closed, and how many messages it has."""
    async with bridge(stores, limits) as opened:
        await opened.update_policy(RoutingPolicy(extract=ExtractMode.MODEL), ["extract"])
        stores.happen(*events)

        async def is_handled() -> bool:
            status = await opened.status()
            return status.queue_depth == 0 and opened.keep_after() == stores.vault.changes.state().head

        await eventually(is_handled)
    stored = stores.vault.values(PREFIX)
    return sorted((key.count(".") == 3, len(json.loads(text)["sequences"])) for key, text in stored.items())


QUIET = BatchLimits(quiet_s=1e9, messages_max=3, tokens_max=500)
"""The messages take their time from a stopped clock, which may be long ago."""


async def test_a_batch_ends_with_enough_messages_or_tokens(stores: BridgedStores) -> None:
    counted = [message(f"e{n}") for n in range(7)]
    assert await batches(stores, QUIET, *counted) == [(False, 1), (True, 3), (True, 3)]


async def test_a_long_message_is_a_batch_of_its_own(stores: BridgedStores) -> None:
    long = message("long", "word " * 1_000)
    found = await batches(stores, QUIET, message("e1"), long, message("e2"))
    assert found == [(False, 1), (True, 1), (True, 1)]


async def test_each_conversation_and_scope_has_batches_of_its_own(stores: BridgedStores) -> None:
    events = [
        message("e1"),
        message("e2", conversation="c2"),
        message("e3", scope=replace(ADA, persona="work")),
        message("e4"),
    ]
    assert await batches(stores, QUIET, *events) == [(False, 1), (False, 1), (False, 2)]


async def test_what_waits_names_nobody_and_says_nothing(stores: BridgedStores) -> None:
    secret = message("the event", "the content", "the conversation", Scope(user="the user"))
    await batches(stores, QUIET, secret)
    [(key, text)] = stores.vault.values(PREFIX).items()
    assert "the " not in key + text


async def test_what_is_no_message_of_a_user_is_not_queued(stores: BridgedStores) -> None:
    events = [
        message("e1", conversation=""),
        message("e2", scope=Scope()),
        replace(message("e3"), content=""),
        happening("e4"),
    ]
    assert await batches(stores, QUIET, *events) == []
    async with bridge(stores, QUIET) as opened:
        status = await opened.status()
    assert (status.routed_count, status.extraction.waiting) == (1, 0)
    assert status.skipped_counts == {"event_type": 1, "invalid": 1, "no_content": 1}


async def test_a_clock_that_was_set_back_does_not_keep_messages_waiting(stores: BridgedStores) -> None:
    stores.clock.pass_hours(30 * 365 * 24)
    limits = BatchLimits(quiet_s=3_600.0)
    async with bridge(stores, limits) as opened:
        await opened.update_policy(RoutingPolicy(extract=ExtractMode.MODEL), ["extract"])
        stores.happen(message("e1"))

        async def is_asked() -> bool:
            return "it is away" in (await opened.status()).extraction_message

        await eventually(is_asked)


class Clock:
    """The time in seconds, which a test sets."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.mark.parametrize("limits", [{"calls_per_hour": 2.0}, {"tokens_per_hour": 100.0}])
async def test_a_desk_asks_no_more_than_its_budget(limits: dict[str, float]) -> None:
    clock = Clock()
    desk = ExtractorDesk(Silent(), ExtractorLimits(**limits), clock)
    await desk.require_sound()
    await desk.require_sound()
    with pytest.raises(BudgetSpentError) as refused:
        await desk.require_sound()
    clock.now += refused.value.retry_after_s
    await desk.require_sound()


async def test_no_more_calls_run_at_once_than_the_limit() -> None:
    running, most = 0, 0
    gate, full = asyncio.Event(), asyncio.Event()

    class Counting(Away):
        async def extract(self, request: ExtractionRequest) -> Extraction:
            nonlocal running, most
            running += 1
            most = max(most, running)
            if running == 2:
                full.set()
            await gate.wait()
            running -= 1
            return Extraction(statements=())

    desk = ExtractorDesk(Counting(), ExtractorLimits(calls_max=2))
    calls = [asyncio.create_task(desk.require_sound()) for _ in range(5)]
    await full.wait()
    gate.set()
    await asyncio.gather(*calls)
    assert most == 2


async def test_which_batch_is_next_is_found_without_looking_at_all(stores: BridgedStores) -> None:
    """Closed ones first, in the order of their messages; then the open ones, the quietest first."""
    offload = stores.offload
    ledger = BridgeLedger(stores.vault, offload)
    await ledger.load()
    pending = PendingBatches(stores.vault, ledger, QUIET, offload)
    await pending.load()

    def batch(conversation: str, *sequences: int, is_closed: bool = False, attempts: int = 0) -> PendingBatch:
        return PendingBatch(
            conversation=conversation,
            sequences=sequences,
            tokens=1,
            last_us=sequences[-1],
            is_closed=is_closed,
            attempts=attempts,
        )

    def take(*batches: PendingBatch) -> None:
        pending.apply({each.key: each for each in batches})

    def found() -> tuple[list[int], list[int]]:
        return (
            [each.sequences[0] for each in pending.closed_ones()],
            [each.sequences[0] for each in pending.open_ones()],
        )

    take(batch("a", 1), batch("b", 2), batch("c", 4, is_closed=True), batch("c", 3, is_closed=True), batch("c", 5))
    assert found() == ([3], [1, 2])
    take(batch("a", 1, 6), batch("d", 7, is_closed=True))
    assert found() == ([3, 7], [2, 1])
    take(batch("c", 3, is_closed=True, attempts=1))
    assert found() == ([7, 3], [2, 1])
    pending.apply({batch("c", 3, is_closed=True).key: None, batch("c", 4, is_closed=True).key: None})
    assert found() == ([7], [2, 1, 5])
    pending.apply({batch("b", 2).key: None})
    assert found() == ([7], [1, 5])


@pytest.mark.parametrize("steps", range(6))
async def test_a_bridge_that_is_woken_while_it_ends_does_end(stores: BridgedStores, steps: int) -> None:
    policy = RoutingPolicy(extract=ExtractMode.MODEL)
    async with asyncio.timeout(60.0):
        async with bridge(stores, QUIET) as opened:
            await opened.update_policy(policy, ["extract"])
            stores.happen(message("e1"))

            async def is_waiting() -> bool:
                return (await opened.status()).extraction.waiting > 0

            await eventually(is_waiting)
            # It waits for the batch, and a change of the policy wakes it.
            await opened.update_policy(replace(policy, min_importance=0.5 + steps / 100), ["min_importance"])
            for _ in range(steps):
                await asyncio.sleep(0)
