"""The commands for facts and tools against a real server."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from mnemon import Client

from tests.support.command import run, run_json

ADA = ("user", "ada")


@pytest.fixture
def client(address: str) -> Iterator[Client]:
    """A client of a server without facts."""
    with Client(address) as found:
        found.facts.delete_many((), subtree=True)
        yield found


def test_a_fact_is_stored_shown_found_and_listed(address: str, client: Client) -> None:
    options = ("--key", "tea", "--meta", "score=5", "--ttl", "30d", "--index", "content")
    assert run(address, "facts", "put", "user.ada", "Ada likes green tea.", *options).stdout == (
        'stored user.ada tea: {"content": "Ada likes green tea."}\n'
    )
    stored = client.facts.get(ADA, "tea")
    assert (stored.value, stored.metadata, stored.index) == (
        {"content": "Ada likes green tea."},
        {"score": 5},
        ("content",),
    )
    assert stored.ttl is not None and stored.ttl.days == 30
    ends = [run_json(address, "facts", "get", "user.ada", "tea", *renew)[0] for renew in ((), ("--renew",))]
    assert ends[0]["expire_time"] < ends[1]["expire_time"]
    [receipt] = run_json(address, "facts", "put", "user.bob", '{"title": "Vienna"}', "--no-index")
    assert client.facts.get(("user", "bob"), receipt["receipt"]["id"]).index is False
    refused = run(address, "facts", "put", "user.ada", "coffee", "--key", "tea", "--mode", "create")
    assert refused.returncode == 1 and refused.stderr.startswith("Error: ")

    run(address, "facts", "put", "user.ada", "Ada likes black tea.", "--key", "tea", "--mode", "update")
    sheet = run(address, "facts", "get", "user.ada", "tea", "--versions").stdout
    assert "Ada likes black tea." in sheet and "Ada likes green tea." in sheet
    [found] = run_json(address, "facts", "search", "black tea", "user.ada")
    assert [(each["key"], each["namespace"]) for each in found["results"]] == [("tea", ["user", "ada"])]
    table = run(address, "facts", "search", "black tea").stdout
    assert "Ada likes black tea." in table and "user.ada  tea" in table
    assert [each["key"] for each in run_json(address, "facts", "list", "user.ada")] == ["tea"]
    assert run_json(address, "facts", "list", "user") == []
    listed = run(address, "facts", "list", "--limit", "1")
    assert "black tea" in listed.stdout and "Vienna" not in listed.stdout
    assert "there are more than 1;" in listed.stderr
    assert "Vienna" in run(address, "facts", "list", "--limit", "99999999999999999999").stdout
    assert len(run_json(address, "facts", "list", "user", "--below", "--where", "title=Vienna")) == 1
    assert run(address, "facts", "namespaces").stdout == "user.ada\nuser.bob\n"
    assert run(address, "facts", "namespaces", "--prefix", "*.bob").stdout == "user.bob\n"
    assert run_json(address, "facts", "namespaces", "--depth", "1") == [["user"]]
    missing = run(address, "facts", "get", "user.bob", "tea")
    assert missing.returncode == 1 and missing.stderr.startswith("Error: no fact")


def test_a_printed_list_can_be_stored_again_line_by_line(address: str, client: Client, tmp_path: Path) -> None:
    for number in range(3):
        client.facts.put((*ADA, f"room-{number}"), f"key-{number}", {"n": number, "content": f"note {number}"})
    before = list(client.facts.list(subtree=True))
    path = tmp_path / "facts.jsonl"
    path.write_text(run(address, "facts", "list", "--json", "--limit", "0").stdout, encoding="utf-8")
    client.facts.delete_many((), subtree=True)

    assert run(address, "facts", "put", "--file", path).stdout == "3 stored, 0 failed\n"
    after = list(client.facts.list(subtree=True))
    assert [(each.namespace, each.key, each.value, each.create_time) for each in after] == [
        (each.namespace, each.key, each.value, each.create_time) for each in before
    ]
    lines = '"tea"\n[]\n{"value": {"n": 1}, "namespace": [""]}'
    done = run(address, "facts", "put", "user.bob", "--file", "-", "--json", stdin=lines)
    assert done.returncode == 1
    *results, last = [json.loads(line) for line in done.stdout.splitlines()]
    assert last == {"summary": {"stored": 1, "failed": 2}}
    assert sorted(result["line"] for result in results if "error" in result) == ["-:2", "-:3"]
    assert [each.value for each in client.facts.list(("user", "bob"))] == [{"content": "tea"}]


def test_deleting_asks_first_and_a_dry_run_only_counts(address: str, client: Client) -> None:
    for number in range(4):
        client.facts.put(ADA, f"key-{number}", {"n": number})
    client.facts.put((*ADA, "below"), "kept", {"n": 0})

    assert run(address, "facts", "delete", "user.ada", "--dry-run").stdout == "4 facts would be removed\n"
    refused = run(address, "facts", "delete", "user.ada", stdin="n\n")
    assert refused.returncode == 1 and "Remove 4 facts for good?" in refused.stderr
    assert len(list(client.facts.list(ADA))) == 4
    done = run(address, "facts", "delete", "user.ada", "key-0", "gone")
    assert (done.returncode, done.stdout) == (1, "deleted user.ada key-0\n")
    assert "has no fact 'gone'" in done.stderr
    [answer] = run_json(address, "facts", "delete", "user.ada", "--where", "n<2", "--yes")
    assert answer == {"deleted_count": 1, "dry_run": False}
    assert run(address, "facts", "delete", "user.ada", "--yes").stdout == "2 facts removed\n"
    client.facts.put(ADA, "appointment", {"content": "The dentist, at 5 pm."})
    for part in ("dentist", "5", '"5 pm"'):
        done = run(address, "facts", "delete", "user.ada", "--where", f"content~{part}", "--dry-run")
        assert (done.stderr, done.stdout) == ("", "1 fact would be removed\n")
    assert run(address, "facts", "delete", "user.ada", "--where", "content~dentist", "-y").stdout == "1 fact removed\n"
    assert [each.key for each in client.facts.list(subtree=True)] == ["kept"]
    assert run(address, "facts", "delete", "user", "--below", "-y").stdout == "1 fact removed\n"


def test_tools_are_described_to_a_model_and_its_calls_run(address: str, client: Client) -> None:
    table = run(address, "tools", "list", "--permit", "create").stdout
    assert "manage_memory" in table and "Create memories" in table
    [schemas] = run_json(address, "tools", "list", "--style", "anthropic")
    assert schemas == client.tools.schemas("anthropic")
    assert [each["name"] for each in run_json(address, "tools", "list")] == ["manage_memory", "search_memory"]

    created = run(address, "tools", "call", "manage_memory", '{"content": "Ada likes tea."}', "--config", "user_id=ada")
    assert created.stdout.startswith("created memory ")
    query = ("tools", "call", "search_memory", '{"query": "tea"}')
    [found] = json.loads(run(address, *query, "--config", "user_id=ada").stdout)
    assert found["value"] == {"content": "Ada likes tea."}
    [output] = run_json(address, *query, "--config", "user_id=ada", "--artifact")
    assert output["artifact"][0]["key"] == found["key"]
    lost = run(address, *query)
    assert lost.returncode == 1 and "'user_id'" in lost.stderr


def test_calls_are_parsed_from_a_text_run_and_counted(address: str, client: Client, tmp_path: Path) -> None:
    path = tmp_path / "answer.txt"
    path.write_text(
        'Sure.\n[[ABP_TOOL:manage_memory]]{"content": "Ada likes tea.",}[[END_ABP_TOOL]]\n'
        "[[ABP_TOOL:gone]]{}[[END_ABP_TOOL]]\n[[ABP_TOOL:cut]]{",
        encoding="utf-8",
    )
    before = client.tools.stats()

    read = run(address, "tools", "parse", path)
    assert read.returncode == 0
    assert "extra commas" in read.stdout and "a block of cut gave no call" in read.stdout
    assert list(client.facts.list(subtree=True)) == []
    done = run(address, "tools", "execute", path, "--config", "user_id=ada")
    assert done.returncode == 1
    first, second = done.stdout.splitlines()
    assert "manage_memory: created memory " in first and "gone: error: " in second
    assert "line 4: a block of cut gave no call: " in done.stderr
    unread = run(address, "tools", "execute", stdin="[[ABP_TOOL:cut]]{")
    assert (unread.returncode, unread.stdout) == (1, "") and "line 1: a block of cut gave no call: " in unread.stderr
    assert [each.value for each in client.facts.list(ADA)] == [{"content": "Ada likes tea."}]
    plain = run(address, "tools", "execute", "--config", "user_id=ada", stdin="Good morning.")
    assert (plain.returncode, plain.stdout) == (0, "no call: the text is the model's answer\n")
    [stats] = run_json(address, "tools", "stats")
    assert stats["total"] == before.total + 4
    assert "no marker" in run(address, "tools", "stats").stdout
