"""The mnemon command's memories against a real server, used as people and programs use them."""

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from mnemon import Client, F, Scope

from tests.support.command import run, run_json


@pytest.fixture
def memory(address: str) -> Iterator[Client]:
    """A client of a server without memories."""
    with Client(address) as client:
        client.memories.purge(where=F("memory_id").exists())
        yield client


def remembered(address: str, text: str, *options: str) -> str:
    """The id of a memory that the command stored."""
    done = run(address, "remember", text, *options)
    assert (done.returncode, done.stderr) == (0, "")
    word, memory_id = done.stdout.split()
    assert word == "remembered"
    return memory_id


@pytest.mark.parametrize("command", [("remembered",), ("search",), ("facts", "search"), ("similar",)])
def test_a_search_says_that_nothing_relevant_was_found(address: str, memory: Client, command: tuple[str, ...]) -> None:
    text = "The night train to Vienna leaves at nine."
    remembered(address, text)
    memory.documents.put("train", text)
    memory.facts.put(("notes",), "train", {"content": text})
    memory.semantic.add(text, user="ada")

    related = run(address, *command, "When does the train to Vienna leave?")
    assert (text in related.stdout, related.stderr) == (True, "")
    unrelated = run(address, *command, "How long does sourdough bread have to rest?", "--mode", "vector")
    assert unrelated.returncode == 0
    assert re.match(r"note: nothing relevant \(best 0\.\d\d\)\n", unrelated.stderr)
    memory.documents.delete("train")


def test_an_answer_without_records_names_the_user_of_whom_nothing_is_stored(
    address: str, memory: Client, user: str
) -> None:
    text = "The TV is broken."
    memory.remember(text, user=user)
    memory.semantic.add(text, user=user)
    memory.documents.put(user, text, scope=Scope(user=user))

    for noun, *command in (
        ("record", "recall", "TV"),
        ("memory", "remembered", "TV"),
        ("memory", "memories"),
        ("statement", "similar", "TV"),
        ("statement", "known"),
        ("document", "search", "TV"),
        ("document", "list"),
    ):
        found = run(address, *command, "--user", user)
        assert (found.returncode, found.stderr, text in found.stdout) == (0, "", True)
        mistyped = run(address, *command, "--user", user.upper())
        assert f"note: no {noun} has the user '{user.upper()}'\n" in mistyped.stderr
    # Another condition excludes what the user has.
    assert "has the user" not in run(address, "memories", "--user", user, "--type", "plan").stderr
    assert "has the user" not in run(address, "remembered", "TV", "--user", user, "--type", "plan").stderr
    memory.documents.delete(user)


def test_a_hyphen_in_the_place_of_a_text_is_standard_input(address: str, memory: Client, user: str) -> None:
    text = "Milk, bread.\nNo nuts!"
    for command in (
        ("remember", "-", "--user", user),
        ("learn", "-", "--user", user),
        ("record", "-", "--user", user, "--type", "note"),
        ("chat", "add", "c1", "-", "--user", user),
        ("facts", "put", f"user.{user}", "-", "--key", "list"),
    ):
        done = run(address, *command, stdin=f"{text}\n")
        assert (done.returncode, done.stderr) == (0, ""), command
    stored = [
        *(each.content for each in memory.memories.list(user=user)),
        *(each.content for each in memory.semantic.list(user=user)),
        *(each.content for each in memory.timeline.list(user=user)),
        memory.facts.get(("user", user), "list").value["content"],
    ]
    assert stored == [text] * 5

    for command in (("recall", "-", "--user", user), ("timeline", "-", "--user", user)):
        assert "No nuts!" in run(address, *command, stdin="Which nuts?\n").stdout
    called = run(
        address, "tools", "call", "search_memory", "-", "--config", f"user_id={user}", stdin='{"query": "milk"}'
    )
    assert "No nuts!" in called.stdout, called.stderr


def test_a_list_is_remembered_after_two_hyphens(address: str, memory: Client, user: str) -> None:
    done = run(address, "remember", "--user", user, "--", "- milk")
    assert done.returncode == 0, done.stderr
    assert [each.content for each in memory.memories.list(user=user)] == ["- milk"]


def test_a_remembered_text_is_recalled_with_its_tags(address: str, memory: Client) -> None:
    options = ("--type", "preference", "--user", "ada", "--decay", "reinforceable", "--global", "--meta", "score=5")
    memory_id = remembered(address, "Ada likes green tea.", *options, "--meta", "when=5 pm")
    assert memory_id in run(address, "memories", "--where", "metadata.when~5").stdout
    remembered(address, "The report is due on Friday.", "--user", "bob")

    stored = memory.memories.get(memory_id)
    assert (stored.type, stored.user, stored.decay, stored.is_global, stored.metadata) == (
        "preference",
        "ada",
        "reinforceable",
        True,
        {"score": 5, "when": "5 pm"},
    )
    shown = run(address, "remembered", "green tea", "--limit", "1", "--explain").stdout
    for part in ("Ada likes green tea.", memory_id, "type=preference", "user=ada", "100%", "words: green, tea"):
        assert part in shown
    assert "Friday" not in shown
    [answer] = run_json(address, "remembered", "tea", "--user", "ada", "--where", "metadata.score>=3", "--since", "1h")
    assert [hit["memory_id"] for hit in answer["results"]] == [memory_id]
    assert "nothing found" in run(address, "remembered", "tea", "--where", "metadata.score>5").stdout
    assert memory_id in run(address, "remembered", "tea", "--where", "is_global=true").stdout
    refused = run(address, "remembered", "tea", "--where", "is_global=yes")
    assert refused.returncode == 1
    assert 'where.is_global: takes true or false, not the text "yes"' in refused.stderr


def test_a_file_of_json_lines_is_remembered_and_bad_lines_are_named(
    address: str, memory: Client, tmp_path: Path
) -> None:
    lines = [
        '"Ada likes tea."',
        '{"content": "Bob?", "type": "fact"}',
        "{broken",
        '{"content": " "}',
        '{"content": "a", "agnet": "b"}',
    ]
    path = tmp_path / "memories.jsonl"
    path.write_text("\n".join(lines), encoding="utf-8")

    done = run(address, "remember", "--file", path, "--type", "preference", "--meta", "year=2026")

    assert done.returncode == 1
    assert done.stdout == "2 remembered, 0 updated, 0 unchanged, 3 failed\n"
    for number in (3, 4, 5):
        assert f"memories.jsonl:{number}: " in done.stderr
    assert {(each.content, each.type) for each in memory.memories.list(metadata={"year": 2026})} == {
        ("Ada likes tea.", "preference"),
        ("Bob?", "fact"),
    }


def test_the_json_output_of_list_can_be_remembered_from_standard_input(address: str, memory: Client) -> None:
    remembered(address, "Ada likes tea.", "--user", "ada", "--decay", "contextual", "--meta", 'code="007"')
    listed = run(address, "memories", "--json").stdout
    before = list(memory.memories.list())
    memory.memories.purge(user="ada")

    done = run(address, "remember", "--file", "-", "--json", stdin=listed)

    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout.splitlines()[-1])["summary"]["remembered"] == 1
    [after] = memory.memories.list()
    assert [(after.memory_id, after.content, after.scope, after.decay, after.metadata)] == [
        (each.memory_id, each.content, each.scope, each.decay, each.metadata) for each in before
    ]


def test_a_line_with_the_id_of_a_memory_updates_that_memory(address: str, memory: Client) -> None:
    tea = remembered(address, "Ada likes tea.", "--user", "ada", "--meta", "score=5")
    remembered(address, "Ada has a cat.", "--user", "ada")
    listed = run(address, "memories", "--json").stdout

    again = run(address, "remember", "--file", "-", stdin=listed)
    assert (again.returncode, again.stdout) == (0, "0 remembered, 0 updated, 2 unchanged, 0 failed\n")
    changed = run(address, "remember", "--file", "-", stdin=listed.replace("likes tea", "likes coffee"))
    assert changed.stdout == "0 remembered, 1 updated, 1 unchanged, 0 failed\n"
    assert memory.memories.count() == 2
    stored = memory.memories.get(tea)
    assert (stored.content, stored.user, stored.metadata) == ("Ada likes coffee.", "ada", {"score": 5})

    memory.memories.delete(tea)
    forgotten = run(address, "remember", "--file", "-", stdin=listed)
    assert (forgotten.returncode, forgotten.stdout) == (1, "0 remembered, 0 updated, 1 unchanged, 1 failed\n")
    assert tea in forgotten.stderr


def test_a_list_counts_limits_and_shows_one(address: str, memory: Client) -> None:
    ids = [remembered(address, f"note {number}", "--agent", "claude") for number in range(3)]
    memory.memories.delete(ids[2])

    assert run(address, "memories", "--count").stdout == "2\n"
    assert run(address, "memories", "--count", "--deleted", "--agent", "claude").stdout == "3\n"
    assert run_json(address, "memories", "--count") == [{"count": 2}]
    listed = run(address, "memories", "--limit", "1")
    assert ids[0] in listed.stdout and ids[1] not in listed.stdout
    assert "there are more than 1;" in listed.stderr
    assert "forgotten" in run(address, "memories", "--deleted").stdout
    sheet = run(address, "memories", ids[1]).stdout
    assert "note 1" in sheet and "claude" in sheet
    missing = run(address, "memories", ids[2])
    assert (missing.returncode, missing.stdout) == (1, "")
    assert missing.stderr.startswith("Error: ")


def test_forgetting_can_be_undone_and_only_a_purge_asks(address: str, memory: Client) -> None:
    memory_id = remembered(address, "Ada likes tea.")

    assert run(address, "forget", memory_id).stdout == f"forgot {memory_id}\n"
    assert memory.memories.count() == 0
    again = run(address, "forget", memory_id)
    assert again.returncode == 1 and again.stderr.startswith("Error: ")
    assert run(address, "forget", memory_id, "--undo").stdout == f"remembered again: {memory_id}\n"
    assert memory.memories.count() == 1

    refused = run(address, "forget", memory_id, "--purge", stdin="n\n")
    assert refused.returncode == 1
    assert "Remove 1 memory for good?" in refused.stderr
    assert memory.memories.count() == 1
    assert run(address, "forget", memory_id, "--purge", stdin="y\n").stdout == "1 memory purged\n"
    assert memory.memories.count(show_deleted=True) == 0


def test_options_say_which_memories_a_purge_deletes(address: str, memory: Client) -> None:
    for user in ("ada", "ada", "bob"):
        remembered(address, f"A note of {user}.", "--user", user)
    memory.memories.delete(next(memory.memories.list(user="bob")).memory_id)

    assert run(address, "forget", "--purge", "--user", "ada", "--dry-run").stdout == "2 memories would be purged\n"
    assert run(address, "forget", "--purge", "--user", "ada", "--yes").stdout == "2 memories purged\n"
    assert run_json(address, "forget", "--purge", "--deleted", "--yes") == [{"purged_count": 1, "dry_run": False}]
    assert memory.memories.count(show_deleted=True) == 0


def test_reinforcing_continues_after_a_memory_that_cannot_be_reinforced(address: str, memory: Client) -> None:
    stable = remembered(address, "Ada likes tea.")
    fading = remembered(address, "Ada likes cake.", "--decay", "reinforceable")

    done = run(address, "reinforce", stable, fading)

    assert done.returncode == 1
    assert done.stdout == f"reinforced {fading}\n"
    assert "stable" in done.stderr
    assert memory.memories.get(fading).reinforce_time is not None


def test_a_forecast_names_the_memories_that_fade_by_then(address: str, memory: Client) -> None:
    fading = remembered(address, "It rains at the moment.", "--decay", "contextual")
    remembered(address, "Ada likes tea.")

    shown = run(address, "forecast", "--by", "30d").stdout
    assert fading in shown and "100%" in shown and "tea" not in shown
    assert run_json(address, "forecast", "--by", "30d", "--type", "weather", "--min-confidence", "1") == []
    [line] = run_json(address, "forecast", "--by", "7d", "--min-confidence", "0.6")
    assert line["memory_id"] == fading
    assert line["confidence_then"] == pytest.approx(0.5, abs=0.01)
    assert "nothing fades by then" in run(address, "forecast", "--by", "1d").stdout


def test_health_reports_memories(address: str, memory: Client) -> None:
    remembered(address, "Ada likes tea.")

    shown = run(address, "health")
    [health] = run_json(address, "health")

    assert shown.returncode == 0
    assert "1, and 0 forgotten" in shown.stdout
    assert "no answer" not in shown.stdout
    assert (health["status"], health["memories"]["status"]) == ("healthy", "healthy")
    assert (health["document_count"], health["memories"]["memory_count"]) == (0, 1)


def test_an_earlier_version_is_shown_and_restored(address: str, memory: Client) -> None:
    memory_id = remembered(address, "Ada likes green tea.")
    memory.memories.update(memory_id, content="Ada likes black tea.")
    shown = run(address, "versions", "memory", memory_id)
    assert (shown.returncode, "Ada likes green tea." in shown.stdout, "update" in shown.stdout) == (0, True, True)
    [version] = [
        json.loads(line) for line in run(address, "versions", "memory", memory_id, "--json").stdout.splitlines()
    ]
    restored = run(address, "restore", "memory", memory_id, version["version"]["version_id"])
    assert (restored.stdout, restored.returncode) == (f"restored {memory_id}\n", 0)
    assert memory.memories.get(memory_id).content == "Ada likes green tea."


def test_the_versions_of_an_unknown_record_are_an_error(address: str, memory: Client) -> None:
    memory_id = remembered(address, "Ada likes green tea.")
    assert "no earlier versions" in run(address, "versions", "memory", memory_id).stdout
    for name in (("memory", "nope"), ("document", "nope"), ("statement", "nope"), ("fact", "notes.ada", "nope")):
        done = run(address, "versions", *name)
        assert (done.returncode, "nope" in done.stderr) == (1, True), done.stderr


def test_the_versions_of_a_deleted_fact_are_shown_and_restored(address: str, memory: Client) -> None:
    memory.facts.put(("notes", "ada"), "seat", {"row": 12})
    memory.facts.delete(("notes", "ada"), "seat")
    lines = run(address, "versions", "fact", "notes.ada", "seat", "--json").stdout.splitlines()
    version = json.loads(lines[0])
    assert run(address, "restore", "fact", "notes.ada", "seat", version["version"]["version_id"]).returncode == 0
    assert memory.facts.get(("notes", "ada"), "seat").value == {"row": 12}
    assert run(address, "versions", "fact", "seat").returncode == 2
