"""The memory service over both kinds of vault: what each operation does, refuses, and answers when repeated."""

from dataclasses import replace
from datetime import datetime
from typing import Any
from uuid import UUID

import pytest
from mnemon_server.domain.changes import ChangeFilter, ChangeType
from mnemon_server.domain.errors import (
    InvalidArgumentError,
    InvalidOperationError,
    MemoryNotFoundError,
    RequestIdReusedError,
    RevisionMismatchError,
)
from mnemon_server.domain.memories import (
    CreateMemory,
    DecayPolicy,
    Memory,
    MemoryFilter,
    MemoryQuery,
    UpdateMemory,
)
from mnemon_server.domain.records import Scope, WriteOutcome, WriteReceipt

from tests.support.memory_stores import ADA, NOON, Opened, fields_of
from tests.support.vaults import DIMENSION

STABLE, REINFORCEABLE, CONTEXTUAL = DecayPolicy.STABLE, DecayPolicy.REINFORCEABLE, DecayPolicy.CONTEXTUAL
UNKNOWN = "00000000-0000-4000-8000-000000000000"


def change_types(opened: Opened) -> list[ChangeType]:
    return [change.type for change in opened.vault.changes.read(0, limit=100, where=ChangeFilter()).changes]


async def test_a_created_memory_is_read_back_as_it_was_returned(opened: Opened) -> None:
    answer = await opened.store.create(CreateMemory(memory=replace(ADA, memory_id="", confidence=0.1, revision=9)))
    memory = answer.memory
    assert memory is not None
    assert answer.receipt.outcome is WriteOutcome.CREATED
    assert answer.receipt.id == memory.memory_id == str(UUID(memory.memory_id))
    assert (memory.confidence, memory.revision, memory.reinforce_time, memory.delete_time) == (1.0, 1, None, None)
    assert (memory.create_time, memory.update_time) == (NOON, NOON)
    assert memory.metadata["since"] == datetime.fromisoformat("2020-01-01T00:00:00+00:00")
    assert replace(memory, memory_id="", metadata=ADA.metadata, revision=0, create_time=ADA.create_time,
                   update_time=ADA.update_time) == ADA  # fmt: skip
    assert await opened.store.get(memory.memory_id) == memory


async def test_defaults_are_set(opened: Opened) -> None:
    memory = await opened.remember("test")
    assert (memory.scope, memory.personality, memory.type) == (Scope(), "", "")
    assert (memory.is_global, memory.decay_policy, memory.metadata) == (False, STABLE, {})


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


async def test_a_bad_memory_of_many_fails_alone(opened: Opened) -> None:
    requests = [
        CreateMemory(memory=Memory("", "one")),
        CreateMemory(memory=Memory("", " ")),
        CreateMemory(memory=Memory("", "three"), embedding=(1.0,) * (DIMENSION - 1)),
        CreateMemory(memory=Memory("", "four"), embedding=(0.5,) * DIMENSION),
    ]
    one, two, three, four = await opened.store.create_many(requests)
    assert isinstance(one, WriteReceipt)
    assert isinstance(four, WriteReceipt)
    assert isinstance(two, InvalidArgumentError)
    assert fields_of(two) == ["memory.content"]
    assert isinstance(three, InvalidArgumentError)
    assert fields_of(three) == ["embedding"]
    listed = await opened.store.list(limit=10)
    assert [memory.content for memory in listed.memories] == ["one", "four"]


async def test_errors_in_a_memory_are_named(opened: Opened) -> None:
    cases = [
        (Memory("", "\n"), None, "memory.content"),
        (Memory("", "a\0b"), None, "memory.content"),
        (Memory("", "x", personality="é" * 129), None, "memory.personality"),
        (Memory("", "x", type="a\0"), None, "memory.type"),
        (Memory("", "x", scope=Scope(agent="y" * 257)), None, "memory.scope.agent"),
        (Memory("", "x", metadata={"k": float("inf")}), None, "memory.metadata.k"),
        (Memory("", "x", metadata={"$where": 1}), None, "memory.metadata"),
        (Memory("", "x"), (0.0,) * DIMENSION, "embedding"),
        (Memory("", "x"), (float("nan"),) * DIMENSION, "embedding"),
        (Memory("", "x"), (), "embedding"),
    ]
    for memory, embedding, field in cases:
        with pytest.raises(InvalidArgumentError) as caught:
            await opened.store.create(CreateMemory(memory=memory, embedding=embedding))
        assert fields_of(caught.value) == [field]


@pytest.mark.parametrize("length", [1e-30, 1.0, 1e30])
async def test_a_given_embedding_is_searched_whatever_its_length(opened: Opened, length: float) -> None:
    near = tuple(length if i == 3 else 0.0 for i in range(DIMENSION))
    await opened.store.create(CreateMemory(memory=Memory("", "words that say nothing"), embedding=near))
    [match] = (await opened.store.search(MemoryQuery(vector=tuple(x / length for x in near)))).results
    assert match.similarity == pytest.approx(1.0, abs=1e-6)
    assert match.distance == pytest.approx(0.0, abs=1e-6)
    assert match.passage is not None
    assert (match.passage.start, match.passage.end) == (0, 22)


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


@pytest.mark.parametrize("policy", [STABLE, CONTEXTUAL])
async def test_other_policies_cannot_be_reinforced(opened: Opened, policy: DecayPolicy) -> None:
    memory = await opened.remember("text", decay_policy=policy)
    with pytest.raises(InvalidOperationError, match=f"{policy} memory cannot be reinforced"):
        await opened.store.reinforce(memory.memory_id)
    assert await opened.store.get(memory.memory_id) == memory


async def test_a_deleted_memory_is_gone_until_it_is_undeleted(opened: Opened) -> None:
    memory = await opened.remember("Ada likes tea", decay_policy=REINFORCEABLE)
    receipt = await opened.store.delete(memory.memory_id, request_id="d")
    assert (receipt.outcome, receipt.revision) == (WriteOutcome.DELETED, 2)
    assert (await opened.store.search(MemoryQuery(text="Ada likes tea"))).results == ()
    assert (await opened.store.list(limit=5)).memories == ()
    [shown] = (await opened.store.list(limit=5, show_deleted=True)).memories
    assert shown.delete_time == opened.clock.time
    assert (await opened.store.count(), await opened.store.count(show_deleted=True)) == (0, 1)
    for use in (opened.store.get, opened.store.reinforce):
        with pytest.raises(MemoryNotFoundError):
            await use(memory.memory_id)
    with pytest.raises(MemoryNotFoundError):
        await opened.store.update(UpdateMemory(memory=replace(memory, type="x"), mask=("type",)))
    with pytest.raises(InvalidOperationError, match="already deleted"):
        await opened.store.delete(memory.memory_id)
    assert await opened.store.delete(memory.memory_id, request_id="d") == replace(receipt, replayed=True)

    undeleted = await opened.store.undelete(memory.memory_id, request_id="u")
    assert undeleted.memory == replace(memory, revision=3)
    [match] = (await opened.store.search(MemoryQuery(text="Ada likes tea"))).results
    assert match.memory == undeleted.memory
    with pytest.raises(InvalidOperationError, match="not deleted"):
        await opened.store.undelete(memory.memory_id)
    again = await opened.store.undelete(memory.memory_id, request_id="u")
    assert (again.receipt.replayed, again.memory) == (True, undeleted.memory)


async def test_an_unknown_memory_is_not_found(opened: Opened) -> None:
    store = opened.store
    for call in (store.get, store.reinforce, store.delete, store.undelete):
        with pytest.raises(MemoryNotFoundError, match=UNKNOWN):
            await call(UNKNOWN)
    with pytest.raises(MemoryNotFoundError):
        await store.update(UpdateMemory(memory=Memory(UNKNOWN, "x"), mask=("content",)))


async def test_a_stale_revision_is_refused(opened: Opened) -> None:
    memory = await opened.remember("text", decay_policy=REINFORCEABLE)
    change = UpdateMemory(memory=replace(memory, type="a"), mask=("type",), expected_revision=1)
    await opened.store.update(change)
    with pytest.raises(RevisionMismatchError):
        await opened.store.update(replace(change, memory=replace(memory, type="b")))
    with pytest.raises(RevisionMismatchError):
        await opened.store.delete(memory.memory_id, expected_revision=1)
    assert (await opened.store.delete(memory.memory_id, expected_revision=2)).revision == 3


CHANGE = Memory(
    "",
    "Ada prefers Rust",
    scope=Scope(user="bob", persona="pirate"),
    personality="poet",
    type="fact",
    decay_policy=CONTEXTUAL,
    metadata={"topic": "tea", "new": True},
)


@pytest.mark.parametrize(
    ("mask", "expected"),
    [
        (("content",), {"content": "Ada prefers Rust"}),
        (("scope",), {"scope": CHANGE.scope}),
        (("scope.agent", "scope.user"), {"scope": Scope(user="bob", agent="", project="apollo")}),
        (("personality", "type"), {"personality": "poet", "type": "fact"}),
        (("is_global",), {"is_global": False}),
        (("decay_policy",), {"decay_policy": CONTEXTUAL}),
        (("metadata",), {"metadata": {"topic": "tea", "new": True}}),
    ],
)
async def test_an_update_changes_only_what_its_mask_names(
    opened: Opened, mask: tuple[str, ...], expected: dict[str, Any]
) -> None:
    stored = replace(ADA, metadata={"topic": "code", "rank": 5})
    created = (await opened.store.create(CreateMemory(memory=stored))).memory
    assert created is not None
    opened.clock.pass_hours(1)
    answer = await opened.store.update(UpdateMemory(memory=replace(CHANGE, memory_id=created.memory_id), mask=mask))
    now = opened.clock.time
    wanted = replace(created, **expected, revision=2, update_time=now)
    assert answer.memory is not None
    assert replace(answer.memory, confidence=1.0) == wanted
    assert await opened.store.get(created.memory_id) == answer.memory


@pytest.mark.parametrize(
    ("keys", "expected"),
    [
        ({"set_metadata": {"topic": "tea"}}, {"topic": "tea", "rank": 5}),
        ({"set_metadata": {"new": True}, "remove_metadata": ("rank", "unknown")}, {"topic": "code", "new": True}),
    ],
)
async def test_an_update_of_single_keys_leaves_the_others(
    opened: Opened, keys: dict[str, Any], expected: dict[str, Any]
) -> None:
    created = await opened.remember("text", type="fact", metadata={"topic": "code", "rank": 5})
    answer = await opened.store.update(UpdateMemory(memory=replace(CHANGE, memory_id=created.memory_id), **keys))
    assert answer.memory == replace(created, metadata=expected, revision=2)


async def test_new_content_is_found_and_the_old_is_not(opened: Opened) -> None:
    memory = await opened.remember("Ada likes tea")
    await opened.store.update(UpdateMemory(memory=replace(memory, content="zebras graze"), mask=("content",)))
    [match] = (await opened.store.search(MemoryQuery(text="zebras graze"))).results
    assert match.score == pytest.approx(1.0)
    assert not (await opened.store.search(MemoryQuery(text="likes tea"))).results


async def test_a_bad_update_is_refused_and_the_field_is_named(opened: Opened) -> None:
    cases = [
        (CHANGE, (), "update_mask", "must name what to change"),
        (CHANGE, ("colour",), "update_mask", "'colour' is not a field"),
        (CHANGE, ("*",), "update_mask", "not a field"),
        (CHANGE, ("scope.tenant",), "update_mask", "'scope.tenant'"),
        (CHANGE, ("confidence",), "update_mask", "set by the server"),
        (CHANGE, ("create_time",), "update_mask", "set by the server"),
        (CHANGE, ("metadata.topic",), "update_mask", "set_metadata"),
        (replace(CHANGE, content=" "), ("content",), "memory.content", "blank"),
        (replace(CHANGE, type="t" * 257), ("type",), "memory.type", "256"),
        (replace(CHANGE, metadata={"k": None}), ("metadata",), "memory.metadata.k", "null"),
        (replace(CHANGE, scope=Scope(agent="a" * 257)), ("scope",), "memory.scope.agent", "256"),
        (replace(CHANGE, scope=Scope(agent="a" * 257)), ("type", "scope.agent"), "memory.scope.agent", "256"),
    ]
    created = await opened.remember("text")
    for memory, mask, field, sentence in cases:
        with pytest.raises(InvalidArgumentError, match=sentence) as caught:
            await opened.store.update(UpdateMemory(memory=replace(memory, memory_id=created.memory_id), mask=mask))
        assert fields_of(caught.value) == [field]
        assert await opened.store.get(created.memory_id) == created


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
