"""Reads large messages slice by slice, so that other threads run in between.

protobuf reads a message in one step, during which no other thread runs: 100 ms for 4 MB of small parts. But a message
may be divided between any two of its fields, and so may each message inside of it: merging the parts reads the whole.
"""

from typing import Any

from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import DecodeError, Message

from mnemon_server.transport.convert.shared.counts import cut_own
from mnemon_server.transport.convert.shared.json_values import VALUES_MAX
from mnemon_server.transport.errors import MalformedMessageError

SLICE_BYTES = 16 << 10
"""The size of one step, during which no other thread runs: half a millisecond for small parts."""
FIELDS_MAX = 1 << 17
"""Fields of one message, each entry of a list or map being one. Every list and map has a lower maximum of its own."""
LEVELS_MAX = 100
"""How deep messages may be inside of each other; the limit that protobuf has, too."""
_OF_JSON = {"google.protobuf.Struct": "fields", "google.protobuf.ListValue": "values"}
_VARINT, _FIXED_64, _BYTES, _FIXED_32 = 0, 1, 2, 5
_VALUE_TAG = 2 << 3 | _BYTES
"""Tag of the value in a map entry, if it is a message."""


def merge(message: Message, data: bytes, slice_bytes: int = SLICE_BYTES) -> None:
    """Reads `data` into the message, like `MergeFromString`.

    Of a list or map that is longer than it may be, some of what is too much is left out, as `counts.cut` would: the
    more entries a map has, the longer its next one can take. So it is with a JSON object or list: its reader refuses it
    anyway, and the other items of a bulk message are read.

    Args:
        message: gets the fields.
        data: the message as bytes.
        slice_bytes: how much a step reads.

    Raises:
        DecodeError: these are not the bytes of a message, or it is too deep.
        MalformedMessageError: a message has more than FIELDS_MAX fields.
    """
    try:
        _Slices(data, slice_bytes).merge(message, 0, len(data), LEVELS_MAX)
    except IndexError:
        raise DecodeError("the message ends amid a field") from None


class _Slices:
    """The bytes of one message."""

    def __init__(self, data: bytes, slice_bytes: int) -> None:
        self._data, self._view = data, memoryview(data)
        self._slice_bytes = slice_bytes

    def merge(self, message: Any, at: int, end: int, levels: int) -> None:
        """Reads what is between two positions. Small fields are collected until they make up a slice."""
        if not levels:
            raise DecodeError("messages are too deep inside of each other")
        fields, size, data = message.DESCRIPTOR.fields_by_number, self._slice_bytes, self._data
        begin, left = at, FIELDS_MAX
        while at < end:
            if not left:
                _refuse(message)
                return
            left -= 1
            start = at
            # Nearly all small parts have a tag and a length of one byte each. Nothing else here runs as often.
            if data[at] & 0x87 == _BYTES and (length := data[at + 1]) < 0x80:
                at += 2 + length
            else:
                number, content, at = self._field(at)
                if at - content > size and (field := fields.get(number)) is not None and field.message_type is not None:
                    if at > end:
                        break
                    message.MergeFromString(self._view[begin:start])
                    self._merge_field(message, field, content, at, levels - 1)
                    begin = at
            if at - begin > size:
                message.MergeFromString(self._view[begin : min(at, end)])
                if _has_too_many_values(message):
                    return
                cut_own(message)
                begin = at
        if at > end:
            raise DecodeError("a field ends outside of its message")
        message.MergeFromString(self._view[begin:end])

    def _field(self, at: int) -> tuple[int, int, int]:
        """The number of the field at a position, where its content begins, and where it ends."""
        tag, at = self._varint(at)
        kind = tag & 7
        if kind == _BYTES:
            size, at = self._varint(at)
            return tag >> 3, at, at + size
        if kind == _VARINT:
            return tag >> 3, at, self._varint(at)[1]
        if kind in (_FIXED_32, _FIXED_64):
            return tag >> 3, at, at + (4 if kind == _FIXED_32 else 8)
        raise DecodeError("the message has a field of an unknown kind")

    def _varint(self, at: int) -> tuple[int, int]:
        """The number at a position, and where it ends."""
        value, shift = 0, 0
        while (byte := self._data[at]) > 0x7F:
            value |= (byte & 0x7F) << shift
            at += 1
            if (shift := shift + 7) > 63:
                raise DecodeError("a number has more than ten bytes")
        return value | byte << shift, at + 1

    def _merge_field(self, message: Any, field: FieldDescriptor, at: int, end: int, levels: int) -> None:
        """Reads a message inside of this one: an entry of a map, one of a list, or the only one of its field."""
        target = getattr(message, field.name)
        if hasattr(target, "GetEntryClass"):
            self._merge_entry(target, at, end, levels)
            return
        if field.is_repeated:
            target = target.add()
        else:
            target.SetInParent()
        self.merge(target, at, end, levels)

    def _merge_entry(self, target: Any, at: int, end: int, levels: int) -> None:
        """Reads an entry of a map. A value that follows its key is read in place, because copying it is slow."""
        entry = target.GetEntryClass()()
        number, _, after_key = self._field(at)
        if number == 1 and after_key < end and self._data[after_key] == _VALUE_TAG and isinstance(entry.value, Message):
            _, content, after_value = self._field(after_key)
            if after_value == end and levels:
                entry.MergeFromString(self._view[at:after_key])
                target.pop(entry.key, None)
                self.merge(target[entry.key], content, end, levels - 1)
                return
        self.merge(entry, at, end, levels)
        if isinstance(entry.value, Message):
            target[entry.key].CopyFrom(entry.value)
        else:
            target[entry.key] = entry.value


def _refuse(message: Any) -> None:
    """Raises MalformedMessageError, unless the reader of the message certainly refuses it."""
    if not _has_too_many_values(message):
        kind = message.DESCRIPTOR.full_name.removeprefix("mnemon.v1.")
        raise MalformedMessageError(f"the request has a {kind} of more than {FIELDS_MAX:,} fields")


def _has_too_many_values(message: Any) -> bool:
    """Whether it is a JSON object or list that its reader certainly refuses."""
    name = _OF_JSON.get(message.DESCRIPTOR.full_name)
    return name is not None and len(getattr(message, name)) > VALUES_MAX
