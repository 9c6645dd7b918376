"""JSON text encoded directly as the bytes of a Struct has the same content."""

import json

import pytest
from google.protobuf.json_format import MessageToDict
from google.protobuf.struct_pb2 import Struct
from mnemon_server.transport.convert.shared.json_wire import struct_bytes

STRINGS = ("", "a", "é", 'a"b', "a\\", "\\u0041", "line\nbreak", "\x00")


@pytest.mark.parametrize("length", [0, 255, 256, 257, 100_000])
@pytest.mark.parametrize("start", STRINGS)
def test_strings_of_any_length_come_back_unchanged(start: str, length: int) -> None:
    for end in STRINGS:
        value = {start + "x" * length + end: [start + "y" * length + end, "z"], "last": end}
        for text in (json.dumps(value), json.dumps(value, ensure_ascii=False)):
            assert MessageToDict(Struct.FromString(struct_bytes(text))) == value


@pytest.mark.parametrize("length", [0, 257])
def test_a_string_without_its_end_is_refused(length: int) -> None:
    for text in ('{"a": "' + "x" * length, '{"a": x' + "x" * length + '"}', '{"a": "' + "x" * length + '\\"}'):
        with pytest.raises((ValueError, IndexError)):
            struct_bytes(text)
