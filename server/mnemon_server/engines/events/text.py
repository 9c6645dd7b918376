"""Text search for events: a derived index file that follows the commits, and is rebuilt if it is damaged."""

import logging
from collections.abc import Callable
from dataclasses import dataclass, replace
from hashlib import blake2b

import apsw
import numpy as np

from mnemon_server.domain.errors import EmbeddingError, MnemonError, StorageFailedError
from mnemon_server.domain.records import SearchMode
from mnemon_server.engines.events import text_words
from mnemon_server.engines.events.reads import BODIES_AT_ONCE
from mnemon_server.engines.events.text_file import Progress, read_progress
from mnemon_server.engines.events.text_thread import TextThread
from mnemon_server.engines.events.text_vectors import EventVectors, cosines
from mnemon_server.engines.events.text_words import Floats
from mnemon_server.engines.events.text_work import (
    TEXT_LENGTH_MAX,
    VECTORS_AT_ONCE,
    EmbedTexts,
    StoredTexts,
    TextWork,
    is_passing,
)
from mnemon_server.engines.promises.events import Sequences, TextScores
from mnemon_server.engines.promises.values import NO_SCORES, Scores, Vector
from mnemon_server.engines.vault_key import VaultKeyFile
from mnemon_server.ranking.fusion import MEANING, relevance_floors
from mnemon_server.ranking.settings import RankingSettings

log = logging.getLogger(__name__)

_TEXTS_READ = 2_048
"""Up to so many of the newest events that were asked for are searched before they are in the file."""
_COMPARED_MAX, _WORDED_MAX = 10_000, 2_000
"""A hybrid search compares the vectors of so many of the newest events, and of so many with the best words: reading one
that is not in memory takes 7 microseconds.
"""
_OPENED_S = 5.0
"""How long a search waits at most for the file after the start."""
_AWAITED_MAX, _AWAITED_S = 256, 1.0
"""Maximum number of new events whose vectors a search waits for, and the maximum wait: conversations are often asked
about right after they were stored. Up to VECTORS_AT_ONCE missing vectors are computed without waiting.
"""


@dataclass(frozen=True, slots=True)
class _Question:
    """The arguments of a search."""

    query: str
    vector: Vector | None
    among: Sequences
    mode: SearchMode


class TextIndex:
    """Finds events by keywords, and by meaning if they have vectors. Any thread may call any method."""

    def __init__(
        self,
        keys: VaultKeyFile,
        source: StoredTexts,
        *,
        origin: bytes,
        model_identity: str,
        embed: EmbedTexts | None,
        wait_until_warm: Callable[[float], bool],
        ranking: RankingSettings,
    ) -> None:
        """Does nothing yet. The file is in the subfolder `timeline-index` of the folder of the keys.

        `origin` is the secret identity of the vault. Without `embed`, there are no vectors. `wait_until_warm` waits up
        to a number of seconds until all events are known, and returns whether they are.
        """
        identity = f"{blake2b(origin, digest_size=16).hexdigest()} {'' if embed is None else model_identity}"
        self.has_vectors = embed is not None
        """Whether events have vectors."""
        self._embed = embed
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
        """See EventEngine.search_text. Events that the file lacks are read, so that the newest are found at once.

        If the file cannot be read, it lacks all.
        """
        if vector is None or mode is SearchMode.KEYWORD or not self.has_vectors:
            mode, vector = SearchMode.KEYWORD, None
        asked = _Question(query, vector, among, mode)
        if self._work.file is None:
            self._work.was_opened.wait(_OPENED_S)
        if vector is not None:
            behind = len(among) - among.searchsorted(self._work.done, "right")
            if VECTORS_AT_ONCE < behind <= _AWAITED_MAX:
                self._thread.wait_for(int(among[-1]), _AWAITED_S)
        file = self._work.file
        if file is not None:
            try:
                with file.readers.lend() as connection:
                    return self._without_removed(*self._search(connection, asked, file.vectors))
            except EmbeddingError:
                raise
            except StorageFailedError:
                log.debug("the text index of the timeline was closed meanwhile")
            except Exception as error:
                log.exception("the text index of the timeline cannot be read")
                if not is_passing(error):
                    self._work.note_damaged(file)
                    self._thread.wake()
        return self._without_removed(*self._search(None, asked))

    def _search(
        self, connection: apsw.Connection | None, asked: "_Question", vectors: EventVectors | None = None
    ) -> tuple[TextScores, Sequences]:
        """The scores, and the events that were asked for and are not in them."""
        among, vector = asked.among, asked.vector
        progress = Progress() if connection is None else read_progress(connection)
        behind = among[among.searchsorted(progress.words, "right") :]
        texts = self._newest_texts(behind, _TEXTS_READ)
        by_word = by_meaning = NO_SCORES
        if asked.mode is not SearchMode.VECTOR:
            context_weight = self._ranking.context_weight
            by_word = text_words.search(connection, asked.query, among, texts, context_weight=context_weight)
        compared = among
        if vector is not None:
            behind = among[among.searchsorted(progress.vectors, "right") :]
            texts, computed = self._newest_similarities(vector, behind)
            if asked.mode is SearchMode.HYBRID and len(among) > _COMPARED_MAX:
                compared = np.union1d(among[-_COMPARED_MAX:], by_word.best(_WORDED_MAX).passage_ids)
                by_word = by_word.those(np.isin(by_word.passage_ids, compared))
            rest = compared[np.isin(compared, computed.passage_ids, invert=True)]
            if connection is not None and vectors is not None:
                by_meaning = vectors.similarities(connection, vector, rest)
            by_meaning = Scores.joined([by_meaning, computed])
        sequences, keyword, similarity = _joined(by_word, by_meaning)
        relevance = self._relevance(asked, keyword, similarity)
        missing = behind[np.isin(behind, list(texts), invert=True)]
        found = relevance > 0
        of_messages = None
        if asked.mode is SearchMode.HYBRID:
            of_messages = self._relevance(asked, keyword, similarity, meaning=MEANING)[found]
        scores = TextScores(
            sequences[found],
            relevance[found],
            similarity[found],
            keyword[found],
            asked.mode,
            pending=0,
            exact=len(compared) == len(among),
            floors=relevance_floors(self._ranking.fusion, asked.query, asked.mode),
            of_messages=of_messages,
        )
        return scores, missing

    def _newest_similarities(self, query: Vector, behind: Sequences) -> tuple[dict[int, str], Scores]:
        """The texts of the last of these events, and the similarities of those that have one."""
        texts = self._newest_texts(behind, VECTORS_AT_ONCE)
        worded = [sequence for sequence, text in texts.items() if text.strip()]
        if not worded or self._embed is None:
            return texts, NO_SCORES
        try:
            vectors = self._embed([texts[sequence] for sequence in worded])
        except MnemonError as error:
            log.warning("the newest events of the timeline are found by words alone: %s", error)
            return {}, NO_SCORES
        return texts, Scores(np.array(worded, np.int64), cosines(vectors, query))

    def _newest_texts(self, behind: Sequences, count_max: int) -> dict[int, str]:
        """The texts of the last of these events that still exist, ascending, until they are many or long."""
        texts: dict[int, str] = {}
        for end in range(len(behind), max(0, len(behind) - count_max), -BODIES_AT_ONCE):
            some = behind[max(0, end - min(BODIES_AT_ONCE, count_max)) : end].tolist()
            texts |= self._source.texts(some, TEXT_LENGTH_MAX)
            if sum(map(len, texts.values())) >= TEXT_LENGTH_MAX:
                break
        return dict(sorted(texts.items()))

    def _relevance(self, asked: "_Question", keyword: Floats, similarity: Floats, *, meaning: float = 1.0) -> Floats:
        match asked.mode:
            case SearchMode.KEYWORD:
                return keyword
            case SearchMode.VECTOR:
                return similarity
            case SearchMode.HYBRID:
                known = np.nan_to_num(similarity)
                fused = self._ranking.fusion.fuse(asked.query, known, keyword, meaning=meaning).scores
                # A new event is found by its words alone until it has a vector: half of their score would hide it.
                return np.where(np.isnan(similarity), keyword, fused)

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
            of_messages=None if scores.of_messages is None else scores.of_messages[there],
            pending=pending,
        )

    def close(self) -> None:
        """Stops the background work. Further calls have no effect."""
        self._thread.close()


def _joined(by_word: Scores, by_meaning: Scores) -> tuple[Sequences, Floats, Floats]:
    """The ascending sequences with a score above 0, with both scores: 0 without a common word, NaN without a vector."""
    worded, compared, similarity = by_word.passage_ids, by_meaning.passage_ids, by_meaning.scores
    if not len(compared):
        return worded, by_word.scores, np.full(len(worded), np.nan)
    similar = compared[similarity > 0]
    sequences = np.sort(np.concatenate((similar, worded[np.isin(worded, similar, invert=True, assume_unique=True)])))
    keywords, similarities = np.zeros(len(sequences)), np.full(len(sequences), np.nan)
    keywords[np.searchsorted(sequences, worded)] = by_word.scores
    known = np.isin(compared, sequences, assume_unique=True)
    similarities[np.searchsorted(sequences, compared[known])] = similarity[known]
    return sequences, keywords, similarities
