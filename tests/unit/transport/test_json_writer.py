"""Messages as JSON: what protobuf itself writes, for every message of the API."""

import json
import math
import random
from typing import Any

import pytest
from google.protobuf import json_format
from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message_factory import GetMessageClass
from google.protobuf.struct_pb2 import Value
from google.protobuf.timestamp_pb2 import Timestamp
from mnemon.v1 import episodic_pb2, memory_pb2
from mnemon_server.transport.http.json_writer import text_of, written

from tests.support.cases import ordinary
from tests.support.python_calls import python_calls
from tests.support.rpcs import rpcs

TYPES = sorted(
    {kind.full_name: kind for rpc in rpcs() for kind in (rpc.method.input_type, rpc.method.output_type)}.items()
)
NUMBERS = (0.0, -0.0, 1.0, 0.1, 1 / 3, -2.5e-7, 16_777_217.0, 1e30, 5e-324)
SCALARS: dict[int, tuple[Any, ...]] = {
    FieldDescriptor.CPPTYPE_STRING: ("", "Ada", 'é "\n\0', "🙂", "\u2028"),
    FieldDescriptor.CPPTYPE_BOOL: (True, False),
    FieldDescriptor.CPPTYPE_INT32: (0, 1, -(2**31), 2**31 - 1),
    FieldDescriptor.CPPTYPE_UINT32: (0, 1, 2**32 - 1),
    FieldDescriptor.CPPTYPE_INT64: (0, 1, -(2**63), 2**63 - 1),
    FieldDescriptor.CPPTYPE_UINT64: (0, 1, 2**64 - 1),
    FieldDescriptor.CPPTYPE_FLOAT: (*NUMBERS, math.inf, -math.inf, math.nan, 3.4e38),
    FieldDescriptor.CPPTYPE_DOUBLE: (*NUMBERS, math.inf, -math.inf, math.nan),
}
DEPTH_MAX = 5


class Filler:
    """Fills messages with valid values, from a seed."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)

    def fill(self, message: Any, depth: int = 0) -> None:
        """Gives most fields a value."""
        name = message.DESCRIPTOR.full_name
        if name in ("google.protobuf.Timestamp", "google.protobuf.Duration"):
            message.seconds, message.nanos = self._random.choice(((0, 0), (1_700_000_000, 1_000), (1, 999_999_999)))
        elif name == "google.protobuf.Value":
            values = (None, True, 1.5, "a", ["b", {"c": None}], {"d": [1.0]})
            json_format.ParseDict(self._random.choice(values), message)
        elif name == "google.protobuf.FieldMask":
            message.paths.append("memory.memory_id")
        elif name == "google.protobuf.Any":
            message.Pack(Value(string_value="packed"))
        else:
            for field in message.DESCRIPTOR.fields:
                if self._random.random() < 0.7 and (field.message_type is None or depth < DEPTH_MAX):
                    self._set(message, field, depth)

    def _set(self, message: Any, field: FieldDescriptor, depth: int) -> None:
        target, kind = getattr(message, field.name), field.message_type
        if kind is not None and kind.GetOptions().map_entry:
            key, value = self._scalar(kind.fields_by_name["key"]), kind.fields_by_name["value"]
            if value.message_type is None:
                target[key] = self._scalar(value)
            else:
                self.fill(target[key], depth + 1)
        elif field.is_repeated:
            for _ in range(self._random.randrange(4)):
                if kind is None:
                    target.append(self._scalar(field))
                else:
                    self.fill(target.add(), depth + 1)
        elif kind is not None:
            target.SetInParent()
            self.fill(target, depth + 1)
        else:
            setattr(message, field.name, self._scalar(field))

    def _scalar(self, field: FieldDescriptor) -> Any:
        if field.enum_type is not None:
            return self._random.choice((*field.enum_type.values_by_number, 12_345))
        if field.type == FieldDescriptor.TYPE_BYTES:
            return self._random.choice((b"", b"\0\xff", b"Ada"))
        return self._random.choice(SCALARS[field.cpp_type])


def test_a_message_is_written_as_protobuf_writes_it() -> None:
    for name, kind in TYPES:
        filler = Filler(7)
        for _ in range(5):
            message = GetMessageClass(kind)()
            filler.fill(message)
            assert json.dumps(written(message)) == json.dumps(json_format.MessageToDict(message)), name


def test_times_are_as_protobuf_writes_them() -> None:
    for seconds in (-62_135_596_800, -1, 0, 1_700_000_000, 253_402_300_799):
        for nanos in (0, 1, 1_000, 1_000_000, 123_456_789, 123_456_000, 123_000_000, 999_999_999):
            time = Timestamp(seconds=seconds, nanos=nanos)
            assert written(time) == time.ToJsonString()
    for time in (Timestamp(seconds=253_402_300_800), Timestamp(nanos=-1), Timestamp(nanos=1_000_000_000)):
        with pytest.raises(ValueError, match="Timestamp"):
            written(time)


def test_a_page_of_events_is_written_in_few_calls() -> None:
    page = episodic_pb2.QueryWindowResponse()
    for number in range(50):
        event = page.results.add().event
        event.event_id, event.event_type, event.content = f"event-{number}", "task", f"Ada waters plant {number}." * 10
        event.scope.user, event.scope.persona = "ada", "robot"
        event.event_time.FromSeconds(1_700_000_000 + 60 * number)
        event.record_time.FromSeconds(1_700_000_000 + 60 * number)
    text_of(page)
    # A result, its event, its scope and two times have a function each; further calls are of what is written in C.
    assert python_calls(lambda: text_of(page)) <= 50 * 13


def test_floats_of_32_bits_are_as_short_as_protobuf_writes_them() -> None:
    numbers = random.Random(7)
    message = memory_pb2.SearchMemoriesRequest(vector=[numbers.gauss(0, 0.05) for _ in range(10_000)])
    assert written(message) == json_format.MessageToDict(message)


@pytest.mark.parametrize("kind", ordinary([pytest.param(kind, id=name) for name, kind in TYPES]))
def test_a_large_answer_is_written_without_line_breaks(kind: Descriptor) -> None:
    filler, message = Filler(7), GetMessageClass(kind)()
    for _ in range(200):
        part = GetMessageClass(kind)()
        filler.fill(part)
        message.MergeFrom(part)
    text = text_of(message)
    assert b"\n" not in text
    assert json.loads(text) == json.loads(json_format.MessageToJson(message))


def test_a_number_that_json_does_not_have_is_refused() -> None:
    for number in (math.nan, math.inf):
        with pytest.raises(ValueError, match="JSON has no number"):
            written(Value(number_value=number))
