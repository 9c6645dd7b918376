"""What engines are given, and what they give."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

import numpy as np
from numpy.typing import NDArray

from mnemon_server.domain.changes import ChangeType
from mnemon_server.domain.documents import Document
from mnemon_server.domain.records import RequestKey

Vector = NDArray[np.float32]
PassageIds = NDArray[np.int64]
Fits = Callable[[str, int], bool]
"""Whether a document, told by its id and its size in bytes, is to be read. Asked before any of its text is."""
FieldsOnly = bool | frozenset[str]
"""Whether a document comes with its collection's own fields alone; with names, its other fields of text are empty."""
EXCERPT_CHARACTERS_MAX, OPENING_CHARACTERS_MAX = 16_384, 256


@dataclass(frozen=True, slots=True)
class Excerpt:
    """What a passage says, cut after EXCERPT_CHARACTERS_MAX, and how its document begins."""

    passage_id: int
    text: str
    opening: str
    """The first OPENING_CHARACTERS_MAX of the content."""
    metadata: Mapping[str, str]
    """The beginnings, likewise, of those texts in the metadata that were asked for."""


@dataclass(frozen=True, slots=True)
class VectorUsage:
    """How the vectors of a collection are kept in memory; counts are of vectors."""

    flat_count: int
    """Compared one by one."""
    graph_count: int
    """In the graph."""
    dead_count: int
    """In the graph, but of passages that are gone."""
    bytes: int
    """Memory that they and the graph take."""
    snapshot_time: datetime | None = None
    """When the newest snapshot of the graph was written."""
    building_count: int = 0
    """In a graph that is being built, and is not used yet."""
    warm: bool = True
    """False from the opening of the vault until its graph is loaded or built, where there is to be one."""


@dataclass(frozen=True, slots=True)
class PassageInput:
    """A passage to store: code points `start` to `end` of the content, and its vector of unit length."""

    start: int
    end: int
    vector: Vector


@dataclass(frozen=True, slots=True)
class RecordStamps:
    """Times and revision that a document had elsewhere."""

    create_time: datetime
    update_time: datetime
    revision: int


@dataclass(frozen=True, slots=True, kw_only=True)
class DocumentWrite:
    """A document to store, with its passages in order; `change` is what the log says where that changes something."""

    document: Document
    passages: Sequence[PassageInput]
    request: RequestKey | None = None
    expected_revision: int | None = None
    change: ChangeType = ChangeType.KNOWLEDGE_INDEXED
    details: str = ""
    """What the change says beyond that, as JSON; it outlives the document, so it holds no text of it."""
    changed: tuple[str, ...] | None = None
    """What the change names as changed where the document takes another's place; None: the fields that differ."""
    stamps: RecordStamps | None = None
    """What an import keeps in place of the commit's time and the next revision, which never falls for that.

    Then a document is unchanged only where its times are these, too.
    """


@dataclass(frozen=True, slots=True, kw_only=True)
class DocumentUpdate:
    """A change that depends on what is stored.

    `update` gets the stored document, hidden or not, without its vectors, and returns what is to stand in its place,
    under the same id; what it raises refuses the change. It runs inside the transaction, on the writer's thread, and so
    must be quick and must not ask the engine; where the transaction is repeated it runs again, and the last run counts.
    `passages` belong to a new content; None keeps those that are there, and then the content must stay as it is.
    With `change` None the change is no news: the log says nothing of it, and the document keeps its revision and its
    time of update.
    """

    doc_id: str
    update: Callable[[Document], Document]
    change: ChangeType | None
    passages: Sequence[PassageInput] | None = None
    request: RequestKey | None = None
    expected_revision: int | None = None
    details: str = ""
    """As in DocumentWrite."""


@dataclass(frozen=True, slots=True)
class Scores:
    """Scores of passages: two arrays of one length, in no promised order."""

    passage_ids: PassageIds
    scores: NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class PassageLocation:
    """Which part of which document a passage is."""

    passage_id: int
    doc_id: str
    index: int
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class DocumentChange:
    """The newest state of a document that changed at `sequence`; None where it was deleted."""

    sequence: int
    doc_id: str
    document: Document | None
    passage_ids: tuple[int, ...] = ()
    vectors: Vector | None = None
    """Of shape (passages, dimension)."""


@dataclass(frozen=True, slots=True)
class RecordStats:
    """How much is stored."""

    document_count: int
    passage_count: int
    sequence: int
    """Position of the newest change; grows by at least one with every write that changed something."""


@dataclass(frozen=True, slots=True)
class IndexPosition:
    """How far an index has come: every change up to `sequence`, in the index that calls itself `generation`."""

    sequence: int = 0
    generation: str = ""
