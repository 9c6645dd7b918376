"""A data folder and an archive written by a release: every later one imports the archive, and refuses the folder if its
layout differs.

python -m tests.support.kept_vault 1 writes `vault-1.tar.gz` and `archive-1.jsonl` into tests/data with the code that
is checked out, so run it only for a release with new formats. Existing files stay unchanged.
"""

import asyncio
import json
import sys
import tarfile
import tempfile
from pathlib import Path

from mnemon import AsyncClient
from mnemon_server.logs import configure_logging

from tests.support.full_vault import TIME, fill, until_bridged
from tests.support.repository import ROOT
from tests.support.server import whole_server

DATA = ROOT / "tests" / "data"
SETTINGS = {"timeline_segment_max_events": 8}
"""Several segments, sealed ones and an open one."""


def unpack(number: int, folder: Path) -> Path:
    """A copy of a stored data folder."""
    with tarfile.open(DATA / f"vault-{number}.tar.gz") as packed:
        packed.extractall(folder, filter="data")
    return folder / "data"


def archive(number: int) -> list[dict[str, object]]:
    """The lines of a stored archive of the same records."""
    return [json.loads(line) for line in (DATA / f"archive-{number}.jsonl").read_text("utf-8").splitlines()]


async def _write(number: int) -> None:
    packed, listed = DATA / f"vault-{number}.tar.gz", DATA / f"archive-{number}.jsonl"
    if packed.exists() or listed.exists():
        raise SystemExit(f"{packed} is kept; choose another number")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name) / "data"
        async with whole_server(folder, **SETTINGS) as server, AsyncClient(str(server.server.address)) as client:
            await fill(client)
            await client.timeline.add(
                "task", "Ada must renew her passport.", user="ada", importance=0.9, event_time=TIME
            )
            await until_bridged(client)
            lines = [json.dumps(line, ensure_ascii=False) async for line in client.archive.export()]
        listed.write_text("\n".join(lines) + "\n", encoding="utf-8")
        with tarfile.open(packed, "w:gz") as target:
            target.add(folder, "data")


if __name__ == "__main__":
    configure_logging(log_format="console", level="error")
    asyncio.run(_write(int(sys.argv[1])))
