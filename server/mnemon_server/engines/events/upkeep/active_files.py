"""The files of segments that are not sealed. They are written after the commits, and resumed at a start."""

import contextlib
import logging
from array import array
from collections.abc import Iterator
from dataclasses import dataclass, field

from mnemon_server.domain.errors import StorageFailedError, StorageFullError
from mnemon_server.engines.events.format.layout import (
    HEADER_BYTES,
    ForeignSegmentError,
    SegmentDamagedError,
    SegmentFormatError,
    segment_name,
)
from mnemon_server.engines.events.format.segment_reader import SegmentReader
from mnemon_server.engines.events.format.segment_writer import SegmentWriter
from mnemon_server.engines.events.upkeep.manifest import Change, SegmentRow, SyncedFile
from mnemon_server.engines.events.upkeep.store import SegmentStore, file_name

log = logging.getLogger(__name__)


@dataclass(slots=True)
class ActiveFile:
    """The file of a segment that is not sealed."""

    writer: SegmentWriter
    offsets: "array[int]" = field(default_factory=lambda: array("Q"))
    """Offsets of its event frames, in order."""
    synced_size: int = 0
    """The number of bytes that are certainly on the disk."""
    replaced: str = ""
    """The file of the previous generation, which is deleted once this one is on the disk."""

    @property
    def unsynced(self) -> int:
        """The number of bytes that are not synced yet."""
        return self.writer.size - self.synced_size

    def synced(self) -> SyncedFile:
        """Its state for records.db, right after a sync."""
        header = self.writer.header
        return SyncedFile(
            segment_id=header.first_sequence,
            generation=header.generation,
            seed=header.seed,
            synced_offset=self.writer.size,
            synced_sequence=self.writer.last_sequence,
        )


class ActiveFiles:
    """Writes committed events to the files of their segments. For use by one thread.

    Acknowledged events do not depend on these files, because the rows stay until the segment is sealed. After a
    failure, a file is reopened, and must contain everything known to be synced. After a failed sync, it is abandoned
    and written again from the rows.
    """

    def __init__(self, store: SegmentStore, *, sync_bytes: int) -> None:
        """Does not access the disk yet.

        Args:
            store: the segments.
            sync_bytes: maximum number of bytes to write before a sync.
        """
        self._store = store
        self._sync_bytes = sync_bytes
        self._active_files: dict[int, ActiveFile] = {}
        self._given_up: set[int] = set()

    def write(self, row: SegmentRow) -> ActiveFile:
        """Writes and syncs all committed events of a segment to its file.

        Raises:
            StorageFullError: the disk is full.
            StorageFailedError: the disk failed.
        """
        file = self._active_files.get(row.segment_id) or self._open(row)
        manifest = self._store.manifest
        while events := manifest.bodies(row.segment_id, file.writer.last_sequence):
            with self._guarded(row.segment_id, gives_up=False):
                file.offsets.extend(file.writer.append_many(events))
            if file.unsynced >= self._sync_bytes:
                self._sync(row.segment_id, file)
        if file.unsynced:
            self._sync(row.segment_id, file)
        return file

    def give_up(self, segment_id: int) -> None:
        """Abandons the file of a segment, so that the next `write` creates a new one."""
        self._given_up.add(segment_id)
        self.forget(segment_id)

    def forget(self, segment_id: int) -> None:
        """Closes the file of a segment."""
        if file := self._active_files.pop(segment_id, None):
            file.writer.close()

    def close(self) -> None:
        """Closes all files."""
        for segment_id in list(self._active_files):
            self.forget(segment_id)

    def _sync(self, segment_id: int, file: ActiveFile) -> None:
        with self._guarded(segment_id, gives_up=True):
            file.writer.sync()
        file.synced_size = file.writer.size
        if file.replaced:
            self._store.manifest.commit(Change(synced=file.synced()))
            self._store.discard(file.replaced)
            file.replaced = ""
            self._given_up.discard(segment_id)
        else:
            self._store.manifest.note_synced(file.synced())

    @contextlib.contextmanager
    def _guarded(self, segment_id: int, *, gives_up: bool) -> Iterator[None]:
        """Closes the file after a failed write, and abandons it if its content is unknown."""
        try:
            yield
        except (StorageFullError, StorageFailedError) as error:
            if gives_up or not isinstance(error, StorageFullError):
                self.give_up(segment_id)
            else:
                self.forget(segment_id)
            raise

    # Opening a file

    def _open(self, row: SegmentRow) -> ActiveFile:
        name = file_name(row)
        present = name in self._store.files.names()
        if present and self._store.must_encrypt(row):
            # The next generation is encrypted, and replaces it.
            file = self._begin(row, name)
        elif present and row.segment_id not in self._given_up:
            try:
                file = self._resume(row, name)
            except (SegmentDamagedError, SegmentFormatError) as damage:
                log.warning("%s; it is written again, and no event is lost", damage)
                if row.synced_offset:
                    self._store.set_aside(name)
                file = self._begin(row, name)
        else:
            file = self._begin(row, name if present else "")
        self._active_files[row.segment_id] = file
        return file

    def _begin(self, row: SegmentRow, replaced: str) -> ActiveFile:
        """Creates a file: the next generation if there is a file already, or if records.db refers to one."""
        generation = row.generation + 1 if replaced or row.synced_offset else row.generation
        name = segment_name(row.segment_id, generation)
        if name != replaced:
            self._store.discard(name)
        writer = SegmentWriter.create(self._store.files, name, self._store.new_header(row, generation))
        return ActiveFile(writer, replaced=replaced)

    def _resume(self, row: SegmentRow, name: str) -> ActiveFile:
        """Opens the file, and truncates it after the last event that matches the rows."""
        store = self._store
        with SegmentReader(store.files, name, epoch=store.manifest.epoch) as reader:
            if row.seed and reader.header.seed != row.seed:
                raise ForeignSegmentError(name, 0, "it is not this segment's file")
            header = reader.header
            file_end, offsets = self._agreed(row, reader)
        if file_end < row.synced_offset:
            raise SegmentDamagedError(name, file_end, f"it differs from what was synced up to byte {row.synced_offset}")
        writer = SegmentWriter.resume(store.files, name, header, at=file_end)
        return ActiveFile(writer, offsets, synced_size=min(row.synced_offset, file_end))

    def _agreed(self, row: SegmentRow, reader: SegmentReader) -> "tuple[int, array[int]]":
        """The size up to which the file matches the rows, and the offsets of the frames within it."""
        offsets = array("Q")
        end = HEADER_BYTES
        rows, dead = self._rows(row), set[int]()
        event = next(rows, None)
        with contextlib.suppress(SegmentDamagedError):
            for frame in reader.frames():
                if event == (frame.sequence, frame.body):
                    event = next(rows, None)
                elif frame.sequence not in dead:
                    # Read again each time, because events may be removed meanwhile.
                    dead = set(self._store.manifest.dead(row.segment_id))
                    if frame.sequence not in dead:
                        break
                offsets.append(frame.offset)
                end = frame.end
        return end, offsets

    def _rows(self, row: SegmentRow) -> Iterator[tuple[int, bytes]]:
        after = 0
        while events := self._store.manifest.bodies(row.segment_id, after):
            yield from events
            after = events[-1][0]
