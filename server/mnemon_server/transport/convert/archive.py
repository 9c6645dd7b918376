"""Conversion of the archive service. Vectors are little-endian 32-bit floats."""

from collections.abc import Callable, Iterable, Mapping

import numpy as np
from mnemon.v1 import archive_pb2 as pb
from mnemon.v1 import facts_pb2, knowledge_store_pb2

from mnemon_server.domain.archive import (
    ArchivedRecord,
    ArchiveHeader,
    ExportSelection,
    ExportSummary,
    ImportConflict,
    ImportOutcome,
    ImportStart,
    RecordKind,
    VectorModel,
)
from mnemon_server.domain.documents import Document, Passage
from mnemon_server.domain.episodic import EpisodicEvent
from mnemon_server.domain.errors import MnemonError
from mnemon_server.domain.namespaces import Namespace
from mnemon_server.domain.records import Scope
from mnemon_server.services.archive.exporting import Part
from mnemon_server.services.archive.writes import Became
from mnemon_server.transport.convert.episodic import event_from_pb
from mnemon_server.transport.status import Failure
from mnemon_server.wire.events import encode
from mnemon_server.wire.values import (
    checked_time_from_pb,
    fill_metadata,
    fill_scope,
    fill_time,
    metadata_from_pb,
    scope_from_pb,
)

VECTOR_TYPE = np.dtype("<f4")
_UNSAID = (None, "", ())
KINDS: Mapping[int, RecordKind] = {pb.RecordKind.Value(f"RECORD_KIND_{kind.name}"): kind for kind in RecordKind}
KINDS_TO_PB = {kind: pb.RecordKind.ValueType(number) for number, kind in KINDS.items()}
CONFLICTS: Mapping[int, ImportConflict] = {
    pb.IMPORT_CONFLICT_UNSPECIFIED: ImportConflict.NEWER,
    **{pb.ImportConflict.Value(f"IMPORT_CONFLICT_{each.name}"): each for each in ImportConflict},
}

_OUTCOMES_TO_PB = {each: pb.ImportOutcome.Value(f"IMPORT_OUTCOME_{each.name}") for each in ImportOutcome}


def selection_from_pb(message: pb.ExportSelection) -> ExportSelection:
    """What is to be exported; what it means by itself was checked."""
    labels = message.namespace.labels
    return ExportSelection(
        kinds=frozenset(KINDS[number] for number in message.kinds),
        namespace=Namespace(labels) if message.HasField("namespace") else None,
        exact_namespace=message.exact_namespace,
        scope=scope_from_pb(message.scope),
    )


def part_to_pb(part: Part) -> pb.ExportRecordsResponse:
    """One message of an export."""
    match part:
        case ArchiveHeader():
            return pb.ExportRecordsResponse(header=_header_to_pb(part))
        case ExportSummary():
            summary = pb.ExportSummary(
                counts=_counts_to_pb(part.counts), changed_count=part.changed_count, removed_count=part.removed_count
            )
            return pb.ExportRecordsResponse(summary=summary)
        case _:
            response = pb.ExportRecordsResponse(records=pb.ArchivedRecords())
            for record in part:
                _fill_record(response.records.records.add(), record)
            return response


def start_from_pb(message: pb.ImportStart) -> ImportStart:
    """On what terms an import begins."""
    return ImportStart(
        header=_header_from_pb(message.header) if message.HasField("header") else None,
        on_conflict=CONFLICTS[message.on_conflict],
        embed_anew=message.embed_anew,
        bridge_events=message.bridge_events,
    )


def record_from_pb(message: pb.ArchivedRecord) -> ArchivedRecord:
    """A record that was checked."""
    kind = KINDS[message.kind]
    if kind is RecordKind.EVENT:
        return ArchivedRecord(kind, event=_event_from_pb(message))
    document = Document(
        message.id,
        message.content,
        metadata_from_pb(message.metadata),
        scope=scope_from_pb(message.scope),
        revision=message.revision,
        create_time=checked_time_from_pb(message.create_time) if message.HasField("create_time") else None,
        update_time=checked_time_from_pb(message.update_time) if message.HasField("update_time") else None,
        passages=tuple(_passage_from_pb(number, each) for number, each in enumerate(message.passages)),
        fields=metadata_from_pb(message.fields),
        hidden=message.hidden,
    )
    return ArchivedRecord(kind, document)


def results_to_pb(became: Iterable[Became], report: Callable[[BaseException], Failure]) -> pb.ImportRecordsResponse:
    """What became of the records of a message; `report` turns errors into what a client may see."""
    return pb.ImportRecordsResponse(
        results=[
            pb.ImportResult(error=report(each).to_item_error())
            if isinstance(each, MnemonError)
            else pb.ImportResult(done=_OUTCOMES_TO_PB[each])
            for each in became
        ]
    )


def _header_to_pb(header: ArchiveHeader) -> pb.ArchiveHeader:
    message = pb.ArchiveHeader(
        format_version=header.format_version,
        selection=_selection_to_pb(header.selection),
        cursor=header.cursor,
        counts=_counts_to_pb(header.counts),
        rules_version=header.rules_version,
    )
    if header.model is not None:
        model = header.model
        message.embedding_model.CopyFrom(
            knowledge_store_pb2.EmbeddingModel(
                name=model.name, revision=model.revision, precision=model.precision, dimension=model.dimension
            )
        )
    if header.export_time is not None:
        fill_time(message.export_time, header.export_time)
    return message


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


def _header_from_pb(message: pb.ArchiveHeader) -> ArchiveHeader:
    """What an import needs of a header."""
    model = message.embedding_model
    return ArchiveHeader(
        format_version=message.format_version,
        model=VectorModel(model.name, model.revision, model.precision, model.dimension)
        if message.HasField("embedding_model")
        else None,
        rules_version=message.rules_version,
    )


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
    # What is left out comes back as what is not there.
    fill_metadata(target.fields, {name: value for name, value in document.fields.items() if value not in _UNSAID})
    target.hidden = document.hidden
    target.revision = document.revision
    if document.create_time is not None and document.update_time is not None:
        fill_time(target.create_time, document.create_time)
        fill_time(target.update_time, document.update_time)
    for passage in document.passages:
        vector = np.array(passage.embedding or (), VECTOR_TYPE).tobytes()
        target.passages.add(start=passage.start, end=passage.end, vector=vector)


def _event_from_pb(message: pb.ArchivedRecord) -> EpisodicEvent | None:
    if not message.HasField("event"):
        return None
    event = event_from_pb(message.event)
    if message.event.HasField("record_time"):
        event.record_time = checked_time_from_pb(message.event.record_time)
    return event


def _passage_from_pb(number: int, message: pb.ArchivedPassage) -> Passage:
    vector = np.frombuffer(message.vector, VECTOR_TYPE).tolist()
    return Passage(number, message.start, message.end, tuple(vector))
