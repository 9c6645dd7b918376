"""The passages of versions, held in memory for one call: their vectors, and an index of their words."""

from collections.abc import Iterable, Sequence

import apsw
import numpy as np

from mnemon_server.domain.history import Version
from mnemon_server.engines.promises.values import (
    EXCERPT_CHARACTERS_MAX,
    OPENING_CHARACTERS_MAX,
    Excerpt,
    PassageIds,
    PassageLocation,
    Scores,
    Vector,
)
from mnemon_server.engines.sqlite.keywords.index import KeywordIndex
from mnemon_server.ranking.heads import Heads

FIRST_ID = 1 << 40
"""Stored passages have smaller ids. The index of words takes none of 2^52."""
_APART = 16
"""Ids between two records, which therefore are no neighbours."""
_WORDS = KeywordIndex("past")


class PastPassages:
    """The passages of the versions that a call has come upon. Belongs to one thread at a time."""

    def __init__(self, heads: Heads) -> None:
        """`heads` are those with which the passages of the collection are indexed."""
        self._heads = heads
        self._next_id = FIRST_ID
        self._first: dict[str, int] = {}
        self._located: dict[int, tuple[PassageLocation, Version]] = {}
        self._vectors: list[Vector] = []
        self._rows: dict[int, int] = {}
        self._words: apsw.Connection | None = None
        self._unread: dict[int, str] = {}

    def ids_of(self, versions: Iterable[Version]) -> PassageIds:
        """The ids of the passages of these versions, ascending."""
        found: list[int] = []
        for version in versions:
            first = self._first.get(version.version_id)
            if first is None:
                first = self._first[version.version_id] = self._next_id
                self._add(version, first)
            found += range(first, first + len(version.document.passages))
        return np.array(sorted(found), np.int64)

    def scan(self, query: Vector, among: PassageIds) -> Scores:
        """The cosine similarity of these passages, exactly."""
        if not len(among):
            return Scores(among, np.empty(0, np.float64))
        matrix = np.stack([self._vectors[self._rows[each]] for each in among.tolist()])
        return Scores(among, (matrix @ query).astype(np.float64))

    def search(self, query: str, among: PassageIds) -> Scores:
        """The passages among these that share a word with the query, with their scores."""
        if not len(among):
            return Scores(among, np.empty(0, np.float64))
        found = _WORDS.search(self._indexed(), query, among, context_weight=0.0)
        return Scores(found.passage_ids, found.scores)

    def locate(self, passage_id: int) -> PassageLocation | None:
        """Where a passage is."""
        found = self._located.get(passage_id)
        return found[0] if found else None

    def excerpt(self, passage_id: int, metadata_keys: Sequence[str]) -> Excerpt:
        """The text of a passage."""
        place, version = self._located[passage_id]
        document = version.document
        texts = {key: document.metadata.get(key) for key in metadata_keys}
        return Excerpt(
            passage_id,
            document.content[place.start : min(place.end, place.start + EXCERPT_CHARACTERS_MAX)],
            document.content[:OPENING_CHARACTERS_MAX],
            {key: text[:OPENING_CHARACTERS_MAX] for key, text in texts.items() if isinstance(text, str)},
        )

    def _add(self, version: Version, first: int) -> None:
        document = version.document
        for number, passage in enumerate(document.passages):
            passage_id = first + number
            place = PassageLocation(passage_id, document.doc_id, passage.index, passage.start, passage.end)
            self._located[passage_id] = place, version
            self._rows[passage_id] = len(self._vectors)
            self._vectors.append(np.array(passage.embedding or (), np.float32))
            self._unread[passage_id] = self._heads.passage(
                document.metadata, document.content, passage.start, passage.end
            )
        self._next_id = first + len(document.passages) + _APART

    def _indexed(self) -> apsw.Connection:
        if self._words is None:
            self._words = apsw.Connection(":memory:")
            for statement in _WORDS.create_statements():
                self._words.execute(statement)
        if self._unread:
            _WORDS.insert(self._words, self._unread)
            self._unread = {}
        return self._words
