"""The client's object and the command that erase, against a real server."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from mnemon import Client, EraseProgress, F, InvalidArgumentError

from tests.support.command import run, run_json
from tests.support.server import server_process


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    flags = ("--knowledge-store-backend", "local", "--erasure-delay-s", "0.05")
    with server_process(tmp_path_factory.mktemp("data"), *flags) as server:
        yield server.address()


@pytest.fixture
def client(address: str) -> Iterator[Client]:
    """A client of a server with records of two users."""
    with Client(address) as client:
        for user in ("ada", "bob"):
            client.remember(f"{user} likes tea.", user=user)
            client.timeline.add("conversation", f"{user} asked for the train.", user=user)
            client.facts.put(("user", user), "home", {"content": f"{user} lives in Berlin."})
        yield client
        for user in ("ada", "bob"):
            client.erasures.run(user=user)


def test_a_user_is_erased_with_progress_and_a_receipt(client: Client) -> None:
    assert client.erasures.count(user="ada")["fact"] == 1
    seen: list[EraseProgress] = []
    receipt = client.erasures.run(user="ada", on_progress=seen.append, request_id="first")
    assert receipt.is_complete and receipt.counts["event"] == 1 and not receipt.replayed
    assert seen and {str(each.phase) for each in seen} <= {"finding", "removing", "settling", "checking"}
    assert [memory.scope.user for memory in client.memories.list()] == ["bob"]
    assert client.erasures.run(user="ada", request_id="first").replayed
    assert client.erasures.list()[-1].text == receipt.text
    assert receipt.public_key == client.erasures.key()
    assert receipt.said["counts"] == receipt.counts


def test_only_what_matches_is_erased(client: Client) -> None:
    where = F("content").contains("tea") & (F("user") == "ada")
    assert client.erasures.run(kind="memory", where=where).counts["memory"] >= 1
    assert [fact.key for fact in client.facts.list(("user", "ada"))] == ["home"]
    for wrong in ({}, {"user": "ada", "kind": "memory"}, {"user": "ada", "where": where}, {"kind": "thing"}):
        with pytest.raises(InvalidArgumentError):
            client.erasures.count(**wrong)  # type: ignore[arg-type]


def test_the_command_counts_asks_and_writes_the_receipt(client: Client, address: str, tmp_path: Path) -> None:
    path = tmp_path / "ada.json"
    counted = run(address, "erase", "--user", "ada", "--dry-run")
    assert counted.stdout == "1 event, 1 fact, 1 memory would be erased\n"
    asked = run(address, "erase", "--user", "ada", stdin="n\n")
    assert (asked.returncode, client.erasures.count(user="ada")["memory"]) == (1, 1)
    for place, said in ((Path(__file__), "exists already"), (tmp_path / "no" / "ada.json", "cannot be written")):
        refused = run(address, "erase", "--user", "ada", "--yes", "--receipt", place)
        assert refused.returncode == 1 and said in refused.stderr
        assert client.erasures.count(user="ada")["memory"] == 1
    done = run(address, "erase", "--user", "ada", "--yes", "--receipt", path)
    assert done.returncode == 0
    assert done.stdout.startswith("erased: 1 event, 1 fact, 1 memory; ")
    assert "out of reach: backups" in done.stdout and done.stderr.startswith("finding\n")
    assert json.loads(path.read_text())["receipt"] == client.erasures.list()[-1].text
    assert path.stat().st_mode & 0o777 == 0o600
    [receipt] = run_json(address, "erase", "--facts-namespace", "user.bob", "--yes")
    assert json.loads(receipt["receipt"])["subject"]["kind"] == "namespace"
    assert run(address, "erase").returncode == 2
