"""Answers as JSON text. Large ones are written in steps, so that other calls are served in between."""

from typing import Any

import orjson
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message

from mnemon_server.transport.http.json_text import RUN_CHARS, Step, Steps
from mnemon_server.transport.http.json_writer import is_object, members_of, written

SMALL_BYTES = 4 << 10
"""Messages, and records of larger ones, that are written at once: of two bytes each, this is as many values."""
_CHUNK = 128
"""Values of a list that are written together."""
_STRUCT, _VALUE, _LIST = (f"google.protobuf.{name}" for name in ("Struct", "Value", "ListValue"))


def text_of(message: Message, size: int) -> Steps[bytes]:
    """A message of `size` bytes as JSON, without line breaks."""
    if size <= SMALL_BYTES:
        return dumped(written(message))
    text = _Text()
    yield from text.add_object(message)
    return b"".join(text.pieces)


dumped = orjson.dumps
"""A JSON value as text without line breaks."""


class _Text:
    """The text of one message, as far as it is written."""

    def __init__(self) -> None:
        self.pieces: list[bytes] = []
        self._step = Step()

    def add(self, message: Any) -> Steps[None]:
        """Writes a message."""
        kind = message.DESCRIPTOR
        if message.ByteSize() <= SMALL_BYTES or not (is_object(kind) or kind.full_name in (_STRUCT, _VALUE, _LIST)):
            self.pieces.append(dumped(written(message)))
        elif is_object(kind):
            yield from self.add_object(message)
        else:
            yield from self._add_json(message)
        if self._step.is_over():
            yield

    def add_object(self, message: Any) -> Steps[None]:
        """Writes a message that is an object, whatever its size."""
        members, mark = members_of(message.DESCRIPTOR), b"{"
        for field, value in message.ListFields():
            name, convert = members[field.number]
            self.pieces.append(mark + dumped(name) + b":")
            mark = b","
            if field.is_repeated:
                yield from self._add_list(field, convert, value)
            elif field.message_type is not None:
                yield from self.add(value)
            elif field.type == FieldDescriptor.TYPE_STRING:
                yield from self._add_text(value)
            else:
                self.pieces.append(dumped(value if convert is None else convert(value)))
        self.pieces.append(b"{}" if mark == b"{" else b"}")

    def _add_list(self, field: FieldDescriptor, convert: Any, values: Any) -> Steps[None]:
        kind = field.message_type
        if kind is not None and kind.GetOptions().map_entry:
            self.pieces.append(dumped(convert(values)))
        elif kind is not None:
            yield from self._add_each(values)
        else:
            for start in range(0, len(values), _CHUNK):
                chunk = values[start : start + _CHUNK]
                text = dumped(list(chunk) if convert is None else convert(chunk))
                self.pieces += (b"," if start else b"[", text[1:-1])
                if self._step.is_over():
                    yield
            self.pieces.append(b"]")

    def _add_each(self, messages: Any) -> Steps[None]:
        """Writes a list. Small messages that follow each other are written together, which takes half the time."""
        self.pieces.append(b"[")
        mark, run, size = b"", list[Any](), 0
        for message in messages:
            size += message.ByteSize()
            run.append(message)
            if size > SMALL_BYTES:
                yield from self._add_run(mark, run)
                mark, run, size = b",", [], 0
        if run:
            yield from self._add_run(mark, run)
        self.pieces.append(b"]")

    def _add_run(self, mark: bytes, messages: list[Any]) -> Steps[None]:
        *small, last = messages
        if small:
            self.pieces += (mark, dumped([written(each) for each in small])[1:-1])
            mark = b","
        self.pieces.append(mark)
        yield from self.add(last)

    def _add_json(self, message: Any) -> Steps[None]:
        """Writes a Struct, a ListValue, or a Value that has something inside of it."""
        if message.DESCRIPTOR.full_name == _LIST:
            yield from self._add_each(message.values)
        elif message.DESCRIPTOR.full_name == _STRUCT:
            mark = b"{"
            for name, value in message.fields.items():
                self.pieces.append(mark + dumped(name) + b":")
                mark = b","
                yield from self.add(value)
            self.pieces.append(b"}")
        elif message.WhichOneof("kind") == "string_value":
            yield from self._add_text(message.string_value)
        else:
            yield from self._add_json(getattr(message, message.WhichOneof("kind")))

    def _add_text(self, text: str) -> Steps[None]:
        self.pieces.append(b'"')
        for start in range(0, len(text), RUN_CHARS):
            self.pieces.append(dumped(text[start : start + RUN_CHARS])[1:-1])
            if self._step.is_over():
                yield
        self.pieces.append(b'"')
