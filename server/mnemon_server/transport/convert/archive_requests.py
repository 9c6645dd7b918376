"""Requests to the archive service, and the records that come in, as values.

Each function raises InvalidArgumentError if a field cannot be read as a value, and then with everything that is wrong;
see `Reader`.
"""

from collections.abc import Mapping

import numpy as np
from mnemon.v1 import archive_pb2 as pb
from mnemon.v1 import episodic_pb2

from mnemon_server.domain.archive import (
    RECORDS_MAX,
    ArchivedRecord,
    ArchiveHeader,
    ExportSelection,
    ImportConflict,
    ImportStart,
    VectorModel,
)
from mnemon_server.domain.documents import Document, Passage
from mnemon_server.domain.errors import InvalidArgumentError
from mnemon_server.domain.events import Event
from mnemon_server.domain.kinds import RecordKind
from mnemon_server.domain.validation import scope_violations
from mnemon_server.transport.convert.archive import KINDS, VECTOR_TYPE
from mnemon_server.transport.convert.event_requests import read_event
from mnemon_server.transport.convert.shared.namespaces import read_namespace
from mnemon_server.transport.convert.shared.reader import Reader
from mnemon_server.wire.values import scope_of

KINDS_MAX = 64
"""How many kinds an export may name, repetitions included."""
CONFLICTS: Mapping[int, ImportConflict] = {
    pb.IMPORT_CONFLICT_UNSPECIFIED: ImportConflict.NEWER,
    **{pb.ImportConflict.Value(f"IMPORT_CONFLICT_{each.name}"): each for each in ImportConflict},
}
_RECORD = "record"


def read_export(request: pb.ExportRecordsRequest) -> ExportSelection:
    """The request for an export."""
    message = request.selection
    if len(message.kinds) > KINDS_MAX:
        raise InvalidArgumentError.of("selection.kinds", f"must be at most {KINDS_MAX}; each one is needed once only")
    reader = Reader()
    has_namespace = message.HasField("namespace")
    selection = ExportSelection(
        kinds=frozenset(reader.enum("selection.kinds", number, KINDS) for number in message.kinds),
        namespace=read_namespace(reader, "selection.namespace", message.namespace.labels) if has_namespace else None,
        exact_namespace=message.exact_namespace,
        scope=scope_of(message),
    )
    reader.violations.extend(scope_violations(selection.scope, "selection.scope"))
    reader.finish()
    return selection


def read_start(request: pb.ImportRecordsRequest) -> ImportStart:
    """The terms of an import."""
    if not request.HasField("start"):
        raise InvalidArgumentError.of("start", "is required in the first message")
    message, reader = request.start, Reader()
    start = ImportStart(
        header=_header(message.header) if message.HasField("header") else None,
        on_conflict=reader.enum("start.on_conflict", message.on_conflict, CONFLICTS),
        embed_anew=message.embed_anew,
        bridge_events=message.bridge_events,
    )
    reader.finish()
    return start


def check_count(request: pb.ImportRecordsRequest) -> None:
    """Raises InvalidArgumentError if a message holds too many records."""
    if len(request.records) > RECORDS_MAX:
        raise InvalidArgumentError.of("records", f"must be at most {RECORDS_MAX:,}; send several messages")


def read_record(message: pb.ArchivedRecord) -> ArchivedRecord:
    """A record."""
    reader = Reader()
    kind = reader.enum(f"{_RECORD}.kind", message.kind, KINDS)
    document = _document(reader, message)
    event = _event(reader, message.event) if message.HasField("event") else None
    reader.finish()
    return ArchivedRecord(kind, event=event) if kind is RecordKind.EVENT else ArchivedRecord(kind, document)


def _document(reader: Reader, message: pb.ArchivedRecord) -> Document:
    return Document(
        message.id,
        message.content,
        reader.metadata(f"{_RECORD}.metadata", message.metadata),
        scope=scope_of(message),
        revision=message.revision,
        create_time=reader.time(f"{_RECORD}.create_time", message, "create_time"),
        update_time=reader.time(f"{_RECORD}.update_time", message, "update_time"),
        passages=tuple(_passage(reader, number, each) for number, each in enumerate(message.passages)),
        # The fields of a collection have lists of any length.
        fields=reader.metadata(f"{_RECORD}.fields", message.fields, list_max=None),
        hidden=message.hidden,
    )


def _passage(reader: Reader, number: int, message: pb.ArchivedPassage) -> Passage:
    if len(message.vector) % VECTOR_TYPE.itemsize:
        place = f"{_RECORD}.passages[{number}].vector"
        reader.note(place, f"must have {VECTOR_TYPE.itemsize} bytes for each number")
        return Passage(number, message.start, message.end)
    return Passage(number, message.start, message.end, tuple(np.frombuffer(message.vector, VECTOR_TYPE).tolist()))


def _event(reader: Reader, message: episodic_pb2.EpisodicEvent) -> Event:
    """An event, with the time when it was recorded."""
    field = f"{_RECORD}.event"
    event = read_event(reader, field, message)
    event.record_time = reader.time(f"{field}.record_time", message, "record_time") or event.record_time
    return event


def _header(message: pb.ArchiveHeader) -> ArchiveHeader:
    """The header, as far as an import needs it."""
    model = message.embedding_model
    return ArchiveHeader(
        format_version=message.format_version,
        model=VectorModel(model.name, model.revision, model.precision, model.dimension)
        if message.HasField("embedding_model")
        else None,
        rules_version=message.rules_version,
    )
