"""Records of changes: only as many are read as a message holds."""

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from mnemon_server.domain.changes import Change, ChangeType
from mnemon_server.domain.documents import Document
from mnemon_server.domain.kinds import RecordKind
from mnemon_server.engines.promises.values import Fits
from mnemon_server.services.feed.records import ChangeRecords

SIZE = 1_000


def change(number: int, kind: ChangeType) -> Change:
    return Change(number, number, datetime(2026, 1, 1, tzinfo=UTC), kind, f"d{number}", 1)


async def test_records_that_do_not_fit_into_the_message_are_not_read() -> None:
    read: list[str] = []

    def read_documents(ids: Sequence[str], *, fits: Fits) -> list[Document | None]:
        there = {record_id for record_id in ids if fits(record_id, SIZE)}
        read.extend(sorted(there))
        return [Document(record_id, "x" * SIZE) if record_id in there else None for record_id in ids]

    def none(ids: Sequence[str], *, fits: Fits) -> list[Any]:
        return [None for _ in ids]

    records = ChangeRecords(dict.fromkeys(RecordKind, none) | {RecordKind.DOCUMENT: read_documents})
    kinds = [ChangeType.KNOWLEDGE_INDEXED, ChangeType.MEMORY_PURGED]
    changes = [change(number, kinds[number % 2]) for number in range(40)]
    found = records.read(changes, 5 * SIZE)
    assert len(found) == 10
    assert [isinstance(record, Document) for record in found] == [True, False] * 5
    assert sorted(read) == ["d0", "d2", "d4", "d6", "d8"]
    assert len(records.read(changes, 1)) == 1
