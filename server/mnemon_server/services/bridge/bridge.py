"""The bridge: turns events of the timeline into statements, and removes these when the events are pruned.

It is an ordinary consumer of the change log. It stores its position in the vault, in the same transaction as what it
saved or removed. So nothing is lost and nothing is done twice, whenever it stops.
"""

import asyncio
import logging
from array import array
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from contextlib import suppress
from contextvars import Context
from dataclasses import replace
from typing import Self

from mnemon_server.domain.bridge import BridgeActivity, BridgeStatus, RoutingPolicy, UpdatedPolicy
from mnemon_server.domain.bridge.extraction import ExtractionPreview, ExtractMode, PreviewRequest
from mnemon_server.domain.changes import ChangeFilter, ChangeType
from mnemon_server.domain.errors import (
    FieldViolation,
    MnemonError,
    RevisionMismatchError,
    StorageFailedError,
    ThrottledError,
)
from mnemon_server.domain.validation import refuse, request_id_violations, revision_violations
from mnemon_server.engines.promises.change_log import ChangeLog
from mnemon_server.engines.promises.vault import Vault, VaultTransaction
from mnemon_server.services.background.offload import Offload
from mnemon_server.services.bridge.catch_up import BridgeCatchUp
from mnemon_server.services.bridge.conversations import ConversationReader
from mnemon_server.services.bridge.extracting import NO_EXTRACTORS, SETTINGS_OF_MODES, BridgeExtraction, Extractors
from mnemon_server.services.bridge.ledger import BridgeLedger, ChangedError
from mnemon_server.services.bridge.pending import PendingBatches
from mnemon_server.services.bridge.preview import ExtractionPreviews
from mnemon_server.services.bridge.routing import (
    POLICY_FIELDS,
    change_violations,
    changed,
    policy_values,
)
from mnemon_server.services.bridge.settling import BatchSettling
from mnemon_server.services.bridge.state import State
from mnemon_server.services.bridge.steps import BridgeSteps, resumed
from mnemon_server.services.events.pruning import EventPruning
from mnemon_server.services.quarantine.store import QuarantineStore
from mnemon_server.services.semantic.store import SemanticStore
from mnemon_server.services.writing.writes import request_key

# Counts the events in the log that the bridge has not handled yet: each once, however often the number is read.


QUEUED = ChangeFilter(types=frozenset({ChangeType.EPISODIC_SAVED, ChangeType.EPISODIC_PRUNED}))
READ_MAX = 1_000
COUNTED_MAX = 20_000
"""Entries counted at a time; the next call continues from there."""


class BridgeQueue:
    """Counts the events behind a position. One thread at a time may call it."""

    def __init__(self, log: ChangeLog) -> None:
        self._log = log
        self._position = self._counted_to = 0
        self._sequences = array("q")

    def depth(self, position: int) -> int:
        """The number of events behind the position; for a long queue, a lower bound. Reads the log."""
        if not self._position <= position <= self._counted_to:
            self._counted_to, self._sequences = position, array("q")
        self._position = position
        del self._sequences[: bisect_right(self._sequences, position)]
        for _ in range(COUNTED_MAX // READ_MAX):
            found = self._log.read(self._counted_to, limit=READ_MAX, where=QUEUED)
            self._sequences.extend(change.sequence for change in found.changes)
            self._counted_to = found.position
            if found.caught_up:
                break
        return len(self._sequences)


GATHER_S = 0.02
"""After a commit, the bridge waits this long, and handles the commits that follow together with it."""
RETRY_FIRST_S, RETRY_MAX_S = 0.1, 10.0
KEEP_DISTANCE = 5_000
"""The bridge may have passed this many changes that do not concern it before it stores its position."""

log = logging.getLogger(__name__)


class Bridge:
    """Follows the log of a vault as long as it is open. An async context manager; belongs to one event loop.

    A bridge that is never opened is turned off: it tells its status, and stores changes for when one is opened.
    """

    def __init__(
        self,
        vault: Vault,
        semantic: SemanticStore,
        *,
        quarantine: QuarantineStore,
        offload: Offload,
        pruning: EventPruning | None = None,
        extractors: Extractors = NO_EXTRACTORS,
        retry_s: tuple[float, float] = (RETRY_FIRST_S, RETRY_MAX_S),
    ) -> None:
        """Reads nothing yet. What it gets still belongs to the caller.

        `retry_s` has the seconds until the first retry, which double with each further one, and the most between two.
        """
        self._vault = vault
        self._offload = offload
        self._retry_first_s, self._retry_max_s = retry_s
        self._ledger = BridgeLedger(vault, offload)
        pending = PendingBatches(vault, self._ledger, extractors.settings.batch, offload)
        self._steps = BridgeSteps(vault, semantic, self._ledger, pending, quarantine, offload)
        self._catch_up = BridgeCatchUp(vault, self._ledger, self._steps, quarantine, offload)
        self._queue = BridgeQueue(vault.changes)
        # The bridge and the extraction take turns to change anything.
        self._turn = asyncio.Lock()
        reader = ConversationReader(quarantine, semantic, extractors.settings.context, offload)
        settling = BatchSettling(
            vault, semantic, self._ledger, pending, reader, pruning or EventPruning(vault.events, offload)
        )
        self._extractors = extractors
        self._extraction = BridgeExtraction(self._ledger, pending, reader, settling, self._turn, extractors)
        self._previews = ExtractionPreviews(vault, semantic, reader, extractors, offload)
        self._counting = asyncio.Lock()
        self._depth = 0
        self._wake, self._hurry = asyncio.Event(), asyncio.Event()
        self._signalled = False
        self._problem = ""
        self._failed_with: type[Exception] | None = None
        self._is_checked = False
        self._task: asyncio.Task[None] | None = None
        self._extracting: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        loop = asyncio.get_running_loop()

        def on_commit() -> None:
            # The flag is cleared before the log is read, so that the reader also sees this commit.
            if not self._signalled:
                self._signalled = True
                # After the loop has ended, a commit has no bridge to wake.
                with suppress(RuntimeError):
                    loop.call_soon_threadsafe(self._wake.set)

        self._unsubscribe = self._vault.subscribe(on_commit)
        # Until its position is known, the log must not drop anything.
        with suppress(MnemonError):
            await self._ledger.load()
        # In its own context: its work is not part of a request.
        self._task = asyncio.create_task(self._run(), context=Context())
        self._extracting = asyncio.create_task(self._extraction.run(), context=Context())
        return self

    async def __aexit__(self, *exception: object) -> None:
        self._unsubscribe()
        tasks = [task for task in (self._task, self._extracting) if task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)
        # If this fails, the log is read again from the position that was stored last.
        with suppress(MnemonError):
            await self._ledger.keep()

    def keep_after(self) -> int:
        """The position up to which the bridge has read the log. Retention must not drop what is behind it."""
        return self._ledger.state.position

    async def status(self) -> BridgeStatus:
        """The status of the bridge. Never raises."""
        if not self._ledger.was_loaded:
            with suppress(MnemonError):
                await self._ledger.load()
        state = self._ledger.state
        extraction_message = self._extraction.problem if state.extraction.waiting else ""
        return BridgeStatus(
            activity=self._activity_of(state),
            is_waiting=bool(self._problem or extraction_message),
            message=self._message(state),
            routed_count=state.routed,
            skipped_counts=dict(state.skipped),
            linked_count=state.linked,
            deleted_count=state.deleted,
            demoted_count=state.demoted,
            queue_depth=await self._queue_depth(state),
            timeline_lag_s=None if state.lag_us is None else state.lag_us / 1e6,
            segment_count=state.segment_count,
            handled_time=state.handled_time,
            policy=self._ledger.policy,
            extraction=state.extraction,
            extraction_message=extraction_message,
        )

    async def policy(self) -> RoutingPolicy:
        """The current policy."""
        await self._ledger.load()
        return self._ledger.policy

    async def update_policy(
        self,
        change: RoutingPolicy,
        mask: Sequence[str] = POLICY_FIELDS,
        *,
        expected_revision: int | None = None,
        request_id: str = "",
    ) -> UpdatedPolicy:
        """Takes the fields that the mask names from `change`. They apply to all events that are not yet handled.

        Raises:
            InvalidArgumentError: names the invalid fields, those of `change` under "policy."; nothing was changed.
            RevisionMismatchError: the policy does not have the expected revision.
            RequestIdReusedError: the request id belongs to another request.
            StorageFullError, StorageFailedError: see RecordEngine.
        """
        of_call = (*request_id_violations(request_id), *revision_violations(expected_revision))
        refuse([*change_violations(change, mask), *self._extractor_violations(change, mask), *of_call])

        def update(policy: RoutingPolicy) -> RoutingPolicy:
            if expected_revision not in (None, policy.revision):
                raise RevisionMismatchError("routing policy", expected_revision, policy.revision)
            return changed(policy, change, mask)

        asked = policy_values(changed(RoutingPolicy(), change, mask))
        key = request_key(request_id, "update-routing-policy", asked, sorted({*mask}), expected_revision)
        updated = await self._ledger.update_policy(update, key)
        self._extraction.wake()
        return updated

    async def preview_extraction(self, asked: PreviewRequest) -> ExtractionPreview:
        """The statements that extracting some messages would save. Raises the same as `ExtractionPreviews.preview`."""
        policy = await self.policy()
        return await self._previews.preview(asked, policy.extract, policy.content_max)

    async def pause(self, *, request_id: str = "") -> bool:
        """Stops the bridge until it is resumed, even after a restart. Meanwhile the log keeps what it does not handle.

        Returns whether the request was a repeated one, which does nothing.

        Raises:
            InvalidArgumentError, RequestIdReusedError: the request id is invalid, or belongs to another request.
            StorageFullError, StorageFailedError: see RecordEngine.
        """
        refuse(request_id_violations(request_id))
        key = request_key(request_id, "pause-bridge")
        receipt = await self._ledger.change(lambda _, state: replace(state, paused=True), request=key)
        log.info("bridge: paused")
        return receipt.replayed

    async def resume(self, *, request_id: str = "") -> bool:
        """Continues where the bridge stopped, whether it was paused or suspended. Returns and raises as `pause`."""
        refuse(request_id_violations(request_id))

        def program(tx: VaultTransaction, state: State) -> State:
            return replace(resumed(tx, state, "a call resumed it"), paused=False)

        receipt = await self._ledger.change(program, request=request_key(request_id, "resume-bridge"))
        log.info("bridge: resumed by a call")
        self._hurry.set()
        self._extraction.resume()
        return receipt.replayed

    # The task

    async def _run(self) -> None:
        retry_s = self._retry_first_s
        while True:
            try:
                async with self._turn:
                    more = await self._step()
                if self._ledger.policy.extract is not ExtractMode.OFF:
                    self._extraction.wake()
                self._report("")
                retry_s = self._retry_first_s
                if not more:
                    await self._next_commit()
            except ChangedError:
                continue
            except Exception as error:  # noqa: BLE001 - the log keeps the changes that are not yet handled
                self._report(_told(error), error)
                async with self._turn:
                    await self._make_room(error)
                await self._wait_to_retry(retry_s)
                retry_s = min(2 * retry_s, self._retry_max_s)

    async def _step(self) -> bool:
        """Does the next step; returns whether there may be another one."""
        await self._ledger.load()
        await self._check_once()
        state = self._ledger.state
        if state.paused:
            return False
        if state.catch_up is not None and await self._catch_up.step():
            return True
        if state.suspension is not None:
            return await self._steps.look_ahead()
        more = await self._steps.advance()
        if more is None:
            await self._catch_up.begin()
            return True
        await self._ledger.keep(distance=KEEP_DISTANCE)
        return more

    async def _check_once(self) -> None:
        """Once, starts to catch up if its position is beyond the log: then the position belongs to another log."""
        if not self._is_checked:
            known = await self._offload(self._vault.changes.state)
            if self._ledger.state.position > known.head:
                await self._catch_up.begin()
            self._is_checked = True

    async def _next_commit(self) -> None:
        await self._wake.wait()
        self._wake.clear()
        self._signalled = False
        await asyncio.sleep(GATHER_S)

    async def _wait_to_retry(self, seconds: float) -> None:
        """Waits, unless a call resumes it."""
        self._hurry.clear()
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._hurry.wait()

    async def _make_room(self, error: Exception) -> None:
        """Tries to end a failure: handles pruned events, which frees space, and opens the records again."""
        try:
            if isinstance(error, ThrottledError):
                await self._ledger.load()
                while await self._steps.look_ahead():
                    pass
            elif isinstance(error, StorageFailedError):
                await self._offload(self._vault.recover)
        except MnemonError:
            log.debug("bridge: the storage still fails, or the disk is still full", exc_info=True)

    def _report(self, problem: str, error: Exception | None = None) -> None:
        if error is not None and type(error) is not self._failed_with:
            log.warning("bridge: waits: %s", problem, exc_info=None if isinstance(error, MnemonError) else error)
        self._problem, self._failed_with = problem, type(error) if error else None

    # Status

    def _activity_of(self, state: State) -> BridgeActivity:
        if state.paused or self._task is None:
            return BridgeActivity.PAUSED
        return BridgeActivity.RUNNING if state.suspension is None else BridgeActivity.SUSPENDED

    def _extractor_violations(self, change: RoutingPolicy, mask: Sequence[str]) -> Iterator[FieldViolation]:
        if "extract" in mask and change.extract not in (ExtractMode.OFF, *self._extractors.desks):
            setting = SETTINGS_OF_MODES[change.extract]
            yield FieldViolation("policy.extract", f"must not be {change.extract}: this server has no {setting}")

    def _message(self, state: State) -> str:
        if self._task is None:
            return "the bridge is turned off"
        if state.paused:
            return "the bridge is paused"
        if state.suspension is not None:
            return f"suspended by the timeline: {state.suspension.message}"
        if self._problem:
            return f"the bridge waits: {self._problem}"
        if state.catch_up is None and state.extraction.waiting and self._extraction.problem:
            return f"the extraction waits: {self._extraction.problem}"
        return "the log has a gap: the missing events are read from the timeline" if state.catch_up is not None else ""

    async def _queue_depth(self, state: State) -> int:
        async with self._counting:
            # If it cannot be read now, its last known length stands.
            with suppress(MnemonError, RuntimeError):
                depth = await self._offload(self._queue.depth, state.position)
                self._depth = max(0, depth - state.ahead_pruned)
            return self._depth


def _told(error: Exception) -> str:
    return str(error) if isinstance(error, MnemonError) else "something failed; the log says what"
