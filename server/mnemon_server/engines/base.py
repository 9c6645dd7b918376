"""What engines promise: the contract that `tests/contract` holds every engine to.

Two kinds. A `Vault` keeps the truth: collections of documents, each a `RecordEngine`, the timeline of episodic events
(`engines/promises/timeline.py`), and the log of what happened to them (`engines/promises/change_log.py`). A
`VectorIndex` is a cache of it: derived, disposable, rebuilt from the records whenever it is lost, damaged or behind.
"""

from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Protocol

import numpy as np
from numpy.typing import NDArray

from mnemon_server.domain.changes import EventType
from mnemon_server.domain.collections import Collection
from mnemon_server.domain.documents import Document
from mnemon_server.domain.filters import RecordFilter
from mnemon_server.domain.records import BulkDeleteReceipt, RequestKey, Scope, WriteReceipt
from mnemon_server.engines.promises.change_log import EventLog
from mnemon_server.engines.promises.related import RelatedDocuments, RelatedQuery

if TYPE_CHECKING:  # which imports this module
    from mnemon_server.engines.promises.timeline import Timeline

Vector = NDArray[np.float32]
PassageIds = NDArray[np.int64]


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
    """A document to store, with its passages in order; `event` is what the log says where that changes something."""

    document: Document
    passages: Sequence[PassageInput]
    request: RequestKey | None = None
    expected_revision: int | None = None
    event: EventType = EventType.KNOWLEDGE_INDEXED
    details: str = ""
    """What the event says beyond that, as JSON; it outlives the document, so it holds no text of it."""
    changed: tuple[str, ...] | None = None
    """What the event names as changed where the document takes another's place; None: the fields that differ."""
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
    With `event` None the change is no news: the log says nothing of it, and the document keeps its revision and its
    time of update.
    """

    doc_id: str
    update: Callable[[Document], Document]
    event: EventType | None
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


class RecordEngine(Protocol):
    """One collection of a vault: documents, their passages, vectors and words.

    Any thread may call any method. Reads block, see everything acknowledged before they began, and each one sees a
    single moment. Writes return a future at once and are atomic: a document, its passages, vectors, keyword rows, event
    and request id are all there or none is. When a write's future holds a result, the write is on stable storage (where
    the engine has one) and every read that begins later sees it. Writes take effect in the order of their calls.

    The future of a write raises
        RevisionMismatchError: `expected_revision` is not the record's (0 stands for "does not exist");
        RequestIdReusedError: the request id came with another digest within its lifetime of 24 hours;
        StorageFullError: no space is left; nothing was written, and later writes may succeed;
        StorageFailedError: the disk failed, now or before; whether this write is there is known after reopening.
    A request id seen before with the same digest changes nothing and gives the first answer, marked `replayed`; a write
    that failed leaves its request id unused.
    """

    def put_document(self, write: DocumentWrite) -> Future[WriteReceipt]:
        """Stores a document in place of the one with its id, as a whole: no key of the old metadata survives.

        Equal content, metadata, scope, fields and visibility: UNCHANGED, nothing is written, `sequence` is the last
        change's. The revision of a document that was deleted begins anew.
        """

    def update_document(self, update: DocumentUpdate) -> Future[WriteReceipt]:
        """Changes the document as `update` says; outcome MISSING, with revision 0, where there is none.

        Outcome REPLACED, or UNCHANGED as above. A document that becomes hidden leaves every search at once, and comes
        back, under new passage ids, when it is not hidden any more. The event names the fields that changed, metadata
        keys as "metadata.key".
        """

    def delete_document(
        self,
        doc_id: str,
        *,
        request: RequestKey | None = None,
        expected_revision: int | None = None,
        event: EventType = EventType.KNOWLEDGE_DELETED,
    ) -> Future[WriteReceipt]:
        """Removes a document for good, from the keyword index too; outcome MISSING where there is none."""

    def delete_documents(
        self,
        where: RecordFilter,
        *,
        request: RequestKey | None = None,
        event: EventType = EventType.KNOWLEDGE_DELETED,
    ) -> Future[BulkDeleteReceipt]:
        """Removes every document that matches, in one transaction; their events share one commit."""

    def get_documents(self, doc_ids: Sequence[str], *, vectors: bool = False) -> list[Document | None]:
        """The documents with these ids, hidden ones too, in their order; None where there is none."""

    def list_documents(
        self,
        where: RecordFilter,
        *,
        after: int = 0,
        limit: int,
        skip: int = 0,
        vectors: bool = False,
        descending: bool = False,
    ) -> list[tuple[int, Document]]:
        """Up to `limit` documents that match, each with its position, in the order of first indexing.

        `after` is the position of the last one seen; 0 where none was. Replacing a document does not move it, so that
        pages neither repeat nor skip a document that was there throughout. `skip`: so many that match are passed over
        first. `descending`: in the opposite order.
        """

    def distinct_texts(self, field: str, *, after: str = "", limit: int) -> list[str]:
        """Up to `limit` different texts behind `after` that an indexed field of text holds, by code point, ascending.

        Hidden documents, and empty texts, do not count. It costs about as much as there are texts, however many
        documents share one.
        """

    def count_documents(self, where: RecordFilter) -> int:
        """How many documents match."""

    def has_metadata_key(self, key: str) -> bool:
        """Whether any document carries this key."""

    def match_passages(self, where: RecordFilter) -> PassageIds:
        """Passages of the documents that match, ascending; of hidden documents there are none."""

    def filter_passages(self, passage_ids: PassageIds, where: RecordFilter) -> PassageIds:
        """Those of the given passages that match, in the given order."""

    def scan_vectors(self, query: Vector, among: PassageIds | None = None) -> Scores:
        """Cosine similarity, -1 to 1, of every passage, or of those of `among` that are still there: exact."""

    def nearest_vectors(self, query: Vector, *, limit: int) -> Scores | None:
        """Up to `limit` passages nearest to the query among all, with their cosine similarity, best first.

        Proposed by a graph, and so with a recall a little below 1; what is too new for the graph is compared one by
        one. None where there is no graph: scanning everything is cheaper, or the engine has none.
        """

    def vector_usage(self) -> VectorUsage:
        """How the vectors are kept in memory."""

    def search_keywords(self, query: str, among: PassageIds | None = None) -> Scores:
        """Every passage that shares a word with the query, or those of `among`, with its BM25 score.

        Words are compared stemmed, without case and accents; stop words of the query do not count; runs of CJK
        characters match by their bigrams. Scores are relative to what the query's own text would get, 0 to 1; how
        telling a word is counts among the passages searched, so that what others stored changes no score. Words of the
        passages before and after, among those searched, count in part where they tell something, see `keyword_context`.
        Any text is a query: no character has a meaning. A collection without `words` has none. `among` ascends.
        """

    def related_documents(self, query: RelatedQuery) -> RelatedDocuments:
        """Every document of the user, hidden ones left out, that is related as the query says, by position.

        Found through indexes. It may return others of the user too, and values may be off by rounding: whoever needs
        the bounds exactly compares again. Only for collections with `related` fields.
        """

    def save_snapshot(self) -> datetime | None:
        """Writes a snapshot of the graph now, and returns its time; None where there is no graph. Blocks.

        Raises:
            StorageFullError, StorageFailedError: it could not be written; the graph goes on.
        """

    def locate_passages(self, passage_ids: Sequence[int]) -> list[PassageLocation]:
        """Where these passages are, in their order; those that are gone are left out. Ids are never used again."""

    def changes_after(self, sequence: int, *, limit: int) -> list[DocumentChange]:
        """The documents whose newest change came after `sequence`, oldest change first, with vectors.

        A document that changed several times is there once; one that was deleted is there until `forget_deletions`.
        """

    def count_changes_after(self, sequence: int) -> int:
        """How many documents `changes_after` would give without a limit."""

    def index_position(self, index: str) -> IndexPosition:
        """How far the index of this name has come; the default where it was never set."""

    def set_index_position(self, index: str, position: IndexPosition) -> Future[None]:
        """Remembers how far the index has come; deletions up to there need not be kept for it."""

    def stats(self) -> RecordStats:
        """How much is stored; hidden documents count, their passages do not."""

    def subscribe(self, on_commit: Callable[[], None]) -> Callable[[], None]:
        """Calls `on_commit` after every commit, on a thread of the engine's; must not block. Returns what ends it."""

    def failure(self) -> str | None:
        """Why writes are not accepted, as a sentence for clients; None while they are."""

    def recover(self) -> None:
        """Opens the vault anew after a failure; does nothing where there is none. Reads wait meanwhile.

        Raises:
            StorageFailedError: the disk still fails.
        """


class RecordTransaction(Protocol):
    """One collection inside a running transaction: reads see what was committed, and what it wrote itself.

    The methods do what those of RecordEngine do, at once; requests are the transaction's, and theirs must be None.
    """

    def get_documents(self, doc_ids: Sequence[str], *, vectors: bool = False) -> list[Document | None]:
        """See RecordEngine."""

    def list_documents(
        self, where: RecordFilter, *, after: int = 0, limit: int, vectors: bool = False, descending: bool = False
    ) -> list[tuple[int, Document]]:
        """See RecordEngine."""

    def count_documents(self, where: RecordFilter) -> int:
        """See RecordEngine."""

    def related_documents(self, query: RelatedQuery) -> RelatedDocuments:
        """See RecordEngine."""

    def put_document(self, write: DocumentWrite) -> WriteReceipt:
        """See RecordEngine."""

    def update_document(self, update: DocumentUpdate) -> WriteReceipt:
        """See RecordEngine."""

    def delete_document(self, doc_id: str, *, event: EventType | None, details: str = "") -> WriteReceipt:
        """See RecordEngine; with `event` None, the log says nothing of it."""

    def delete_documents(self, where: RecordFilter, *, event: EventType | None, details: str = "") -> BulkDeleteReceipt:
        """See RecordEngine; with `event` None, the log says nothing of it."""


class VaultTransaction(Protocol):
    """A running transaction; belongs to the writer's thread, and must not be kept beyond the program."""

    @property
    def now(self) -> datetime:
        """The time of the commit."""

    def collection(self, collection: Collection) -> RecordTransaction:
        """One collection."""

    def value(self, key: str) -> str | None:
        """What `set_value` left under this key; None where nothing is."""

    def set_value(self, key: str, value: str) -> None:
        """Keeps a small text of the vault's own."""

    def note_event(
        self, event: EventType, record_id: str, *, revision: int = 0, scope: Scope = Scope(), details: str = ""
    ) -> None:
        """Adds an event to the log, in the order of the calls."""


@dataclass(frozen=True, slots=True)
class TransactionReceipt:
    """What is promised of a transaction once it has been handed out."""

    answer: str
    """What its program returned; of a replay, the first time."""
    commit_time: datetime
    sequence: int = 0
    """Of its newest change; the last one's where it made none."""
    replayed: bool = False


class Vault(Protocol):
    """All records of one tenant. Collections share one writer, one order of changes, and one event log."""

    @property
    def events(self) -> EventLog:
        """The log."""

    @property
    def timeline(self) -> "Timeline":
        """The timeline; the same object every time."""

    def collection(self, collection: Collection) -> RecordEngine:
        """One collection; the same object every time."""

    def transact(
        self, program: Callable[[VaultTransaction], str], *, request: RequestKey | None = None
    ) -> Future[TransactionReceipt]:
        """Runs a program that reads and writes, and commits all that it did, or nothing where it raises.

        It runs on the writer's thread, and so must be quick and must not ask the vault but through its transaction;
        where the transaction is repeated it runs again, and the last run counts. What it writes is one commit of the
        log. It returns an answer that is kept for the request's lifetime. The future raises what the program raised,
        and otherwise as the future of a RecordEngine's write.
        """

    def value(self, key: str) -> str | None:
        """What `VaultTransaction.set_value` left under this key; None where nothing is."""

    def subscribe(self, on_commit: Callable[[], None]) -> Callable[[], None]:
        """Calls `on_commit` after every commit, on a thread of the engine's; must not block. Returns what ends it."""

    def failure(self) -> str | None:
        """Why writes are not accepted, as a sentence for clients; None while they are."""

    def recover(self) -> None:
        """Opens the vault anew after a failure; see RecordEngine."""

    def close(self) -> None:
        """Finishes the writes that were accepted and gives everything back. Calling it again does nothing."""


@dataclass(frozen=True, slots=True)
class IndexEntry:
    """One passage for a vector index."""

    passage_id: int
    doc_id: str
    index: int
    text: str
    vector: Vector
    document: Document


@dataclass(frozen=True, slots=True)
class IndexState:
    """What a vector index says of itself."""

    generation: str
    """Changes whenever the index was created anew, so that a position in an older one is not believed."""
    entry_count: int


class VectorIndex(Protocol):
    """An index of vectors fed from the records. Any thread may call any method; all block.

    Every method but `close` raises BackendConnectionError when the index cannot be reached, after the retries that make
    sense; what was applied before stays applied, and the call may be made again.
    """

    @property
    def name(self) -> str:
        """What the position of this index is stored under; names the collection."""

    @property
    def host(self) -> str:
        """The address, or "embedded"."""

    @property
    def belongs_to_records(self) -> bool:
        """Whether nobody else uses this index, so that one of another embedding model may be emptied unasked."""

    def open(self) -> IndexState:
        """Connects, creates what is missing, and checks that what is there can be searched.

        An index found damaged is moved aside and created anew, under a new generation.
        """

    def apply(self, entries: Sequence[IndexEntry], deleted_doc_ids: Sequence[str]) -> None:
        """Makes the index hold exactly `entries` for their documents, and nothing for the deleted ones.

        Entries of one document come together and whole. Applying the same again changes nothing. When it returns, a
        search finds the entries, also after the process of the index was killed and `open` was called again.
        """

    def search(self, query: Vector, *, limit: int, equal: RecordFilter) -> Scores:
        """Up to `limit` passages near the query that match the filter: approximate, best effort, scores are cosine."""

    def ping(self) -> None:
        """Returns once the index that was opened has answered."""

    def reset(self) -> IndexState:
        """Empties the index, in its files too, under a new generation."""

    def close(self) -> None:
        """Gives everything back. Calling it again does nothing."""
