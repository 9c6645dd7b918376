"""Reads the bodies of events from rows, or from the files of sealed segments."""

from collections.abc import Callable, Sequence
from typing import TypeAlias

import apsw

from mnemon_server.domain.errors import StorageFailedError
from mnemon_server.engines.events.format.frames import Frame
from mnemon_server.engines.events.format.layout import SegmentDamagedError
from mnemon_server.engines.events.format.readers import ReaderCache
from mnemon_server.engines.events.index.index import TimelineIndex
from mnemon_server.engines.events.index.rows import NO_OFFSET, EventRef
from mnemon_server.engines.events.rows.ledger import Ledger
from mnemon_server.engines.events.rows.tables import event_bodies
from mnemon_server.engines.sqlite.connections import Connections

ATTEMPTS_MAX = 8
"""Number of attempts to read events that are being moved, repaired or removed meanwhile."""

Bodies: TypeAlias = dict[int, bytes]
"""Bodies by sequence."""


class BodyReader:
    """Reads bodies from their current location. Any thread may call any method."""

    def __init__(
        self,
        index: TimelineIndex,
        ledger: Ledger,
        connections: Connections,
        readers: ReaderCache,
        repair: Callable[[int], None],
    ) -> None:
        """Reads nothing yet.

        Args:
            index: finds the location of an event.
            ledger: finds the file of a segment.
            connections: reads the rows.
            readers: reads the files.
            repair: rewrites a damaged sealed segment from its intact events, in the file and in the index, and returns
                when that is done.
        """
        self._index = index
        self._ledger = ledger
        self._connections = connections
        self._readers = readers
        self._repair = repair

    def read(self, refs: Sequence[EventRef], bytes_max: int | None = None) -> Bodies:
        """The bodies of these events, without those that were removed or lost.

        With `bytes_max`, reading stops at about this size, and further bodies are missing as well.

        Raises:
            StorageFailedError: the disk failed.
        """
        bodies: Bodies = {}
        wanted = list(refs)
        for _ in range(ATTEMPTS_MAX):
            self._read_all(wanted, bodies, bytes_max)
            missing = [ref for ref in wanted if ref.sequence not in bodies]
            if not missing or is_full(bodies, bytes_max):
                return bodies
            wanted = self._find_again(missing)
        raise StorageFailedError("a segment of the timeline cannot be read; the log says why")

    def in_memory(self, refs: Sequence[EventRef]) -> Bodies | None:
        """The bodies of these events, if all were committed a moment ago; None otherwise. Does not block."""
        bodies = self._ledger.recent.get([ref.sequence for ref in refs]) if refs else {}
        return bodies if len(bodies) == len(refs) else None

    def read_if_sound(self, connection: apsw.Connection, refs: Sequence[EventRef]) -> tuple[Bodies, set[int]]:
        """The bodies that can be read, and the segments in which one cannot be read.

        For the writer's thread, which must not wait for a repair.
        """
        unsealed = _unsealed(refs)
        bodies = event_bodies(connection, unsealed) if unsealed else {}
        self._read_sealed(refs, bodies)
        missing = [ref.sequence for ref in refs if ref.sequence not in bodies]
        if not missing:
            return bodies, set()
        again = self._index.locate(missing)
        for ref in again:
            # One by one, so that a damaged event does not hide the others.
            self._read_sealed([ref], bodies)
        return bodies, {ref.segment_id for ref in again if ref.sequence not in bodies and ref.offset != NO_OFFSET}

    def _read_all(self, refs: Sequence[EventRef], bodies: Bodies, bytes_max: int | None) -> None:
        """Adds the bodies that are where the references say."""
        if unsealed := _unsealed(refs):
            recent = self._ledger.recent.get(unsealed)
            bodies.update(recent)
            rest = [sequence for sequence in unsealed if sequence not in recent]
            if rest and not is_full(bodies, bytes_max):
                with self._connections.lend() as connection:
                    bodies.update(event_bodies(connection, rest, bytes_max))
        if len(unsealed) < len(refs):
            self._read_sealed(refs, bodies, bytes_max)

    def _find_again(self, missing: Sequence[EventRef]) -> list[EventRef]:
        """The current references of these events. Segments in which all are still at the same place are repaired
        first.
        """
        before = set(missing)
        sequences = [ref.sequence for ref in missing]
        found = self._index.locate(sequences)
        # Events that cannot be read may have been erased. The others are then read again without them.
        removed = {ref.segment_id for ref in before.difference(found)}
        damaged = {ref.segment_id for ref in found if ref.offset != NO_OFFSET and ref in before} - removed
        if damaged:
            for segment_id in sorted(damaged):
                self._repair(segment_id)
            found = self._index.locate(sequences)
        # A missing row of a segment that is not sealed was removed; the index learns about that a moment later.
        return [ref for ref in found if ref.offset != NO_OFFSET or ref not in before]

    def _read_sealed(self, refs: Sequence[EventRef], bodies: Bodies, bytes_max: int | None = None) -> None:
        sealed: dict[int, tuple[list[int], list[int]]] = {}
        for _, sequence, segment_id, offset in refs:
            if offset != NO_OFFSET:
                sequences, offsets = sealed.setdefault(segment_id, ([], []))
                sequences.append(sequence)
                offsets.append(offset)
        for segment_id, (sequences, offsets) in sealed.items():
            if is_full(bodies, bytes_max):
                break
            for name in self._ledger.file_names(segment_id):
                frames = self._frames(name, offsets, bytes_max)
                if frames and [frame.sequence for frame in frames] == sequences[: len(frames)]:
                    bodies.update((frame.sequence, frame.body) for frame in frames)
                    break

    def _frames(self, name: str, offsets: Sequence[int], bytes_max: int | None) -> list[Frame]:
        """Empty if one of them cannot be read: the file is damaged, missing, or of another generation."""
        try:
            return self._readers.get(name).read_many(offsets, bytes_max)
        except (SegmentDamagedError, StorageFailedError):
            return []


def is_full(bodies: Bodies, bytes_max: int | None) -> bool:
    """Whether reading may have stopped because of `bytes_max`."""
    return bytes_max is not None and sum(map(len, bodies.values())) >= bytes_max


def _unsealed(refs: Sequence[EventRef]) -> list[int]:
    """The sequences of events whose bodies are in rows."""
    return [ref.sequence for ref in refs if ref.offset == NO_OFFSET]
