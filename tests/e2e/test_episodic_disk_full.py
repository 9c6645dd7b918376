"""A disk fills up under a real server while events are recorded, and then has space again."""

import subprocess
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from grpc import StatusCode, aio
from mnemon.v1 import common_pb2
from mnemon.v1 import episodic_pb2 as pb

from tests.support.episodic_messages import contents, happened, recent, record, timeline_status, told
from tests.support.server import eventually, reason, whole_server

SIZE_MIB = 48
NOW = datetime.now(UTC).replace(microsecond=0)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of a few mebibytes."""
    folder = tmp_path / "disk"
    folder.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", f"size={SIZE_MIB}m", "tmpfs", str(folder)]
    mounted = subprocess.run(command, capture_output=True, text=True, check=False)
    if mounted.returncode:
        pytest.skip(f"no file system can be mounted here: {mounted.stderr.strip()}")
    try:
        yield folder
    finally:
        subprocess.run(["umount", str(folder)], check=True)


def fill(disk: Path) -> Path:
    """Fills the disk. Returns the file that takes the space."""
    filler = disk / "filler"
    with filler.open("wb", buffering=0) as file:
        size = 1 << 20
        while size >= 512:
            try:
                file.write(b"x" * size)
            except OSError:
                size //= 2
    return filler


async def test_disk_full(small_disk: Path) -> None:
    async with whole_server(small_disk / "data", timeline_segment_max_events=20) as connection:
        episodic = connection.episodic
        before = [happened(f"before {n}", NOW - timedelta(minutes=n + 1)) for n in range(50)]
        await record(episodic, *before)
        filler = fill(small_disk)
        acknowledged, number = 0, 0
        while True:
            # Existing files still have some space inside.
            request = pb.RecordEventRequest(
                event=happened(f"meanwhile {number} " + "x" * 4096, NOW - timedelta(days=1))
            )
            number += 1
            try:
                await episodic.RecordEvent(request)
            except aio.AioRpcError as refused:
                error = refused
                break
            acknowledged += 1
        assert (error.code(), reason(error)) == (StatusCode.RESOURCE_EXHAUSTED, "STORAGE_FULL")
        status = await timeline_status(episodic)
        assert status.state == common_pb2.STATE_DEGRADED
        assert "space" in status.message
        # Acknowledged events stay, and reads are answered in the meantime.
        assert len(await recent(episodic)) == 50 + acknowledged
        filler.unlink()

        async def is_taken() -> bool:
            answer = await episodic.RecordEvent(pb.RecordEventRequest(event=happened("afterwards", NOW, event_id="a")))
            return bool(answer.receipt.event_id == "a")

        await eventually(is_taken)

        async def is_told() -> bool:
            return bool(await told(connection.changes, "EPISODIC_HEALTHY"))

        await eventually(is_told)
        [warning, *_] = await told(connection.changes, "EPISODIC_WARNING")
        assert "space" in f"{warning.warning.message} {warning.warning.remediation}"

        async def is_ready() -> bool:
            return bool((await timeline_status(episodic)).state == common_pb2.STATE_READY)

        # Commits and segments each meet the full disk, and each recovers when its next write succeeds.
        await eventually(is_ready)
        kept = contents(await recent(episodic))
        assert kept[0] == "afterwards"
        assert sum("before" in content for content in kept) == 50
        assert sum("meanwhile" in content for content in kept) == acknowledged
