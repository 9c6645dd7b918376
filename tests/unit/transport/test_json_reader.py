"""JSON requests of all types, sound and damaged: each is the message that protobuf itself reads, or both refuse it."""

import json
from collections.abc import Callable
from functools import cache
from typing import Any

import pytest
from google.protobuf import json_format
from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message_factory import GetMessageClass
from hypothesis import given, settings
from hypothesis import strategies as st
from mnemon.v1 import backup_pb2, memory_pb2
from mnemon_server.domain.errors import MnemonError
from mnemon_server.transport.convert.shared.counts import entries_read_max

from tests.support.rpcs import rpcs
from tests.unit.transport.test_json_form import message_of

KINDS = sorted({rpc.method.input_type.full_name: rpc.method.input_type for rpc in rpcs()}.items())
Values = st.SearchStrategy[Any]
DEPTH_MAX = 4

TEXTS = ["", "Ada", 'é "\n\0', "🙂", "\u2028", "a,b", "x" * 300, "true", "1"]
WHOLE = [0, 1, -1, 2**31 - 1, "5", "-5", "5.0", "1e2", 3.0]
NUMBERS = [0.0, -0.0, 1.0, 0.1, -2.5e-7, 1e30, 5e-324, 16_777_217.0, 0, -5, 2**60, "NaN", "-Infinity", "1.5", "1e2"]
WRONG = [
    "\ud800",
    [0],
    {},
    [None],
    {"a": 1},
    "text",
    "1 1",
    "0x1",
    "nan",
    5.5,
    2**31,
    2**63,
    -(2**63) - 1,
    10**400,
    3.5e38,
]
"""Values that few fields take."""
JSON: Values = st.recursive(
    st.sampled_from([*TEXTS, 0, 1.5, -3, 2**60, True, False, None]),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(st.sampled_from("abc"), inner, max_size=3)),
    max_leaves=6,
)
TIMES = ["2026-01-31T12:00:00Z", "2026-01-31T12:00:00.123456789+02:00", "0001-01-01T00:00:00Z", "2026-02-30T00:00:00Z"]
OF_GOOGLE: dict[str, Values] = {
    "Struct": st.dictionaries(st.sampled_from(TEXTS), JSON, max_size=3),
    "Value": JSON,
    "ListValue": st.lists(JSON, max_size=3),
    "Timestamp": st.sampled_from(TIMES),
    "Duration": st.sampled_from(["1.5s", "-3s", "0s", "0.000000001s", ".5s", "1", "315576000001s"]),
    "FieldMask": st.sampled_from(["", "content", "memory.memoryId,content", "aB.cD", ",", "a_b"]),
}


def mostly(sound: Values) -> Values:
    """One value in sixteen is probably of another type."""
    return st.integers(0, 15).flatmap(lambda number: sound if number else st.sampled_from([*WRONG, None]))


def scalars(field: FieldDescriptor) -> Values:
    """Values for a field that is no message."""
    if field.enum_type is not None:
        return st.sampled_from([*field.enum_type.values_by_name, 1, 12_345])
    if field.type == FieldDescriptor.TYPE_BYTES:
        return st.sampled_from(["", "QWRh", "_-8=", "/+8", "AA==", "AA"])
    if field.cpp_type == FieldDescriptor.CPPTYPE_BOOL:
        return st.booleans()
    if field.cpp_type == FieldDescriptor.CPPTYPE_STRING:
        return st.sampled_from(TEXTS)
    is_number = field.cpp_type in (FieldDescriptor.CPPTYPE_FLOAT, FieldDescriptor.CPPTYPE_DOUBLE)
    return st.sampled_from(NUMBERS if is_number else WHOLE)


@cache
def values(field: FieldDescriptor, depth: int) -> Values:
    """Values for one entry of a field."""
    kind = field.message_type
    if field.enum_type is not None:
        # protobuf takes fractions for enums.
        return mostly(scalars(field)).filter(lambda value: not isinstance(value, float))
    if kind is None:
        return mostly(scalars(field))
    name = kind.full_name.removeprefix("google.protobuf.")
    return mostly(OF_GOOGLE[name] if name in OF_GOOGLE else objects(kind, depth + 1))


@cache
def members(field: FieldDescriptor, depth: int) -> Values:
    """Values for a field."""
    kind = field.message_type
    if kind is not None and kind.GetOptions().map_entry:
        inner = values(kind.fields_by_name["value"], depth)
        return mostly(st.dictionaries(st.sampled_from([*TEXTS, "\ud800"]), inner, max_size=2))
    if not field.is_repeated:
        return values(field, depth)
    # What is beyond the limit of a list is not looked at.
    size = min(3, entries_read_max(field) or 3)
    return mostly(st.lists(values(field, depth), max_size=size))


@cache
def objects(kind: Descriptor, depth: int = 0) -> Values:
    """Objects for a type: fields under either name, and at times one that is unknown."""
    fields = [(name, field) for field in kind.fields for name in {field.json_name: 0, field.name: 0}]
    if depth > DEPTH_MAX or not fields:
        return st.just({})

    @st.composite
    def draw_object(draw: Callable[[Values], Any]) -> dict[str, Any]:
        chosen = draw(st.lists(st.sampled_from(fields), min_size=1, max_size=4, unique_by=lambda each: each[1].name))
        found = {name: draw(members(field, depth)) for name, field in chosen}
        if draw(st.integers(0, 30)) == 30:
            found["unknown"] = 1
        return found

    return draw_object()


def read_by_protobuf(kind: Any, text: str) -> Any:
    try:
        return json_format.Parse(text, kind()).SerializeToString(deterministic=True)
    except Exception:
        return None


def read(kind: Any, text: str) -> Any:
    """The message; None if it is refused."""
    try:
        return message_of(kind, text.encode()).SerializeToString(deterministic=True)
    except MnemonError:
        return None


REQUESTS = st.sampled_from([kind for _, kind in KINDS]).flatmap(lambda kind: st.tuples(st.just(kind), objects(kind)))


@settings(max_examples=120)
@given(REQUESTS)
def test_a_request_is_read_as_protobuf_reads_it(drawn: tuple[Descriptor, Any]) -> None:
    descriptor, value = drawn
    kind, text = GetMessageClass(descriptor), json.dumps(value)
    assert read(kind, text) == read_by_protobuf(kind, text), text
    found = read_by_protobuf(kind, text)
    if found is not None:
        written = json_format.MessageToJson(kind.FromString(found))
        assert read(kind, written) == found


@settings(max_examples=80)
@given(
    REQUESTS,
    st.integers(0),
    st.sampled_from(['"', "{", "}", "[", "]", ":", ",", "\\", "x", " ", ""]),
    st.integers(0, 1),
)
def test_a_damaged_request_is_refused_if_protobuf_refuses_it(
    drawn: tuple[Descriptor, Any], place: int, put: str, added: int
) -> None:
    descriptor, value = drawn
    kind, text = GetMessageClass(descriptor), json.dumps(value, ensure_ascii=False)
    place %= len(text)
    damaged = text[:place] + put + text[place + 1 - added :]
    # protobuf skips what is not base64.
    if "\ud800" not in damaged and "baseManifest" not in damaged and "base_manifest" not in damaged:
        assert read(kind, damaged) == read_by_protobuf(kind, damaged), damaged


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        (memory_pb2.CreateMemoryRequest, {"requestId": "a", "request_id": "b"}),
        (memory_pb2.CreateMemoryRequest, {"memory": []}),
        (memory_pb2.CreateMemoryRequest, {"embedding": [True]}),
        (memory_pb2.CreateMemoryRequest, {"memory": {"decayPolicy": 1.5}}),
        (memory_pb2.CreateMemoryRequest, {"memory": {"revision": "1_000"}}),
        (memory_pb2.CreateMemoryRequest, {"memory": {"revision": "\u0661"}}),
        (backup_pb2.CreateBackupRequest, {"baseManifest": "QW!Rh"}),
    ],
)
def test_what_protobuf_takes_by_accident_is_refused(kind: Any, value: Any) -> None:
    text = json.dumps(value)
    assert read(kind, text) is None
    assert read_by_protobuf(kind, text) is not None
