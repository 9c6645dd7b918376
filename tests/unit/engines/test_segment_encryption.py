"""Encrypted segments: nothing can be read without the key, and no event is read that was not written there."""

import random
from pathlib import Path

import pytest
from mnemon_server.engines.encryption import Cipher
from mnemon_server.engines.events.format.files import OsFiles
from mnemon_server.engines.events.format.layout import SegmentDamagedError, SegmentHeader
from mnemon_server.engines.events.format.segment_reader import SegmentReader
from mnemon_server.engines.events.format.segment_writer import SegmentWriter

from tests.support.segment_files import EPOCH, INDEX, header, salvaged, write_open, write_sealed

KEY = bytes(range(32))
EVENTS = [(number, f"what Ada said at {number} o'clock".encode()) for number in range(1, 25)]


@pytest.fixture
def files(tmp_path: Path) -> OsFiles:
    return OsFiles(tmp_path, Cipher(KEY))


def reader_of(folder: Path, key: bytes | None = KEY, head: SegmentHeader | None = None) -> SegmentReader:
    name = (head or header()).file_name
    return SegmentReader(OsFiles(folder, Cipher(key) if key else None), name, epoch=EPOCH)


def test_a_sealed_segment_shows_nothing_and_reads_the_same(files: OsFiles, tmp_path: Path) -> None:
    sealed = write_sealed(files, EVENTS, header(is_encrypted=True))
    content = (tmp_path / sealed.name).read_bytes()
    assert not any(body in content for _, body in [*EVENTS, (0, INDEX[:20])])
    with reader_of(tmp_path) as reader:
        frames = list(reader.frames())
        assert [(frame.sequence, frame.body) for frame in frames] == EVENTS
        assert [frame.end for frame in frames][:-1] == [frame.offset for frame in frames][1:]
        assert reader.index() == INDEX
        assert reader.verify(sealed.sha256).event_count == len(EVENTS)
        offsets = [frame.offset for frame in frames]
        assert reader.read_many(offsets) == frames
        assert reader.read(offsets[3]) == frames[3]
        assert salvaged(reader) == EVENTS


@pytest.mark.parametrize("key", [None, bytes(32)])
def test_without_its_key_a_segment_is_checked_and_not_read(files: OsFiles, tmp_path: Path, key: bytes | None) -> None:
    sealed = write_sealed(files, EVENTS, header(is_encrypted=True))
    with reader_of(tmp_path, key) as reader:
        assert reader.verify(sealed.sha256).event_count == reader.verify().event_count == len(EVENTS)
        for read in (lambda: list(reader.frames()), reader.index, lambda: reader.read(64)):
            with pytest.raises(SegmentDamagedError, match="encrypted"):
                read()


def test_an_open_segment_is_resumed(files: OsFiles, tmp_path: Path) -> None:
    head = header(is_encrypted=True)
    write_open(files, EVENTS[:10], head)
    with reader_of(tmp_path) as reader:
        size = reader.valid_prefix()
    writer = SegmentWriter.resume(files, head.file_name, head, at=size)
    writer.append_many(EVENTS[10:])
    writer.close()
    with reader_of(tmp_path) as reader:
        assert [(frame.sequence, frame.body) for frame in reader.frames()] == EVENTS


def test_a_frame_of_another_file_is_refused_though_its_checksums_are_right(files: OsFiles, tmp_path: Path) -> None:
    """Checksums can be computed by anyone, and here both files even have the same seed."""
    heads = [header(generation=number, is_encrypted=True) for number in (1, 2)]
    for head in heads:
        write_open(files, EVENTS, head)
    one, other = ((tmp_path / head.file_name) for head in heads)
    content = one.read_bytes()
    one.write_bytes(content[:64] + other.read_bytes()[64:])
    with reader_of(tmp_path, head=heads[0]) as reader:
        assert len(reader.salvage().offsets) == len(EVENTS)
        with pytest.raises(SegmentDamagedError, match="not what was encrypted"):
            list(reader.frames())


def test_no_flipped_bit_gives_another_event(files: OsFiles, tmp_path: Path) -> None:
    sealed = write_sealed(files, EVENTS, header(is_encrypted=True))
    path, rng = tmp_path / sealed.name, random.Random(3)
    content, lost = path.read_bytes(), 0
    for place in range(0, len(content), 7):
        changed = bytearray(content)
        changed[place] ^= 1 << rng.randrange(8)
        path.write_bytes(changed)
        with reader_of(tmp_path) as reader:
            found = salvaged(reader)
            with pytest.raises(SegmentDamagedError):
                reader.verify(sealed.sha256)
        assert set(found) <= set(EVENTS)
        assert len(found) >= len(EVENTS) - 1
        lost += len(found) < len(EVENTS)
    assert lost > 20
