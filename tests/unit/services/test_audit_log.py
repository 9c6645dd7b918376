"""What happens to entries of the audit log if there are too many, or the disk fails."""

import asyncio
import threading
from collections.abc import Sequence
from typing import Any

from mnemon_server.domain.access.audit import AuditEntry, LeftOut
from mnemon_server.domain.errors import StorageFailedError
from mnemon_server.services.access.audit import STRANGERS_MAX, AuditLog

from tests.support.server import until


class Disk:
    """Keeps entries unless it is told to fail, and as long as the gate is open."""

    def __init__(self) -> None:
        self.entries: list[Any] = []
        self.failing = False
        self.attempts = 0
        self.gate = threading.Event()
        self.gate.set()

    def append(self, entries: Sequence[AuditEntry | LeftOut]) -> None:
        self.attempts += 1
        self.gate.wait()
        if self.failing:
            raise StorageFailedError("the disk is full")
        self.entries += entries


def entry(number: int, subject: str = "key:1") -> AuditEntry:
    return AuditEntry(0, "acme", subject, "ipv4:127.0.0.1:1", "a.Service/Method", "OK", str(number))


async def test_entries_wait_while_the_disk_fails_and_what_is_too_much_is_counted() -> None:
    disk = Disk()
    disk.failing = True
    async with AuditLog(disk, waiting_max=3) as log:
        for number in range(5):
            log.record(entry(number))
        await until(lambda: disk.attempts)
        disk.failing = False
        await until(lambda: disk.entries)
    assert [each.request_id for each in disk.entries[:3]] == ["0", "1", "2"]
    assert [each.calls for each in disk.entries[3:]] == [2]


async def test_a_flood_of_unknown_callers_is_counted_and_leaves_room_for_the_others() -> None:
    disk = Disk()
    async with AuditLog(disk) as log:
        for number in range(1_000):
            log.record(entry(number, subject=""))
        log.record(entry(1_000))
    written = [each for each in disk.entries if isinstance(each, AuditEntry)]
    assert len([each for each in written if not each.subject]) <= 2 * STRANGERS_MAX
    assert written[-1].request_id == "1000"
    assert len(written) + sum(each.calls for each in disk.entries if isinstance(each, LeftOut)) == 1_001


async def test_what_is_being_written_at_the_end_is_written_once() -> None:
    disk = Disk()
    disk.gate.clear()
    async with AuditLog(disk) as log:
        log.record(entry(0))
        await until(lambda: disk.attempts)
        asyncio.get_running_loop().call_soon(disk.gate.set)
    assert [each.request_id for each in disk.entries] == ["0"]
