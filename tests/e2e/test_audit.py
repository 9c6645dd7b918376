"""The audit log: who wrote, administered or was refused, in lines that cannot be changed without notice."""

import json
import re
from pathlib import Path
from typing import Any

import mnemon
import pytest
from mnemon_server.domain.access.audit import AuditEntry, LeftOut
from mnemon_server.engines.audit_file import FOLDER_NAME, AuditFile, verify_audit

from tests.support.access import guarded_server, key_id, make_key
from tests.support.server import run_command

PRIVATE = "Ada dislikes early flights"


def shown(folder: Path, *flags: str) -> list[dict[str, Any]]:
    printed = run_command("audit", "show", "--data-dir", str(folder), *flags)
    assert printed.returncode == 0, printed.stderr
    return [json.loads(line) for line in printed.stdout.splitlines()]


def verified(folder: Path) -> tuple[int, str]:
    printed = run_command("audit", "verify", "--data-dir", str(folder))
    return printed.returncode, printed.stdout


async def used(folder: Path, **settings: Any) -> tuple[str, str, str]:
    """A folder after writes, reads, administration and refusals; the keys, and the id of a memory."""
    admin, reader = make_key(folder, "admin", tenant="acme"), make_key(folder, "reader", tenant="acme")
    async with guarded_server(folder, **settings) as connection:
        address = str(connection.server.address)
        async with mnemon.AsyncClient(address, api_key=admin) as client:
            memory = await client.remember(PRIVATE, type="preference", user="ada")
            await client.memories.get(memory.memory_id)
            await client.memories.delete(memory.memory_id)
            await client.keys.add("another", role="reader")
            assert [result async for result in client.memories.add_many([PRIVATE])]
        async with mnemon.AsyncClient(address, api_key=reader) as client:
            with pytest.raises(mnemon.PermissionDeniedError):
                await client.remember("not allowed", type="preference")
            await client.memories.count()
        async with mnemon.AsyncClient(address, api_key="mn_wrong") as client:
            with pytest.raises(mnemon.UnauthenticatedError):
                await client.memories.count()
    return admin, reader, memory.memory_id


async def test_writes_administration_and_refusals_are_in_the_log_without_any_text(tmp_path: Path) -> None:
    admin, reader, memory_id = await used(tmp_path)
    assert verified(tmp_path) == (0, "6 entries; nothing was changed\n")
    entries = shown(tmp_path)
    assert [(entry["method"].split("/")[1], entry["code"]) for entry in entries] == [
        ("CreateMemory", "OK"),
        ("DeleteMemory", "OK"),
        ("CreateKey", "OK"),
        ("BulkCreateMemories", "OK"),
        ("CreateMemory", "PERMISSION_DENIED"),
        ("CountMemories", "UNAUTHENTICATED"),
    ]
    assert {entry.get("subject") for entry in entries} == {f"key:{key_id(admin)}", f"key:{key_id(reader)}", None}
    assert {entry.get("tenant") for entry in entries} == {"acme", None}
    assert all(entry["peer"].startswith("ipv4:127.0.0.1") and entry["request_id"] for entry in entries)
    files = b"".join(path.read_bytes() for path in (tmp_path / FOLDER_NAME).iterdir())
    for hidden in (PRIVATE, memory_id, "not allowed", "wrong", admin):
        assert hidden.encode() not in files
    assert {path.stat().st_mode & 0o777 for path in (tmp_path / FOLDER_NAME).iterdir()} == {0o600}
    named = shown(tmp_path, "--tenant", "acme", "--record", memory_id)
    assert [entry["method"].split("/")[1] for entry in named] == ["CreateMemory", "DeleteMemory"]
    assert len(shown(tmp_path, "--subject", f"key:{key_id(reader)}")) == 1
    assert len(shown(tmp_path, "--method", "Create", "--since", "2026-01-01")) == 4
    assert shown(tmp_path, "--since", "2999-01-01") == []
    for flags, told in (
        (("--subject", "ada"), "a subject is that of a caller"),
        (("--tenant", "ada"), "no entry matches"),
    ):
        nothing = run_command("audit", "show", "--data-dir", str(tmp_path), *flags)
        assert (nothing.returncode, nothing.stdout) == (0, "")
        assert nothing.stderr.startswith("no entry matches\n")
        assert told in nothing.stderr


async def test_reads_are_in_the_log_if_that_is_asked_for_and_nothing_if_it_is_off(tmp_path: Path) -> None:
    await used(tmp_path / "all", audit_log="all")
    methods = [entry["method"].split("/")[1] for entry in shown(tmp_path / "all")]
    assert {"GetMemory", "CountMemories"} <= set(methods)
    await used(tmp_path / "off", audit_log="off")
    assert not (tmp_path / "off" / FOLDER_NAME).exists()
    assert verified(tmp_path / "off")[0] == 2


async def test_what_a_call_wrote_or_was_to_remove_is_named_whether_it_succeeded_or_not(tmp_path: Path) -> None:
    secret = make_key(tmp_path, "writer", tenant="acme")
    async with (
        guarded_server(tmp_path) as connection,
        mnemon.AsyncClient(str(connection.server.address), api_key=secret) as client,
    ):
        event = await client.timeline.add("remark", PRIVATE, user="ada")
        with pytest.raises(mnemon.NotFoundError):
            await client.memories.delete("missing")
    for record_id, found in ((event.event_id, ("RecordEvent", "OK")), ("missing", ("DeleteMemory", "NOT_FOUND"))):
        [entry] = shown(tmp_path, "--tenant", "acme", "--record", record_id)
        assert (entry["method"].split("/")[1], entry["code"]) == found


async def test_a_key_is_named_from_its_creation_on(tmp_path: Path) -> None:
    secret = make_key(tmp_path, "admin", tenant="acme")
    async with (
        guarded_server(tmp_path) as connection,
        mnemon.AsyncClient(str(connection.server.address), api_key=secret) as client,
    ):
        key = (await client.keys.add("another", role="reader")).key
        await client.keys.rotate(key.key_id)
        await client.keys.revoke(key.key_id)
    named = shown(tmp_path, "--tenant", "acme", "--record", key.key_id)
    assert [entry["method"].split("/")[1] for entry in named] == ["CreateKey", "RotateKey", "RevokeKey"]


def test_every_change_of_the_files_is_noticed(tmp_path: Path) -> None:
    log = AuditFile(tmp_path)
    for together in (range(1, 3), range(3, 4), range(4, 7)):
        log.append([AuditEntry(0, "acme", "key:1", "", "a/B", "OK", str(number)) for number in together])
    [path] = (tmp_path / FOLDER_NAME).glob("*.jsonl")
    whole, head = path.read_bytes(), tmp_path / FOLDER_NAME / "head"
    lines = whole.splitlines(keepends=True)
    without_hash = re.sub(rb'"chain":"[0-9a-f]+",', b"", lines[5])
    changed = {
        "one of the entries 1 to 2 was changed": [lines[0].replace(b"key:1", b"key:2"), *lines[1:]],
        "entry 3 was changed": [*lines[:2], lines[2].replace(b"key:1", b"key:2"), *lines[3:]],
        "one of the entries 4 to 6 was changed": [*lines[:4], lines[4].replace(b"OK", b"ok"), lines[5]],
        "entry 1 was changed, or an entry before is missing": lines[1:],
        "one of the entries 3 to 5 was changed, or an entry before": [*lines[:2], *lines[3:]],
        "one of the entries 4 to 5 was changed": [*lines[:4], lines[5]],
        "one of the entries 4 to 6 was": [*lines[:3], lines[4], lines[3], lines[5]],
        "one of the entries 4 to 7 was": [*lines[:4], lines[3], *lines[4:]],
        "entry 7 was changed": [*lines, lines[-1]],
        "entry 7 was added": [*lines, lines[0]],
        "the log ends with entry 3, and 6 were written": lines[:3],
        "one of the entries 4 to 5 was added, or not written to the end": lines[:5],
        "one of the entries 4 to 6 was added, or not written to the end": [*lines[:5], without_hash],
        "one of the entries 4 to 6 was added, or not": [*lines[:5], lines[5][:-1]],
    }
    for problem, content in changed.items():
        path.write_bytes(b"".join(content))
        [found] = verify_audit(tmp_path).problems
        assert found.startswith(problem)
    assert verified(tmp_path)[0] == 1
    path.write_bytes(whole)
    assert verified(tmp_path) == (0, "6 entries; nothing was changed\n")
    head.unlink()
    assert verified(tmp_path)[0] == 1


def test_entries_that_are_missing_at_the_end_stay_missing_when_the_log_goes_on(tmp_path: Path) -> None:
    log = AuditFile(tmp_path)
    for number in range(3):
        log.append([LeftOut(0, number)])
    [path] = (tmp_path / FOLDER_NAME).glob("*.jsonl")
    path.write_bytes(b"".join(path.read_bytes().splitlines(keepends=True)[:2]))
    AuditFile(tmp_path).append([LeftOut(0, 3)])
    assert verify_audit(tmp_path).problems == ("entry 3 was changed, or an entry before is missing",)


async def test_the_log_goes_on_after_a_restart_and_after_a_kill_amid_a_write(tmp_path: Path) -> None:
    await used(tmp_path)
    [path] = (tmp_path / FOLDER_NAME).glob("*.jsonl")
    for unfinished in (b'{"sequence":7,"time":"20', b'{"sequence":7,"left_out":1}\n{"chain":"0123'):
        with path.open("ab") as file:
            file.write(unfinished)
        assert verified(tmp_path)[0] == 1
        AuditFile(tmp_path)
        assert verified(tmp_path) == (0, "6 entries; nothing was changed\n")
    await used(tmp_path)
    assert verified(tmp_path) == (0, "12 entries; nothing was changed\n")


def test_a_full_file_is_followed_by_another(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mnemon_server.engines.audit_file.FILE_BYTES_MAX", 500)
    log = AuditFile(tmp_path)
    for number in range(20):
        log.append([LeftOut(0, number)])
    files = sorted((tmp_path / FOLDER_NAME).glob("*.jsonl"))
    assert len(files) > 2
    again = AuditFile(tmp_path)
    again.append([LeftOut(0, 20)])
    assert [entry["left_out"] for entry in shown(tmp_path)] == list(range(21))
    assert verified(tmp_path) == (0, "21 entries; nothing was changed\n")
    files[1].unlink()
    assert verified(tmp_path)[0] == 1
