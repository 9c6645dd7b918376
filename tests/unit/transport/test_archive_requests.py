"""Invalid requests to the archive service are refused, and every invalid field is named."""

from datetime import UTC, datetime

import pytest
from google.protobuf.timestamp_pb2 import Timestamp
from mnemon.v1 import archive_pb2 as pb
from mnemon.v1 import common_pb2
from mnemon_server.domain.archive import ExportSelection, ImportConflict, ImportStart
from mnemon_server.domain.errors import InvalidArgumentError
from mnemon_server.domain.kinds import RecordKind
from mnemon_server.domain.namespaces import Namespace
from mnemon_server.transport.convert import archive as requests

from tests.support.refusals import refused_fields

NO_TIME = Timestamp(seconds=10**13)
UNSET = common_pb2.MetadataValue()


def test_every_invalid_field_of_a_selection_is_named_at_once() -> None:
    selection = pb.ExportSelection(kinds=[1, 0, 99], namespace={"labels": ["user", "a\0b"]})
    wrong = ["selection.kinds", "selection.kinds", "selection.namespace[1]"]
    assert refused_fields(requests.read_export, pb.ExportRecordsRequest(selection=selection)) == wrong


def test_a_selection_has_a_maximum_number_of_kinds() -> None:
    kinds = [pb.RECORD_KIND_FACT] * 64
    selection = pb.ExportSelection(kinds=kinds, namespace={"labels": ["user"]}, exact_namespace=True)
    assert requests.read_export(pb.ExportRecordsRequest(selection=selection)) == ExportSelection(
        kinds=frozenset({RecordKind.FACT}), namespace=Namespace(("user",)), exact_namespace=True
    )
    more = pb.ExportSelection(kinds=[*kinds, pb.RECORD_KIND_FACT])
    assert refused_fields(requests.read_export, pb.ExportRecordsRequest(selection=more)) == ["selection.kinds"]


def test_an_import_begins_with_its_options() -> None:
    assert refused_fields(requests.read_start, pb.ImportRecordsRequest()) == ["start"]
    assert refused_fields(requests.read_start, pb.ImportRecordsRequest(start={"on_conflict": 9})) == [
        "start.on_conflict"
    ]
    start = requests.read_start(pb.ImportRecordsRequest(start={"embed_anew": True}))
    assert start == ImportStart(on_conflict=ImportConflict.NEWER, embed_anew=True)


@pytest.mark.parametrize(("count", "wrong"), [(1_000, []), (1_001, ["records"])])
def test_a_message_has_a_maximum_number_of_records(count: int, wrong: list[str]) -> None:
    request = pb.ImportRecordsRequest(records=[pb.ArchivedRecord()] * count)
    assert refused_fields(requests.check_count, request) == wrong


def test_every_invalid_field_of_a_record_is_named_at_once() -> None:
    message = pb.ArchivedRecord(
        kind=99,
        metadata={"unset": UNSET},
        fields={"late": common_pb2.MetadataValue(timestamp_value=NO_TIME)},
        create_time=NO_TIME,
        update_time=NO_TIME,
        passages=[pb.ArchivedPassage(vector=bytes(4)), pb.ArchivedPassage(vector=bytes(5))],
        event={"event_time": NO_TIME, "record_time": NO_TIME, "metadata": {"unset": UNSET}},
    )
    assert refused_fields(requests.read_record, message) == [
        "record.create_time",
        "record.event.event_time",
        "record.event.metadata.unset",
        "record.event.record_time",
        "record.fields.late",
        "record.kind",
        "record.metadata.unset",
        "record.passages[1].vector",
        "record.update_time",
    ]


def test_an_event_must_have_its_time() -> None:
    message = pb.ArchivedRecord(kind=pb.RECORD_KIND_EVENT, event={})
    with pytest.raises(InvalidArgumentError, match=r"record\.event\.event_time: must be set"):
        requests.read_record(message)


def test_a_record_is_read_completely() -> None:
    text = common_pb2.MetadataValue(string_value="x")
    many = common_pb2.MetadataValue(string_list_value={"values": ["v"] * 500})
    document = requests.read_record(
        pb.ArchivedRecord(
            kind=pb.RECORD_KIND_FACT,
            id="f",
            metadata={"source": text},
            fields={"versions": many},
            create_time=Timestamp(seconds=60),
            passages=[pb.ArchivedPassage(start=1, end=2, vector=bytes(4))],
            revision=3,
        )
    ).document
    assert document is not None
    assert (document.doc_id, document.metadata, document.revision) == ("f", {"source": "x"}, 3)
    assert document.fields == {"versions": ("v",) * 500}
    assert document.create_time == datetime(1970, 1, 1, 0, 1, tzinfo=UTC)
    [passage] = document.passages
    assert (passage.index, passage.start, passage.end, passage.embedding) == (0, 1, 2, (0.0,))


def test_an_event_is_read_with_the_time_of_its_recording() -> None:
    event = {"event_id": "e", "event_time": Timestamp(seconds=60), "record_time": Timestamp(seconds=120)}
    read = requests.read_record(pb.ArchivedRecord(kind=pb.RECORD_KIND_EVENT, event=event))
    assert (read.document, read.id) == (None, "e")
    assert read.event is not None
    assert read.event.record_time == datetime(1970, 1, 1, 0, 2, tzinfo=UTC)
