"""The index of a segment is read from its bytes exactly as it was, or refused."""

import random
import struct

import numpy as np
import pytest
from mnemon_server.domain.records import Scope
from mnemon_server.engines.events.index.columns import IndexFrameError, decode_index, encode_index
from mnemon_server.engines.events.index.index import TimelineIndex
from mnemon_server.engines.events.index.interning import Interners
from mnemon_server.engines.events.index.rows import EventKey, EventRow
from mnemon_server.engines.events.index.sealed_block import SealedBlock
from mnemon_server.engines.events.index.selection import Selection

SEGMENT = 1000


def rows(count: int, seed: int = 1) -> list[EventRow]:
    """Some events, in any order."""
    pick = random.Random(seed)
    return [
        EventRow(
            sequence=SEGMENT + place,
            time_us=pick.randrange(-3, 40),
            id_hash=pick.getrandbits(64),
            key_hash=pick.getrandbits(64),
            scope=Scope(
                pick.choice(["ada", "bób", "雪"]), persona=pick.choice(["", "p"]), agent=pick.choice(["", "a"])
            ),
            event_type=pick.choice(["task", "emotion"]),
            importance=pick.choice([None, 0.1, 0.9]),
            offset=pick.getrandbits(32),
        )
        for place in pick.sample(range(count), count)
    ]


def sealed(events: list[EventRow]) -> SealedBlock:
    """The sealed block of these rows."""
    return SealedBlock.from_rows(SEGMENT, events, Interners())


def use(block: SealedBlock, interners: Interners) -> None:
    """Calls every read of the index."""
    index = TimelineIndex(interners)
    index.add_sealed(block)
    for selection in (Selection(), Selection(scope=Scope(user="ada"), start_us=3), Selection(min_importance=0.5)):
        refs = index.page(selection, limit=5)
        assert len(index.page(selection, before=(10, ""), limit=5, oldest_first=True)) <= block.count
        assert index.counts(selection).in_window >= len(refs)
        assert index.summarize(selection).count == index.counts(selection).in_window
    index.find_ids(["a", "b"])
    index.find_keys([EventKey("ada", time, time % 7) for time in range(-3, 40)])
    index.locate(list(range(SEGMENT, SEGMENT + 50)))
    index.mark_dead([SEGMENT, SEGMENT + 3])
    index.expired(20, 3)


@pytest.mark.parametrize("count", [0, 1, 2, 500])
def test_an_index_comes_back_unchanged(count: int) -> None:
    block = sealed(rows(count))
    data = encode_index(block)
    interners = Interners()
    interners.scopes.code(("someone", "else", "was", "here", "before"))
    again = decode_index(data, interners)
    assert encode_index(again) == data
    assert again.segment_id == SEGMENT and again.count == count
    for column, other in zip(block.columns.arrays(), again.columns.arrays(), strict=True):
        np.testing.assert_array_equal(column, other)
    assert again.dictionary.scope_texts() == block.dictionary.scope_texts()
    assert (again.min_time, again.max_time) == (block.min_time, block.max_time)
    assert again.all_sequences() == list(range(SEGMENT, SEGMENT + count))
    use(again, interners)


def test_the_bytes_do_not_depend_on_the_order_of_the_events() -> None:
    events = rows(200)
    backwards = Interners()
    for event in reversed(events):
        backwards.types.code(event.event_type)
    assert encode_index(SealedBlock.from_rows(SEGMENT, events[::-1], backwards)) == encode_index(sealed(events))


def test_the_bytes_are_as_documented() -> None:
    ids, keys = 7 << 32 | 1, 9 << 32 | 1
    event = EventRow(SEGMENT + 2, -5, ids, keys, Scope("ada", project="x"), "task", None, 64)
    expected = struct.pack("<4sHHQIIIIII", b"MTIX", 2, 0, SEGMENT, 1, 1, 1, 4, 16 + 8, 0)
    expected += struct.pack("<qII", -5, 9, 7) + struct.pack("<IIIII", 0, 64, 2, 0, 0) + struct.pack("<I", 0x7FC00000)
    expected += struct.pack("<5I", 1, 0, 0, 0, 3) + struct.pack("<I", 2)
    for text in ("", "ada", "task", "x"):
        expected += struct.pack("<I", len(text)) + text.encode()
    assert encode_index(sealed([event])) == expected


def test_an_index_of_the_first_version_is_read() -> None:
    event = EventRow(SEGMENT + 2, -5, 7 << 32 | 1, 9 << 32 | 1, Scope("ada", project="x"), "task", None, 64)
    now = encode_index(sealed([event]))
    columns = struct.pack("<qQQ", -5, event.key_hash, event.id_hash)
    before = now[:4] + struct.pack("<H", 1) + now[6:40] + columns + now[56:]
    block = decode_index(before, Interners())
    assert encode_index(block) == now
    assert not any(np.shares_memory(column, np.frombuffer(before, np.uint8)) for column in block.columns.arrays())


def test_columns_are_views_of_the_bytes_and_copied_only_when_necessary() -> None:
    data = encode_index(sealed(rows(50)))
    block = decode_index(data, Interners())
    inside = np.frombuffer(data, np.uint8)
    assert all(np.shares_memory(column, inside) for column in block.columns.arrays())
    shifted = decode_index(memoryview(b"." + data)[1:], Interners())
    assert all(column.flags.aligned for column in shifted.columns.arrays())
    assert encode_index(shifted) == data


def test_with_any_damaged_byte_the_index_is_refused_or_usable() -> None:
    data = encode_index(sealed(rows(12)))
    refused = 0
    for place in range(len(data)):
        for flip in (0x01, 0x80, 0xFF):
            damaged = bytearray(data)
            damaged[place] ^= flip
            interners = Interners()
            try:
                block = decode_index(bytes(damaged), interners)
            except IndexFrameError:
                refused += 1
                continue
            assert encode_index(block) == bytes(damaged)
            if flip == 0x80:
                use(block, interners)
    assert refused > len(data)


def test_a_truncated_index_is_refused() -> None:
    data = encode_index(sealed(rows(12)))
    for length in range(len(data)):
        with pytest.raises(IndexFrameError):
            decode_index(data[:length], Interners())
    with pytest.raises(IndexFrameError, match="bytes instead of the"):
        decode_index(data + b"\0", Interners())


def test_noise_is_refused() -> None:
    pick = random.Random(7)
    header = encode_index(sealed([]))[:40]
    for _ in range(300):
        noise = pick.randbytes(pick.randrange(200))
        for data in (noise, header[:16] + noise, header[: pick.randrange(41)] + noise):
            with pytest.raises(IndexFrameError):
                decode_index(data, Interners())


@pytest.mark.parametrize(
    ("place", "value", "problem"),
    [
        (4, struct.pack("<H", 3), "its version is 3, not 2"),
        (0, b"MTIY", "it is not an index"),
        (8, struct.pack("<Q", 2**63), "the sequence is too large"),
        (16, struct.pack("<I", 2**32 - 1), "that the header implies"),
        (28, struct.pack("<I", 2**32 - 1), "a text is cut off"),
    ],
)
def test_a_refusal_says_what_is_wrong(place: int, value: bytes, problem: str) -> None:
    data = bytearray(encode_index(sealed(rows(5))))
    data[place : place + len(value)] = value
    with pytest.raises(IndexFrameError, match=problem):
        decode_index(bytes(data), Interners())


def test_a_distant_sequence_takes_no_memory_for_those_between() -> None:
    block = sealed([*rows(3), rows(1)[0]._replace(sequence=SEGMENT + 2**32 - 1)])
    again = decode_index(encode_index(block), Interners())
    assert again.mark_dead([SEGMENT, SEGMENT + 2**32 - 1]) == 2
    assert again.alive_count == 2
