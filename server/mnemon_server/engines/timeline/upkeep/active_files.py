"""The files of segments that are not sealed: written behind the commits, and taken up again at a start."""

import contextlib
import logging
from array import array
from collections.abc import Iterator
from dataclasses import dataclass, field

from mnemon_server.domain.errors import StorageFailedError, StorageFullError
from mnemon_server.engines.timeline.format.layout import (
    HEADER_BYTES,
    ForeignSegmentError,
    SegmentDamagedError,
    SegmentFormatError,
    segment_name,
)
from mnemon_server.engines.timeline.format.segment_reader import SegmentReader
from mnemon_server.engines.timeline.format.segment_writer import SegmentWriter
from mnemon_server.engines.timeline.upkeep.manifest import Change, SegmentRow, SyncedFile
from mnemon_server.engines.timeline.upkeep.store import SegmentStore, file_name

log = logging.getLogger(__name__)


@dataclass(slots=True)
class Draft:
    """The file of a segment that is not sealed."""

    writer: SegmentWriter
    offsets: "array[int]" = field(default_factory=lambda: array("Q"))
    """Where the frames of its events begin, in their order."""
    synced_size: int = 0
    """Bytes that are on the disk for sure."""
    replaced: str = ""
    """The file of the generation before, which goes once this one is on the disk."""

    @property
    def unsynced(self) -> int:
        """Bytes that are not on the disk yet."""
        return self.writer.size - self.synced_size

    def synced(self) -> SyncedFile:
        """What records.db is to say of it, right after a sync."""
        header = self.writer.header
        return SyncedFile(
            segment_id=header.first_sequence,
            generation=header.generation,
            seed=header.seed,
            synced_offset=self.writer.size,
            synced_sequence=self.writer.last_sequence,
        )


class Drafts:
    """Writes what was committed into the files of its segments. One thread uses it.

    Nothing that was acknowledged hangs on these files: the rows stay until the segment is sealed. So after any failure
    a file is taken up again from the disk, where what is known to be synced must be there; after a sync that failed it
    is given up, and written anew from the rows.
    """

    def __init__(self, store: SegmentStore, *, sync_bytes: int) -> None:
        """Touches nothing yet.

        Args:
            store: where the files are.
            sync_bytes: so many bytes at most are written before they are synced.
        """
        self._store = store
        self._sync_bytes = sync_bytes
        self._drafts: dict[int, Draft] = {}
        self._given_up: set[int] = set()

    def write(self, row: SegmentRow) -> Draft:
        """Brings the file of a segment up to what was committed, and to the disk.

        Raises:
            StorageFullError: no space is left.
            StorageFailedError: the disk failed.
        """
        draft = self._drafts.get(row.segment_id) or self._open(row)
        manifest = self._store.manifest
        while events := manifest.bodies(row.segment_id, draft.writer.last_sequence):
            with self._guarded(row.segment_id, gives_up=False):
                draft.offsets.extend(draft.writer.append_many(events))
            if draft.unsynced >= self._sync_bytes:
                self._sync(row.segment_id, draft)
        if draft.unsynced:
            self._sync(row.segment_id, draft)
        return draft

    def give_up(self, segment_id: int) -> None:
        """The next `write` begins a new file."""
        self._given_up.add(segment_id)
        self.forget(segment_id)

    def forget(self, segment_id: int) -> None:
        """Lets the file of a segment go."""
        if draft := self._drafts.pop(segment_id, None):
            draft.writer.close()

    def close(self) -> None:
        """Lets all files go."""
        for segment_id in list(self._drafts):
            self.forget(segment_id)

    def _sync(self, segment_id: int, draft: Draft) -> None:
        with self._guarded(segment_id, gives_up=True):
            draft.writer.sync()
        draft.synced_size = draft.writer.size
        if draft.replaced:
            self._store.manifest.commit(Change(synced=draft.synced()))
            self._store.discard(draft.replaced)
            draft.replaced = ""
            self._given_up.discard(segment_id)
        else:
            self._store.manifest.note_synced(draft.synced())

    @contextlib.contextmanager
    def _guarded(self, segment_id: int, *, gives_up: bool) -> Iterator[None]:
        """Lets the file go where it could not be written, and gives it up where it could not be synced."""
        try:
            yield
        except (StorageFullError, StorageFailedError) as error:
            if gives_up or not isinstance(error, StorageFullError):
                self.give_up(segment_id)
            else:
                self.forget(segment_id)
            raise

    # Taking a file up

    def _open(self, row: SegmentRow) -> Draft:
        name = file_name(row)
        present = name in self._store.files.names()
        if present and row.segment_id not in self._given_up:
            try:
                draft = self._resume(row, name)
            except (SegmentDamagedError, SegmentFormatError) as damage:
                log.warning("%s; it is written anew, and nothing is lost", damage)
                if row.synced_offset:
                    self._store.set_aside(name)
                draft = self._begin(row, name)
        else:
            draft = self._begin(row, name if present else "")
        self._drafts[row.segment_id] = draft
        return draft

    def _begin(self, row: SegmentRow, replaced: str) -> Draft:
        """A new file; the next generation where there is one already, or where records.db believes so."""
        generation = row.generation + 1 if replaced or row.synced_offset else row.generation
        name = segment_name(row.segment_id, generation)
        if name != replaced:
            self._store.discard(name)
        writer = SegmentWriter.create(self._store.files, name, self._store.new_header(row, generation))
        return Draft(writer, replaced=replaced)

    def _resume(self, row: SegmentRow, name: str) -> Draft:
        """The file as far as it holds what the rows say; what is behind is cut off."""
        store = self._store
        with SegmentReader(store.files, name, epoch=store.manifest.epoch) as reader:
            if row.seed and reader.header.seed != row.seed:
                raise ForeignSegmentError(name, 0, "it is not the file that was written for this segment")
            draft_end, offsets = self._agreed(row, reader)
        if draft_end < row.synced_offset:
            raise SegmentDamagedError(name, draft_end, f"it is not what was synced up to byte {row.synced_offset}")
        writer = SegmentWriter.resume(store.files, name, store.header(row), at=draft_end)
        return Draft(writer, offsets, synced_size=min(row.synced_offset, draft_end))

    def _agreed(self, row: SegmentRow, reader: SegmentReader) -> "tuple[int, array[int]]":
        """Up to which byte the file holds the rows, one after the other, and where their frames begin."""
        offsets = array("Q")
        end = HEADER_BYTES
        rows = self._rows(row)
        dead = set(self._store.manifest.dead(row.segment_id))
        with contextlib.suppress(SegmentDamagedError):
            for frame in reader.frames():
                if frame.sequence not in dead and next(rows, None) != (frame.sequence, frame.body):
                    break
                offsets.append(frame.offset)
                end = frame.end
        return end, offsets

    def _rows(self, row: SegmentRow) -> Iterator[tuple[int, bytes]]:
        after = 0
        while events := self._store.manifest.bodies(row.segment_id, after):
            yield from events
            after = events[-1][0]
