"""Damaged segments: every damage is detected, never yields a wrong event, and does not hide its neighbours."""

import contextlib
import random
import tracemalloc
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from mnemon_server.engines.events.format.frame_scanner import CHUNK_BYTES
from mnemon_server.engines.events.format.frames import FrameType, encode_events, frame_parts
from mnemon_server.engines.events.format.layout import FOOTER_BYTES, HEADER_BYTES, SegmentDamagedError, segment_name
from mnemon_server.engines.events.format.salvage import Damage
from mnemon_server.engines.events.format.segment_reader import SegmentReader

from tests.support.faulty_files import FaultyFiles
from tests.support.segment_files import EPOCH, bodies, header, salvaged, write_open, write_sealed

NAME = segment_name(1, 1)
EVENTS = bodies(25, longest=40)
PAGE = 4 << 10


def sealed_content(events: list[tuple[int, bytes]] = EVENTS) -> bytes:
    files = FaultyFiles()
    write_sealed(files, events)
    return files.content(NAME)


def open_content(events: list[tuple[int, bytes]] = EVENTS) -> bytes:
    files = FaultyFiles()
    write_open(files, events)
    return files.content(NAME)


def reader_of(content: bytes) -> SegmentReader:
    files = FaultyFiles()
    files.put(NAME, content)
    return SegmentReader(files, NAME, epoch=EPOCH)


def frame_ranges(content: bytes) -> list[tuple[int, int]]:
    with reader_of(content) as reader:
        return [(frame.offset, frame.end) for frame in reader.frames()]


SEALED, OPEN = sealed_content(), open_content()
RANGES = frame_ranges(SEALED)
OFFSETS = [start for start, _ in RANGES]
DIGEST = SEALED[-FOOTER_BYTES:][20 + 64 : 20 + 96]


def damaged(content: bytes, start: int, replacement: bytes) -> bytes:
    return content[:start] + replacement + content[start + len(replacement) :]


def untouched(start: int, end: int) -> list[tuple[int, bytes]]:
    """The events without a byte in the range."""
    return [event for event, (low, high) in zip(EVENTS, RANGES, strict=True) if high <= start or low >= end]


def ask_everything(reader: SegmentReader) -> list[tuple[int, bytes]]:
    """Calls every read. Returns every event that any of them returned. Only damage errors are allowed."""
    seen: list[tuple[int, bytes]] = []

    def collect() -> None:
        for frame in reader.frames():
            seen.append((frame.sequence, frame.body))  # noqa: PERF401 - what came before the damage counts

    def collect_single() -> None:
        for offset in OFFSETS:
            try:
                frame = reader.read(offset)
            except SegmentDamagedError:
                continue
            seen.append((frame.sequence, frame.body))

    def collect_many() -> None:
        seen.extend((frame.sequence, frame.body) for frame in reader.read_many(OFFSETS))

    questions = [collect, collect_single, collect_many, reader.index, reader.valid_prefix, reader.verify]
    for question in [*questions, lambda: reader.footer, lambda: reader.verify(DIGEST)]:
        with contextlib.suppress(SegmentDamagedError):
            question()
    seen.extend(salvaged(reader))
    return seen


@pytest.mark.parametrize("bit", [0, 5])
def test_a_flipped_bit_in_any_byte_of_a_sealed_file_is_detected_and_costs_one_event(bit: int) -> None:
    for place in range(len(SEALED)):
        with reader_of(damaged(SEALED, place, bytes([SEALED[place] ^ 1 << bit]))) as reader:
            for digest in (None, DIGEST):
                with pytest.raises(SegmentDamagedError):
                    reader.verify(digest)
            assert salvaged(reader) == untouched(place, place + 1)
            (damage,) = reader.salvage().damages
            assert damage.start <= place < damage.end


def test_a_flipped_bit_never_makes_another_event() -> None:
    rng = random.Random(3)
    for place in range(len(SEALED)):
        with reader_of(damaged(SEALED, place, bytes([SEALED[place] ^ 1 << rng.randrange(8)]))) as reader:
            assert set(ask_everything(reader)) <= set(EVENTS)


def test_damage_is_named_by_its_exact_range_and_its_neighbours() -> None:
    start, end = RANGES[7]
    for place in (start, start + 5, end - 1):
        with reader_of(damaged(SEALED, place, b"\x55")) as reader:
            (damage,) = reader.salvage().damages
            assert (damage.start, damage.end, damage.after, damage.before) == (start, end, 7, 9)
            with pytest.raises(SegmentDamagedError) as caught:
                reader.verify()
            assert (caught.value.name, caught.value.offset) == (NAME, start)


def test_a_file_with_a_damaged_header_is_read_by_the_copy_at_its_end() -> None:
    with reader_of(damaged(SEALED, 0, bytes(HEADER_BYTES))) as reader:
        with pytest.raises(SegmentDamagedError):
            _ = reader.header
        assert salvaged(reader) == EVENTS
        assert [reader.read(offset).body for offset in OFFSETS] == [body for _, body in EVENTS]
        found = reader.salvage()
        assert found.header == header()
        assert [(damage.start, damage.end, damage.before) for damage in found.damages] == [(0, HEADER_BYTES, 1)]


def test_without_any_header_nothing_is_trusted() -> None:
    with reader_of(damaged(OPEN, 0, bytes(HEADER_BYTES))) as reader:
        found = reader.salvage()
        assert list(found.offsets) == [] and found.header is None and not found.is_torn
        assert found.damages == [Damage(0, len(OPEN), found.damages[0].problem, None, None)]
        for offset in OFFSETS:
            with pytest.raises(SegmentDamagedError):
                reader.read(offset)


@pytest.mark.parametrize("content", [OPEN, SEALED], ids=["open", "sealed"])
def test_a_file_cut_at_any_length_keeps_every_whole_event(content: bytes) -> None:
    for length in range(len(content)):
        with reader_of(content[:length]) as reader:
            with pytest.raises(SegmentDamagedError):
                reader.verify()
            if length < HEADER_BYTES:
                with pytest.raises(SegmentDamagedError):
                    reader.valid_prefix()
                continue
            whole = [event for event, (_, end) in zip(EVENTS, RANGES, strict=True) if end <= length]
            prefix = RANGES[len(whole) - 1][1] if whole else HEADER_BYTES
            assert reader.valid_prefix() == prefix
            assert [(frame.sequence, frame.body) for frame in reader.frames(to=prefix)] == whole
            assert salvaged(reader) == whole


def test_a_torn_tail_is_distinguished_from_damage() -> None:
    for length in range(HEADER_BYTES, len(OPEN)):
        with reader_of(OPEN[:length]) as reader:
            assert reader.salvage().is_torn
    for broken in (damaged(OPEN, OFFSETS[3] + 2, b"\x55"), SEALED[:-1], SEALED + b"x", damaged(OPEN, 3, b"?")):
        with reader_of(broken) as reader:
            assert not reader.salvage().is_torn


def test_a_page_of_zeros_costs_the_events_that_overlap_it() -> None:
    events = bodies(900, longest=200)
    content = sealed_content(events)
    ranges = frame_ranges(content)
    events_end = ranges[-1][1]
    for start in range(PAGE, len(content), PAGE):
        with reader_of(damaged(content, start, bytes(min(PAGE, len(content) - start)))) as reader:
            expected = [
                event for event, (low, high) in zip(events, ranges, strict=True) if high <= start or low >= start + PAGE
            ]
            assert salvaged(reader) == expected
            touched = [r for r in ranges if r[1] > start and r[0] < start + PAGE]
            if touched and touched[-1][1] < events_end:
                (damage,) = reader.salvage().damages
                assert (damage.start, damage.end) == (touched[0][0], touched[-1][1])


def test_several_damages_are_named_one_by_one() -> None:
    content = SEALED
    for n in (2, 3, 9, 20):
        content = damaged(content, OFFSETS[n], b"\x00")
    with reader_of(content) as reader:
        found = reader.salvage()
        assert salvaged(reader) == [event for n, event in enumerate(EVENTS) if n not in (2, 3, 9, 20)]
        assert [(damage.after, damage.before) for damage in found.damages] == [(2, 5), (9, 11), (20, 22)]
        for one, two in pairwise(found.damages):
            assert one.end < two.start


@pytest.mark.parametrize("size", [1, 23, 24, FOOTER_BYTES, 5_000])
def test_garbage_after_the_end_is_detected_and_costs_nothing(size: int) -> None:
    garbage = random.Random(size).randbytes(size)
    for content in (OPEN, SEALED):
        with reader_of(content + garbage) as reader:
            assert salvaged(reader) == EVENTS
            (damage,) = reader.salvage().damages
            assert (damage.start, damage.end) == (len(content), len(content) + size)
            assert reader.valid_prefix() == RANGES[-1][1]
            with pytest.raises(SegmentDamagedError):
                list(reader.frames())


def test_an_inserted_or_missing_byte_is_detected_and_costs_the_events_after_it() -> None:
    place = OFFSETS[10] + 3
    for content in (SEALED[:place] + b"!" + SEALED[place:], SEALED[:place] + SEALED[place + 1 :]):
        with reader_of(content) as reader:
            assert salvaged(reader) == EVENTS[:10]
            with pytest.raises(SegmentDamagedError):
                reader.verify()


def test_an_event_within_an_event_does_not_count() -> None:
    files = FaultyFiles()
    inner = SEALED[OFFSETS[20] : OFFSETS[24]]
    events = [(1, b"one"), (2, inner * 3), (3, b"three")]
    offsets = write_open(files, events)
    content = damaged(files.content(NAME), offsets[1], b"\x00")
    with reader_of(content) as reader:
        assert salvaged(reader) == [events[0], events[2]]


def test_an_event_forged_inside_a_damaged_event_does_not_count() -> None:
    """Its author would have to know the file's seed and the offset."""
    head, place = header(), HEADER_BYTES + 20 + 5
    forged = b"".join(frame_parts(head.seed, place, FrameType.EVENT, 2, b"never recorded"))
    files, events = FaultyFiles(), [(1, b"12345" + forged + b"!"), (3, b"three")]
    write_open(files, events, head)
    with reader_of(damaged(files.content(NAME), HEADER_BYTES + 20, b"9")) as reader:
        assert salvaged(reader) == [events[1]]


def test_a_file_with_unordered_sequences_yields_each_only_once() -> None:
    head = header()
    first, _, _ = encode_events(head.seed, HEADER_BYTES, 0, [(4, b"four"), (5, b"five")])
    again, _, _ = encode_events(head.seed, HEADER_BYTES + len(first), 0, [(5, b"five again"), (6, b"six")])
    with reader_of(head.encode() + first + again) as reader:
        assert salvaged(reader) == [(4, b"four"), (5, b"five"), (6, b"six")]
        assert reader.valid_prefix() == HEADER_BYTES + len(first)
        with pytest.raises(SegmentDamagedError, match="event 5 follows event 5"):
            list(reader.frames())


@pytest.mark.parametrize("size", range(CHUNK_BYTES - 3, CHUNK_BYTES + 3))
def test_an_event_after_damage_is_found_across_chunks(size: int) -> None:
    files, events = FaultyFiles(), [(1, bytes(size - 24)), (2, b"two"), (3, b"three")]
    offsets = write_open(files, events)
    assert offsets[1] - offsets[0] == size
    with reader_of(damaged(files.content(NAME), offsets[0] + 4, b"?")) as reader:
        assert salvaged(reader) == events[1:]


def test_an_unreadable_page_costs_the_events_on_it() -> None:
    files, events = FaultyFiles(), bodies(900, longest=200)
    write_sealed(files, events)
    ranges = frame_ranges(files.content(NAME))
    files.unreadable = range(3 * PAGE, 4 * PAGE)
    with SegmentReader(files, NAME, epoch=EPOCH) as reader:
        found = reader.salvage()
    (damage,) = found.damages
    lost = [(low, high) for low, high in ranges if high > 3 * PAGE and low < 4 * PAGE]
    assert len(lost) > 10
    assert (damage.start, damage.end) == (lost[0][0], lost[-1][1])
    assert len(found.offsets) == 900 - len(lost)


@settings(max_examples=300)
@given(content=st.binary(max_size=2_000))
def test_random_bytes_are_not_a_segment(content: bytes) -> None:
    for beginning in (b"", header().encode()):
        with reader_of(beginning + content) as reader:
            assert ask_everything(reader) == []


@st.composite
def mutations(draw: st.DrawFn) -> bytes:
    """A sealed segment after up to six changes, each of which overwrites, removes, repeats or inserts some bytes."""
    content = bytearray(SEALED)
    for _ in range(draw(st.integers(1, 6))):
        start = draw(st.integers(0, len(content)))
        size = draw(st.integers(0, 200))
        kind = draw(st.sampled_from(["overwrite", "remove", "repeat", "insert"]))
        piece = bytes(content[start : start + size])
        if kind == "remove":
            del content[start : start + size]
        elif kind == "repeat":
            other = draw(st.integers(0, len(content)))
            content[other : other + len(piece)] = piece
        else:
            fresh = draw(st.binary(min_size=0, max_size=200))
            content[start : start + (len(fresh) if kind == "overwrite" else 0)] = fresh
    return bytes(content)


@settings(max_examples=200)
@given(content=mutations())
def test_a_mangled_segment_yields_only_written_events(content: bytes) -> None:
    with reader_of(content) as reader:
        assert set(ask_everything(reader)) <= set(EVENTS)


def test_a_forged_length_allocates_nothing() -> None:
    content = damaged(SEALED, OFFSETS[4] + 4, b"\xff\xff\xff\xff")
    assert peak_bytes(content) < 4 << 20


def test_memory_does_not_grow_with_the_file() -> None:
    content = sealed_content(bodies(12_000, longest=2_000))
    assert len(content) > 11 << 20
    assert peak_bytes(damaged(content, len(content) // 2, b"?")) < 8 << 20


def peak_bytes(content: bytes) -> int:
    """The peak number of bytes held while reading a file in all ways but `index` and `read_many`."""
    with reader_of(content) as reader:
        tracemalloc.start()
        for question in (lambda: sum(1 for _ in reader.frames()), reader.verify, reader.valid_prefix, reader.salvage):
            with contextlib.suppress(SegmentDamagedError):
                question()
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    return peak
