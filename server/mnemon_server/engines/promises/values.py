"""Parameters and results of engines."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from math import inf
from typing import NamedTuple, Protocol, Required, TypedDict

import numpy as np
from numpy.typing import NDArray

from mnemon_server.domain.changes import ChangeType
from mnemon_server.domain.documents import Document
from mnemon_server.domain.errors import FactExistsError, IdTakenError, MnemonError, RevisionMismatchError
from mnemon_server.domain.history import Author, Ending, current_author
from mnemon_server.domain.records import RequestKey

Vector = NDArray[np.float32]
PassageIds = NDArray[np.int64]
Fits = Callable[[str, int], bool]
"""Decides by a document's id and size in bytes whether it is read. Called before any of its text is read."""
Visible = Callable[[Document], bool]
"""Whether a writer sees a stored document. Asked within the transaction, on the writer's thread."""
FieldsOnly = bool | frozenset[str]
"""True returns documents with their collection's own fields only. A set of names leaves all other text fields empty."""


class Parts(TypedDict, total=False):
    """The parts of documents to read."""

    vectors: bool
    """With the vectors of their passages."""
    fields_only: FieldsOnly
    """Without content, metadata and, unless `vectors` is set, passages."""
    fits: Fits | None
    """Called once for each existing document, in order, with the size of what would be read."""


class Page(Parts, total=False):
    """The documents of a list to read, and their parts."""

    after: int
    """The position of the last document seen; 0 to begin."""
    limit: Required[int]
    skip: int
    """The number of matching documents to pass over first."""
    descending: bool
    """In the reverse order."""


SMALL_BYTES = 4_096
"""Documents up to this size are small; see RecordEngine.get_small_document."""
EXCERPT_CHARACTERS_MAX, OPENING_CHARACTERS_MAX = 16_384, 256


@dataclass(frozen=True, slots=True)
class Excerpt:
    """The text of a passage, at most EXCERPT_CHARACTERS_MAX long, and the beginning of its document."""

    passage_id: int
    text: str
    opening: str
    """The first OPENING_CHARACTERS_MAX characters of the content."""
    metadata: Mapping[str, str]
    """The requested metadata texts, each cut to OPENING_CHARACTERS_MAX characters."""


@dataclass(frozen=True, slots=True)
class VectorUsage:
    """How the vectors of a collection are held in memory. Counts are numbers of vectors."""

    flat_count: int
    """Vectors that are compared one by one."""
    graph_count: int
    """Vectors in the graph."""
    dead_count: int
    """Vectors in the graph whose passages no longer exist."""
    bytes: int
    """Memory for vectors and graph."""
    snapshot_time: datetime | None = None
    """When the newest snapshot of the graph was written."""
    building_count: int = 0
    """Vectors in a graph that is being built and not yet in use."""
    warm: bool = True
    """False while the vault opens, until its graph is loaded or built, if there is to be one."""


class PassageInput(NamedTuple):
    """A passage to store: code points `start` to `end` of the content, and its vector of unit length."""

    start: int
    end: int
    vector: Vector


@dataclass(frozen=True, slots=True)
class RecordStamps:
    """Times and revision of an imported document."""

    create_time: datetime
    update_time: datetime
    revision: int


@dataclass(frozen=True, slots=True, kw_only=True)
class _Write:
    """The fields that writes and updates of documents share."""

    request: RequestKey | None = None
    expected_revision: int | None = None
    details: str = ""
    """Further details for the log entry, as JSON. They outlive the document, so they must not contain its text."""
    ending: Ending | None = None
    """How the version before it ends; None: as `change` and `details` say."""
    author: Author = field(default_factory=current_author.get)
    """Who writes, unless a transaction does, which names its own author."""
    visible: Visible | None = None
    """Which stored document the writer sees; None means any. A change of another one finds it missing; a document to
    store with its id raises what `taken` returns.
    """


@dataclass(frozen=True, slots=True, kw_only=True)
class DocumentWrite(_Write):
    """A document to store, with its passages in order. `change` is the type of its log entry if something changes."""

    document: Document
    passages: Sequence[PassageInput]
    change: ChangeType | None = ChangeType.KNOWLEDGE_INDEXED
    """If None, nothing is logged, as for an update."""
    changed: tuple[str, ...] | None = None
    """The field names that the log entry lists if the document replaces another; None lists the fields that differ."""
    stamps: RecordStamps | None = None
    """Times and revision for an import, in place of the commit time and the next revision. The revision never
    decreases.

    A document then counts as unchanged only if its times are equal, too.
    """

    def taken(self) -> MnemonError:
        """The error if the id belongs to a document that the writer cannot see."""
        doc_id, key = self.document.doc_id, self.document.fields.get("fact_key")
        if self.expected_revision:
            return RevisionMismatchError(doc_id, self.expected_revision, 0)
        # The id of a fact is computed from its key, and means nothing to the writer.
        return FactExistsError(str(key)) if key else IdTakenError(doc_id)


@dataclass(frozen=True, slots=True, kw_only=True)
class DocumentUpdate(_Write):
    """A change that depends on the stored document.

    `update` receives the stored document, hidden or not, without its vectors, and returns its replacement with the same
    id. An exception from it refuses the change. It runs within the transaction on the writer's thread, so it must be
    quick and must not call the engine. If the transaction is repeated, it runs again, and only the last run counts.
    `passages` belong to new content; None keeps the present passages, and then the content must not change. If `change`
    is None, nothing is logged, and the document keeps its revision and update time.
    """

    doc_id: str
    update: Callable[[Document], Document]
    change: ChangeType | None
    passages: Sequence[PassageInput] | None = None


@dataclass(frozen=True, slots=True)
class Scores:
    """Scores of passages: two arrays of equal length, in any order."""

    passage_ids: PassageIds
    scores: NDArray[np.float64]
    rounded: bool = False
    """Whether some of the scores may be rounded."""

    def best(self, count: int, least: float = -inf) -> "Scores":
        """The `count` best scores of at least `least`, best first; of equal ones, older passages first."""
        found = self if least == -inf else self.those(self.scores >= least)
        rows = best_rows(found.scores, found.passage_ids, count)
        return Scores(found.passage_ids[rows], found.scores[rows], self.rounded)

    def of(self, passage_ids: PassageIds) -> "Scores":
        """The scores of these passages, as far as they have one, by ascending id. The ids of all scores ascend."""
        if not len(self.passage_ids):
            return self
        wanted = np.sort(passage_ids)
        rows = np.minimum(np.searchsorted(self.passage_ids, wanted), len(self.passage_ids) - 1)
        rows = rows[self.passage_ids[rows] == wanted]
        return Scores(self.passage_ids[rows], self.scores[rows], self.rounded)

    @staticmethod
    def joined(parts: Sequence["Scores"]) -> "Scores":
        """The scores of several parts that have no passage in common."""
        ids, scores = [np.empty(0, np.int64)], [np.empty(0, np.float64)]
        return Scores(
            np.concatenate(ids + [part.passage_ids for part in parts]),
            np.concatenate(scores + [part.scores for part in parts]),
            any(part.rounded for part in parts if len(part.scores)),
        )

    def those(self, rows: NDArray[np.bool_] | NDArray[np.intp]) -> "Scores":
        """Some of the scores."""
        return Scores(self.passage_ids[rows], self.scores[rows], self.rounded)

    def replaced(self, others: "Scores") -> "Scores":
        """These scores, with the scores of `others` for the passages that both have."""
        order = np.argsort(self.passage_ids)
        places = np.searchsorted(self.passage_ids, others.passage_ids, sorter=order)
        rows = order[np.minimum(places, len(order) - 1)]
        is_known = self.passage_ids[rows] == others.passage_ids
        scores = self.scores.copy()
        scores[rows[is_known]] = others.scores[is_known]
        return Scores(self.passage_ids, scores, self.rounded)


NO_SCORES = Scores(np.empty(0, np.int64), np.empty(0, np.float64))


class KeywordScores(Protocol):
    """The scores of all passages that share a word with a query, by ascending id. Asking for some of them takes less
    time.
    """

    @property
    def passage_ids(self) -> PassageIds:
        """All passages."""

    @property
    def scores(self) -> NDArray[np.float64]:
        """Their scores."""

    def best(self, count: int, least: float = 0.0) -> Scores:
        """See Scores."""

    def of(self, passage_ids: PassageIds) -> Scores:
        """See Scores."""


def best_rows(
    scores: NDArray[np.float64], passage_ids: PassageIds, count: int, cosines: NDArray[np.float64] | None = None
) -> NDArray[np.intp]:
    """Rows of the `count` best scores, best first; of equal ones the nearer passage, and then the older one."""
    if count < len(scores):
        # Include all that equal the last score: otherwise it would be arbitrary which of these are chosen.
        bound = np.partition(scores, len(scores) - count)[len(scores) - count]
        rows = np.flatnonzero(scores >= bound)
    else:
        rows = np.arange(len(scores))
    keys = (passage_ids[rows], *(() if cosines is None else (-cosines[rows],)), -scores[rows])
    return rows[np.lexsort(keys)][:count]


EXACT_BEST = 256
"""How many of the best scores of a scan are exact, unless the caller asks for more."""


@dataclass(frozen=True, slots=True)
class PassageLocation:
    """The document and the part of it that a passage covers."""

    passage_id: int
    doc_id: str
    index: int
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class DocumentChange:
    """The newest state of a document that changed at `sequence`; None if it was deleted."""

    sequence: int
    doc_id: str
    document: Document | None
    passage_ids: tuple[int, ...] = ()
    vectors: Vector | None = None
    """An array of shape (passages, dimension)."""


@dataclass(frozen=True, slots=True)
class RecordStats:
    """How much is stored."""

    document_count: int
    passage_count: int
    sequence: int
    """Position of the newest change. It grows by at least one with each write that changes something."""


@dataclass(frozen=True, slots=True)
class IndexPosition:
    """How far an index has been updated: it contains every change up to `sequence`. `generation` identifies the
    index.
    """

    sequence: int = 0
    generation: str = ""
