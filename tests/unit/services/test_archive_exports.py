"""What an export reads, and where it ends."""

from pathlib import Path

import pytest
from mnemon_server.domain.archive import ExportSelection, ExportSummary
from mnemon_server.services.archive.exporting import ExportMessage

from tests.support.archive_stores import memory, open_archive

PARTS_MAX = 20


@pytest.mark.parametrize("engine", ["in_memory", "sqlite"])
async def test_an_export_ends_though_somebody_writes_with_every_part_that_is_read(engine: str, tmp_path: Path) -> None:
    async with open_archive(engine, tmp_path) as opened:
        await opened.take(memory("first"))
        parts: list[ExportMessage] = []
        async for part in opened.store.export(ExportSelection()):
            parts.append(part)
            assert len(parts) < PARTS_MAX, "the export goes on with what is written while it is read"
            await opened.take(memory(f"later{len(parts)}", f"Ada said {len(parts)}."))
    assert isinstance(parts[-1], ExportSummary)
    assert parts[-1].changed_count > 0
