"""`mnemon watch` against a real server, used as people and programs use it."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import pytest
from mnemon import Client, Scope

from tests.support.command import run
from tests.support.server import START_S, server_process


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with server_process(tmp_path_factory.mktemp("data"), "--knowledge-store-backend", "local") as running:
        with Client(running.address()) as client:
            client.documents.put("note", "text", scope=Scope(user="ada"))
            client.remember("Ada prefers tea.", user="ada", request_id="tea")
            client.documents.put("other", "text")
        yield running.address()


@contextmanager
def watching(address: str, *arguments: str) -> Iterator["subprocess.Popen[str]"]:
    """The command in its own process, because it runs until it is interrupted."""
    process = subprocess.Popen(
        [sys.executable, "-m", "mnemon", "watch", *arguments],
        env={**os.environ, "MNEMON_ADDRESS": address},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def line(process: "subprocess.Popen[str]") -> str:
    assert process.stdout is not None
    return process.stdout.readline()


def interrupt(process: "subprocess.Popen[str]") -> tuple[int, str]:
    """The exit code after Ctrl-C, and the output."""
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=START_S)
    return process.returncode, said


def test_it_prints_a_line_per_event_and_at_ctrl_c_how_to_resume(address: str) -> None:
    with watching(address, "--since", "earliest") as process:
        first, second, third = line(process), line(process), line(process)
        code, said = interrupt(process)
    assert "knowledge:indexed         note  revision 1  user=ada" in first
    assert "memory:created" in second
    assert third.rstrip().endswith("knowledge:indexed         other  revision 1")
    assert code == 0
    start, _, cursor = said.strip().rpartition(" ")
    assert start == "to go on from here: mnemon watch --since"

    with watching(address, "--since", cursor) as process, Client(address) as client:
        client.documents.put("later", "text")
        assert "  later  " in line(process)


def test_for_programs_it_prints_one_json_object_per_line(address: str) -> None:
    with watching(address, "--since", "earliest", "--type", "memory:created", "--full", "--json") as process:
        event: dict[str, Any] = json.loads(line(process))

    assert (event["type"], event["request_id"], event["scope"]["user"]) == ("memory:created", "tea", "ada")
    assert event["record"]["content"] == "Ada prefers tea."


def test_filters_choose_what_is_shown(address: str) -> None:
    with watching(address, "--since", "2020-01-01", "--user", "ada", "--id", "note", "--json") as process:
        assert json.loads(line(process))["record_id"] == "note"
        with Client(address) as client:
            client.documents.put("unseen", "text", scope=Scope(user="ada"))
            client.documents.put("note", "newer text", scope=Scope(user="ada"))
        assert json.loads(line(process))["revision"] == 2


def test_changes_of_facts_are_named_by_namespace_and_key(address: str) -> None:
    types = ("--type", "memory:fact:created", "--type", "memory:fact:deleted")
    with watching(address, "--since", "earliest", *types) as process:
        with Client(address) as client:
            client.facts.put(("user", "ada"), "seat", {"row": 7}, ttl=timedelta(days=1))
        assert line(process).rstrip().endswith("user.ada  seat")
        with watching(address, "--since", "earliest", "--type", "memory:fact:created", "--full", "--json") as other:
            event: dict[str, Any] = json.loads(line(other))
        with Client(address) as client:
            client.facts.delete(("user", "ada"), "seat")
        assert line(process).rstrip().endswith("user.ada  seat  requested")
    assert event["details"] == {"namespace": ["user", "ada"], "key": "seat", "reason": None}
    assert (event["record"]["value"], event["record"]["ttl_s"]) == ({"row": 7}, 86400.0)


def test_an_error_is_one_line(address: str) -> None:
    refused = run(address, "watch", "--since", "nonsense")
    assert refused.returncode == 1
    assert refused.stderr.startswith("Error: since: must be an unchanged cursor from an earlier answer")
    assert run(address, "watch", "--type", "memory").returncode == 2
    assert "--full needs --json" in run(address, "watch", "--full").stderr


def test_changes_prints_the_stored_log_and_ends(address: str) -> None:
    with Client(address) as client:
        client.documents.put("listed", "kept")
    listed = run(address, "changes", "--id", "listed")
    assert (listed.returncode, len(listed.stdout.splitlines())) == (0, 1), listed.stderr
    assert "knowledge:indexed" in listed.stdout
    with Client(address) as client:
        client.documents.put("listed", "kept longer")
    for place in ("2d", "yesterday", "2020-01-01"):
        first = run(address, "changes", "--id", "listed", "--since", place, "--limit", "1").stdout.splitlines()
        assert len(first) == 1 and "revision 1" in first[0]
    assert run(address, "changes", "--since", "now").returncode == 1
    assert "--full needs --json" in run(address, "changes", "--full").stderr
