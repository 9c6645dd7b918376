"""The commands for the timeline and the bridge against a real server."""

import json
import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from mnemon import Client, F, RoutingPolicy

from tests.support.command import run, run_json
from tests.support.server import server_process, wait_until

DAY = timedelta(days=1)


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with server_process(tmp_path_factory.mktemp("data"), "--knowledge-store-backend", "local") as running:
        yield running.address()


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
    assert "there are more; the first 1 are shown" in listed.stderr
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


@pytest.mark.parametrize(
    "arguments",
    [
        ("record",),
        ("record", "text"),
        ("record", "text", "--user", "ada"),
        ("record", "text", "--type", "task"),
        ("record", "text", "--type", "", "--user", "ada"),
        ("record", "text", "--file", "-"),
        ("timeline", "--mode", "keyword"),
        ("timeline", "text", "--limit", "0"),
        ("timeline", "--since", "noon"),
        ("happened",),
        ("prune",),
        ("prune", "e-1", "--user", "ada"),
        ("prune", "e-1", "--before", "3d"),
        ("bridge", "policy", "--mode", "most"),
    ],
)
def test_a_wrong_command_line_exits_with_two(address: str, arguments: tuple[str, ...]) -> None:
    assert run(address, *arguments).returncode == 2
