"""Decisions can be undone: superseded statements are found again, and an undo that would lose something is refused."""

import json
import random
from collections import Counter

import pytest
from mnemon_server.domain.changes import ChangeType
from mnemon_server.domain.collections import SEMANTIC
from mnemon_server.domain.conflicts import ArbitrationAction
from mnemon_server.domain.errors import (
    DecisionNotFoundError,
    InvalidArgumentError,
    InvalidOperationError,
    MemoryNotFoundError,
)
from mnemon_server.domain.semantic import ConflictPolicy, SavedSemantic
from mnemon_server.services.semantic.decisions import decision_from_json

from tests.support.conflict_stores import OpenedConflicts, text_vector, unit

HERE = text_vector("where Ada lives")
MERGING = {"priority_importance": False, "priority_recency": False, "priority_source": False}
REJECTING = {**MERGING, "allow_merge": False, "default_strategy": "reject"}


def decision_id(saved: SavedSemantic) -> str:
    """The id of the decision that a save led to."""
    assert saved.decision is not None
    return saved.decision.decision_id


async def test_an_undone_merge_leaves_nothing_behind(conflicts: OpenedConflicts) -> None:
    await conflicts.settle(arbitration=MERGING)
    first = await conflicts.save("Ada drinks tea", vector=HERE)
    merged = await conflicts.save("Ada has a cat", vector=HERE)
    assert merged.memory is not None
    head = conflicts.vault.changes.state().head
    conflicts.clock.pass_hours(1)
    undone = await conflicts.store.unmerge(memory_id=merged.memory.memory_id)
    assert undone.removed_id == merged.memory.memory_id
    assert [memory.content for memory in undone.restored] == ["Ada drinks tea", "Ada has a cat"]
    assert {memory.superseded_by for memory in undone.restored} == {""}
    assert first.memory is not None
    assert undone.restored[0].memory_id == first.memory.memory_id
    assert undone.decision.revert_time == conflicts.clock.time
    assert sorted(memory.content for memory in conflicts.visible()) == ["Ada drinks tea", "Ada has a cat"]
    assert conflicts.vault.collection(SEMANTIC).get_documents([merged.memory.memory_id]) == [None]
    assert conflicts.decisions() == [undone.decision]
    changes = conflicts.changes(head)
    assert Counter(change.type for change in changes) == {
        ChangeType.SEMANTIC_SAVED: 2,
        ChangeType.SEMANTIC_PRUNED: 1,
        ChangeType.CONFLICT_REVERTED: 1,
    }
    by_type = {change.type: change for change in changes}
    assert json.loads(by_type[ChangeType.SEMANTIC_PRUNED].details) == {"prune_reason": "unmerged"}
    assert by_type[ChangeType.SEMANTIC_PRUNED].record_id == merged.memory.memory_id
    assert decision_from_json(by_type[ChangeType.CONFLICT_REVERTED].details) == undone.decision
    assert len({change.commit for change in changes}) == 1


@pytest.mark.parametrize("importance", [0.1, 0.9])
async def test_the_loser_of_an_undone_decision_is_found_beside_the_winner(
    conflicts: OpenedConflicts, importance: float
) -> None:
    await conflicts.save("Ada lives in Paris", vector=HERE, importance=0.5)
    saved = await conflicts.save("Ada lives in Berlin", vector=HERE, importance=importance)
    assert len(conflicts.visible()) == 1
    undone = await conflicts.store.unmerge(decision_id=decision_id(saved))
    assert undone.removed_id == ""
    assert [memory.content for memory in undone.restored] == [
        "Ada lives in Paris" if importance > 0.5 else "Ada lives in Berlin"
    ]
    assert sorted(memory.content for memory in conflicts.visible()) == ["Ada lives in Berlin", "Ada lives in Paris"]


async def test_a_restored_statement_is_found_by_its_vector_and_conflicts_again(conflicts: OpenedConflicts) -> None:
    await conflicts.save("Ada lives in Paris", vector=HERE, importance=0.9)
    saved = await conflicts.save("Ada lives in Berlin", vector=HERE, importance=0.3)
    await conflicts.store.unmerge(decision_id=decision_id(saved))
    again = await conflicts.save("Ada lives in Rome", vector=HERE, policy=ConflictPolicy.DETECT)
    assert len(again.conflicts) == 2
    records = conflicts.vault.collection(SEMANTIC)
    assert sorted(records.scan_vectors(HERE).scores.tolist()) == pytest.approx([1.0, 1.0, 1.0])


async def test_a_rejection_cannot_be_undone(conflicts: OpenedConflicts) -> None:
    await conflicts.settle(arbitration=REJECTING)
    await conflicts.save("Ada drinks tea", vector=HERE)
    rejected = await conflicts.save("Ada no longer drinks tea", vector=HERE)
    with pytest.raises(InvalidOperationError, match="rejected"):
        await conflicts.store.unmerge(decision_id=decision_id(rejected))


async def test_a_decision_whose_result_was_superseded_cannot_be_undone(conflicts: OpenedConflicts) -> None:
    first = await conflicts.save("Ada lives in Paris", vector=HERE)
    conflicts.clock.pass_hours(1)
    second = await conflicts.save("Ada lives in Berlin", vector=HERE)
    conflicts.clock.pass_hours(1)
    third = await conflicts.save("Ada lives in Rome", vector=HERE)
    assert third.memory is not None
    with pytest.raises(InvalidOperationError, match=third.memory.memory_id):
        await conflicts.store.unmerge(decision_id=decision_id(second))
    await conflicts.store.unmerge(decision_id=decision_id(third))
    await conflicts.store.unmerge(decision_id=decision_id(second))
    assert first.memory is not None
    assert len(conflicts.visible()) == 3


async def test_a_merge_that_has_since_superseded_another_statement_cannot_be_undone(conflicts: OpenedConflicts) -> None:
    await conflicts.settle(arbitration=MERGING)
    await conflicts.save("Ada drinks tea", vector=HERE)
    merged = await conflicts.save("Ada has a cat", vector=HERE)
    await conflicts.settle(arbitration={**REJECTING, "default_strategy": "keep-existing"})
    loser = await conflicts.save("Ada no longer drinks tea", vector=HERE)
    with pytest.raises(InvalidOperationError, match="has been superseded"):
        await conflicts.store.unmerge(decision_id=decision_id(merged))
    await conflicts.store.unmerge(decision_id=decision_id(loser))
    await conflicts.store.unmerge(decision_id=decision_id(merged))
    assert sorted(memory.content for memory in conflicts.visible()) == [
        "Ada drinks tea",
        "Ada has a cat",
        "Ada no longer drinks tea",
    ]


async def test_decisions_about_a_merged_statement_are_deleted_with_it(conflicts: OpenedConflicts) -> None:
    await conflicts.settle(arbitration=MERGING)
    await conflicts.save("Ada drinks tea", vector=HERE)
    merged = await conflicts.save("Ada has a cat", vector=HERE)
    await conflicts.settle(arbitration=REJECTING)
    await conflicts.save("Ada no longer drinks tea", vector=HERE)
    assert len(conflicts.decisions()) == 2
    await conflicts.store.unmerge(decision_id=decision_id(merged))
    assert [decision.decision_id for decision in conflicts.decisions()] == [decision_id(merged)]


async def test_a_decision_whose_loser_was_already_restored_cannot_be_undone(conflicts: OpenedConflicts) -> None:
    await conflicts.save("Ada lives in Paris", vector=HERE, importance=0.9)
    first = await conflicts.save("Ada lives in Berlin", vector=HERE, importance=0.3)
    second = await conflicts.save("Ada lives in Berlin", vector=HERE, importance=0.3)
    await conflicts.store.unmerge(decision_id=decision_id(second))
    with pytest.raises(InvalidOperationError, match="is no longer superseded"):
        await conflicts.store.unmerge(decision_id=decision_id(first))


async def test_missing_records_are_named(conflicts: OpenedConflicts) -> None:
    saved = await conflicts.save("Ada lives in Paris")
    assert saved.memory is not None
    with pytest.raises(MemoryNotFoundError, match="nobody"):
        await conflicts.store.unmerge(memory_id="nobody")
    with pytest.raises(DecisionNotFoundError, match="nothing"):
        await conflicts.store.unmerge(decision_id="nothing")
    with pytest.raises(InvalidOperationError, match="is not the result of a merge"):
        await conflicts.store.unmerge(memory_id=saved.memory.memory_id)
    for ids in ({}, {"memory_id": "a", "decision_id": "b"}):
        with pytest.raises(InvalidArgumentError, match="either"):
            await conflicts.store.unmerge(**ids)


async def test_a_repeated_call_gets_the_first_answer_and_does_nothing(conflicts: OpenedConflicts) -> None:
    await conflicts.settle(arbitration=MERGING)
    await conflicts.save("Ada drinks tea", vector=HERE)
    merged = await conflicts.save("Ada has a cat", vector=HERE)
    first = await conflicts.store.unmerge(decision_id=decision_id(merged), request_id="r")
    before = conflicts.vault.changes.state()
    assert await conflicts.store.unmerge(decision_id=decision_id(merged), request_id="r") == first
    assert conflicts.vault.changes.state() == before


@pytest.mark.parametrize("seed", range(6))
async def test_undoing_everything_leaves_what_ignoring_all_conflicts_would(
    conflicts: OpenedConflicts, seed: int
) -> None:
    rng = random.Random(seed)
    directions = [text_vector(f"direction {number}") for number in range(3)]
    said: list[str] = []
    decided: list[SavedSemantic] = []
    for number in range(25):
        await conflicts.settle(
            arbitration=rng.choice(
                [
                    MERGING,
                    REJECTING,
                    {**REJECTING, "default_strategy": "keep-existing"},
                    {"priority_importance": True, "priority_recency": True},
                ]
            )
        )
        conflicts.clock.pass_hours(rng.choice([0.0, 0.02, 3.0]))
        text = f"the gauge says {rng.randrange(1000)} in turn {number} of {seed}"
        saved = await conflicts.save(
            text,
            vector=unit((rng.choice(directions) + 0.2 * text_vector(text)).tolist()),
            importance=rng.choice([None, 0.1, 0.9]),
        )
        if saved.decision:
            decided.append(saved)
        if not saved.decision or saved.decision.arbitration.action is not ArbitrationAction.REJECT:
            said.append(text)
    taken_back = 0
    for saved in reversed(decided):
        assert saved.decision is not None
        if saved.decision.arbitration.action is not ArbitrationAction.REJECT:
            await conflicts.store.unmerge(decision_id=decision_id(saved))
            taken_back += 1
    assert taken_back >= 5
    assert sorted(memory.content for memory in conflicts.visible()) == sorted(said)
    assert not [document for document in conflicts.documents() if document.hidden]
