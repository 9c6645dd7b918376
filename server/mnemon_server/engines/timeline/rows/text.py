"""Text search for events: a derived index file that follows the commits, and is rebuilt if it is damaged."""

import logging
from collections.abc import Callable, Sequence
from dataclasses import replace
from operator import attrgetter

import apsw
import numpy as np

from mnemon_server.domain.errors import StorageFailedError
from mnemon_server.domain.records import SearchMode
from mnemon_server.engines.promises.timeline import Sequences, TextScores
from mnemon_server.engines.promises.values import Vector
from mnemon_server.engines.sqlite.connections import Connections
from mnemon_server.engines.timeline.index.index import TimelineIndex
from mnemon_server.engines.timeline.rows import tables as timeline_tables
from mnemon_server.engines.timeline.rows.bodies import BodyReader
from mnemon_server.engines.timeline.rows.reads import BODIES_AT_ONCE
from mnemon_server.engines.timeline.rows.text_file import read_progress, similarities
from mnemon_server.engines.timeline.rows.text_thread import TextThread
from mnemon_server.engines.timeline.rows.text_words import Floats, answering
from mnemon_server.engines.timeline.rows.text_work import EmbedTexts, TextSource, TextWork, is_passing
from mnemon_server.engines.vault_key import VaultKeyFile
from mnemon_server.ranking.settings import RankingSettings
from mnemon_server.wire.events import text_of

log = logging.getLogger(__name__)


class StoredTexts:
    """The texts of a vault's events; see TextSource."""

    def __init__(self, index: TimelineIndex, bodies: BodyReader, connections: Connections) -> None:
        self._index = index
        self._bodies = bodies
        self._connections = connections

    @property
    def last_sequence(self) -> int:
        """See TextSource."""
        return self._index.last_sequence

    def last_given(self) -> int:
        """See TextSource."""
        with self._connections.lend() as connection:
            return timeline_tables.last_sequence(connection)

    def alive(self, first: int, last: int) -> Sequences:
        """See TextSource."""
        return self._index.alive(first, last)

    def alive_among(self, sequences: Sequences) -> Sequences:
        """See TextSource."""
        return self._index.alive_among(sequences)

    def count_behind(self, sequence: int) -> int:
        """See TextSource."""
        return self._index.count_behind(sequence)

    def texts(self, sequences: Sequence[int], length_max: int) -> dict[int, str]:
        """See TextSource."""
        refs = sorted(self._index.locate(sequences), key=attrgetter("sequence"))
        texts: dict[int, str] = {}
        length = 0
        for start in range(0, len(refs), BODIES_AT_ONCE):
            if length >= length_max:
                break
            bodies = self._bodies.read(refs[start : start + BODIES_AT_ONCE])
            some = {sequence: text_of(body) for sequence, body in bodies.items()}
            texts.update(some)
            length += sum(map(len, some.values()))
        return texts


class TextIndex:
    """Finds events by keywords, and by meaning if they have vectors. Any thread may call any method."""

    def __init__(
        self,
        keys: VaultKeyFile,
        source: TextSource,
        *,
        epoch: bytes,
        model_identity: str,
        embed: EmbedTexts | None,
        wait_until_warm: Callable[[float], bool],
        ranking: RankingSettings,
    ) -> None:
        """Does nothing yet.

        Args:
            keys: the vault's key, in its folder; the file is in the subfolder `timeline-index`.
            source: the events.
            epoch: the vault's epoch.
            model_identity: the model that makes the vectors.
            embed: computes the vectors; None disables them.
            wait_until_warm: waits up to a number of seconds until all events are known; returns whether they are.
            ranking: how events are ranked by a text.
        """
        identity = f"{epoch.hex()} {'' if embed is None else model_identity}"
        self.has_vectors = embed is not None
        """Whether events have vectors."""
        self._source = source
        self._ranking = ranking
        self._work = TextWork(keys, source, identity=identity, embed=embed)
        self._thread = TextThread(self._work, wait_until_warm)
        self.appended, self.removed = self._thread.appended, self._thread.removed
        """Callbacks: must be called after a commit of events, and after one of removals, with their sequences."""

    def start(self) -> None:
        """Starts to index events in the background."""
        self._thread.start()

    @property
    def pending_count(self) -> int:
        """The number of events that are not in the index yet."""
        return self._source.count_behind(self._work.done)

    @property
    def removed_count(self) -> int:
        """The number of removed events whose text may still be in the file."""
        return self._work.removed_count

    def search(self, query: str, vector: Vector | None, among: Sequences, mode: SearchMode) -> TextScores:
        """See Timeline.search_text. If the file cannot be read, nothing is found, and all events count as pending."""
        if vector is None or mode is SearchMode.KEYWORD or not self.has_vectors:
            mode, vector = SearchMode.KEYWORD, None
        file = self._work.file
        if file is not None:
            try:
                with file.readers.lend() as connection:
                    scores, done = self._search(connection, query, vector, among, mode)
                return self._without_removed(scores, among[among.searchsorted(done, "right") :])
            except StorageFailedError:
                log.debug("the text index of the timeline was closed meanwhile")
            except Exception as error:
                log.exception("the text index of the timeline cannot be read")
                if not is_passing(error):
                    self._work.note_damaged(file)
                    self._thread.wake()
        return self._without_removed(_nothing(mode), among)

    def _search(
        self, connection: apsw.Connection, query: str, vector: Vector | None, among: Sequences, mode: SearchMode
    ) -> tuple[TextScores, int]:
        """The result from the file, and the sequence up to which it is complete."""
        progress = read_progress(connection)
        done = progress.words if vector is None else min(progress.words, progress.vectors)
        by_word = by_meaning = np.empty(0, np.int64), np.empty(0, np.float64)
        if mode is not SearchMode.VECTOR:
            words, context_weight = answering(connection), self._ranking.context_weight
            by_word = words.search(connection, query, among, context_weight=context_weight)
        if vector is not None:
            by_meaning = similarities(connection, vector, among)
        sequences, keyword, similarity = _joined(*by_word, *by_meaning)
        relevance = self._relevance(query, keyword, similarity, mode)
        return TextScores(sequences, relevance, similarity, keyword, mode, pending=0), done

    def _relevance(self, query: str, keyword: Floats, similarity: Floats, mode: SearchMode) -> Floats:
        match mode:
            case SearchMode.KEYWORD:
                return keyword
            case SearchMode.VECTOR:
                return similarity
            case SearchMode.HYBRID:
                return self._ranking.fusion.fuse(query, np.clip(np.nan_to_num(similarity), 0.0, 1.0), keyword).scores

    def _without_removed(self, scores: TextScores, behind: Sequences) -> TextScores:
        """Removes events that no longer exist but are still in the file. `behind` are requested events that it may
        lack.
        """
        alive = self._source.alive_among(scores.sequences)
        pending = len(self._source.alive_among(behind))
        if len(alive) == len(scores.sequences):
            return replace(scores, pending=pending)
        there = np.isin(scores.sequences, alive)
        return replace(
            scores,
            sequences=scores.sequences[there],
            relevance=scores.relevance[there],
            similarity=scores.similarity[there],
            keyword=scores.keyword[there],
            pending=pending,
        )

    def close(self) -> None:
        """Stops the background work. Further calls have no effect."""
        self._thread.close()


def _joined(
    worded: Sequences, keyword: Floats, compared: Sequences, similarity: Floats
) -> tuple[Sequences, Floats, Floats]:
    """The ascending sequences with a score above 0, with both scores: 0 without a common word, NaN without a vector."""
    if not len(compared):
        return worded, keyword, np.full(len(worded), np.nan)
    sequences = np.union1d(worded, compared[similarity > 0])
    keywords, similarities = np.zeros(len(sequences)), np.full(len(sequences), np.nan)
    keywords[np.searchsorted(sequences, worded)] = keyword
    known = np.isin(compared, sequences)
    similarities[np.searchsorted(sequences, compared[known])] = similarity[known]
    return sequences, keywords, similarities


def _nothing(mode: SearchMode) -> TextScores:
    none = np.empty(0, np.float64)
    return TextScores(np.empty(0, np.int64), none, none, none, mode, pending=0)
