"""Every method for the timeline and the bridge of the Python client against a real server."""

import re
import uuid
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import mnemon
import pytest
from mnemon import Client, EpisodicEvent, F, RoutingPolicy, Scope

from tests.support.killable import KillableServer
from tests.support.repository import ROOT
from tests.support.server import wait_until

NOW = datetime.now(UTC)
HOUR, DAY = timedelta(hours=1), timedelta(days=1)
LONG_AGO = datetime(2001, 1, 1, tzinfo=UTC)


@pytest.fixture
def client(address: str) -> Iterator[Client]:
    """A client of a server with an empty timeline and the default bridge."""
    with Client(address) as found:
        found.timeline.delete_many(where=F("event_id").exists())
        found.bridge.resume()
        found.bridge.update_policy(RoutingPolicy())
        yield found


def happened(number: int, event_type: str = "conversation", **fields: Any) -> EpisodicEvent:
    """An event of Ada, as many hours ago."""
    fields = {"user": "ada", "event_time": NOW - number * HOUR, **fields}
    return EpisodicEvent(event_type, f"Ada told story {number}.", **fields)


def fill(client: Client, *events: EpisodicEvent) -> list[str]:
    """Records events; their ids."""
    results = list(client.timeline.add_many(events))
    assert [result.error for result in results if result.error] == []
    return [result.event_id for result in results]


def contents(events: Any) -> list[str]:
    """What happened, in this order."""
    return [event.content for event in events]


def stories(*numbers: int) -> list[str]:
    return [f"Ada told story {number}." for number in numbers]


def test_an_event_comes_back_as_it_was_given(client: Client) -> None:
    metadata: dict[str, Any] = {"title": "Grüße 🚀", "n": 2**53 + 1, "x": 5.0, "tags": ["a"], "when": NOW}
    receipt = client.timeline.add(
        "task",
        "日本語のテキスト",
        user="ada",
        event_time=LONG_AGO,
        household="h",
        persona="p",
        agent="claude",
        project="x",
        context="in the kitchen",
        importance=0.25,
        source="user",
        metadata=metadata,
        event_id="späti/1",
    )

    event = client.timeline.get("späti/1")
    assert event.scope == Scope("ada", "h", "p", "claude", "x")
    assert (event.event_type, event.content, event.context, event.source) == (
        "task",
        "日本語のテキスト",
        "in the kitchen",
        "user",
    )
    assert (event.event_time, event.importance, event.metadata) == (LONG_AGO, 0.25, metadata)
    assert event.record_time is not None and event.record_time >= NOW
    assert (receipt.event_id, receipt.duplicate, receipt.replayed) == ("späti/1", False, False)
    assert receipt.sequence >= receipt.segment_id >= 1 and receipt.commit_time is not None


@pytest.mark.parametrize("day", [date(2026, 5, 1), "2026-05-01"])
def test_a_day_or_a_distance_is_a_time_wherever_one_is_given(client: Client, user: str, day: date | str) -> None:
    midnight = datetime(2026, 5, 1).astimezone()
    event = client.timeline.add("task", "Call the bank.", user=user, event_time=day)
    statement = client.semantic.add("Ada banks online.", user=user, create_time=day)
    client.semantic.add("Ada has a cat.", user=user, create_time=timedelta(days=-1))
    client.facts.put(("user", user), "bank", {"open": True}, create_time=day, update_time=day)
    client.remember("Ada is tired.", user=user, decay="reinforceable")

    fact = client.facts.get(("user", user), "bank")
    assert statement.memory is not None and fact is not None
    told = client.timeline.get(event.event_id).event_time, statement.memory.create_time, fact.create_time
    assert told == (midnight,) * 3
    assert [each.content for each in client.semantic.list(user=user, created_from=day, created_to=day)] == [
        "Ada banks online."
    ]
    assert client.timeline.delete_many(before=day, user=user, dry_run=True).pruned_count == 0
    assert client.timeline.delete_many(before=timedelta(0), user=user, dry_run=True).pruned_count == 1
    assert len([*client.memories.forecast("1 week", user=user)]) == 0
    assert len([*client.memories.forecast("52 weeks", user=user)]) == 1
    assert [*client.changes.list(timedelta(hours=1), scope=Scope(user=user), types=["memory:created"])]
    with pytest.raises(mnemon.InvalidArgumentError, match="event_time: must be a datetime, a date"):
        client.timeline.add("task", "Call the bank.", user=user, event_time="soon")


def test_the_same_event_is_stored_once_and_a_repeated_call_gets_the_same_receipt(client: Client) -> None:
    call = str(uuid.uuid4())
    first = client.timeline.add("task", "Call the bank.", user="ada", event_time=NOW, request_id=call)
    again = client.timeline.add("task", "Call the bank.", user="ada", event_time=NOW, request_id=call)
    twice = client.timeline.add("task", "Call the bank.", user="ada", event_time=NOW)

    assert (again.event_id, again.sequence, again.replayed) == (first.event_id, first.sequence, True)
    assert (twice.event_id, twice.duplicate) == (first.event_id, True)
    assert twice.duplicate_of == client.timeline.get(first.event_id)
    assert len(list(client.timeline.list())) == 1
    with pytest.raises(mnemon.RequestIdReusedError):
        client.timeline.add("task", "Call Bob.", user="ada", event_time=NOW, request_id=call)


def test_many_events_are_recorded_and_a_bad_one_fails_alone(client: Client) -> None:
    items = [happened(number, user="") for number in range(2500)]
    items += [happened(0, user="bob"), happened(0, "", user=""), happened(0, user="ada")]

    results = list(client.timeline.add_many(iter(items), scope=Scope(user="ada")))

    assert [result.position for result in results] == list(range(2503))
    assert [result.position for result in results if result.error] == [2501]
    assert isinstance(results[2501].error, mnemon.InvalidArgumentError)
    assert [result.position for result in results if result.duplicate] == [2502]
    assert results[2502].event_id == results[0].event_id
    assert contents(client.timeline.list(user="ada", page_size=1000)) == stories(*range(2500))
    assert len(list(client.timeline.list(user="bob"))) == 1


def test_a_window_holds_what_happened_in_it_newest_first_and_page_by_page(client: Client) -> None:
    fill(client, *(happened(24 * number, importance=number / 100) for number in (3, 0, 40, 1, 2)))
    since, until = NOW - 3 * DAY, NOW - DAY

    answer = client.timeline.search(since=since, until=until)

    assert contents(answer) == stories(24, 48, 72)
    assert (answer.next_page_token, answer.results[0].score) == ("", None)
    said = answer.diagnostics
    assert (said.total_scanned, said.filtered_by_window, said.returned, said.mode) == (5, 2, 3, None)
    assert contents(client.timeline.search()) == stories(0, 24, 48, 72)
    assert contents(client.timeline.search(last_days=2)) == stories(0, 24)
    assert contents(client.timeline.search(until=until, min_importance=0.03)) == stories(72, 960)
    first = client.timeline.search(since=since, until=until, limit=2)
    assert contents(first) == stories(24, 48)
    rest = client.timeline.search(since=since, until=until, limit=2, page_token=first.next_page_token)
    assert (contents(rest), rest.next_page_token) == (stories(72), "")
    assert contents(client.timeline.list(since=LONG_AGO, page_size=2)) == stories(0, 24, 48, 72, 960)
    assert contents(client.timeline.list(last_days=36_500)) == stories(0, 24, 48, 72, 960)
    with pytest.raises(mnemon.InvalidPageTokenError):
        client.timeline.search(last_days=7, page_token=first.next_page_token)


def test_a_text_finds_the_events_of_the_window_that_fit_it_best_first(client: Client) -> None:
    fill(
        client,
        happened(1),
        replace(happened(2), content="Ada planted roses, red roses."),
        replace(happened(3), content="Ada saw a rose."),
        replace(happened(24 * 60), content="Ada bought roses."),
    )
    wait_until(lambda: client.timeline.status().text_pending_count == 0)

    answer = client.timeline.search("red roses", user="ada")

    assert contents(answer)[0] == "Ada planted roses, red roses."
    assert answer.diagnostics.mode == "hybrid" and answer.results[0].score.similarity > 0.5
    best = answer.results[0].score
    assert best is not None
    assert (answer.best_relevance, answer.nothing_relevant) == (best.relevance, False)
    foreign = client.timeline.search("When must the red car of Bob go to the garage?", user="ada")
    assert len(foreign) > 0
    assert foreign.nothing_relevant
    assert client.timeline.search(last_days=7).best_relevance is None, "there is no text"
    answer = client.timeline.search("red roses", user="ada", mode="keyword")
    assert set(contents(answer)) == {"Ada planted roses, red roses.", "Ada saw a rose."}
    scores = [match.score for match in answer.results if match.score]
    assert [score.relevance for score in scores] == sorted((score.relevance for score in scores), reverse=True)
    assert (scores[0].similarity, answer.diagnostics.mode, answer.diagnostics.pending) == (None, "keyword", 0)
    assert len(client.timeline.search("roses", last_days=90, mode="keyword")) == 3
    assert not client.timeline.search(" ")


def test_meaning_counts_more_in_messages_to_and_from_an_assistant(client: Client) -> None:
    texts = ["We painted the kitchen yellow.", "Nice!", "The kitchen needs more light.", "Then add a lamp."]
    for user, roles in (("ada", ("Bob", "Ann")), ("eva", ("user", "assistant"))):
        events = [
            EpisodicEvent("conversation", text, user=user, event_time=NOW, metadata={"role": roles[i % 2]})
            for i, text in enumerate(texts)
        ]
        fill(client, *events)
    wait_until(lambda: client.timeline.status().text_pending_count == 0)

    between_people, with_assistant = (
        client.timeline.search("In which colour did we paint the kitchen?", user=user).results[0]
        for user in ("ada", "eva")
    )

    assert between_people.event.content == with_assistant.event.content == texts[0]
    before, now = between_people.score, with_assistant.score
    assert before is not None
    assert now is not None
    assert before.similarity and before.keyword and now.similarity and now.keyword
    meaning = 2 * before.relevance - before.keyword
    zero = (before.similarity - meaning) / (1 - meaning)
    expected = 0.6 * (now.similarity - zero) / (1 - zero) + 0.4 * now.keyword
    assert now.relevance == pytest.approx(expected, abs=0.001)
    assert zero < 0.2


def test_events_are_filtered_by_scope_type_importance_and_expression(client: Client) -> None:
    fill(
        client,
        happened(1, "task", project="x", importance=0.9, metadata={"score": 5}),
        happened(2, "task", importance=0.1),
        happened(3, "emotion", importance=0.9, metadata={"score": 1}),
        happened(4, "reminder", user="bob"),
    )

    assert contents(client.timeline.list(user="ada")) == stories(1, 2, 3)
    assert contents(client.timeline.list(project="x")) == stories(1)
    assert contents(client.timeline.list(event_types=["task", "reminder"])) == stories(1, 2, 4)
    assert contents(client.timeline.list(min_importance=0.5)) == stories(1, 3)
    assert contents(client.timeline.list(where=F("metadata.score") >= 2)) == stories(1)
    page = client.timeline.list_page(user="ada", page_size=2)
    assert contents(page.events) == stories(1, 2)
    assert contents(
        client.timeline.list_page(user="ada", page_size=2, page_token=page.next_page_token).events
    ) == stories(3)


def test_a_summary_counts_by_type_and_by_day(client: Client) -> None:
    noon = datetime(2026, 5, 1, 12, tzinfo=UTC)
    fill(
        client,
        EpisodicEvent("task", "a", user="ada", event_time=noon),
        EpisodicEvent("task", "b", user="ada", event_time=noon + DAY),
        EpisodicEvent("emotion", "c", user="ada", event_time=noon + DAY),
        EpisodicEvent("emotion", "d", user="bob", event_time=noon + 9 * DAY),
    )

    summary = client.timeline.summarize(user="ada")
    assert (summary.event_count, summary.earliest, summary.latest) == (3, noon, noon + DAY)
    assert list(summary.types.items()) == [("task", 2), ("emotion", 1)]
    assert list(summary.days.items()) == [("2026-05-01", 1), ("2026-05-02", 2)]
    assert client.timeline.summarize(since=noon + 2 * DAY).types == {"emotion": 1}
    nothing = client.timeline.summarize(until=LONG_AGO)
    assert (nothing.event_count, nothing.earliest, nothing.days) == (0, None, {})


def test_pruned_events_are_gone_and_a_dry_run_only_names_them(client: Client) -> None:
    ids = fill(
        client, *(happened(number, event_types) for number, event_types in enumerate(["task"] * 3 + ["emotion"]))
    )

    dry = client.timeline.delete_many(before=NOW - HOUR, event_types=["task"], dry_run=True)
    assert (dry.pruned_count, dry.event_ids, dry.earliest) == (1, (ids[2],), NOW - 2 * HOUR)
    assert len(list(client.timeline.list())) == 4
    assert client.timeline.delete_many(before=NOW - HOUR, event_types=["task"]).pruned_count == 1
    with pytest.raises(mnemon.EventNotFoundError, match="nowhere"):
        client.timeline.delete_many([ids[0], "nowhere"])
    assert client.timeline.delete_many([ids[0], "nowhere"], allow_missing=True).event_ids == (ids[0],)
    assert contents(client.timeline.list()) == stories(1, 3)
    with pytest.raises(mnemon.EventNotFoundError):
        client.timeline.get(ids[0])
    with pytest.raises(mnemon.InvalidArgumentError):
        client.timeline.delete_many()
    with pytest.raises(mnemon.InvalidArgumentError):
        client.timeline.delete_many([ids[1]], user="ada")


def test_a_compaction_seals_everything_and_the_status_shows_it(client: Client) -> None:
    fill(client, *(happened(number) for number in range(20)))
    before = client.timeline.status()
    assert (before.state, before.event_count, before.unsealed_count) == (mnemon.TimelineState.READY, 20, 20)

    steps = list(client.timeline.compact())

    assert [step.done for step in steps] == [False] * (len(steps) - 1) + [True]
    assert steps[-1].processed_bytes == steps[-1].total_bytes
    after = client.timeline.status()
    assert (after.unsealed_count, after.event_count, after.lost, after.retention_s) == (0, 20, (), None)
    assert (after.earliest, after.latest) == (NOW - 19 * HOUR, NOW)
    assert after.segment_bytes > 0
    assert contents(client.timeline.list()) == stories(*range(20))


def test_the_bridge_makes_statements_and_takes_them_back(client: Client) -> None:
    def caught_up() -> bool:
        return client.bridge.status().queue_depth == 0

    def known() -> list[str]:
        return [memory.content for memory in client.semantic.list(user="bridged")]

    assert client.bridge.policy() == RoutingPolicy(
        0.6, tuple(sorted(("task", "reminder", "conversation"))), "all", 512, "delete", 0.1, "ignore"
    )
    wait_until(caught_up)
    before = client.bridge.status()
    task = client.timeline.add("task", "Ada must call the bank.", user="bridged", importance=0.9)
    client.timeline.add("emotion", "Ada is glad.", user="bridged", importance=0.9)
    wait_until(caught_up)

    status = client.bridge.status()
    assert (status.state, status.activity) == ("ready", "running")
    assert status.routed_count - before.routed_count == 1
    assert status.skipped_counts["event_type"] - before.skipped_counts.get("event_type", 0) == 1
    assert status.handled_time is not None and status.timeline_lag_s is not None
    assert known() == ["Ada must call the bank."]

    client.bridge.pause()
    assert client.bridge.status().activity == mnemon.BridgeActivity.PAUSED
    first = client.bridge.policy()
    held = client.bridge.update_policy(event_types=["emotion"], min_importance=0.2, expected_revision=first.revision)
    assert (held.event_types, held.min_importance, held.content_max) == (("emotion",), 0.2, 512)
    with pytest.raises(mnemon.RevisionMismatchError):
        client.bridge.update_policy(first, expected_revision=first.revision)
    client.timeline.add("emotion", "Ada is sad.", user="bridged", importance=0.3)
    assert client.bridge.status().queue_depth > 0
    client.bridge.resume()
    wait_until(caught_up)
    assert sorted(known()) == ["Ada is sad.", "Ada must call the bank."]

    client.timeline.delete_many([task.event_id])
    wait_until(caught_up)
    assert known() == ["Ada is sad."]
    assert client.bridge.status().deleted_count - before.deleted_count == 1


@pytest.mark.parametrize("full", [True, False])
def test_a_watch_carries_the_content_of_events_in_every_view(client: Client, *, full: bool) -> None:
    types = [mnemon.ChangeType.EPISODIC_SAVED, mnemon.ChangeType.MEMORY_CREATED]
    with client.watch(full=full, types=types) as watch:
        told = []
        # The first ones are listed, the last one comes while the watch waits.
        client.timeline.add("task", "Water the roses.", user="ada")
        client.remember("Ada likes roses.", user="ada")
        for content in ("x" * 60_000, "", "Ada called."):
            client.timeline.add("task", content, user="ada", event_time=NOW)
        for change in watch:
            told.append(change.details.content if isinstance(change.details, mnemon.EpisodicSaved) else change.type)
            if told[-1] == "Ada called.":
                break
    assert told == ["Water the roses.", "memory:created", "x" * 60_000, "", "Ada called."]


def test_the_feed_says_what_happened_to_events(client: Client) -> None:
    page = client.changes.list_page(page_size=1000)
    while not page.caught_up:
        page = client.changes.list_page(page.cursor, page_size=1000)
    receipt = client.timeline.add("task", "Water the roses.", user="ada", importance=0.9, event_time=NOW - HOUR)
    wait_until(lambda: client.bridge.status().queue_depth == 0)
    client.timeline.delete_many([receipt.event_id])

    told: dict[str, mnemon.Change] = {}
    with client.watch(page.cursor, full=True) as watch:
        for event in watch:
            told[event.type] = event
            if event.type == mnemon.ChangeType.BRIDGE_RECONCILED:
                break

    saved = told[mnemon.ChangeType.EPISODIC_SAVED]
    assert (saved.record_id, saved.scope.user, saved.record) == (receipt.event_id, "ada", None)
    assert isinstance(saved.details, mnemon.EpisodicSaved)
    assert (saved.details.event_type, saved.details.event_time, saved.details.importance) == ("task", NOW - HOUR, 0.9)
    assert (saved.details.timeline_lag_s >= 3600, saved.details.content) == (True, None)
    pruned = told[mnemon.ChangeType.EPISODIC_PRUNED].details
    assert pruned == mnemon.EpisodicPruned(
        receipt.segment_id,
        mnemon.PruneReason.REQUESTED,
        (mnemon.PrunedEvent(receipt.event_id, saved.details.content_hash),),
    )
    reconciled = told[mnemon.ChangeType.BRIDGE_RECONCILED].details
    assert isinstance(reconciled, mnemon.Reconciliation)
    assert (reconciled.event_ids, reconciled.action, len(reconciled.memory_ids)) == (
        (receipt.event_id,),
        mnemon.PruneAction.DELETE,
        1,
    )
    assert [event.to_dict()["sequence"] for event in told.values()]


def test_a_bulk_survives_a_killed_server_and_records_every_event_once(tmp_path: Path) -> None:
    items = [happened(number) for number in range(6_000)]
    server = KillableServer(tmp_path)
    server.start()
    try:
        with Client(server.address) as client:
            results = []
            for result in client.timeline.add_many(items):
                results.append(result)
                if len(results) in (1, 3_000):
                    server.kill()
                    server.start()

            assert [result.error for result in results if result.error] == []
            assert [result.position for result in results if result.duplicate] == []
            assert len({result.event_id for result in results}) == len(items)
            stored = {event.event_id: event.content for event in client.timeline.list(page_size=1000)}
            assert stored == {result.event_id: item.content for result, item in zip(results, items, strict=True)}
            assert client.timeline.status().event_count == len(items)
    finally:
        server.kill()


def test_the_examples_of_the_readme_run_as_printed(
    client: Client, address: str, capsys: pytest.CaptureFixture[str]
) -> None:
    readme = (ROOT / "clients" / "python" / "README.md").read_text(encoding="utf-8")
    _, _, section = readme.partition("## What happened\n")
    events, bridge = re.findall(r"```python\n(.*?)```", section, re.DOTALL)[:2]

    exec(events.replace("127.0.0.1:50051", address), {})  # noqa: S102
    exec(bridge, {"client": client})  # noqa: S102

    printed = capsys.readouterr().out
    assert printed.splitlines()[0].endswith("Ada must renew her passport.")
    assert "{'conversation': 1, 'task': 1}" in printed
    assert client.bridge.policy().min_importance == 0.8
