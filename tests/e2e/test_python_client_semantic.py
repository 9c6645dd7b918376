"""Every method for statements, conflicts and merge rules of the Python client against a real server."""

import re
import uuid
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import mnemon
import pytest
from mnemon import Client, F, Scope, SemanticMemory

from tests.support.full_rule import FULL
from tests.support.repository import ROOT

NOBODY = "00000000-0000-4000-8000-000000000000"
BERLIN, MUNICH = "Ada lives in Berlin now.", "Ada lives in Munich now."


@pytest.fixture
def client(address: str) -> Iterator[Client]:
    """A client of a server without statements and rules."""
    with Client(address) as found:
        found.semantic.delete_many(where=F("memory_id").exists())
        found.rules.reset()
        yield found


def move(client: Client) -> mnemon.SaveAnswer:
    """Ada moves from Berlin to Munich. The later statement is more important, so it supersedes the first."""
    client.semantic.add(BERLIN, user="ada", importance=0.2)
    answer = client.semantic.add(MUNICH, user="ada", importance=0.9, conflict_policy="resolve")
    assert answer.decision is not None
    return answer


def known(client: Client, **which: Any) -> list[str]:
    """The contents of what is known, page by page."""
    return [memory.content for memory in client.semantic.list(page_size=1, **which)]


def test_a_statement_comes_back_as_it_was_given(client: Client) -> None:
    learnt = datetime(2024, 5, 1, 12, 30, 0, 123456, tzinfo=UTC)
    metadata: dict[str, Any] = {"title": "Grüße 🚀", "n": 2**53 + 1, "x": 5.0, "tags": ["a"], "when": learnt}

    answer = client.semantic.add(
        "日本語のテキスト",
        user="ada",
        household="h",
        persona="p",
        agent="claude",
        project="x",
        summary="short",
        importance=0.5,
        keywords=["Tea", "tea time"],
        source="user",
        metadata=metadata,
        create_time=learnt,
    )

    memory = client.semantic.get(answer.memory_id)
    assert memory == answer.memory
    assert memory.scope == Scope("ada", "h", "p", "claude", "x")
    assert (memory.summary, memory.importance, memory.keywords) == ("short", 0.5, ("Tea", "tea time"))
    assert (memory.source, memory.metadata, memory.create_time, memory.revision) == ("user", metadata, learnt, 1)
    assert (memory.embedding, memory.merged_from, memory.superseded_by) == ((), (), "")
    embedded = client.semantic.get(answer.memory_id, view="full").embedding
    assert sum(number * number for number in embedded) == pytest.approx(1)
    assert answer.receipt is not None and answer.receipt.outcome == "created"


def test_the_same_content_is_saved_once_and_a_repeated_call_gets_the_same_answer(client: Client) -> None:
    call = str(uuid.uuid4())
    first = client.semantic.add(BERLIN, user="ada", request_id=call)
    again = client.semantic.add(BERLIN, user="ada", request_id=call)
    twice = client.semantic.add(f"  {BERLIN} ", user="ada")

    assert again.memory_id == first.memory_id == twice.memory_id
    assert (first.duplicate, again.duplicate, twice.duplicate) == (False, False, True)
    assert again.receipt is not None and again.receipt.replayed
    with pytest.raises(mnemon.RequestIdReusedError):
        client.semantic.add(MUNICH, user="ada", request_id=call)


def test_many_statements_are_saved_and_a_bad_one_fails_alone(client: Client) -> None:
    items: list[Any] = [f"note {number}" for number in range(100)]
    items += ["note 0", " ", SemanticMemory("of bob", user="bob")]

    results = list(client.semantic.add_many(iter(items), scope=Scope(user="ada")))

    assert [result.position for result in results] == list(range(103))
    assert [result.position for result in results if result.error] == [101]
    assert isinstance(results[101].error, mnemon.InvalidArgumentError)
    assert (results[100].duplicate, results[100].memory_id) == (True, results[0].memory_id)
    assert len(known(client, user="ada")) == 100
    assert known(client, user="bob") == ["of bob"]


def test_a_search_filters_first_and_counts_what_it_left_out(client: Client) -> None:
    for number in range(5):
        client.semantic.add(f"Ada drinks green tea, cup {number}.", user="ada", importance=number / 10)
    client.semantic.add("Bob drinks green tea.", user="bob")

    answer = client.semantic.search(
        "Ada drinks green tea", user="ada", where=F("importance") >= 0.3, limit=1, min_similarity=0.0
    )

    assert len(answer) == 1
    assert (answer[0].memory.importance or 0) >= 0.3
    said = answer.diagnostics
    assert (said.total_candidates, said.filtered_by_context, said.matched_count, said.returned) == (6, 4, 2, 1)
    assert said.exact
    assert not client.semantic.search("Ada drinks green tea", created_to=datetime.now(UTC) - timedelta(hours=1))
    vector = client.semantic.get(answer[0].memory_id, view="full").embedding
    nearest = client.semantic.search(vector=vector, view="full")[0]
    assert (nearest.memory_id, nearest.similarity) == (answer[0].memory_id, pytest.approx(1, abs=1e-6))
    assert nearest.memory.embedding == vector


def test_deleted_statements_are_gone_and_a_dry_run_only_counts(client: Client) -> None:
    ids = [client.semantic.add(f"note {number}", user="ada").memory_id for number in range(3)]

    counted = client.semantic.delete_many(user="ada", dry_run=True)
    assert (counted.deleted_count, counted.receipts, counted.commit_time) == (3, (), None)
    with pytest.raises(mnemon.MemoryNotFoundError, match=NOBODY):
        client.semantic.delete_many([ids[0], NOBODY])
    with pytest.raises(mnemon.RevisionMismatchError):
        client.semantic.delete(ids[0], expected_revision=9)
    deleted = client.semantic.delete_many([ids[0], NOBODY], allow_missing=True)
    assert [(receipt.id, receipt.outcome) for receipt in deleted.receipts] == [(ids[0], "deleted"), (NOBODY, "missing")]
    assert deleted.deleted_count == 1 and deleted.commit_time is not None
    assert known(client) == ["note 1", "note 2"]
    assert client.semantic.delete_many(where=F("memory_id") == ids[1]).deleted_count == 1
    with pytest.raises(mnemon.MemoryNotFoundError):
        client.semantic.get(ids[0])
    with pytest.raises(mnemon.InvalidArgumentError):
        client.semantic.delete_many()
    with pytest.raises(mnemon.InvalidArgumentError):
        client.semantic.delete_many([ids[2]], user="ada")
    with pytest.raises(mnemon.InvalidArgumentError, match="memory_ids"):
        client.semantic.delete_many([], user="ada")
    assert known(client) == ["note 2"]

    [receipt] = client.semantic.delete(ids[2], expected_revision=1).receipts
    assert (receipt.id, receipt.outcome) == (ids[2], "deleted")
    with pytest.raises(mnemon.MemoryNotFoundError):
        client.semantic.delete(ids[2])
    assert client.semantic.delete(ids[2], allow_missing=True).deleted_count == 0


def test_the_index_reports_its_status(client: Client) -> None:
    move(client)

    status = client.semantic.status()
    assert (status.state, status.record_count, status.superseded_count) == (mnemon.IndexState.READY, 1, 1)
    assert status.capacity > 0 and status.write_latency_target_s > 0
    receipt = client.semantic.create_snapshot()
    assert receipt.snapshot_time is None and receipt.message


def test_a_save_that_detects_names_the_conflicts(client: Client) -> None:
    berlin = client.semantic.add(BERLIN, user="ada")
    munich = client.semantic.add(MUNICH, user="ada", conflict_policy="detect")

    [conflict] = munich.conflicts
    assert conflict.memory_id == berlin.memory_id
    assert conflict.severity == pytest.approx(sum(signal.score for signal in conflict.signals))
    keyword = next(signal for signal in conflict.signals if signal.type == "keyword")
    assert {"ada", "lives"} <= set(keyword.keywords)
    assert known(client) == [BERLIN, MUNICH]
    detected = client.conflicts.detect(munich.memory_id, detection={"signals": ["time"], "time_window_s": 600})
    assert [(each.memory_id, [signal.type for signal in each.signals]) for each in detected.conflicts] == [
        (berlin.memory_id, ["time"])
    ]
    assert detected.conflicts[0].signals[0].time_delta_s is not None
    assert (detected.total_count, detected.rule) == (1, "default")
    given = client.conflicts.detect(SemanticMemory(MUNICH, user="bob"))
    assert given.conflicts == ()


def test_a_save_that_resolves_returns_the_decision_which_can_be_undone(client: Client) -> None:
    answer = move(client)

    decision = answer.decision
    assert decision is not None
    assert (decision.arbitration.action, decision.arbitration.winner) == ("keep", "candidate")
    assert (decision.arbitration.strategy, decision.candidate_id) == ("importance", answer.memory_id)
    assert decision.arbitration.reason and decision.create_time is not None
    berlin = client.semantic.get(decision.existing_id)
    assert (berlin.superseded_by, known(client)) == (answer.memory_id, [MUNICH])
    assert known(client, show_superseded=True) == [BERLIN, MUNICH]
    assert [each.decision_id for each in client.conflicts.list_decisions(user="ada", page_size=1)] == [
        decision.decision_id
    ]
    assert list(client.conflicts.list_decisions(memory_id=NOBODY)) == []

    undone = client.conflicts.unmerge(decision.decision_id)

    assert [memory.memory_id for memory in undone.restored] == [berlin.memory_id]
    assert (undone.removed_id, known(client)) == ("", [BERLIN, MUNICH])
    assert undone.decision.revert_time is not None
    with pytest.raises(mnemon.InvalidOperationError):
        client.conflicts.unmerge(decision.decision_id)
    with pytest.raises(mnemon.DecisionNotFoundError):
        client.conflicts.unmerge(NOBODY)


def test_a_preview_changes_nothing(client: Client) -> None:
    client.semantic.add(BERLIN, user="ada", importance=0.9)

    preview = client.conflicts.preview(SemanticMemory(MUNICH, user="ada", importance=0.2))

    assert preview.memory is not None and preview.memory.content == BERLIN
    assert preview.decision is not None and preview.decision.arbitration.winner == mnemon.ArbitrationSide.EXISTING
    assert known(client, show_superseded=True) == [BERLIN]
    assert client.conflicts.preview(SemanticMemory(BERLIN, user="ada")).duplicate


def test_two_statements_are_merged_and_unmerged(client: Client) -> None:
    tea = client.semantic.add("Ada likes tea.", user="ada", importance=0.5).memory_id
    coffee = client.semantic.add("Ada grows roses.", user="ada", importance=0.5).memory_id

    dry = client.conflicts.merge(tea, coffee, merge={"content_strategy": "concatenate"}, dry_run=True)
    assert (dry.memory.memory_id, dry.decision, dry.content_strategy) == ("", None, "concatenate")
    with pytest.raises(mnemon.RevisionMismatchError):
        client.conflicts.merge(tea, coffee, expected_revisions=(1, 2))
    merged = client.conflicts.merge(tea, coffee, merge={"content_strategy": "concatenate"}, expected_revisions=(1, 1))

    assert merged.memory.content == dry.memory.content == "Ada likes tea.\nAda grows roses."
    assert merged.memory.merged_from == (tea, coffee)
    assert merged.statistics.content_length == len(merged.memory.content)
    assert merged.decision is not None and merged.decision.result_id == merged.memory.memory_id
    assert known(client) == [merged.memory.content]
    undone = client.conflicts.unmerge(memory_id=merged.memory.memory_id)
    assert undone.removed_id == merged.memory.memory_id
    assert sorted(known(client)) == ["Ada grows roses.", "Ada likes tea."]


def test_two_statements_are_arbitrated_without_being_stored(client: Client) -> None:
    new, old = SemanticMemory(MUNICH, user="ada", importance=0.5), SemanticMemory(BERLIN, user="ada", importance=0.5)

    rejected = client.conflicts.arbitrate(
        new,
        old,
        arbitration={
            "priority_importance": False,
            "priority_recency": False,
            "priority_source": False,
            "allow_merge": False,
            "merge_threshold": 1.0,
            "default_strategy": "reject",
        },
    )

    assert (rejected.arbitration.action, rejected.arbitration.winner, rejected.rule) == ("reject", None, "default")
    assert known(client) == []


def test_rules_are_kept_as_they_were_written(client: Client) -> None:
    stored = client.rules.add(FULL)

    assert (stored.rule, client.rules.get("household").rule) == (FULL, FULL)
    assert client.rules.get("household").registry_version == stored.registry_version
    with pytest.raises(mnemon.RuleExistsError):
        client.rules.add(FULL)
    with pytest.raises(mnemon.RuleNotFoundError):
        client.rules.get("nowhere")
    with pytest.raises(mnemon.UnknownBaseRuleError):
        client.rules.add({"name": "a", "extends": "nowhere"})
    with pytest.raises(mnemon.InvalidArgumentError, match="merge_threshold"):
        client.rules.add({"name": "a", "arbitration": {"merge_threshold": 2}})


def test_rules_inherit_are_changed_and_deleted(client: Client) -> None:
    client.rules.add({"name": "base", "priority": 3, "detection": {"time_window_s": 60.0}})
    client.rules.add({"name": "home", "extends": "base", "priority": 5, "conditions": {"users": ["ada"]}})

    resolved = client.rules.resolve("home")
    assert resolved.rule["detection"]["time_window_s"] == 60.0
    assert resolved.origins["detection.time_window_s"] == "base"
    assert resolved.ancestors[0] == "base"
    assert client.rules.match(SemanticMemory("a", user="ada"))["name"] == "home"
    assert client.rules.match(SemanticMemory("a", user="bob"))["name"] == "base"
    assert client.rules.match(SemanticMemory("a", user="ada"), SemanticMemory("b", user="ada"))["name"] == "home"
    with pytest.raises(mnemon.InvalidArgumentError, match="existing: must belong to the same user as candidate"):
        client.rules.match(SemanticMemory("a", user="ada"), SemanticMemory("b", user="bob"))
    changed = client.rules.update("home", {"priority": 9}, update_mask=["priority", "conditions"])
    assert changed.rule == {"name": "home", "extends": "base", "priority": 9}
    with pytest.raises(mnemon.RevisionMismatchError):
        client.rules.update("home", {"priority": 1}, expected_revision=changed.revision - 1)
    with pytest.raises(mnemon.CircularInheritanceError):
        client.rules.update("base", {"extends": "home"})
    with pytest.raises(mnemon.RuleInUseError):
        client.rules.delete("base")
    assert client.rules.delete("base", force=True).deleted
    with pytest.raises(mnemon.RuleNotFoundError):
        client.rules.delete("base")
    assert not client.rules.delete("base", allow_missing=True).deleted
    assert client.rules.get("home").rule["detection"] == {"time_window_s": 60.0}
    with pytest.raises(mnemon.InvalidOperationError):
        client.rules.delete("default")


def test_rules_that_were_exported_are_loaded_again(client: Client) -> None:
    client.rules.add({"name": "low", "priority": 1})
    client.rules.add(FULL | {"extends": "low", "priority": 7})
    exported = client.rules.export()

    assert [rule["name"] for rule in client.rules.list(page_size=1)] == ["default", "low", "household"]
    assert [rule["name"] for rule in client.rules.list(order="matching")][-1] == "default"
    assert client.rules.reset() > 1
    assert [rule["name"] for rule in client.rules.export()] == ["default"]
    receipt = client.rules.load(reversed(exported))
    assert (receipt.registered_count, receipt.updated_count, receipt.deleted_count) == (2, 0, 0)
    assert sorted(client.rules.export(), key=str) == sorted(exported, key=str)
    with pytest.raises(mnemon.UnknownBaseRuleError):
        client.rules.load([{"name": "a", "extends": "nowhere"}])
    assert client.rules.load([{"name": "a", "extends": "nowhere"}], lenient=True, replace_all=True).deleted_count == 2


def test_the_events_say_what_happened_to_statements_and_rules(client: Client) -> None:
    page = client.changes.list_page(page_size=1000)
    while not page.caught_up:
        page = client.changes.list_page(page.cursor, page_size=1000)
    answer = move(client)
    client.rules.add({"name": "home", "priority": 4})
    client.rules.update("home", {"detection": {"time_window_s": 60}, "conditions": {"users": ["ada"]}})
    client.rules.update("home", {})

    with client.watch(page.cursor, full=True) as watch:
        events: dict[str, list[mnemon.Change]] = {}
        for event in watch:
            events.setdefault(event.type, []).append(event)
            if len(events.get(mnemon.ChangeType.RULE_UPDATED, ())) == 2:
                break

    assert answer.decision is not None
    resolved = events[mnemon.ChangeType.CONFLICT_RESOLVED][0].details
    assert isinstance(resolved, mnemon.Decision) and resolved.decision_id == answer.decision.decision_id
    saved, pruned = events[mnemon.ChangeType.SEMANTIC_SAVED][-1], events[mnemon.ChangeType.SEMANTIC_PRUNED][0]
    assert isinstance(saved.record, SemanticMemory) and saved.record.content == MUNICH
    assert (pruned.record_id, pruned.details) == (answer.decision.existing_id, "superseded")
    assert events[mnemon.ChangeType.RULE_REGISTERED][0].details == {"name": "home", "priority": 4}
    changed = [update.changed_fields for update in events[mnemon.ChangeType.RULE_UPDATED]]
    assert changed == [("conditions.users", "detection.time_window_s"), ()]


def test_the_examples_of_the_readme_run_as_printed(
    client: Client, address: str, capsys: pytest.CaptureFixture[str]
) -> None:
    readme = (ROOT / "clients" / "python" / "README.md").read_text(encoding="utf-8")
    _, _, section = readme.partition("## What is known of a user\n")
    statements, rules = re.findall(r"```python\n(.*?)```", section, re.DOTALL)[:2]

    exec(statements.replace("127.0.0.1:50051", address), {})  # noqa: S102
    exec(rules, {"client": client})  # noqa: S102

    assert capsys.readouterr().out.startswith("keep The candidate is more important: 0.9 against 0.4.\n")
    assert known(client) == [MUNICH]
    assert client.rules.get("home").rule == {
        "name": "home",
        "conditions": {"users": ["ada"]},
        "detection": {"time_window_s": 600.0},
    }
