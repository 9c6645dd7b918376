"""The lines of an archive: a record as JSON and back, and the errors of invalid lines."""

import base64
import json
import struct
from typing import Any

import pytest
from google.protobuf.timestamp_pb2 import Timestamp
from mnemon import InvalidArgumentError
from mnemon._archive_import import LineSorter
from mnemon._archive_lines import header_to_pb, lines_of, record_to_pb
from mnemon.v1 import archive_pb2 as pb
from mnemon.v1 import common_pb2

TIME = Timestamp(seconds=1_770_091_506, nanos=789_012_000)
VECTOR = struct.pack("<3f", 0.5, -0.25, 1.0)


def record(**changes: Any) -> dict[str, Any]:
    return {"kind": "memory", "id": "m", "content": "text", **changes}


def line_of(message: pb.ArchivedRecord) -> dict[str, Any]:
    [line] = lines_of(pb.ExportRecordsResponse(records=pb.ArchivedRecords(records=[message])))
    found: dict[str, Any] = json.loads(json.dumps(line))
    return found


def test_a_record_comes_back_with_its_types() -> None:
    values = {
        "whole": common_pb2.MetadataValue(int_value=2**53 + 1),
        "number": common_pb2.MetadataValue(double_value=5.0),
        "text": common_pb2.MetadataValue(string_value="5"),
        "no": common_pb2.MetadataValue(bool_value=False),
        "list": common_pb2.MetadataValue(string_list_value=common_pb2.StringList(values=["b", "a"])),
        "none": common_pb2.MetadataValue(string_list_value=common_pb2.StringList()),
        "time": common_pb2.MetadataValue(timestamp_value=TIME),
    }
    message = pb.ArchivedRecord(
        kind=pb.RECORD_KIND_MEMORY,
        id="m",
        content="Grüße 東京",
        metadata=values,
        fields=values,
        scope=common_pb2.Scope(user="ada", project="p"),
        hidden=True,
        create_time=TIME,
        update_time=TIME,
        revision=7,
        passages=[pb.ArchivedPassage(start=0, end=4, vector=VECTOR)],
    )
    line = line_of(message)
    assert line["metadata"]["time"] == {"time": "2026-02-03T04:05:06.789012Z"}
    assert base64.b64decode(line["passages"][0]["vector"]) == VECTOR
    assert record_to_pb(line) == message


def test_an_event_comes_back_unchanged_and_an_importance_of_0_is_kept() -> None:
    message = pb.ArchivedRecord(kind=pb.RECORD_KIND_EVENT, id="e")
    message.event.event_id, message.event.event_type, message.event.importance = "e", "task", 0.0
    message.event.event_time.CopyFrom(TIME)
    message.event.metadata["n"].int_value = 1
    assert record_to_pb(line_of(message)) == message
    message.event.ClearField("importance")
    assert not record_to_pb(line_of(message)).event.HasField("importance")


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ([], "record: must be an object, not list"),
        ({"id": "m"}, "record.kind: must be one of 'document'"),
        (record(kind="thing"), "record.kind: must be one of"),
        (record(colour="red"), "record.colour: is not known"),
        (record(id=5), "record.id: must be text"),
        (record(metadata=[]), "record.metadata: must be an object"),
        (record(metadata={"a": None}), "record.metadata.a: must be text, a whole number"),
        (record(metadata={"a": {"time": "now"}}), "record.metadata.a: must be a time"),
        (record(metadata={"a": {"b": 1}}), "record.metadata.a.b: is not known"),
        (record(revision=-1), "record.revision: must be a whole number"),
        (record(revision=1.5), "record.revision: must be a whole number"),
        (record(create_time="2026-01-31"), "record.create_time: must be a time with a zone"),
        (record(passages={}), "record.passages: must be a list"),
        (record(passages=[{"start": 0, "end": 1, "vector": "€"}]), r"passages\[0\].vector: must be the base64"),
        (record(passages=[{"start": 0, "end": 2**40, "vector": ""}]), r"passages\[0\]: must be a part"),
        (record(scope={"user": "ada", "team": "x"}), "record.scope.team: is not known"),
        (record(event={"importance": "high"}), "record.event.importance: must be a number"),
    ],
)
def test_errors_in_a_line_are_named(line: object, said: str) -> None:
    with pytest.raises(InvalidArgumentError, match=said):
        record_to_pb(line)


def test_a_header_of_another_format_is_refused() -> None:
    with pytest.raises(InvalidArgumentError, match="mnemon_archive: must be 1"):
        header_to_pb({"mnemon_archive": 2})
    model = {"name": "m", "revision": "r", "precision": "fp32", "dimension": 3}
    header = header_to_pb({"mnemon_archive": 1, "embedding_model": model, "counts": {"later": 1}, "anything": 1})
    assert (header.embedding_model.name, header.embedding_model.dimension) == ("m", 3)


def test_kinds_of_lines_are_distinguished_and_numbered() -> None:
    sorter = LineSorter()
    assert sorter.read(b'{"mnemon_archive": 1}') is None
    first, blank, broken = sorter.read(json.dumps(record())), sorter.read("\n"), sorter.read("{")
    assert first is not None and (first.number, first.value) == (2, record())
    assert blank is None
    assert broken is not None and broken.number == 4 and broken.error is not None
    assert sorter.read({"summary": {}}) is None
    sorter.check_end()


def test_records_without_a_header_need_no_end() -> None:
    sorter = LineSorter()
    assert sorter.read(record()) is not None
    sorter.check_end()
