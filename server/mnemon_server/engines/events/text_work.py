"""The steps that feed the text index of a timeline: they follow the commits, and repair the file if needed."""

import logging
import threading
from collections.abc import Callable, Collection, Sequence
from functools import partial
from typing import TypeAlias

import apsw
import numpy as np

from mnemon_server.engines.events import queries, tables
from mnemon_server.engines.events import text_file as timeline_text_file
from mnemon_server.engines.events.reads import Reads
from mnemon_server.engines.events.text_file import FILE_NAME, ForeignFileError, TextFile
from mnemon_server.engines.events.text_words import PART_SEQUENCES
from mnemon_server.engines.private import create_folder
from mnemon_server.engines.promises.events import Sequences
from mnemon_server.engines.promises.values import Vector
from mnemon_server.engines.sqlite.connections import Connections
from mnemon_server.engines.vault_key import VaultKeyFile
from mnemon_server.ranking.heads import Heads
from mnemon_server.wire.events import text_of

log = logging.getLogger(__name__)

WORDS_AT_ONCE = 2_048
VECTORS_AT_ONCE = 16
TEXT_LENGTH_MAX = 4 << 20
"""Maximum number of characters in a batch, apart from the rest of the last read."""

_SPAN = 2 * WORDS_AT_ONCE
"""Number of sequences that are searched for the next events at a time."""

EmbedTexts: TypeAlias = Callable[[Sequence[str]], Vector]
"""Computes vectors of unit length, of shape (texts, dimension). Blocks; raises MnemonError."""

_PASSING = (
    apsw.BusyError,
    apsw.LockedError,
    apsw.FullError,
    apsw.IOError,
    apsw.CantOpenError,
    apsw.NoMemError,
    apsw.ReadOnlyError,
    apsw.PermissionsError,
    apsw.InterruptError,
)


class StoredTexts:
    """The events of a vault, with their texts. Any thread may call any method."""

    def __init__(self, reads: Reads, connections: Connections, heads: Heads) -> None:
        self._heads = heads
        self._reads = reads
        self._connections = connections

    def last_sequence(self) -> int:
        """The last sequence that was ever assigned."""
        with self._connections.lend() as connection:
            return tables.last_sequence(connection)

    def alive(self, first: int, last: int) -> Sequences:
        """The events between two sequences, ascending."""
        return self._reads.at_once(partial(queries.alive, first=first, last=last))

    def alive_among(self, sequences: Sequences) -> Sequences:
        """The events among these that exist. The given sequences must ascend."""
        return self._reads.at_once(partial(queries.alive_among, sequences=sequences))

    def count_behind(self, sequence: int) -> int:
        """The number of events after a sequence."""
        return self._reads.at_once(partial(queries.count_behind, sequence=sequence))

    def texts(self, sequences: Sequence[int], length_max: int) -> dict[int, str]:
        """The texts of events, by sequence, without those that no longer exist. The given sequences must ascend.

        The result ends soon after the texts exceed `length_max` characters.

        Raises:
            MnemonError: they cannot be read at present.
        """
        texts: dict[int, str] = {}
        length = 0
        for stored in self._reads.stored(sequences):
            text = texts[stored.sequence] = text_of(stored.body, self._heads.of)
            length += len(text)
            if length >= length_max:
                break
        return texts


def is_passing(error: Exception) -> bool:
    """Whether the error is temporary and not caused by the file's content."""
    return isinstance(error, _PASSING)


class TextWork:
    """The steps, for one thread. Any thread may call `note_removed` and `note_damaged`, and read `file` and the
    counts.
    """

    def __init__(self, keys: VaultKeyFile, source: StoredTexts, *, identity: str, embed: EmbedTexts | None) -> None:
        """Does not access the disk yet. `identity` names the vault and, with vectors, the model."""
        self._keys = keys
        self._path = keys.folder / "timeline-index" / FILE_NAME
        self._source = source
        self._identity = identity
        self._embed = embed
        self.file: TextFile | None = None
        self.was_opened = threading.Event()
        """Set once the file was opened for the first time, or could not be opened."""
        self._lock = threading.Lock()
        self._damaged: TextFile | None = None
        self._removed: dict[int, set[int]] = {}
        """Events that may have to be removed, by part."""
        self._differing: set[int] = set()
        """Parts whose events must be compared with those of the timeline."""
        self._removed_count = 0
        self._is_compared = not self._path.exists()
        self._log_is_full = False

    @property
    def removed_count(self) -> int:
        """Removed events whose words may still be in the file; 1 while an existing file has not been examined yet."""
        return self._removed_count or int(not self._is_compared)

    @property
    def done(self) -> int:
        """The index contains all events up to this sequence."""
        file = self.file
        if file is None:
            return 0
        progress = file.progress
        return progress.words if self._embed is None else min(progress.words, progress.vectors)

    # For any thread

    def note_removed(self, sequences: Collection[int]) -> None:
        """Must be called after events were removed."""
        with self._lock:
            self._removed_count += len(sequences)
            for sequence in sequences:
                self._removed.setdefault(sequence // PART_SEQUENCES, set()).add(sequence)

    def note_damaged(self, file: TextFile) -> None:
        """Must be called if a file could not be read."""
        with self._lock:
            self._damaged = file

    # For the worker thread

    def tend(self) -> bool:
        """Opens the file, removes what was removed from the timeline, and adds the next words.

        Returns whether there is more to do of what existed at the start. Later changes do not count, because while
        events keep coming other work would never get its turn.
        """
        if not self._source.last_sequence() and not self._path.exists():
            # Most vaults of an application for many tenants have no events.
            self.was_opened.set()
            return False
        file = self._opened()
        if self._embed is not None:
            file.hold_vectors()
        is_untidy = self._tidy(file)
        if not is_untidy:
            if self._log_is_full:
                file.empty_log()
                self._log_is_full = False
            self._forget_removed()
        return self._add_words(file, self._source.last_sequence()) or is_untidy

    def embed_some(self) -> bool:
        """Computes the next vectors; returns whether there may be more to do."""
        if self.file is None or self._embed is None:
            return False
        file, embed = self.file, self._embed
        first = file.progress.vectors + 1
        missing, until = self._missing(first, file.progress.words, file.stored_vectors)
        if until < first:
            return False
        texts, until = self._read(missing, until, VECTORS_AT_ONCE)
        worded = [sequence for sequence, text in texts.items() if text.strip()]
        vectors = dict(zip(worded, embed([texts[sequence] for sequence in worded]) if worded else (), strict=True))
        file.add_vectors([(sequence, vectors.get(sequence)) for sequence in texts], until=until)
        return True

    def discard(self) -> None:
        """Deletes a damaged file. The next step creates a new one.

        It is not kept, because it contains words of events, and single words could not be removed from it later.
        """
        log.warning("the text index of the timeline is damaged; it is deleted and rebuilt")
        self.close()
        timeline_text_file.discard(self._path)

    def close(self) -> None:
        """Closes the file."""
        self.was_opened.set()
        file, self.file = self.file, None
        if file is not None:
            file.close()

    def _opened(self) -> TextFile:
        with self._lock:
            is_damaged, self._damaged = self.file is not None and self._damaged is self.file, None
        if is_damaged:
            self.discard()
        if self.file is None:
            try:
                create_folder(self._path.parent)
                self.file = self._open()
            finally:
                self.was_opened.set()
        return self.file

    def _open(self) -> TextFile:
        try:
            file = TextFile(self._path, self._identity, self._keys)
            if max(file.progress.words, file.progress.vectors) > self._source.last_sequence():
                # The records are older than the file, for example because a backup was restored.
                file.close()
                raise ForeignFileError(self._path.name)
        except ForeignFileError:
            log.info("the text index of the timeline belongs to other events or another model; it is rebuilt")
            timeline_text_file.discard(self._path)
            file = TextFile(self._path, self._identity, self._keys)
        with self._lock:
            self._differing.update(self._find_differing(file))
            # The number of removals before the file was opened is not known.
            self._removed_count = max(self._removed_count, len(self._differing))
            self._is_compared = True
        return file

    def _find_differing(self, file: TextFile) -> set[int]:
        """The parts whose number of events differs from the timeline's."""
        counts, until = file.part_counts(), file.progress.words
        return {
            part
            for part in range(until // PART_SEQUENCES + 1)
            if counts.get(part, 0) != len(self._source.alive(*_bounds(part, until)))
        }

    def _tidy(self, file: TextFile) -> bool:
        """Removes from one part the events that no longer exist; returns whether other parts remain."""
        with self._lock:
            number = min(self._removed.keys() | self._differing, default=None)
            if number is None:
                return False
            removed, is_different = self._removed.pop(number, set()), number in self._differing
            self._differing.discard(number)
            are_left = bool(self._removed or self._differing)
        try:
            if is_different:
                self._compare(file, number)
            else:
                self._remove(file, number, file.stored_among(number, np.fromiter(removed, np.int64)))
        except BaseException:
            with self._lock:
                self._differing.add(number)
            raise
        return are_left

    def _compare(self, file: TextFile, number: int) -> None:
        """Removes from a part all events that the timeline does not have. If it lacks any, resets the progress."""
        stored = file.stored(*_bounds(number))
        self._remove(file, number, stored[~np.isin(stored, self._source.alive(*_bounds(number)))])
        alive = self._source.alive(*_bounds(number, file.progress.words))
        lacking = alive[~np.isin(alive, stored)]
        if len(lacking):
            file.go_back(int(lacking[0]) - 1)

    def _remove(self, file: TextFile, number: int, sequences: Sequences) -> None:
        if len(sequences):
            file.remove(number, sequences)
            self._log_is_full = True

    def _forget_removed(self) -> None:
        with self._lock:
            if not self._removed and not self._differing:
                self._removed_count = 0

    def _add_words(self, file: TextFile, last: int) -> bool:
        """Adds the next words of events up to a sequence; returns whether more are left."""
        first = file.progress.words + 1
        missing, until = self._missing(first, last, file.stored)
        if until < first:
            return False
        texts, until = self._read(missing, until, WORDS_AT_ONCE)
        file.add_words(texts, until=until)
        return until < last

    def _missing(self, first: int, last: int, stored: Callable[[int, int], Sequences]) -> tuple[Sequences, int]:
        """The events not stored from `first` on, within its part and up to `last`, and how far they were searched."""
        last = min(last, _bounds(first // PART_SEQUENCES)[1], first + _SPAN - 1)
        if last < first:
            return np.empty(0, np.int64), last
        alive = self._source.alive(first, last)
        return alive[~np.isin(alive, stored(first, last))], last

    def _read(self, missing: Sequences, until: int, count_max: int) -> tuple[dict[int, str], int]:
        """The texts of the first of these events, and the sequence up to which they are complete."""
        if len(missing) > count_max:
            missing = missing[:count_max]
            until = int(missing[-1])
        texts = self._source.texts(missing.tolist(), TEXT_LENGTH_MAX)
        is_cut = sum(map(len, texts.values())) >= TEXT_LENGTH_MAX
        return texts, max(texts) if is_cut else until


def _bounds(number: int, last: int | None = None) -> tuple[int, int]:
    first = number * PART_SEQUENCES
    end = first + PART_SEQUENCES - 1
    return first, end if last is None else min(end, last)
