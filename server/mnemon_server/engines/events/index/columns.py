"""The binary format of a sealed segment's index, which is the body of its index frame.

All numbers are little-endian. Sizes are in bytes; n is the number of events.

    offset  size  what
         0     4  the letters "MTIX"
         4     2  version of this layout: 2
         6     2  zero
         8     8  sequence of the segment's first event, its id
        16     4  n
        20     4  number of scopes
        24     4  number of types
        28     4  number of texts
        32     4  size of the texts
        36     4  zero
        40    8n  times, microseconds since 1970-01-01 UTC, signed
              4n  upper halves of the hashes of keys (which identify duplicates, see hashes.py)
              4n  upper halves of the hashes of ids, ascending
              4n  for each of those hashes, the position of its event
              4n  offset of the event's frame in the segment's file
              4n  sequence, relative to that of the segment's first event; unique
              4n  scope: its position among the scopes
              4n  type: its position among the types
              4n  importance, IEEE 754 single precision; NaN (0x7fc00000) if unknown
      20 scopes   for each scope five positions of texts: user, household, persona, agent, project
       4 types    for each type the position of its name among the texts
            rest  the texts: for each its size (4), and UTF-8

Events are sorted by user (as text), time and hash of the key. Texts, scopes and types ascend and are unique, and every
text is used by a scope or a type. UTF-8 texts sort the same by bytes and by code points. Each column is aligned to the
size of its numbers, so that it can be used in place without a copy. The total size follows from the first 40 bytes.
Version 1 had complete hashes, 8n each; it can still be read.

The index has no checksum of its own, because its frame has one. Decoding validates everything that readers rely on.
"""

import struct
from collections.abc import Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from mnemon_server.domain.encoding import SCOPE_FIELDS
from mnemon_server.domain.records import INT64_MAX
from mnemon_server.engines.events.index.interning import Interners
from mnemon_server.engines.events.index.rows import Codes, shortened
from mnemon_server.engines.events.index.sealed_block import SealedBlock
from mnemon_server.engines.events.index.sealed_columns import Dictionary, SealedColumns, is_canonical

MAGIC = b"MTIX"
VERSION = 2
_HEADER = struct.Struct("<4sHHQIIIIII")
_LENGTH = struct.Struct("<I")
_COLUMNS = ("<i8", "<u4", "<u4", "<u4", "<u4", "<u4", "<u4", "<u4", "<f4")
"""The types of SealedColumns, in field order."""
_LAYOUTS = {1: ("<i8", "<u8", "<u8", *_COLUMNS[3:]), VERSION: _COLUMNS}
"""The types of the columns, by version."""
_SCOPE_FIELDS = len(SCOPE_FIELDS)
_SEQUENCE_MAX = INT64_MAX - 2**32
_ALIGNMENT = 8
_PROBLEM = "The index of a segment is damaged: {}."


class IndexFrameError(Exception):
    """The bytes are not a valid index of a segment."""


class _Counts(NamedTuple):
    version: int
    events: int
    scopes: int
    types: int
    texts: int
    text_bytes: int

    @property
    def total_bytes(self) -> int:
        tables = 4 * (_SCOPE_FIELDS * self.scopes + self.types)
        return _HEADER.size + self.event_bytes * self.events + tables + self.text_bytes

    @property
    def event_bytes(self) -> int:
        return sum(np.dtype(column).itemsize for column in _LAYOUTS[self.version])


def encode_index(block: SealedBlock) -> bytes:
    """The index of a block with all its events. It does not record which of them are dead."""
    scopes = block.dictionary.scope_texts()
    types = block.dictionary.type_names()
    texts = sorted({text for values in scopes for text in values} | set(types))
    places = {text: place for place, text in enumerate(texts)}
    encoded = b"".join(_LENGTH.pack(len(raw)) + raw for raw in map(str.encode, texts))
    counts = (block.count, len(scopes), len(types), len(texts), len(encoded))
    columns = block.columns.arrays()
    return b"".join(
        [
            _HEADER.pack(MAGIC, VERSION, 0, block.segment_id, *counts, 0),
            *(column.astype(dtype, copy=False).tobytes() for column, dtype in zip(columns, _COLUMNS, strict=True)),
            np.array([places[text] for values in scopes for text in values], "<u4").tobytes(),
            np.array([places[name] for name in types], "<u4").tobytes(),
            encoded,
        ]
    )


def decode_index(data: bytes | memoryview, interners: Interners) -> SealedBlock:
    """Decodes a block. Its columns are views of the bytes if those are aligned, as new ones are; those of an older
    version are copies.

    The block therefore keeps the whole buffer alive: pass the bytes of the index alone.

    Raises IndexFrameError if anything is invalid, before it allocates more memory than the bytes take.
    """
    segment_id, counts = _header(data)
    if np.frombuffer(data, np.uint8).ctypes.data % _ALIGNMENT:
        data = bytes(data)
    reader = _Reader(data, _HEADER.size)
    columns = [reader.array(dtype, counts.events) for dtype in _LAYOUTS[counts.version]]
    scope_table = reader.array("<u4", _SCOPE_FIELDS * counts.scopes).reshape(-1, _SCOPE_FIELDS)
    type_table = reader.array("<u4", counts.types)
    texts = reader.texts(counts.texts)
    _check_tables(scope_table, type_table, counts)
    current = SealedColumns(*(columns if counts.version == VERSION else map(_current, columns)))
    _check_columns(current, counts, scope_table[:, 0])
    dictionary = _dictionary(scope_table.tolist(), type_table.tolist(), texts, interners)
    return SealedBlock(segment_id, current, dictionary)


class _Reader:
    """Reads consecutive arrays and texts from bytes whose size has been checked."""

    def __init__(self, data: bytes | memoryview, start: int) -> None:
        self._data = data
        self._at = start

    def array(self, dtype: str, count: int) -> NDArray[Any]:
        column = np.frombuffer(self._data, dtype, count, self._at)
        self._at += column.nbytes
        return column

    def texts(self, count: int) -> list[str]:
        raw = bytes(self._data[self._at :])
        texts, at = [], 0
        for _ in range(count):
            start = at + _LENGTH.size
            at = start + int.from_bytes(raw[at:start], "little")
            if start > len(raw) or at > len(raw):
                raise IndexFrameError(_PROBLEM.format("a text is cut off"))
            texts.append(_text(raw[start:at]))
        _check(at == len(raw), "there is data after the texts")
        _check(all(text < following for text, following in pairwise(texts)), "texts are out of order")
        return texts


def _header(data: bytes | memoryview) -> tuple[int, _Counts]:
    _check(len(data) >= _HEADER.size, "the header is cut off")
    magic, version, reserved, segment_id, *counts, also_reserved = _HEADER.unpack_from(data)
    _check(magic == MAGIC, "it is not an index")
    _check(version in _LAYOUTS, f"its version is {version}, not {VERSION}")
    _check(reserved == 0 and also_reserved == 0, "a reserved number is not zero")
    _check(segment_id <= _SEQUENCE_MAX, "the sequence is too large")
    sizes = _Counts(version, *counts)
    _check(
        sizes.total_bytes == len(data), f"{len(data)} bytes instead of the {sizes.total_bytes} that the header implies"
    )
    return segment_id, sizes


def _check_tables(scope_table: Codes, type_table: Codes, counts: _Counts) -> None:
    _check(bool(np.all(scope_table < counts.texts) and np.all(type_table < counts.texts)), "a text is missing")
    used = np.zeros(counts.texts, np.bool_)
    used[scope_table] = used[type_table] = True
    _check(bool(used.all()), "a text is not used")
    _check(_rows_ascend(scope_table), "scopes are not in order")
    _check(_ascends(type_table), "types are not in order")


def _check_columns(columns: SealedColumns, counts: _Counts, scope_users: Codes) -> None:
    _check(bool(np.all(columns.scopes < counts.scopes)), "an event's scope is missing")
    _check(bool(np.all(columns.types < counts.types)), "an event's type is missing")
    users = scope_users[columns.scopes]
    _check(is_canonical(users, columns.times_us, columns.key_hashes), "events are out of order")
    _check(bool(np.all(columns.sorted_ids[1:] >= columns.sorted_ids[:-1])), "hashes of ids are out of order")
    _check(bool(np.all(columns.id_positions < counts.events)), "the position of an id is beyond the events")
    seen = np.zeros(counts.events, np.bool_)
    seen[columns.id_positions] = True
    _check(bool(seen.all()), "an event has no id")
    _check(_ascends(np.sort(columns.deltas)), "a sequence occurs twice")
    _check(not np.isinf(columns.importances).any(), "an importance is infinite")


def _current(column: NDArray[Any]) -> NDArray[Any]:
    """Converts a column of version 1 to the present type. It is copied, so that it does not keep the bytes alive."""
    return shortened(column) if column.dtype == np.uint64 else column.copy()


def _dictionary(scopes: list[list[int]], types: list[int], texts: Sequence[str], interners: Interners) -> Dictionary:
    scope_codes = interners.scopes.codes(tuple([texts[place] for place in places]) for places in scopes)
    type_codes = interners.types.codes(texts[place] for place in types)
    return Dictionary(np.array(scope_codes, np.uint32), np.array(type_codes, np.uint32), interners)


def _rows_ascend(table: Codes) -> bool:
    """Whether the rows ascend lexicographically."""
    larger = np.zeros(max(len(table) - 1, 0), np.bool_)
    for column in reversed(range(table.shape[1])):
        earlier, later = table[:-1, column], table[1:, column]
        larger = (later > earlier) | ((later == earlier) & larger)
    return bool(larger.all())


def _ascends(values: Codes) -> bool:
    return bool(np.all(values[1:] > values[:-1]))


def _text(raw: bytes) -> str:
    try:
        return raw.decode()
    except UnicodeDecodeError as error:
        raise IndexFrameError(_PROBLEM.format(f"a text is not UTF-8 ({error})")) from None


def _check(sound: bool, problem: str) -> None:  # noqa: FBT001 - reads like an assertion
    if not sound:
        raise IndexFrameError(_PROBLEM.format(problem))
