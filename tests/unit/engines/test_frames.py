"""Writing and reading whole segments: every appended event is read back, and nothing else."""

import hashlib
import struct
from collections.abc import Callable

import google_crc32c
import pytest
from mnemon_server.engines.events.format.frames import BODY_MAX, FRAME_OVERHEAD
from mnemon_server.engines.events.format.layout import (
    FOOTER_BYTES,
    HEADER_BYTES,
    ForeignSegmentError,
    SegmentDamagedError,
    SegmentFormatError,
    SegmentHeader,
    epoch_digest,
    parse_segment_name,
    segment_name,
)
from mnemon_server.engines.events.format.segment_reader import SegmentReader
from mnemon_server.engines.events.format.segment_writer import SegmentSummary, SegmentWriter

from tests.support.faulty_files import FaultyFiles
from tests.support.segment_files import EPOCH, INDEX, bodies, header, summary, write_open, write_sealed

NAME = segment_name(1, 1)


def reader_of(files: FaultyFiles, name: str = NAME) -> SegmentReader:
    return SegmentReader(files, name, epoch=EPOCH)


def test_events_are_read_by_offset_in_the_requested_order() -> None:
    files, events = FaultyFiles(), [*bodies(50), (60, b"long" * 5_000), (70, b"last")]
    offsets = write_open(files, events)
    wanted = [51, 3, 50, 3, 0, 49]
    with reader_of(files) as reader:
        frames = reader.read_many([offsets[n] for n in wanted])
        assert [(frame.sequence, frame.body) for frame in frames] == [events[n] for n in wanted]
        assert [(f.sequence, f.body) for f in map(reader.read, offsets)] == events


@pytest.mark.parametrize("write", [write_open, write_sealed])
def test_events_are_read_in_order_from_any_frame_on(write: Callable[..., object]) -> None:
    files, events = FaultyFiles(), bodies(40)
    write(files, events)
    with reader_of(files) as reader:
        frames = list(reader.frames())
        assert [(frame.sequence, frame.body) for frame in frames] == events
        assert list(reader.frames(frames[20].offset)) == frames[20:]
        assert list(reader.frames(frames[20].offset, frames[30].end)) == frames[20:31]


def test_events_longer_than_a_chunk_are_read_back() -> None:
    files = FaultyFiles()
    events = [(1, b"a" * 3_000_000), (2, b""), (3, b"b" * BODY_MAX), *bodies(3_000, first_sequence=4, longest=900)]
    sealed = write_sealed(files, events)
    with reader_of(files) as reader:
        assert [(frame.sequence, frame.body) for frame in reader.frames()] == events
        assert reader.verify(sealed.sha256) == sealed.footer
        salvage = reader.salvage()
        assert list(salvage.sequences) == [sequence for sequence, _ in events]
        assert salvage.damages == []


def test_a_sealed_file_describes_its_content() -> None:
    files, events = FaultyFiles(), bodies(30, first_sequence=1)
    sealed = write_sealed(files, events)
    content = files.content(NAME)
    with reader_of(files) as reader:
        footer = reader.footer
        assert reader.header == header()
        assert reader.index() == INDEX
        assert reader.verify() == footer == sealed.footer
    assert (footer.event_count, footer.first_sequence, footer.last_sequence) == (30, 1, 30)
    assert (footer.min_time_us, footer.max_time_us) == (summary(30).min_time_us, summary(30).max_time_us)
    assert sealed.size == len(content)
    assert sealed.sha256 == hashlib.sha256(content[:-FOOTER_BYTES]).digest()


@pytest.mark.parametrize("size", [0, 1, BODY_MAX, BODY_MAX + 1, 2 * BODY_MAX + 5])
def test_an_index_of_any_length_is_read_back(size: int) -> None:
    files, index = FaultyFiles(), bytes(range(256)) * (size // 256) + b"x" * (size % 256)
    write_sealed(files, bodies(2), index=index)
    with reader_of(files) as reader:
        assert reader.index() == index
        assert reader.verify().event_count == 2


def test_the_bytes_are_those_that_the_format_describes() -> None:
    files = FaultyFiles()
    head = SegmentHeader(EPOCH, first_sequence=9, generation=3, created_us=-5, seed=0xC0FFEE)
    writer = SegmentWriter.create(files, head.file_name, head)
    writer.append(12, b"body")
    content = files.content(head.file_name)
    start = b"MNEMSEG\x01" + struct.pack("<HHI16sQIqII", 1, 0, 0, EPOCH, 9, 3, -5, 0xC0FFEE, 0)
    checked = struct.pack("<HBBIQ", 0xA57E, 1, 1, 4, 12)
    header_sum = google_crc32c.value(struct.pack("<IQ", 0xC0FFEE, 64) + checked)
    frame = checked + struct.pack("<I", header_sum) + b"body"
    assert content == start + struct.pack("<I", google_crc32c.value(start)) + frame + struct.pack(
        "<I", google_crc32c.value(struct.pack("<IQ", 0xC0FFEE, 64) + checked + b"body")
    )


def test_a_file_is_resumed_at_an_offset_and_sealed_as_if_it_had_not_been_cut() -> None:
    whole, cut, events = FaultyFiles(), FaultyFiles(), bodies(20)
    expected = write_sealed(whole, events)
    offsets = write_open(cut, events)
    writer = SegmentWriter.resume(cut, NAME, header(seed=99), at=offsets[8])
    assert (writer.size, writer.event_count, writer.last_sequence) == (offsets[8], 8, 8)
    assert writer.append_many(events[8:]) == offsets[8:]
    assert writer.seal(INDEX, summary(20)) == expected
    assert cut.content(NAME) == whole.content(NAME)


def test_a_file_without_events_can_be_resumed() -> None:
    files = FaultyFiles()
    write_open(files, bodies(3))
    writer = SegmentWriter.resume(files, NAME, header(), at=HEADER_BYTES)
    assert writer.append(1, b"again") == HEADER_BYTES
    with reader_of(files) as reader:
        assert [frame.body for frame in reader.frames()] == [b"again"]


def test_a_file_cannot_be_resumed_within_a_frame() -> None:
    files, events = FaultyFiles(), bodies(5, longest=10)
    offsets = write_open(files, events)
    before = files.content(NAME)
    for at in set(range(HEADER_BYTES, len(before) + 9)) - {*offsets, len(before)}:
        with pytest.raises(SegmentDamagedError):
            SegmentWriter.resume(files, NAME, header(), at=at)
        assert files.content(NAME) == before
    with pytest.raises(ValueError, match="64"):
        SegmentWriter.resume(files, NAME, header(), at=63)


def test_another_segment_is_not_resumed() -> None:
    files = FaultyFiles()
    write_open(files, bodies(2))
    files.rename(NAME, "other")
    for other in (header(2), header(generation=2), header(epoch=epoch_digest(b"another vault"))):
        with pytest.raises(ForeignSegmentError):
            SegmentWriter.resume(files, "other", other, at=HEADER_BYTES)


def test_sequences_must_ascend_and_bodies_fit() -> None:
    files = FaultyFiles()
    writer = SegmentWriter.create(files, NAME, header())
    writer.append(5, b"five")
    before = files.content(NAME)
    for wrong in ([(5, b"")], [(6, b""), (6, b"")], [(7, b""), (6, b"")], [(6, bytes(BODY_MAX + 1))]):
        with pytest.raises(ValueError, match="cannot follow"):
            writer.append_many(wrong)
    assert files.content(NAME) == before
    assert writer.append_many([]) == []
    assert writer.append(6, b"six") == len(before)


def test_a_seal_must_cover_the_written_events() -> None:
    files = FaultyFiles()
    writer = SegmentWriter.create(files, NAME, header())
    with pytest.raises(ValueError, match="0 events"):
        writer.seal(INDEX, summary(0))
    writer.append(1, b"one")
    with pytest.raises(ValueError, match="holds 1 events, the summary says 2"):
        writer.seal(INDEX, SegmentSummary(2, 0, 0))
    assert writer.seal(INDEX, summary(1)).footer.event_count == 1


def test_an_open_file_has_neither_footer_nor_index() -> None:
    files = FaultyFiles()
    write_open(files, bodies(20))
    with reader_of(files) as reader:
        for question in (lambda: reader.footer, reader.index, reader.verify):
            with pytest.raises(SegmentDamagedError):
                question()
        assert reader.valid_prefix() == reader.size()
        assert reader.salvage().is_torn


def test_the_prefix_ends_with_the_last_event_before_an_offset() -> None:
    files, events = FaultyFiles(), bodies(10)
    offsets = write_open(files, events)
    ends = [*offsets[1:], len(files.content(NAME))]
    with reader_of(files) as reader:
        for until in range(HEADER_BYTES, len(files.content(NAME)) + 50):
            assert reader.valid_prefix(until) == max([HEADER_BYTES, *(end for end in ends if end <= until)])


def test_the_prefix_of_a_sealed_file_ends_with_its_events() -> None:
    files = FaultyFiles()
    sealed = write_sealed(files, bodies(10))
    with reader_of(files) as reader:
        assert reader.valid_prefix() == sealed.footer.events_end


def test_a_file_of_another_vault_is_refused_unless_any_vault_is_accepted() -> None:
    files = FaultyFiles()
    other = epoch_digest(b"another vault")
    write_sealed(files, bodies(4), header(epoch=other))
    with reader_of(files) as reader:
        for question in (lambda: reader.header, reader.verify, lambda: list(reader.frames()), reader.salvage):
            with pytest.raises(ForeignSegmentError, match="another vault"):
                question()
        with pytest.raises(ForeignSegmentError):
            reader.read(HEADER_BYTES)
    with SegmentReader(files, NAME, epoch=None) as reader:
        assert reader.verify().event_count == 4


def test_a_file_under_the_name_of_another_segment_is_refused() -> None:
    files = FaultyFiles()
    write_sealed(files, bodies(4))
    content = files.content(NAME)
    for name in (segment_name(2, 1), segment_name(1, 2)):
        files.put(name, content)
        with reader_of(files, name) as reader, pytest.raises(ForeignSegmentError, match=NAME):
            reader.verify()
    files.put("a copy", content)
    with reader_of(files, "a copy") as reader:
        assert reader.verify().event_count == 4


def test_a_file_of_a_newer_format_is_refused_but_not_called_damaged() -> None:
    files = FaultyFiles()
    write_open(files, bodies(2))
    for place, value in ((8, 2), (10, 2), (12, 1), (56, 1)):
        newer = bytearray(files.content(NAME))
        newer[place] = value
        newer[60:64] = struct.pack("<I", google_crc32c.value(bytes(newer[:60])))
        files.put("newer", newer)
        with reader_of(files, "newer") as reader:
            for question in (lambda: reader.header, reader.salvage, reader.valid_prefix):
                with pytest.raises(SegmentFormatError, match="newer release"):
                    question()


def test_frames_of_an_earlier_file_do_not_count() -> None:
    files, events = FaultyFiles(), bodies(6)
    write_open(files, events, header(seed=1))
    old = files.content(NAME)
    files.put("reused", header(seed=2).encode() + old[HEADER_BYTES:])
    with reader_of(files, "reused") as reader:
        assert reader.valid_prefix() == HEADER_BYTES
        assert list(reader.salvage().sequences) == []


def test_a_frame_is_valid_only_where_it_was_written() -> None:
    files, events = FaultyFiles(), [(n, b"of one length") for n in range(1, 9)]
    offsets = write_open(files, events)
    content = bytearray(files.content(NAME))
    size = FRAME_OVERHEAD + len(b"of one length")
    content[offsets[2] : offsets[2] + size] = content[offsets[5] : offsets[5] + size]
    files.put(NAME, content)
    with reader_of(files) as reader:
        with pytest.raises(SegmentDamagedError):
            reader.read(offsets[2])
        assert list(reader.salvage().sequences) == [1, 2, 4, 5, 6, 7, 8]


def test_the_beginning_of_an_event_can_be_read_alone() -> None:
    files = FaultyFiles()
    events = bodies(8, longest=40)
    sealed = write_sealed(files, events)
    with reader_of(files) as reader:
        starts = {frame.offset for frame in reader.frames()}
        for offset in set(range(-3, sealed.size + 3)) - starts:
            with pytest.raises(SegmentDamagedError):
                reader.read(offset)


def test_names_sort_by_sequence_and_generation_and_can_be_parsed() -> None:
    numbers = [(1, 1), (1, 2), (2, 1), (10, 1), (2**63, 9_999)]
    names = [segment_name(*pair) for pair in numbers]
    assert names == sorted(names)
    assert [parse_segment_name(name) for name in names] == numbers
    for name in ("", "1-1.segment", names[0] + ".tmp", "x" + names[0], names[0].replace("1", "１")):
        assert parse_segment_name(name) is None
