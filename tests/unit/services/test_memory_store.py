"""The memory service: confidence, repeated calls, and what is in the log."""

from dataclasses import replace

import pytest
from mnemon_server.domain.changes import ChangeFilter, ChangeType
from mnemon_server.domain.errors import (
    InvalidArgumentError,
    RequestIdReusedError,
)
from mnemon_server.domain.memories import (
    CreateMemory,
    DecayPolicy,
    Memory,
    MemoryFilter,
    UpdateMemory,
)
from mnemon_server.domain.records import WriteOutcome

from tests.support.memory_stores import ADA, Opened, fields_of
from tests.support.vaults import DIMENSION

STABLE, REINFORCEABLE, CONTEXTUAL = DecayPolicy.STABLE, DecayPolicy.REINFORCEABLE, DecayPolicy.CONTEXTUAL


def change_types(opened: Opened) -> list[ChangeType]:
    return [change.type for change in opened.vault.changes.read(0, limit=100, where=ChangeFilter()).changes]


async def test_confidence_is_computed_at_the_time_of_reading(opened: Opened) -> None:
    memory = await opened.remember("fades", decay_policy=CONTEXTUAL)
    opened.clock.pass_hours(168)
    assert (await opened.store.get(memory.memory_id)).confidence == 0.5
    opened.clock.pass_hours(168)
    assert (await opened.store.get(memory.memory_id)).confidence == 0.25
    assert (await opened.store.get(memory.memory_id)).revision == 1


async def test_a_repeated_create_returns_the_first_memory_in_its_current_state(opened: Opened) -> None:
    request = CreateMemory(memory=ADA, request_id="r1")
    first = await opened.store.create(request)
    await opened.store.update(
        UpdateMemory(memory=replace(ADA, memory_id=first.receipt.id, type="fact"), mask=("type",))
    )
    again = await opened.store.create(request)
    assert again.receipt == replace(first.receipt, replayed=True)
    assert again.memory is not None
    assert (again.memory.memory_id, again.memory.type) == (first.receipt.id, "fact")
    assert await opened.store.count() == 1
    with pytest.raises(RequestIdReusedError):
        await opened.store.create(replace(request, memory=replace(ADA, content="something else")))
    with pytest.raises(RequestIdReusedError):
        await opened.store.create(replace(request, embedding=(1.0,) * DIMENSION))
    await opened.store.delete(first.receipt.id)
    assert (await opened.store.create(request)).memory is None


async def test_a_reinforcement_counts_from_now_and_can_be_repeated(opened: Opened) -> None:
    memory = await opened.remember("fades", decay_policy=REINFORCEABLE)
    opened.clock.pass_hours(720)
    first = await opened.store.reinforce(memory.memory_id, request_id="r")
    assert first.memory is not None
    assert (first.memory.confidence, first.memory.revision) == (1.0, 2)
    assert first.memory.reinforce_time == first.memory.update_time == opened.clock.time
    assert await opened.store.get(memory.memory_id) == first.memory
    opened.clock.pass_hours(12)
    again = await opened.store.reinforce(memory.memory_id, request_id="r")
    assert again.receipt == replace(first.receipt, replayed=True)
    assert again.memory is not None
    assert again.memory.reinforce_time == first.memory.reinforce_time
    assert again.memory.confidence == pytest.approx(0.5 ** (12 / 720))


async def test_an_update_checks_only_what_its_mask_names(opened: Opened) -> None:
    created = await opened.remember("text")
    bad = Memory(created.memory_id, "", type="t" * 300, personality="poet")
    answer = await opened.store.update(UpdateMemory(memory=bad, mask=("personality",)))
    assert answer.memory is not None
    assert (answer.memory.personality, answer.memory.content) == ("poet", "text")


async def test_an_embedding_needs_new_content(opened: Opened) -> None:
    created = await opened.remember("text")
    with pytest.raises(InvalidArgumentError) as caught:
        await opened.store.update(UpdateMemory(memory=created, mask=("type",), embedding=(1.0,) * DIMENSION))
    assert fields_of(caught.value) == ["embedding"]


async def test_metadata_cannot_exceed_its_limit_key_by_key(opened: Opened) -> None:
    created = await opened.remember("text", metadata={f"k{i}": i for i in range(64)})
    with pytest.raises(InvalidArgumentError, match="64 keys") as caught:
        await opened.store.update(UpdateMemory(memory=created, set_metadata={"one-more": 1}))
    assert fields_of(caught.value) == ["set_metadata"]


async def test_an_update_that_changes_nothing_writes_nothing(opened: Opened) -> None:
    created = await opened.remember("text", type="fact")
    opened.clock.pass_hours(1)
    answer = await opened.store.update(UpdateMemory(memory=created, mask=("type", "content")))
    assert (answer.receipt.outcome, answer.memory) == (WriteOutcome.UNCHANGED, created)
    assert change_types(opened) == [ChangeType.MEMORY_CREATED]


async def test_every_change_is_in_the_log_once(opened: Opened) -> None:
    memory = await opened.remember("text", decay_policy=REINFORCEABLE)
    await opened.store.update(UpdateMemory(memory=replace(memory, type="fact"), mask=("type",)))
    opened.clock.pass_hours(1)
    await opened.store.reinforce(memory.memory_id)
    await opened.store.delete(memory.memory_id)
    await opened.store.undelete(memory.memory_id)
    await opened.store.purge(MemoryFilter(type="fact"))
    assert change_types(opened) == [
        ChangeType.MEMORY_CREATED,
        ChangeType.MEMORY_UPDATED,
        ChangeType.MEMORY_REINFORCED,
        ChangeType.MEMORY_DELETED,
        ChangeType.MEMORY_UNDELETED,
        ChangeType.MEMORY_PURGED,
    ]
