"""The archive service's answers as messages. Vectors are little-endian 32-bit floats."""

from collections.abc import Callable, Iterable, Mapping

import numpy as np
from mnemon.v1 import archive_pb2 as pb
from mnemon.v1 import common_pb2, facts_pb2

from mnemon_server.domain.archive import (
    FIGURE_MAX,
    ArchivedRecord,
    ArchiveHeader,
    ExportSelection,
    ExportSummary,
    ImportOutcome,
)
from mnemon_server.domain.errors import MnemonError
from mnemon_server.domain.kinds import RecordKind
from mnemon_server.domain.records import Scope
from mnemon_server.services.archive.exporting import ExportMessage
from mnemon_server.services.archive.writes import ImportResult
from mnemon_server.transport.status import Failure
from mnemon_server.wire.events import encode
from mnemon_server.wire.values import (
    fill_metadata,
    fill_scope,
    fill_time,
)

VECTOR_TYPE = np.dtype("<f4")
_UNSAID = (None, "", ())
KINDS: Mapping[int, RecordKind] = {pb.RecordKind.Value(f"RECORD_KIND_{kind.name}"): kind for kind in RecordKind}
KINDS_TO_PB = {kind: pb.RecordKind.ValueType(number) for number, kind in KINDS.items()}
_OUTCOMES_TO_PB = {each: pb.ImportOutcome.Value(f"IMPORT_OUTCOME_{each.name}") for each in ImportOutcome}


def export_to_pb(export: ExportMessage) -> pb.ExportRecordsResponse:
    """One message of an export."""
    match export:
        case ArchiveHeader():
            return pb.ExportRecordsResponse(header=_header_to_pb(export))
        case ExportSummary():
            summary = pb.ExportSummary(
                counts=_counts_to_pb(export.counts),
                changed_count=export.changed_count,
                removed_count=export.removed_count,
            )
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
    message = pb.ArchiveHeader(
        format_version=header.format_version,
        selection=_selection_to_pb(header.selection),
        cursor=header.cursor,
        counts=_counts_to_pb(header.counts),
        rules_version=min(header.rules_version, FIGURE_MAX),
    )
    if header.model is not None:
        model = header.model
        message.embedding_model.CopyFrom(
            common_pb2.EmbeddingModel(
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
