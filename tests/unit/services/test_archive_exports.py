"""What an export reads, and where it ends."""

from pathlib import Path

from mnemon_server.domain.archive import ExportSelection, ExportSummary
from mnemon_server.services.archive.exporting import ExportMessage

from tests.support.archive_stores import memory, open_archive

PARTS_MAX = 20


async def test_an_export_ends_even_if_each_part_read_is_followed_by_a_write(tmp_path: Path) -> None:
    async with open_archive(tmp_path) as opened:
        await opened.take(memory("first"))
        parts: list[ExportMessage] = []
        async for part in opened.store.export(ExportSelection()):
            parts.append(part)
            assert len(parts) < PARTS_MAX, "the export follows writes made while it reads"
            await opened.take(memory(f"later{len(parts)}", f"Ada said {len(parts)}."))
    assert isinstance(parts[-1], ExportSummary)
    assert parts[-1].changed_count > 0
