"""The mnemon command's statements, decisions and rules, used as people and programs use them."""

import json
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from mnemon import Client, F

from tests.support.command import run, run_json
from tests.support.full_rule import FULL

BERLIN, MUNICH = "Ada lives in Berlin now.", "Ada lives in Munich now."


@pytest.fixture
def client(address: str) -> Iterator[Client]:
    """A client of a server without statements and rules."""
    with Client(address) as found:
        found.semantic.delete_many(where=F("memory_id").exists())
        found.rules.reset()
        yield found


def learnt(address: str, text: str, *options: str) -> str:
    """The id of a statement that the command saved."""
    done = run(address, "learn", text, "--user", "ada", *options)
    assert (done.returncode, done.stderr) == (0, "")
    word, memory_id = done.stdout.split()
    assert word == "learnt"
    return memory_id


def test_a_learnt_statement_is_found_listed_and_shown(address: str, client: Client) -> None:
    options = ("--source", "user", "--importance", "0.5", "--keyword", "home", "--keyword", "city", "--meta", "score=5")
    memory_id = learnt(address, BERLIN, *options, "--summary", "Berlin", "--learnt", "30d", "--persona", "work")
    learnt(address, "Ada grows roses.")

    stored = client.semantic.get(memory_id)
    assert (stored.source, stored.importance, stored.keywords, stored.metadata, stored.persona, stored.summary) == (
        "user",
        0.5,
        ("home", "city"),
        {"score": 5},
        "work",
        "Berlin",
    )
    shown = run(address, "similar", BERLIN, "--user", "ada", "-k", "1").stdout
    for part in (BERLIN, memory_id, "1.000", "user=ada", "persona=work", "source=user", "importance=0.5"):
        assert part in shown
    assert "roses" not in shown
    [answer] = run_json(address, "similar", BERLIN, "--where", "importance>=0.5", "--until", "1d")
    assert [hit["memory_id"] for hit in answer["results"]] == [memory_id]
    [answer] = run_json(address, "similar", "what does she grow in the garden: roses?", "-k", "1")
    assert answer["results"][0]["content"] == "Ada grows roses." and answer["results"][0]["similarity"] < 0.7
    for option in (("--min-similarity", "0.7"), ("--mode", "vector")):
        nothing = run(address, "similar", "tax returns", *option)
        assert nothing.stdout == "nothing found\n"
        assert nothing.stderr == "note: below the least similarity: 2\n"
    refused = run(address, "similar", "tax", "--min-similarity", "0.7", "--mode", "keyword")
    assert refused.returncode == 2 and "--min-similarity compares meaning" in refused.stderr
    sheet = run(address, "known", memory_id).stdout
    assert BERLIN in sheet and "home, city" in sheet
    listed = run(address, "known", "--limit", "1")
    assert BERLIN in listed.stdout and "roses" not in listed.stdout
    assert "there are more than 1;" in listed.stderr
    assert [each["content"] for each in run_json(address, "known", "--since", "1h")] == ["Ada grows roses."]
    assert run(address, "learn", BERLIN, "--user", "ada", "--persona", "work").stdout == f"known already: {memory_id}\n"


def test_a_conflict_is_named_previewed_decided_listed_and_undone(address: str, client: Client) -> None:
    berlin = learnt(address, BERLIN, "--importance", "0.2")
    new = ("learn", MUNICH, "--user", "ada", "--importance", "0.9", "--resolve")

    dry = run(address, *new, "--dry-run")
    assert f"would be: learnt, in place of {berlin}" in dry.stdout
    assert [each.content for each in client.semantic.list()] == [BERLIN]
    done = run(address, *new)
    [munich] = [each.memory_id for each in client.semantic.list()]
    [decision_id] = [each.decision_id for each in client.conflicts.list_decisions()]
    first, second = done.stdout.splitlines()
    assert first == f"learnt {munich}, in place of {berlin}"
    assert second.startswith(f"decision {decision_id}: ")
    shown = run(address, "decisions", "--user", "ada").stdout
    for part in (decision_id, "keep", "rule=default", "strategy=importance", f"existing={berlin}"):
        assert part in shown
    assert [each["decision_id"] for each in run_json(address, "decisions", "--memory", berlin)] == [decision_id]
    assert "nothing was decided" in run(address, "decisions", "--user", "bob").stdout
    assert "superseded" in run(address, "known", "--superseded").stdout
    old = run(address, "learn", "Ada lives in Hamburg now.", "--user", "ada", "--importance", "0.1", "--resolve")
    assert old.stdout.startswith(f"gave way to {munich}\n")

    restored, *conflicts = run(address, "unmerge", decision_id).stdout.splitlines()
    assert restored == f"restored {berlin}" and f"conflicts with {munich}: " in "\n".join(conflicts)
    assert "undone" in run(address, "decisions").stdout
    again = run(address, "unmerge", decision_id)
    assert (again.returncode, again.stdout) == (1, "")
    detected = run(address, "learn", "Ada lives in Rome now.", "--user", "ada", "--detect").stdout
    assert f"conflicts with {berlin}: " in detected and f"conflicts with {munich}: " in detected


def test_a_merge_is_shown_and_undone_by_its_result(address: str, client: Client) -> None:
    client.rules.add({
        "name": "merging", "conditions": {"users": ["ada"]},
        "arbitration": {"priority_importance": False, "priority_recency": False, "priority_source": False,
                        "merge_threshold": 1.0},
    })  # fmt: skip
    berlin = learnt(address, BERLIN)

    done = run(address, "learn", MUNICH, "--user", "ada", "--resolve", "--rule", "merging")

    [merged] = client.semantic.list()
    assert done.stdout.startswith(f"merged with {berlin} into {merged.memory_id}\n")
    parted = run(address, "unmerge", "--memory", merged.memory_id).stdout.splitlines()
    assert f"restored {berlin}" in parted and f"removed {merged.memory_id}" in parted
    assert any(line.startswith(f"conflicts with {berlin}: ") for line in parted)


def test_unlearning_asks_first_and_a_dry_run_only_counts(address: str, client: Client) -> None:
    first, second = learnt(address, "note one"), learnt(address, "note two")

    assert run(address, "unlearn", "--user", "ada", "--dry-run").stdout == "2 statements would be removed\n"
    refused = run(address, "unlearn", first, stdin="n\n")
    assert refused.returncode == 1 and "Remove 1 statement for good?" in refused.stderr
    assert run(address, "unlearn", first, "--yes").stdout == "1 statement removed\n"
    again = run(address, "unlearn", first, second, "--yes")
    assert again.returncode == 1 and f"no statement has the id '{first}'" in again.stderr
    [answer] = run_json(address, "unlearn", "--where", "content~two", "--yes")
    assert (answer["deleted_count"], answer["dry_run"]) == (1, False)
    missing = run(address, "known", second)
    assert missing.returncode == 1 and missing.stderr.startswith("Error: ")


def test_the_index_status_is_shown(address: str, client: Client) -> None:
    learnt(address, BERLIN)

    shown = run(address, "index-status").stdout
    assert "ready" in shown and "1, and 0 superseded" in shown
    assert run_json(address, "index-status")[0]["record_count"] == 1


def test_exported_rules_are_loaded_again(address: str, client: Client, tmp_path: Path) -> None:
    client.rules.add({**FULL, "extends": "default"})
    exported = run(address, "rules", "export").stdout
    path = tmp_path / "rules.json"
    path.write_text(exported, encoding="utf-8")

    assert json.loads(exported) == client.rules.export()
    assert run(address, "rules", "load", path).stdout == "0 new, 0 changed, 0 removed\n"
    assert run(address, "rules", "reset", "--yes").returncode == 0
    assert [rule["name"] for rule in client.rules.list()] == ["default"]
    assert run(address, "rules", "load", "-", stdin=exported).stdout == "1 new, 0 changed, 0 removed\n"
    assert json.loads(run(address, "rules", "export").stdout) == json.loads(exported)
    path.write_text("[]", encoding="utf-8")
    assert run_json(address, "rules", "load", path, "--replace-all")[0]["deleted_count"] == 1


def test_rules_are_loaded_from_yaml_and_listed_shown_and_deleted(address: str, client: Client, tmp_path: Path) -> None:
    path = tmp_path / "rules.yaml"
    path.write_text(
        "rules:\n"
        "  - {name: home, extends: base, priority: 1, conditions: {users: [ada]}, description: At home.}\n"
        "  - name: base\n"
        "    priority: 3\n"
        "    detection: {time_window_s: 60}\n",
        encoding="utf-8",
    )

    loaded = run(address, "rules", "load", path)
    assert loaded.stdout == "2 new, 0 changed, 0 removed\n"
    assert loaded.stderr.startswith("Warning: the rule 'base' has no conditions, so it applies to every statement")
    assert run(address, "rules", "show", "base").stderr == loaded.stderr
    assert list(client.rules.get("base").warnings) == [loaded.stderr.removeprefix("Warning: ").rstrip()]

    listed = run(address, "rules", "list").stdout
    for part in ("home", "base", "users: ada", "At home."):
        assert part in listed
    asked = [rule["name"] for rule in run_json(address, "rules", "list", "--order", "matching")]
    assert asked == ["base", "home", "default"]
    assert json.loads(run(address, "rules", "show", "base").stdout)["detection"] == {"time_window_s": 60.0}
    resolved = run(address, "rules", "show", "home", "--resolved").stdout
    [line] = [line for line in resolved.splitlines() if "detection.time_window_s" in line]
    assert line.split() == ["detection.time_window_s", "60.0", "base"]
    assert run_json(address, "rules", "show", "home", "--resolved")[0]["ancestors"][0] == "base"
    used = run(address, "rules", "delete", "base")
    assert used.returncode == 1 and used.stderr.startswith("Error: ")
    assert run(address, "rules", "delete", "base", "--force").stdout == "deleted base\n"
    gone = run(address, "rules", "delete", "base")
    assert (gone.returncode, gone.stdout) == (1, "")


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("rules.json", "{broken", "rules.json: "),
        ("rules.json", '{"name": "home"}', "must contain a list of rules"),
        ("rules.json", '[{"name": "a", "name": "b"}]', "the key 'name' appears twice"),
        ("rules.yaml", "- {name: a, name: b}", "the key 'name' appears twice in the object of line 1"),
        ("rules.yaml", "- [", "line 1: "),
        ("rules.yml", "- !!python/object:os.x {}", "could not determine a constructor"),
        ("rules.json", '[{"name": "a", "merge": {"mode": 1}}]', "rules[0].merge.mode: is not a key"),
        ("rules.json", '[{"name": "a", "extends": "nowhere"}]', "nowhere"),
    ],
)
def test_a_file_that_holds_no_rules_says_why_and_changes_nothing(
    address: str, client: Client, tmp_path: Path, name: str, content: str, said: str
) -> None:
    path = tmp_path / name
    path.write_text(content, encoding="utf-8")

    done = run(address, "rules", "load", path)

    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("Error: ") and said in done.stderr
    assert [rule["name"] for rule in client.rules.list()] == ["default"]


def test_without_pyyaml_the_command_says_what_to_install(
    address: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "rules.yaml"
    path.write_text("[]", encoding="utf-8")
    monkeypatch.setitem(sys.modules, "yaml", None)
    monkeypatch.delitem(sys.modules, "mnemon._cli.yaml_text", raising=False)

    done = run(address, "rules", "load", path)

    assert done.returncode == 1
    assert "pip install 'mnemon-client[cli]'" in done.stderr
