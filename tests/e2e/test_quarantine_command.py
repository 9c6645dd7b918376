"""The command that hides sources, as an admin types it."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from mnemon import Client, Scope

from tests.support.command import run, run_json
from tests.support.server import server_process


@pytest.fixture
def address(tmp_path: Path) -> Iterator[str]:
    with server_process(tmp_path) as server, Client(server.address()) as client:
        for name in ("evil.example", "good.example"):
            scope = Scope(user="ada", origin="web", origin_name=name)
            client.documents.put(name, f"The letter of {name}.", scope=scope)
        yield server.address()


def test_a_source_is_hidden_listed_and_shown_again(address: str) -> None:
    added = run(address, "quarantine", "add", "web", "evil.example", "--reason", "gives orders")
    assert added.stdout == "web: evil.example is in quarantine; hidden: 1 document\n"
    assert run(address, "search", "letter").stdout.count("letter of") == 1
    again = run(address, "quarantine", "add", "web", "evil.example")
    assert again.stdout == "web: evil.example was in quarantine before; hidden: 1 document\n"
    listed = run(address, "quarantine", "list").stdout
    assert listed.startswith("web: evil.example  since 20") and listed.endswith("UTC  gives orders\n")
    [[said]] = run_json(address, "quarantine", "list")
    assert (said["origin"], said["origin_name"], said["reason"]) == ("web", "evil.example", "gives orders")
    [released] = run_json(address, "quarantine", "release", "web", "evil.example")
    assert (released["existed"], released["counts"]) == (True, {"document": 1})
    empty = run(address, "quarantine", "list")
    assert (empty.returncode, empty.stdout, empty.stderr) == (0, "", "nothing is in quarantine\n")


def test_a_name_within_a_hidden_origin_stays_hidden_when_it_is_released(address: str) -> None:
    run(address, "quarantine", "add", "web", "evil.example")
    whole = run(address, "quarantine", "add", "web")
    assert whole.stdout == "web (any name) is in quarantine; hidden: 2 documents\n"
    released = run(address, "quarantine", "release", "web", "evil.example")
    assert released.stdout == "web: evil.example is released; shown again: nothing\n"
    assert ".example" not in run(address, "search", "letter").stdout
    run(address, "quarantine", "release", "web")
    assert "good.example" in run(address, "search", "letter").stdout


def test_mistakes_are_named(address: str) -> None:
    typo = run(address, "quarantine", "add", "web", "evil.exampl")
    assert (typo.returncode, typo.stdout) == (0, "web: evil.exampl is in quarantine; hidden: nothing\n")
    assert typo.stderr == "no record has exactly this origin and name yet; new ones will be hidden\n"
    unknown = run(address, "quarantine", "release", "web", "evil.example")
    assert unknown.returncode == 1 and "'evil.example' is not in quarantine" in unknown.stderr
    for words, told in (
        (("add", "evil.example"), "is not one of 'user'"),
        (("add",), "Missing argument"),
        (("add", "web", ""), "a variable may be unset"),
        (("add", "web", "a", "b"), "unexpected extra argument"),
    ):
        refused = run(address, "quarantine", *words)
        assert refused.returncode == 2 and told in refused.stderr, words
