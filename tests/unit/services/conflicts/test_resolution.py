"""Saves that report or settle conflicts: what is visible, what is superseded, and what the log says."""

import json

import numpy as np
import pytest
from mnemon_server.domain.changes import Change
from mnemon_server.domain.collections import SEMANTIC
from mnemon_server.domain.conflicts import (
    ArbitrationAction,
    ArbitrationSide,
    ArbitrationStrategy,
    RelationType,
    SignalType,
)
from mnemon_server.domain.records import WriteOutcome
from mnemon_server.domain.semantic import ConflictPolicy, Detected, MemoryRef
from mnemon_server.services.semantic.decisions import decision_from_json

from tests.support.conflict_stores import OpenedConflicts, text_vector, unit

NOTHING_DECIDES = {"priority_importance": False, "priority_recency": False, "priority_source": False}
HERE = text_vector("where Ada lives")


def told(change: Change) -> tuple[str, str]:
    """The type of a change, and the reason if something was pruned."""
    reason = json.loads(change.details).get("prune_reason", "") if change.details else ""
    return (change.type.value, reason)


async def test_a_newer_statement_supersedes_the_older_one(conflicts: OpenedConflicts) -> None:
    old = (await conflicts.save("Ada lives in Paris", vector=HERE)).memory
    conflicts.clock.pass_hours(12)
    head = conflicts.vault.changes.state().head
    saved = await conflicts.save("Ada lives in Berlin", vector=HERE)
    assert old is not None
    assert saved.memory is not None
    assert [memory.content for memory in conflicts.visible()] == ["Ada lives in Berlin"]
    [gone, kept] = conflicts.documents()
    assert (gone.hidden, gone.fields["superseded_by"]) == (True, saved.memory.memory_id)
    assert (kept.doc_id, kept.revision) == (saved.memory.memory_id, saved.memory.revision)
    decision = saved.decision
    assert decision is not None
    assert (decision.candidate_id, decision.existing_id, decision.result_id) == (kept.doc_id, gone.doc_id, kept.doc_id)
    assert decision.arbitration.strategy is ArbitrationStrategy.RECENCY
    assert decision.arbitration.confidence == 0.5
    assert [signal.type for signal in decision.signals] == [
        SignalType.SEMANTIC,
        SignalType.KEYWORD,
        SignalType.RELATION,
    ]
    assert decision.signals[1].keywords == ("ada", "lives")
    changes = conflicts.changes(head)
    assert [told(change) for change in changes] == [
        ("memory:conflict:detected", ""),
        ("memory:semantic:pruned", "superseded"),
        ("memory:semantic:saved", ""),
        ("memory:conflict:resolved", ""),
    ]
    assert [change.record_id for change in changes] == [
        decision.decision_id,
        gone.doc_id,
        kept.doc_id,
        decision.decision_id,
    ]
    assert len({change.commit for change in changes}) == 1
    assert conflicts.decisions() == [decision_from_json(changes[0].details)] == [decision_from_json(changes[3].details)]


async def test_a_losing_statement_is_kept_as_superseded(conflicts: OpenedConflicts) -> None:
    known = (await conflicts.save("Ada lives in Paris", vector=HERE, importance=0.9)).memory
    assert known is not None
    head = conflicts.vault.changes.state().head
    saved = await conflicts.save("Ada lives in Berlin", vector=HERE, importance=0.3)
    assert saved.memory == known
    assert saved.receipt is not None
    assert (saved.receipt.id, saved.receipt.outcome) == (known.memory_id, WriteOutcome.UNCHANGED)
    assert [memory.memory_id for memory in conflicts.visible()] == [known.memory_id]
    hidden = conflicts.documents()[1]
    assert (hidden.content, hidden.fields["superseded_by"]) == ("Ada lives in Berlin", known.memory_id)
    assert saved.decision is not None
    assert (saved.decision.candidate_id, saved.decision.result_id) == (hidden.doc_id, known.memory_id)
    assert saved.decision.arbitration.loser is ArbitrationSide.CANDIDATE
    assert [told(change) for change in conflicts.changes(head)] == [
        ("memory:conflict:detected", ""),
        ("memory:semantic:pruned", "superseded"),
        ("memory:conflict:resolved", ""),
    ]


async def test_a_statement_that_loses_again_is_not_stored_again(conflicts: OpenedConflicts) -> None:
    await conflicts.save("Ada lives in Paris", vector=HERE, importance=0.9)
    first = await conflicts.save("Ada lives in Berlin", vector=HERE, importance=0.3)
    second = await conflicts.save("Ada  lives in Berlin ", vector=HERE, importance=0.3)
    assert len(conflicts.documents()) == 2
    assert first.decision is not None
    assert second.decision is not None
    assert second.decision.candidate_id == first.decision.candidate_id
    assert len(conflicts.decisions()) == 2


async def test_a_rejected_statement_is_not_stored_but_the_decision_is(conflicts: OpenedConflicts) -> None:
    await conflicts.settle(arbitration={**NOTHING_DECIDES, "allow_merge": False, "default_strategy": "reject"})
    await conflicts.save("Ada lives in Paris", vector=HERE)
    saved = await conflicts.save("Ada lives in Berlin", vector=HERE)
    assert (saved.memory, saved.receipt, saved.duplicate) == (None, None, False)
    assert [document.content for document in conflicts.documents()] == ["Ada lives in Paris"]
    [decision] = conflicts.decisions()
    assert (decision.candidate_id, decision.result_id) == ("", "")
    assert decision.existing_id == conflicts.documents()[0].doc_id
    assert decision.arbitration.action is ArbitrationAction.REJECT
    assert decision.arbitration.winner is None


async def test_two_statements_are_merged_into_a_new_one_that_supersedes_them(conflicts: OpenedConflicts) -> None:
    await conflicts.settle(arbitration=NOTHING_DECIDES)
    first, second = unit([1.0, 0.0] + [0.0] * 62), unit([0.9, 0.1] + [0.0] * 62)
    known = (await conflicts.save("Ada drinks tea", vector=first, importance=0.5, keywords=("tea",))).memory
    head = conflicts.vault.changes.state().head
    saved = await conflicts.save("Ada has a cat", vector=second, importance=0.7, keywords=("cat",))
    assert known is not None
    assert saved.memory is not None
    assert saved.memory.content == "Ada drinks tea\nAda has a cat"
    assert saved.memory.importance == pytest.approx(0.8)
    assert saved.memory.keywords == ("tea", "cat")
    [one, other, merged] = sorted(conflicts.documents(), key=lambda document: len(document.content))[::1]
    assert {one.content, other.content} == {"Ada drinks tea", "Ada has a cat"}
    assert {one.fields["superseded_by"], other.fields["superseded_by"]} == {merged.doc_id}
    assert one.hidden
    assert other.hidden
    assert not merged.hidden
    decision = saved.decision
    assert decision is not None
    assert (decision.existing_id, decision.result_id) == (known.memory_id, merged.doc_id)
    assert saved.memory.merged_from == (known.memory_id, decision.candidate_id)
    assert decision.merge is not None
    assert decision.merge.content_length == len(saved.memory.content)
    [stored] = conflicts.vault.collection(SEMANTIC).get_documents([merged.doc_id], vectors=True)
    assert stored is not None
    assert np.allclose(stored.embedding or (), unit((first + second).tolist()), atol=1e-6)
    assert sorted(told(change) for change in conflicts.changes(head)) == [
        ("memory:conflict:detected", ""),
        ("memory:conflict:merged", ""),
        ("memory:conflict:resolved", ""),
        ("memory:semantic:pruned", "merged"),
        ("memory:semantic:pruned", "merged"),
        ("memory:semantic:saved", ""),
    ]


async def test_a_merge_does_not_name_its_inputs_if_the_rule_keeps_no_history(conflicts: OpenedConflicts) -> None:
    await conflicts.settle(arbitration=NOTHING_DECIDES, merge={"keep_history": False})
    await conflicts.save("Ada drinks tea", vector=HERE)
    saved = await conflicts.save("Ada has a cat", vector=HERE)
    assert saved.memory is not None
    assert saved.memory.merged_from == ()
    assert len(conflicts.documents()) == 3


@pytest.mark.parametrize("policy", [ConflictPolicy.DETECT, ConflictPolicy.RESOLVE])
async def test_a_known_statement_is_returned_and_nothing_is_written(
    conflicts: OpenedConflicts, policy: ConflictPolicy
) -> None:
    known = (await conflicts.save("Ada lives in Paris")).memory
    before = conflicts.vault.changes.state()
    saved = await conflicts.save("  Ada lives  in Paris", policy=policy)
    assert saved.duplicate
    assert saved.memory == known
    assert conflicts.vault.changes.state() == before


async def test_a_superseded_statement_can_become_current_again(conflicts: OpenedConflicts) -> None:
    for hours, place in enumerate(["Berlin", "Paris", "Berlin"]):
        conflicts.clock.pass_hours(hours)
        saved = await conflicts.save(f"Ada lives in {place}", vector=HERE)
        assert not saved.duplicate
    assert [memory.content for memory in conflicts.visible()] == ["Ada lives in Berlin"]
    assert len(conflicts.documents()) == 3


async def test_detecting_saves_and_names_the_conflicts_without_deciding(conflicts: OpenedConflicts) -> None:
    known = (await conflicts.save("Ada lives in Paris", vector=HERE)).memory
    head = conflicts.vault.changes.state().head
    saved = await conflicts.save("Ada lives in Berlin", vector=HERE, policy=ConflictPolicy.DETECT)
    assert known is not None
    assert saved.memory is not None
    assert [conflict.memory_id for conflict in saved.conflicts] == [known.memory_id]
    # The same vector, three of four words, the same moment.
    relation = saved.conflicts[0].relation
    assert relation is not None
    assert saved.conflicts[0].severity == pytest.approx(1.0 + 2 / 3 + 1.0 + relation.related)
    assert saved.decision is None
    assert conflicts.decisions() == []
    assert len(conflicts.visible()) == 2
    changes = conflicts.changes(head)
    assert [told(change) for change in changes] == [("memory:semantic:saved", ""), ("memory:conflict:detected", "")]
    named = decision_from_json(changes[1].details)
    assert changes[1].record_id == named.candidate_id == saved.memory.memory_id
    assert (named.decision_id, named.existing_id) == ("", known.memory_id)
    assert named.arbitration.action is ArbitrationAction.NONE


async def test_the_most_severe_conflict_is_settled_and_all_are_counted(conflicts: OpenedConflicts) -> None:
    await conflicts.save("Ada lives in Bergen", vector=HERE, policy=ConflictPolicy.DETECT)
    conflicts.clock.pass_hours(0.02)
    severe = await conflicts.save("Ada lives in Paris", vector=HERE, policy=ConflictPolicy.DETECT)
    await conflicts.save("The weather is fine", policy=ConflictPolicy.DETECT)
    conflicts.clock.pass_hours(0.05)
    saved = await conflicts.save("Ada lives in Berlin", vector=HERE)
    assert severe.memory is not None
    assert saved.decision is not None
    assert saved.decision.existing_id == severe.memory.memory_id
    # The weather was saved at the same time, which is its only signal.
    assert saved.decision.conflict_count == 2
    assert sorted(memory.content for memory in conflicts.visible()) == [
        "Ada lives in Bergen",
        "Ada lives in Berlin",
        "The weather is fine",
    ]


async def test_time_or_importance_alone_is_no_conflict(conflicts: OpenedConflicts) -> None:
    await conflicts.save("I work at a bank.", importance=0.9)
    saved = await conflicts.save("My cat is grey.", importance=0.1)
    assert saved.memory is not None and saved.decision is None
    assert sorted(memory.content for memory in conflicts.visible()) == ["I work at a bank.", "My cat is grey."]
    detected = await conflicts.save("Grace paints boats", importance=0.5, policy=ConflictPolicy.DETECT)
    assert detected.conflicts == ()
    assert await conflicts.store.detect(MemoryRef(memory_id=saved.memory.memory_id)) == Detected((), 0, "default")
    # Who asks for time alone gets what was learnt at the same time.
    timely = await conflicts.store.detect(MemoryRef(memory_id=saved.memory.memory_id), detection={"signals": ["time"]})
    assert [[signal.type for signal in each.signals] for each in timely.conflicts] == [[SignalType.TIME]] * 2


async def test_time_and_importance_add_to_a_conflict_by_meaning(conflicts: OpenedConflicts) -> None:
    await conflicts.save("I work at a bank.", vector=HERE, importance=0.9)
    saved = await conflicts.save("I work at a school.", vector=HERE, importance=0.1, policy=ConflictPolicy.DETECT)
    [conflict] = saved.conflicts
    assert {SignalType.SEMANTIC, SignalType.TIME, SignalType.IMPORTANCE} <= {each.type for each in conflict.signals}
    assert conflict.severity == pytest.approx(sum(signal.score for signal in conflict.signals))


async def test_a_rule_may_let_time_alone_decide(conflicts: OpenedConflicts) -> None:
    await conflicts.rules.register({"name": "any", "detection": {"required_signals": ["time"]}})
    await conflicts.rules.register({"name": "time", "detection": {"signals": ["time"]}})
    for name in ("any", "time"):
        conflicts.clock.pass_hours(1)
        known = await conflicts.save(f"The weather is fine for {name}", rule="default")
        saved = await conflicts.save(f"Byron likes {name}", rule=name)
        assert known.memory is not None
        assert saved.decision is not None
        assert saved.decision.existing_id == known.memory.memory_id


async def test_a_rule_may_let_the_relation_decide(conflicts: OpenedConflicts) -> None:
    related = {"signals": ["relation"], "required_signals": ["relation"]}
    await conflicts.rules.register({"name": "related", "detection": related})
    known = (await conflicts.save("Byron may sleep on the sofa", vector=HERE, rule="related")).memory
    conflicts.clock.pass_hours(1)
    saved = await conflicts.save("Byron is not allowed on the sofa", vector=HERE, rule="related")
    assert known is not None
    assert saved.decision is not None
    assert saved.decision.existing_id == known.memory_id
    assert [signal.type for signal in saved.decision.signals] == [SignalType.RELATION]
    assert saved.decision.relation is not None
    assert saved.decision.relation.type is RelationType.CONTRADICTS
    assert conflicts.decisions() == [saved.decision]
    # The same words about somebody else are another statement, although the keyword signal takes them for a conflict.
    near = HERE + text_vector("somebody else")
    near /= np.linalg.norm(near)
    other = await conflicts.save("Her nephew is not allowed on the sofa", vector=near, rule="related")
    assert other.decision is None


async def test_the_matching_rule_settles_it_unless_one_is_named(conflicts: OpenedConflicts) -> None:
    keep_existing = {**NOTHING_DECIDES, "allow_merge": False, "default_strategy": "keep-existing"}
    await conflicts.rules.register({"name": "ada's", "conditions": {"users": ["ada"]}, "arbitration": keep_existing})
    await conflicts.save("Ada lives in Paris", vector=HERE)
    saved = await conflicts.save("Ada lives in Berlin", vector=HERE)
    assert saved.decision is not None
    assert saved.decision.rule == "ada's"
    assert [memory.content for memory in conflicts.visible()] == ["Ada lives in Paris"]
    conflicts.clock.pass_hours(1)
    named = await conflicts.save("Ada lives in Rome", vector=HERE, rule="default")
    assert named.decision is not None
    assert named.decision.rule == "default"
    assert [memory.content for memory in conflicts.visible()] == ["Ada lives in Rome"]


async def test_a_merge_that_would_exceed_the_limits_of_a_statement_is_not_made(conflicts: OpenedConflicts) -> None:
    await conflicts.settle(arbitration=NOTHING_DECIDES)
    await conflicts.save("tea " * 150_000, vector=HERE)
    saved = await conflicts.save("cat " * 150_000, vector=HERE)
    assert saved.decision is not None
    assert saved.decision.arbitration.action is ArbitrationAction.KEEP
    assert saved.decision.arbitration.strategy is ArbitrationStrategy.DEFAULT
    assert [memory.content[:3] for memory in conflicts.visible()] == ["cat"]
