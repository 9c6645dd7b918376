"""Requests about earlier versions of records, and the versions in answers."""

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from mnemon.v1 import common_pb2

from mnemon_server.domain.history import Ending, Version
from mnemon_server.domain.kinds import RecordKind
from mnemon_server.domain.records import PageOf
from mnemon_server.services.background.offload import Pause
from mnemon_server.services.history.versions import Restoration
from mnemon_server.transport.convert.shared.reader import Reader, expected_revision
from mnemon_server.wire.enums import numbers_of
from mnemon_server.wire.values import ACK_LEVELS, fill_time

Record = TypeVar("Record")
_ENDINGS = numbers_of(common_pb2.VersionEnding, Ending)


def read_restoration(request: Any, kind: RecordKind, record_id: str) -> Restoration:
    """The version to restore."""
    reader = Reader()
    asked = Restoration(
        kind=kind,
        record_id=record_id,
        version_id=request.version_id,
        expected_revision=expected_revision(request),
        request_id=request.request_id,
        ack=reader.enum("ack", request.ack, ACK_LEVELS),
    )
    reader.finish()
    return asked


async def fill_versions(
    target: Any, page: PageOf[Version], records: Sequence[Record], field: str, fill: Callable[[Any, Record], None]
) -> None:
    """Writes versions into a repeated field, each with its record in `field`; yields to other calls."""
    pause = Pause()
    for version, record in zip(page.items, records, strict=True):
        message = target.add()
        fill(getattr(message, field), record)
        fill_info(message.version, version)
        await pause.where_due()


def fill_info(target: common_pb2.VersionInfo, version: Version) -> None:
    """Writes what is known of a version besides its record."""
    target.version_id = version.version_id
    fill_time(target.start_time, version.document.update_time)
    fill_time(target.end_time, version.until)
    target.ending = _ENDINGS[version.ending]
    author = version.author
    target.principal, target.method, target.call_id = author.principal, author.door, author.request_id
