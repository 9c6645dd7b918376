"""The archive service's requests and answers. Vectors are little-endian 32-bit floats."""

from collections.abc import Callable, Iterable, Mapping

import numpy as np
from mnemon.v1 import archive_pb2 as pb
from mnemon.v1 import episodic_pb2, facts_pb2

from mnemon_server.domain.archive import (
    FIGURE_MAX,
    RECORDS_MAX,
    ArchivedRecord,
    ArchiveHeader,
    ExportSelection,
    ExportSummary,
    ImportConflict,
    ImportOutcome,
    ImportStart,
    VectorModel,
)
from mnemon_server.domain.documents import Document, Passage
from mnemon_server.domain.errors import InvalidArgumentError, MnemonError
from mnemon_server.domain.events import Event
from mnemon_server.domain.kinds import RecordKind
from mnemon_server.domain.records import Scope
from mnemon_server.domain.validation import scope_violations
from mnemon_server.services.archive.exporting import ExportMessage
from mnemon_server.services.archive.writes import ImportResult
from mnemon_server.transport.convert.events import read_event
from mnemon_server.transport.convert.shared.fields import filled
from mnemon_server.transport.convert.shared.namespaces import read_namespace
from mnemon_server.transport.convert.shared.reader import Reader
from mnemon_server.transport.status import Failure
from mnemon_server.wire.enums import members_of, numbers_of
from mnemon_server.wire.events import encode
from mnemon_server.wire.values import (
    fill_metadata,
    fill_scope,
    fill_time,
    scope_of,
)

VECTOR_TYPE = np.dtype("<f4")
_UNSAID = (None, "", ())
KINDS = members_of(pb.RecordKind, RecordKind)
KINDS_TO_PB = numbers_of(pb.RecordKind, RecordKind)
_OUTCOMES_TO_PB = numbers_of(pb.ImportOutcome, ImportOutcome)


def export_to_pb(export: ExportMessage) -> pb.ExportRecordsResponse:
    """One message of an export."""
    match export:
        case ArchiveHeader():
            return pb.ExportRecordsResponse(header=_header_to_pb(export))
        case ExportSummary():
            summary = filled(pb.ExportSummary(), export, counts=_counts_to_pb(export.counts))
            return pb.ExportRecordsResponse(summary=summary)
        case _:
            response = pb.ExportRecordsResponse(records=pb.ArchivedRecords())
            for record in export:
                _fill_record(response.records.records.add(), record)
            return response


def results_to_pb(
    results: Iterable[ImportResult], report: Callable[[BaseException], Failure]
) -> pb.ImportRecordsResponse:
    """The outcomes of the records of a message; `report` turns an error into what a client may see."""
    return pb.ImportRecordsResponse(
        results=[
            pb.ImportResult(error=report(each).to_item_error())
            if isinstance(each, MnemonError)
            else pb.ImportResult(done=_OUTCOMES_TO_PB[each])
            for each in results
        ]
    )


def _header_to_pb(header: ArchiveHeader) -> pb.ArchiveHeader:
    return filled(
        pb.ArchiveHeader(),
        header,
        embedding_model=header.model,
        selection=_selection_to_pb(header.selection),
        counts=_counts_to_pb(header.counts),
        rules_version=min(header.rules_version, FIGURE_MAX),
    )


def _selection_to_pb(selection: ExportSelection) -> pb.ExportSelection:
    message = pb.ExportSelection(
        kinds=[KINDS_TO_PB[kind] for kind in RecordKind if kind in selection.kinds],
        exact_namespace=selection.exact_namespace,
    )
    if selection.namespace is not None:
        message.namespace.CopyFrom(facts_pb2.FactNamespace(labels=selection.namespace))
    if selection.scope != Scope():
        fill_scope(message, selection.scope)
    return message


def _counts_to_pb(counts: Mapping[RecordKind, int]) -> Iterable[pb.KindCount]:
    return [pb.KindCount(kind=KINDS_TO_PB[kind], count=count) for kind, count in counts.items()]


def _fill_record(target: pb.ArchivedRecord, record: ArchivedRecord) -> None:
    target.kind = KINDS_TO_PB[record.kind]
    target.id = record.id
    if record.event is not None:
        target.event.ParseFromString(encode(record.event))
    if (document := record.document) is None:
        return
    target.content = document.content
    fill_metadata(target.metadata, document.metadata)
    fill_scope(target, document.scope)
    # A field that is left out comes back as an empty one.
    fill_metadata(target.fields, {name: value for name, value in document.fields.items() if value not in _UNSAID})
    target.hidden = document.hidden
    target.revision = min(document.revision, FIGURE_MAX)
    if document.create_time is not None and document.update_time is not None:
        fill_time(target.create_time, document.create_time)
        fill_time(target.update_time, document.update_time)
    for passage in document.passages:
        vector = np.array(passage.embedding or (), VECTOR_TYPE).tobytes()
        target.passages.add(start=passage.start, end=passage.end, vector=vector)


KINDS_MAX = 64
"""How many kinds an export may name, repetitions included."""
CONFLICTS = members_of(pb.ImportConflict, ImportConflict, ImportConflict.NEWER)
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
