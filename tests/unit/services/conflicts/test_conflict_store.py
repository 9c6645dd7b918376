"""The conflict service: each step called by itself, previews and requested merges."""

import random
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from mnemon_server.domain.changes import ChangeType
from mnemon_server.domain.collections import SEMANTIC
from mnemon_server.domain.conflicts import (
    ArbitrationAction,
    ArbitrationSide,
    ContentStrategy,
    Decision,
    SignalType,
)
from mnemon_server.domain.errors import (
    InvalidArgumentError,
    InvalidOperationError,
    RequestIdReusedError,
)
from mnemon_server.domain.records import Scope
from mnemon_server.domain.semantic import ConflictPolicy, MemoryRef, SavedSemantic, SemanticMemory

from tests.support.conflict_stores import OpenedConflicts, text_vector, unit
from tests.support.memory_stores import NOON, fields_of
from tests.support.semantic_stores import ADA

HERE = text_vector("where Ada lives")
NOTHING_DECIDES = {"priority_importance": False, "priority_recency": False, "priority_source": False}


def given(content: str, **fields: Any) -> MemoryRef:
    """A statement that is not stored."""
    return MemoryRef(memory=SemanticMemory("", content, **{"scope": ADA, **fields}))


async def stored(conflicts: OpenedConflicts, content: str, **fields: Any) -> MemoryRef:
    """A statement that is stored whatever it conflicts with."""
    saved = await conflicts.save(content, policy=ConflictPolicy.DETECT, **fields)
    assert saved.memory is not None
    return MemoryRef(memory_id=saved.memory.memory_id)


# Detecting


async def test_a_given_statement_without_a_vector_is_embedded(conflicts: OpenedConflicts) -> None:
    only_meaning = {"signals": ["semantic"]}
    [vector] = conflicts.embed("Ada lives in Berlin")
    known = await stored(conflicts, "something else entirely", vector=vector)
    detected = await conflicts.store.detect(given("Ada lives in Berlin"), detection=only_meaning)
    assert [conflict.memory_id for conflict in detected.conflicts] == [known.memory_id]
    away = given("Ada lives in Berlin", embedding=tuple((-vector).tolist()))
    assert (await conflicts.store.detect(away, detection=only_meaning)).total_count == 0


# Deciding


async def test_arbitrating_stored_and_given_statements_changes_nothing(conflicts: OpenedConflicts) -> None:
    known = await stored(conflicts, "Ada lives in Berlin", importance=0.9)
    before = conflicts.vault.changes.state()
    answer = await conflicts.store.arbitrate(given("Ada lives in Paris", importance=0.5), known)
    assert (answer.result.winner, answer.result.confidence) == (ArbitrationSide.EXISTING, pytest.approx(0.8))
    weighed = await conflicts.store.arbitrate(known, known, arbitration=NOTHING_DECIDES)
    assert weighed.result.action is ArbitrationAction.MERGE
    [meaning] = [factor for factor in weighed.result.factors if factor.name == "semantic"]
    assert meaning.candidate == pytest.approx(1.0)
    assert conflicts.vault.changes.state() == before


async def test_given_statements_are_embedded_for_the_weighing(conflicts: OpenedConflicts) -> None:
    one, other = given("Ada drinks tea"), given("Ada drinks coffee")
    weighed = await conflicts.store.arbitrate(one, other, arbitration=NOTHING_DECIDES)
    [meaning] = [factor for factor in weighed.result.factors if factor.name == "semantic"]
    ours, theirs = conflicts.embed("Ada drinks tea", "Ada drinks coffee")
    assert meaning.candidate == pytest.approx(float(ours @ theirs))
    assert meaning.candidate > 0.0


# Merging


async def test_two_stored_statements_are_merged_in_the_given_order(conflicts: OpenedConflicts) -> None:
    first = await stored(conflicts, "Ada drinks tea", vector=HERE)
    second = await stored(conflicts, "Ada has a cat", vector=HERE)
    head = conflicts.vault.changes.state().head
    merged = await conflicts.store.merge(second, first)
    assert merged.memory.content == "Ada has a cat\nAda drinks tea"
    assert merged.memory.merged_from == (second.memory_id, first.memory_id)
    assert merged.content_strategy is ContentStrategy.CONCATENATE
    assert [memory.memory_id for memory in conflicts.visible()] == [merged.memory.memory_id]
    decision = merged.decision
    assert decision is not None
    assert conflicts.decisions() == [decision]
    assert (decision.existing_id, decision.candidate_id) == (second.memory_id, first.memory_id)
    assert decision.result_id == merged.memory.memory_id
    assert decision.arbitration.action is ArbitrationAction.MERGE
    assert decision.merge == merged.statistics
    types = [change.type for change in conflicts.changes(head)]
    assert sorted(types) == sorted(
        [ChangeType.SEMANTIC_PRUNED] * 2 + [ChangeType.SEMANTIC_SAVED, ChangeType.CONFLICT_MERGED]
    )
    undone = await conflicts.store.unmerge(memory_id=merged.memory.memory_id)
    assert {memory.memory_id for memory in undone.restored} == {first.memory_id, second.memory_id}
    assert len(conflicts.visible()) == 2


async def test_the_vector_of_a_merge_lies_between_those_of_its_inputs(conflicts: OpenedConflicts) -> None:
    one, other = text_vector("one"), text_vector("other")
    first = await stored(conflicts, "Ada drinks tea", vector=one)
    second = await stored(conflicts, "Ada has a cat", vector=other)
    merged = await conflicts.store.merge(first, second)
    [document] = conflicts.vault.collection(SEMANTIC).get_documents([merged.memory.memory_id], vectors=True)
    assert document is not None
    assert np.allclose(document.embedding or (), unit((one + other).tolist()), atol=1e-6)


async def test_opposite_statements_can_be_merged(conflicts: OpenedConflicts) -> None:
    first = await stored(conflicts, "Ada drinks tea", vector=HERE)
    second = await stored(conflicts, "Ada has a cat", vector=-HERE)
    merged = await conflicts.store.merge(first, second)
    [document] = conflicts.vault.collection(SEMANTIC).get_documents([merged.memory.memory_id], vectors=True)
    assert document is not None
    assert float(np.linalg.norm(document.embedding or ())) == pytest.approx(1.0)


async def test_merging_given_statements_stores_nothing(conflicts: OpenedConflicts) -> None:
    merged = await conflicts.store.merge(given("Ada drinks tea"), given("Ada has a cat"))
    assert merged.memory.content == "Ada drinks tea\nAda has a cat"
    assert (merged.memory.memory_id, merged.decision) == ("", None)
    assert conflicts.documents() == []


async def test_a_merge_repeated_with_its_request_id_is_the_same_merge(conflicts: OpenedConflicts) -> None:
    first, second = await stored(conflicts, "Ada drinks tea"), await stored(conflicts, "Ada has a cat")
    merged = await conflicts.store.merge(first, second, request_id="r")
    before = conflicts.vault.changes.state()
    assert await conflicts.store.merge(first, second, request_id="r") == merged
    with pytest.raises(RequestIdReusedError):
        await conflicts.store.merge(first, second, merge={"importance_boost": 0.2}, request_id="r")
    assert conflicts.vault.changes.state() == before


async def test_two_statements_that_are_too_long_together_are_not_merged(conflicts: OpenedConflicts) -> None:
    first = await stored(conflicts, "tea " * 150_000)
    second = await stored(conflicts, "cat " * 150_000)
    with pytest.raises(InvalidOperationError, match="at most 1,048,576 bytes"):
        await conflicts.store.merge(first, second)
    assert len(conflicts.visible()) == 2


# Previewing


def without_ids(saved: SavedSemantic, stored_ids: set[str]) -> tuple[Any, ...]:
    """What a save and its preview must have in common: all but the ids, receipts and times of new records."""
    memory = saved.memory
    if memory is not None and memory.memory_id not in stored_ids:
        merged_from = tuple(one for one in memory.merged_from if one in stored_ids)
        memory = replace(memory, memory_id="", revision=0, update_time=NOON, merged_from=merged_from)
    return memory, saved.duplicate, saved.conflicts, _comparable(saved.decision, stored_ids)


def _comparable(decision: Decision | None, stored_ids: set[str]) -> Decision | None:
    if decision is None:
        return None
    result_id = decision.result_id if decision.result_id in stored_ids else ""
    return replace(decision, decision_id="", candidate_id="", result_id=result_id, create_time=None)


@pytest.mark.parametrize("seed", range(8))
async def test_a_preview_equals_the_later_save_and_changes_nothing(conflicts: OpenedConflicts, seed: int) -> None:
    rng = random.Random(seed)
    words = ["Ada", "lives", "works", "in", "Berlin", "Paris", "with", "tea", "cats"]
    strategies = ["keep-candidate", "keep-existing", "reject"]
    actions = set()
    for _ in range(25):
        deciding = rng.choice([{}, {**NOTHING_DECIDES, "allow_merge": rng.random() < 0.5}])
        await conflicts.settle(
            arbitration={
                "priority_importance": True,
                "priority_recency": True,
                "priority_source": True,
                "allow_merge": True,
                "default_strategy": rng.choice(strategies),
                **deciding,
            }
        )
        conflicts.clock.pass_hours(rng.choice([0.0, 0.01, 5.0]))
        content = " ".join(rng.choice(words) for _ in range(rng.randrange(1, 5)))
        vector = unit((HERE + rng.choice([0.1, 3.0]) * text_vector(content)).tolist())
        fields: dict[str, Any] = {
            "importance": rng.choice([None, 0.2, 0.8]),
            "source": rng.choice(["", "user", "skill"]),
            "keywords": rng.choice([(), ("Berlin",), ("tea", "cats")]),
            "metadata": {"topic": "life", "tags": ("a", "b")},
        }
        known = {document.doc_id: document for document in conflicts.documents()}
        before = conflicts.vault.changes.state()
        memory = SemanticMemory("", content, scope=ADA, embedding=tuple(vector.tolist()), **fields)
        preview = await conflicts.store.preview(memory)
        assert conflicts.vault.changes.state() == before
        assert {document.doc_id: document for document in conflicts.documents()} == known
        saved = await conflicts.save(content, vector=vector, **fields)
        assert without_ids(preview, set(known)) == without_ids(saved, set(known))
        assert preview.receipt is None
        actions.add(saved.decision.arbitration.action if saved.decision else saved.duplicate)
    assert len(actions) >= 3


async def test_a_preview_embeds_a_statement_without_a_vector(conflicts: OpenedConflicts) -> None:
    await stored(conflicts, "unrelated words", vector=conflicts.embed("Ada lives in Berlin")[0])
    conflicts.clock.pass_hours(1)
    preview = await conflicts.store.preview(SemanticMemory("", "Ada lives in Berlin", scope=ADA))
    assert preview.decision is not None
    assert [signal.type for signal in preview.decision.signals] == [SignalType.SEMANTIC, SignalType.RELATION]


# Bad input


async def test_errors_in_the_input_are_named_by_field(conflicts: OpenedConflicts) -> None:
    known = await stored(conflicts, "Ada lives in Berlin")
    store, grace = conflicts.store, given("Grace lives in Rome", scope=Scope(user="grace"))
    calls: list[tuple[Any, list[str]]] = [
        (store.detect(MemoryRef()), ["candidate.memory_id"]),
        (store.detect(MemoryRef(memory_id="a", memory=SemanticMemory("", "b"))), ["candidate"]),
        (store.detect(given(" ")), ["candidate.memory.content"]),
        (store.detect(given("x", scope=Scope())), ["candidate.memory.scope.user"]),
        (store.detect(given("x", embedding=(1.0,))), ["candidate.memory.embedding"]),
        (store.detect(known, limit=0), ["limit"]),
        (store.detect(known, limit=1001), ["limit"]),
        (store.detect(known, detection={"semantic_threshold": 2}), ["detection.semantic_threshold"]),
        (store.detect(known, detection={"threshold": 2}), ["detection.threshold"]),
        (
            store.detect(known, detection={"signals": ["time"], "time_window_s": 1, "relation_threshold": 0.5}),
            ["detection.relation_threshold"],
        ),
        (store.arbitrate(known, grace), ["existing"]),
        (store.arbitrate(known, known, arbitration={"merge_threshold": -1}), ["arbitration.merge_threshold"]),
        (store.merge(given("x"), grace), ["second"]),
        (store.merge(known, given("x")), ["second"]),
        (store.merge(known, known), ["second.memory_id"]),
        (store.merge(given("x"), given("y"), merge={"importance_boost": 2}), ["merge.importance_boost"]),
        (store.preview(SemanticMemory("", "", scope=ADA)), ["memory.content"]),
        (store.preview(SemanticMemory("", "x", scope=ADA, embedding=(0.0,) * 64)), ["memory.embedding"]),
        (store.list_decisions(memory_id="a\nb", limit=1), ["memory_id"]),
    ]
    for call, fields in calls:
        with pytest.raises(InvalidArgumentError) as caught:
            await call
        assert fields_of(caught.value) == fields
    assert len(conflicts.documents()) == 1
