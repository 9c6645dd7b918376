"""What happens to entries of the audit log if there are too many, or the disk fails."""

import asyncio
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from mnemon_server.domain.access.audit import AuditEntry, LeftOut
from mnemon_server.domain.errors import StorageFailedError
from mnemon_server.engines.audit_file import AuditFile, read_audit, verify_audit
from mnemon_server.services.access import audit
from mnemon_server.services.access.audit import STRANGERS_MAX, TOGETHER_MAX, AuditLog
from mnemon_server.services.background import periodic

from tests.support.server import until


class Disk(AuditFile):
    """An audit log whose disk fails while it is told to, and is only written to as long as the gate is open."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.failing = False
        self.attempts = self.writes = 0
        self.gate = threading.Event()
        self.gate.set()

    def append(self, entries: Sequence[AuditEntry | LeftOut]) -> None:
        self.attempts += 1
        self.gate.wait()
        if self.failing:
            raise StorageFailedError("the disk is full")
        super().append(entries)
        self.writes += 1


def written(folder: Path, name: str) -> list[Any]:
    """What the lines of a whole log say under a name."""
    assert verify_audit(folder).problems == ()
    return [line[name] for line in read_audit(folder) if name in line]


def entry(number: int, subject: str = "key:1") -> AuditEntry:
    return AuditEntry(0, "acme", subject, "ipv4:127.0.0.1:1", "a.Service/Method", "OK", str(number))


async def test_entries_wait_while_the_disk_fails_and_what_is_too_much_is_counted(tmp_path: Path) -> None:
    disk = Disk(tmp_path)
    disk.failing = True
    async with AuditLog(disk, waiting_max=3) as log:
        for number in range(5):
            log.record(entry(number))
        await until(lambda: disk.attempts)
        disk.failing = False
        await until(lambda: disk.writes)
    assert written(tmp_path, "request_id") == ["0", "1", "2"]
    assert written(tmp_path, "left_out") == [2]


async def test_a_log_that_cannot_be_written_is_reported_once_and_again_when_it_can(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", logger=periodic.log.name)
    monkeypatch.setattr(audit, "INTERVAL_S", 0.01)
    disk = Disk(tmp_path)
    (tmp_path / "audit").rename(tmp_path / "elsewhere")
    async with AuditLog(disk) as log:
        log.record(entry(1))
        await until(lambda: disk.attempts >= 5)
        (tmp_path / "elsewhere").rename(tmp_path / "audit")
        await until(lambda: "recovered" in caplog.text)
    assert [each.levelname for each in caplog.records] == ["WARNING", "INFO"]
    assert "the audit log could not be written" in caplog.messages[0]
    assert written(tmp_path, "request_id") == ["1"]


async def test_more_entries_than_are_written_together_keep_their_order(tmp_path: Path) -> None:
    count = 2 * TOGETHER_MAX + 1
    async with AuditLog(Disk(tmp_path)) as log:
        for number in range(count):
            log.record(entry(number))
    assert written(tmp_path, "request_id") == [str(number) for number in range(count)]
    assert written(tmp_path, "sequence") == [*range(1, count + 1)]


async def test_a_flood_of_unknown_callers_is_counted_and_leaves_room_for_the_others(tmp_path: Path) -> None:
    async with AuditLog(Disk(tmp_path)) as log:
        for number in range(1_000):
            log.record(entry(number, subject=""))
        log.record(entry(1_000))
    request_ids, known = written(tmp_path, "request_id"), written(tmp_path, "subject")
    assert len(request_ids) - len(known) <= 2 * STRANGERS_MAX
    assert request_ids[-1] == "1000"
    assert len(request_ids) + sum(written(tmp_path, "left_out")) == 1_001


async def test_what_is_being_written_at_the_end_is_written_once(tmp_path: Path) -> None:
    disk = Disk(tmp_path)
    disk.gate.clear()
    async with AuditLog(disk) as log:
        log.record(entry(0))
        await until(lambda: disk.attempts)
        asyncio.get_running_loop().call_soon(disk.gate.set)
    assert written(tmp_path, "request_id") == ["0"]
