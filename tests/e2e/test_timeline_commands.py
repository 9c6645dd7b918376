"""The commands for the timeline and the bridge against a real server."""

import json
import re
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from mnemon import Client, F, RoutingPolicy

from tests.support.command import run, run_json
from tests.support.server import wait_until

DAY = timedelta(days=1)


@pytest.fixture
def client(address: str) -> Iterator[Client]:
    """A client of a server with an empty timeline and the default bridge."""
    with Client(address) as found:
        found.timeline.delete_many(where=F("event_id").exists())
        found.bridge.resume()
        found.bridge.update_policy(RoutingPolicy())
        yield found


def recorded(address: str, text: str, *options: str) -> str:
    """The id of an event that the command recorded."""
    done = run(address, "record", text, "--user", "ada", *options)
    assert (done.returncode, done.stderr) == (0, "")
    word, event_id = done.stdout.split()
    assert word == "recorded"
    return event_id


def test_a_recorded_event_is_listed_shown_counted_and_found(address: str, client: Client) -> None:
    options = ("--importance", "0.9", "--source", "user", "--context", "at the desk", "--meta", "score=5")
    event_id = recorded(address, "Renew the passport.", "--type", "task", "--happened", "2d", *options)
    recorded(address, "Ada had lunch.", "--type", "conversation", "--persona", "work")
    recorded(address, "Ada asked for a passport photo.", "--type", "conversation", "--happened", "40d")

    stored = client.timeline.get(event_id)
    assert (stored.event_type, stored.importance, stored.source, stored.context, stored.metadata) == (
        "task",
        0.9,
        "user",
        "at the desk",
        {"score": 5},
    )
    assert stored.event_time is not None
    assert abs(stored.event_time - (datetime.now(UTC) - 2 * DAY)) < timedelta(minutes=5)
    shown = run(address, "timeline", "--since", "30d").stdout
    for part in ("Renew the passport.", "Ada had lunch.", event_id, "user=ada", "persona=work", "importance=0.9"):
        assert part in shown
    assert "photo" not in shown
    assert shown.index("lunch") < shown.index("passport")
    listed = run(address, "timeline", "--limit", "1")
    assert "lunch" in listed.stdout and "passport" not in listed.stdout
    assert "there are more than 1;" in listed.stderr
    assert [each["content"] for each in run_json(address, "timeline", "--where", "metadata.score>=3")] == [
        "Renew the passport."
    ]
    sheet = run(address, "happened", event_id).stdout
    assert "Renew the passport." in sheet and "at the desk" in sheet
    counted = run(address, "summary", "--user", "ada").stdout
    assert "conversation" in counted and "task" in counted
    assert run_json(address, "summary", "--since", "30d")[0]["types"] == {"conversation": 1, "task": 1}
    wait_until(lambda: client.timeline.status().text_pending_count == 0)
    found = run(address, "timeline", "passport")
    assert "Renew the passport." in found.stdout and "photo" in found.stdout
    found = run(address, "timeline", "passport", "--mode", "keyword")
    assert "Renew the passport." in found.stdout and "photo" in found.stdout and "lunch" not in found.stdout
    [answer] = run_json(address, "timeline", "passport", "--since", "30d", "--mode", "keyword")
    [match] = answer["results"]
    assert match["event"]["content"] == "Renew the passport."
    assert match["score"]["relevance"] > 0


def test_a_known_event_is_not_recorded_again(address: str, client: Client) -> None:
    event = ("record", "Ada had lunch.", "--user", "ada", "--type", "task", "--happened", "2026-05-01T12:00Z")
    event_id = recorded(address, "Ada had lunch.", "--type", "task", "--happened", "2026-05-01T12:00Z")

    assert run(address, *event).stdout == f"known already: {event_id}\n"
    assert run_json(address, *event)[0]["duplicate"]


def test_a_printed_timeline_is_recorded_again_with_every_event_once(
    address: str, client: Client, tmp_path: Path
) -> None:
    for number in range(3):
        recorded(address, f"Ada told story {number}.", "--type", "conversation", "--happened", f"{number}h")
    before = list(client.timeline.list())
    path = tmp_path / "events.jsonl"
    path.write_text(run(address, "timeline", "--json", "--limit", "0").stdout, encoding="utf-8")

    assert run(address, "record", "--file", path).stdout == "0 recorded, 3 known, 0 failed\n"
    client.timeline.delete_many(user="ada")
    lines = [*path.read_text().splitlines(), "[]", '{"content": "whose?", "event_type": "task", "user": ""}']
    done = run(address, "record", "--file", "-", "--json", stdin="\n".join(lines))

    assert done.returncode == 1
    *results, last = [json.loads(line) for line in done.stdout.splitlines()]
    assert last == {"summary": {"recorded": 3, "known": 0, "failed": 2}}
    assert [result["line"] for result in results if "error" in result] == ["-:4", "-:5"]
    assert {result["event_id"] for result in results if "event_id" in result} == {each.event_id for each in before}
    after = list(client.timeline.list())
    assert [(each.content, each.event_time) for each in after] == [(each.content, each.event_time) for each in before]
    assert run(address, "record", "--file", "-", "--type", "task", "--user", "bob", stdin='"Bob sang."').returncode == 0
    assert [each.content for each in client.timeline.list(user="bob", event_types=["task"])] == ["Bob sang."]


def test_pruning_asks_first_and_a_dry_run_only_counts(address: str, client: Client) -> None:
    first = recorded(address, "note one", "--type", "task", "--happened", "3d")
    second = recorded(address, "note two", "--type", "task", "--happened", "2d")
    recorded(address, "note three", "--type", "emotion")

    dry = run(address, "prune", "--before", "1d", "--dry-run")
    assert dry.stdout.startswith("2 events from ") and dry.stdout.endswith(" would be removed\n")
    refused = run(address, "prune", first, stdin="n\n")
    assert refused.returncode == 1 and "Remove 1 event from " in refused.stderr
    assert len(list(client.timeline.list())) == 3
    missing = run(address, "prune", first, "nowhere", "--yes")
    assert missing.returncode == 1 and "'nowhere'" in missing.stderr
    assert run(address, "prune", first, "nowhere", "--allow-missing", "--yes").stdout.startswith("1 event from ")
    [answer] = run_json(address, "prune", "--type", "task", "--before", "1h", "--yes")
    assert (answer["event_ids"], answer["dry_run"]) == ([second], False)
    assert run(address, "prune", "--user", "nobody", "--yes").stdout == "0 events removed\n"
    assert [each.content for each in client.timeline.list()] == ["note three"]
    missing = run(address, "happened", second)
    assert missing.returncode == 1 and missing.stderr.startswith("Error: ")


def test_an_answer_without_events_names_the_type_and_the_user_that_no_event_has(address: str, client: Client) -> None:
    recorded(address, "note one", "--type", "task")
    recorded(address, "note two", "--type", "note")

    there = "note: no event has the type 'tsk'; there are: "
    for command in (("timeline",), ("timeline", "note"), ("summary",), ("prune", "--dry-run")):
        done = run(address, *command, "--type", "tsk")
        assert (done.returncode, there in done.stderr) == (0, True)
        assert "no event has the user 'eve'" in run(address, *command, "--user", "eve").stderr
        assert "no event has" not in run(address, *command, "--user", "ada").stderr
    assert "no event has" not in run(address, "timeline", "--type", "task", "--until", "2020-01-01").stderr


def test_a_deletion_says_how_many_records_have_no_such_field(address: str, client: Client) -> None:
    recorded(address, "kept", "--type", "task", "--meta", "topic=tea")
    recorded(address, "other", "--type", "task", "--meta", "topic=coffee")
    recorded(address, "without", "--type", "task")

    asked = run(address, "prune", "--where", "metadata.topic!=tea", stdin="n\n")
    assert "note: 1 of them have no metadata.topic: != is true of them, too\nRemove 2 events from " in asked.stderr
    assert "of them have no" not in run(address, "prune", "--where", "metadata.topic=tea", "--dry-run").stderr


def test_a_compaction_reports_the_freed_space_and_the_status_describes_the_timeline(
    address: str, client: Client
) -> None:
    for number in range(5):
        recorded(address, f"note {number}", "--type", "task")
    assert re.search(r"^events +5, ", run(address, "timeline-status").stdout, re.MULTILINE)

    done = run(address, "compact")

    assert done.returncode == 0
    assert "segment" in done.stdout and done.stdout.endswith(" given back\n")
    assert run_json(address, "compact")[-1]["done"]
    shown = run(address, "timeline-status").stdout
    assert "ready" in shown and "0 events" in shown and "for ever" in shown
    [status] = run_json(address, "timeline-status")
    assert (status["event_count"], status["unsealed_count"], status["lost"]) == (5, 0, [])


def test_the_bridge_is_shown_paused_resumed_and_given_another_policy(address: str, client: Client) -> None:
    wait_until(lambda: client.bridge.status().queue_depth == 0)
    before = client.bridge.status().routed_count
    assert run(address, "bridge", "pause").stdout == "paused\n"
    recorded(address, "Ada must call the bank.", "--type", "task", "--importance", "0.9")
    assert "paused" in run(address, "bridge", "status").stdout
    assert run_json(address, "bridge", "status")[0]["queue_depth"] > 0
    assert run(address, "bridge", "resume").stdout == "resumed\n"
    wait_until(lambda: client.bridge.status().queue_depth == 0)
    assert run_json(address, "bridge", "status")[0]["routed_count"] == before + 1

    assert "0.6" in run(address, "bridge", "policy").stdout
    changes = ("--min-importance", "0", "--type", "emotion", "--mode", "any", "--on-prune", "demote")
    [held] = run_json(address, "bridge", "policy", *changes, "--conflicts", "detect", "--content-max", "99")
    assert client.bridge.policy() == RoutingPolicy(0.0, ("emotion",), "any", 99, "demote", 0.1, "detect")
    assert held["event_types"] == ["emotion"]
    [held] = run_json(address, "bridge", "policy", "--min-importance", "0.7")
    assert (held["min_importance"], held["mode"]) == (0.7, "any")
    [held] = run_json(address, "bridge", "policy", "--reset", "--mode", "any")
    assert (held["min_importance"], held["mode"], held["on_prune"]) == (0.6, "any", "delete")
    wrong = run(address, "bridge", "policy", "--content-max", "1")
    assert wrong.returncode == 1 and "content_max" in wrong.stderr


@pytest.fixture
def berlin(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """This machine is in the zone of Berlin."""
    with monkeypatch.context() as patched:
        patched.setenv("TZ", "Europe/Berlin")
        time.tzset()
        yield
    time.tzset()


@pytest.mark.usefixtures("berlin")
def test_a_day_as_the_end_of_a_span_includes_its_events_in_the_zone_of_the_machine(
    address: str, client: Client
) -> None:
    for happened in ("2026-03-13T23:59", "2026-03-14T00:00", "2026-03-14T23:59:59.5", "2026-03-15T00:00"):
        recorded(address, happened, "--type", "task", "--happened", happened)

    def shown(*options: str) -> list[str]:
        return [each["content"] for each in run_json(address, "timeline", *options)]

    day = ["2026-03-14T23:59:59.5", "2026-03-14T00:00"]
    assert shown("--since", "2026-03-14", "--until", "2026-03-14") == day
    assert shown("--until", "2026-03-14") == [*day, "2026-03-13T23:59"]
    assert shown("--until", "2026-03-14T00:00") == ["2026-03-14T00:00", "2026-03-13T23:59"]
    assert shown("--where", "event_time=2026-03-14") == day
    assert shown("--where", "event_time<=2026-03-14", "--since", "2026-03-14") == day
    assert shown("--where", "event_time>2026-03-14") == ["2026-03-15T00:00"]
    assert shown("--where", "event_time!=2026-03-14") == ["2026-03-15T00:00", "2026-03-13T23:59"]
    assert run_json(address, "summary", "--since", "2026-03-14", "--until", "2026-03-14")[0]["event_count"] == 2

    dry = run(address, "prune", "--before", "2026-03-15", "--dry-run")
    assert dry.stdout.endswith(", all before 2026-03-15 00:00, would be removed\n")
    refused = run(address, "prune", "--before", "2026-03-14", stdin="n\n")
    assert "Remove 1 event from " in refused.stderr and ", all before 2026-03-14 00:00, for good?" in refused.stderr


@pytest.mark.usefixtures("berlin")
def test_a_deletion_until_a_day_removes_what_was_created_on_it_and_names_the_moment(
    address: str, client: Client
) -> None:
    before = str((datetime.now(UTC) - DAY).astimezone().date())
    assert run(address, "remember", "Ada likes tea.").returncode == 0
    assert run(address, "learn", "Ada likes tea.", "--user", "ada").returncode == 0
    today = str(datetime.now(UTC).astimezone().date())

    for command in (("forget", "--purge"), ("unlearn",)):
        assert run(address, *command, "--until", before, "--dry-run").stdout.startswith("0 ")
        asked = run(address, *command, "--until", today, stdin="n\n")
        assert f", all up to {today} 23:59:59.999999, for good?" in asked.stderr
        assert run(address, *command, "--until", today, "--yes").stdout.startswith("1 ")


@pytest.mark.usefixtures("berlin")
def test_a_time_that_the_clocks_skip_is_refused_with_the_times_around_it(address: str, client: Client) -> None:
    skipped = "2026-03-29T02:30"
    for arguments in (
        ("record", "text", "--user", "ada", "--type", "task", "--happened", skipped),
        ("timeline", "--since", skipped),
        ("timeline", "--until", skipped),
        ("timeline", "--where", f"event_time>{skipped}"),
        ("prune", "--before", skipped),
        ("changes", "--since", skipped),
    ):
        done = run(address, *arguments)
        assert done.returncode == 2
        assert f"'{next(each for each in reversed(arguments) if each.startswith('--'))}'" in done.stderr
        assert "say 2026-03-29T01:30 or 2026-03-29T03:30" in done.stderr
    line = {"content": "text", "event_type": "task", "user": "ada", "event_time": skipped}
    assert (
        "say 2026-03-29T01:30 or 2026-03-29T03:30"
        in run(address, "record", "--file", "-", stdin=json.dumps(line)).stderr
    )
    assert not list(client.timeline.list())


def test_a_span_that_ends_before_it_begins_is_refused_with_both_times(address: str) -> None:
    for command in ("timeline", "memories", "known"):
        done = run(address, command, "--until", "2026-03-14", "--since", "2026-03-15T12:00")
        assert done.returncode == 2
        assert "--since, 2026-03-15 12:00, is later than --until, 2026-03-14 23:59:59.999999" in " ".join(
            done.stderr.split()
        )
