"""Small segments that tests write, damage and read."""

import random
from collections.abc import Sequence

from mnemon_server.engines.events.format.files import Files
from mnemon_server.engines.events.format.layout import SegmentHeader, epoch_digest
from mnemon_server.engines.events.format.segment_reader import SegmentReader
from mnemon_server.engines.events.format.segment_writer import SealedFile, SegmentSummary, SegmentWriter

EPOCH = epoch_digest(b"the vault of the tests")
INDEX = b"what an index looks like is not the segment's business" * 3
CREATED_US = 1_700_000_000_000_000

Events = Sequence[tuple[int, bytes]]


def header(
    first_sequence: int = 1, *, generation: int = 1, epoch: bytes = EPOCH, seed: int = 7, is_encrypted: bool = False
) -> SegmentHeader:
    """A header with a fixed seed."""
    return SegmentHeader(epoch, first_sequence, generation, CREATED_US, seed, is_encrypted)


def bodies(count: int, *, longest: int = 90, first_sequence: int = 1, seed: int = 11) -> list[tuple[int, bytes]]:
    """Events of random bytes, some of them empty."""
    rng = random.Random(seed)
    return [(first_sequence + n, rng.randbytes(rng.randint(0, longest))) for n in range(count)]


def write_open(files: Files, events: Events, head: SegmentHeader | None = None) -> list[int]:
    """Writes an unsealed file and returns the offsets of its events."""
    head = head or header(events[0][0])
    writer = SegmentWriter.create(files, head.file_name, head)
    offsets = writer.append_many(events)
    writer.sync()
    files.sync_folder()
    writer.close()
    return offsets


def write_sealed(files: Files, events: Events, head: SegmentHeader | None = None, index: bytes = INDEX) -> SealedFile:
    """Writes a sealed file."""
    head = head or header(events[0][0])
    writer = SegmentWriter.create(files, head.file_name, head)
    writer.append_many(events)
    return writer.seal(index, summary(len(events)))


def summary(count: int) -> SegmentSummary:
    """A summary of this many events."""
    return SegmentSummary(count, CREATED_US - 1_000, CREATED_US)


def salvaged(reader: SegmentReader) -> list[tuple[int, bytes]]:
    """Every event that can be recovered from a file."""
    found = reader.salvage()
    frames = reader.read_many(found.offsets)
    assert [frame.sequence for frame in frames] == list(found.sequences)
    return [(frame.sequence, frame.body) for frame in frames]
