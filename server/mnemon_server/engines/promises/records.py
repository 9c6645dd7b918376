"""The contract of a collection of records."""

from collections.abc import Callable, Sequence
from concurrent.futures import Future
from datetime import datetime
from typing import Protocol, Unpack

from mnemon_server.domain.changes import ChangeType
from mnemon_server.domain.documents import Document
from mnemon_server.domain.errors import MnemonError
from mnemon_server.domain.filters import RecordFilter
from mnemon_server.domain.records import BulkDeleteReceipt, MetadataValue, RequestKey, Scope, WriteReceipt
from mnemon_server.engines.promises.related import RelatedDocuments, RelatedQuery
from mnemon_server.engines.promises.values import (
    EXACT_BEST,
    DocumentChange,
    DocumentUpdate,
    DocumentWrite,
    Excerpt,
    FieldsOnly,
    IndexPosition,
    KeywordScores,
    Page,
    Parts,
    PassageIds,
    PassageLocation,
    RecordStats,
    Scores,
    Vector,
    VectorUsage,
    Visible,
)
from mnemon_server.ranking.heads import Heads


class WriteGuard(Protocol):
    """Tells in advance which writes the caller may not make, so that no effort is wasted on them."""

    def refusals(self, writes: Sequence[DocumentWrite]) -> list[MnemonError | None]:
        """The error that each put would raise now because a record, a user or a namespace is another one's; None
        where nothing. Passages do not matter. Blocks. The write checks again, in its transaction.
        """


class DocumentReader(Protocol):
    """A collection, or one inside a running transaction."""

    def get_documents(self, doc_ids: Sequence[str], *, vectors: bool = False) -> list[Document | None]:
        """The documents with these ids, hidden ones included, in the given order; None for each that does not exist."""

    def list_documents(self, where: RecordFilter, **page: Unpack[Page]) -> list[tuple[int, Document]]:
        """Up to `limit` matching documents with their positions, in the order of first indexing.

        Replacing a document keeps its position, so pages neither repeat nor skip a document that exists throughout. The
        first document that `fits` rejects ends the result.
        """

    def count_documents(self, where: RecordFilter) -> int:
        """The number of matching documents."""

    def sourced(self, scope: Scope) -> Scope:
        """The scope with the origin that the caller's records get. Raises PermissionDeniedError for a foreign one."""

    def may_change(self, scope: Scope) -> bool:
        """Whether the caller may change records whose scope has this origin."""

    def related_documents(self, query: RelatedQuery) -> RelatedDocuments:
        """The documents of the query's user, household and persona, without hidden ones, that are related in one of its
        ways, ordered by position.

        Uses indexes. The result may contain further documents of that scope, and values may be off by rounding, so a
        caller that needs exact bounds must compare again. Only for collections with `related` fields.
        """


class RecordEngine(DocumentReader, Protocol):
    """One collection of a vault: documents with their passages, vectors and keyword index.

    Any thread may call any method. Reads block, see everything acknowledged before they began, and are each consistent
    with a single point in time. Writes return a future at once and are atomic: a document, its passages, vectors,
    words, change and request id are stored together or not at all. Once a write's future has a result, the write is on
    stable storage, unless the vault ends with the process, and every later read sees it. Writes take effect in the
    order of their calls.

    The future of a write raises
        RevisionMismatchError: `expected_revision` is not the record's revision. For a put, 0 means "does not exist". An
            update or delete of a missing record returns MISSING, whatever revision is expected;
        RequestIdReusedError: the request id was used with another digest within its lifetime of 24 hours;
        StorageFullError: the disk is full; nothing was written, and later writes may succeed;
        StorageFailedError: the disk failed, now or earlier. Whether this write was stored is known after reopening.
    A known request id with the same digest changes nothing and returns the first answer, marked `replayed`. A failed
    write does not use up its request id.
    """

    @property
    def guard(self) -> WriteGuard | None:
        """Knows what the caller may not write; None if the caller may write everything."""

    @property
    def heads(self) -> Heads:
        """The heads with which the passages of records are indexed; their vectors must be made of the same texts."""

    def put_document(self, write: DocumentWrite) -> Future[WriteReceipt]:
        """Stores a document. It replaces a document with the same id completely: no key of the old metadata remains.

        If content, metadata, scope, fields and visibility are equal, the outcome is UNCHANGED: nothing is written, and
        `sequence` is that of the last change. After a deletion, revisions of the same id start anew.
        """

    def put_documents(self, writes: Sequence[DocumentWrite]) -> Future[list[WriteReceipt | Exception]]:
        """Stores documents as as many calls of `put_document` would, in their order, but faster.

        The result has the receipt of each, or the exception that its own future would raise: a write that fails does
        not affect the others.
        """

    def update_document(self, update: DocumentUpdate) -> Future[WriteReceipt]:
        """Changes the document as `update` says; outcome MISSING, with revision 0, if it does not exist.

        Otherwise the outcome is REPLACED, or UNCHANGED as for a put. A hidden document is removed from all searches at
        once, and returns under new passage ids when it is made visible. The change lists the names of changed fields,
        metadata keys as "metadata.key".
        """

    def delete_document(
        self,
        doc_id: str,
        *,
        request: RequestKey | None = None,
        expected_revision: int | None = None,
        change: ChangeType = ChangeType.KNOWLEDGE_DELETED,
        visible: Visible | None = None,
    ) -> Future[WriteReceipt]:
        """Removes a document permanently, also from the keyword index; outcome MISSING if it does not exist.

        With `visible`, a document that it rejects counts as missing.
        """

    def delete_documents(
        self,
        where: RecordFilter,
        *,
        request: RequestKey | None = None,
        change: ChangeType = ChangeType.KNOWLEDGE_DELETED,
    ) -> Future[BulkDeleteReceipt]:
        """Removes all matching documents in one transaction. Their changes share one commit."""

    def get_documents(self, doc_ids: Sequence[str], **parts: Unpack[Parts]) -> list[Document | None]:
        """See DocumentReader. A document that `fits` rejects is None in the result, too."""

    def get_small_document(self, doc_id: str, *, fields_only: FieldsOnly = False) -> Document | None:
        """The document as `get_documents` returns it, but without passages. An event loop may call it: it does not wait
        for other reads, and reads at most SMALL_BYTES.

        None if the document is larger, does not exist or cannot be read: `get_documents` tells which.
        """

    def distinct_texts(
        self, field: str, *, after: str = "", within: tuple[str, str] | None = None, limit: int
    ) -> list[str]:
        """Up to `limit` distinct texts greater than `after` in an indexed text field, ascending by code point.

        With `within`, only those from its first text on and below its second. Ignores hidden documents and empty texts.
        The cost depends on the number of texts within, not on the number of documents that share one.
        """

    def has_metadata_key(self, key: str, *, like: MetadataValue | None = None) -> bool:
        """Whether any document has this metadata key; with `like`, whether any has it with a value of the same type."""

    def match_passages(self, where: RecordFilter) -> PassageIds:
        """The passages of the matching documents, ascending. Hidden documents have no passages."""

    def match_few_passages(self, where: RecordFilter, *, limit: int) -> PassageIds | None:
        """Like `match_passages`; None if an index cannot tell that at most `limit` documents match."""

    def filter_passages(self, passage_ids: PassageIds, where: RecordFilter) -> PassageIds:
        """The given passages that match, in the given order."""

    def scan_vectors(self, query: Vector, among: PassageIds | None = None, *, exact: int = EXACT_BEST) -> Scores:
        """Cosine similarity, -1 to 1, of every passage, or of those in `among` that still exist.

        The best `exact` are exact. If the collection is too large to hold its vectors in full, rounding changes the
        others, usually by less than 0.001, and the answer says so.
        """

    def nearest_vectors(self, query: Vector, *, limit: int, exact: bool = True) -> Scores | None:
        """Up to `limit` passages nearest to the query, with their cosine similarity, best first.

        A graph or an approximate comparison proposes them, so the recall is slightly below 1. Passages that are not yet
        in the graph are compared one by one. Unless `exact`, scores may be rounded, see `scan_vectors`. Returns None if
        a full scan is cheaper, or if the engine can only scan.
        """

    def vector_usage(self) -> VectorUsage:
        """How the vectors are held in memory."""

    def search_keywords(self, query: str, among: PassageIds | None = None) -> KeywordScores:
        """Every passage, or those in `among`, that shares a word with the query, with its BM25 score.

        Words are compared stemmed, without case and accents. Stop words of the query are ignored, and runs of CJK
        characters match by bigrams. Scores are relative to the score of the query's own text, 0 to 1. The weights of
        words come from the searched passages only, so passages outside the search do not affect scores. Words of
        neighbouring passages count in part if there is evidence for it, see `keyword_context`. Any text is a valid
        query: no character has a special meaning. A collection without `words` returns nothing. `among` must ascend.
        """

    def save_snapshot(self) -> datetime | None:
        """Writes a snapshot of the graph now, and returns its time; None if there is no graph. Blocks.

        Where no graph can be, the snapshots of a former one are removed.

        Raises StorageFullError or StorageFailedError if it could not be written. The graph stays in use.
        """

    def locate_passages(self, passage_ids: Sequence[int]) -> list[PassageLocation]:
        """Where these passages are, in the given order, without those that no longer exist. Passage ids are never
        reused.
        """

    def read_excerpts(self, passage_ids: Sequence[int], *, metadata_keys: Sequence[str] = ()) -> dict[int, Excerpt]:
        """The texts of these passages by id, without those that no longer exist. Does not load whole documents."""

    def changes_after(self, sequence: int, *, limit: int) -> list[DocumentChange]:
        """The documents whose newest change is later than `sequence`, oldest change first, with vectors.

        Each document appears once, with its newest change. A deleted document appears until `forget_deletions`.
        """

    def count_changes_after(self, sequence: int) -> int:
        """The number of documents that `changes_after` would return without a limit."""

    def index_position(self, index: str) -> IndexPosition:
        """How far the index with this name has been updated; the default if that was never recorded."""

    def set_index_position(self, index: str, position: IndexPosition) -> Future[None]:
        """Records how far the index has been updated. Deletions up to there are no longer kept for it."""

    def index_removals(self, index: str) -> int:
        """The number of documents removed or replaced since the index was first filled, which its server's files may
        still contain.

        Each is counted in the transaction that removes it, for every index with a recorded position.
        """

    def stats(self) -> RecordStats:
        """How much is stored. Counts hidden documents, but not their passages."""

    def removals_pending(self) -> int:
        """The number of removed or replaced records, in all collections, that the vault's files may still contain.

        They are erased within seconds, unless a longer read is in progress. Indexes have their own count.
        """

    def subscribe(self, on_commit: Callable[[], None]) -> Callable[[], None]:
        """Calls `on_commit` after every commit, on a thread of the engine. It must not block. Returns a function that
        ends it.
        """

    def failure(self) -> str | None:
        """Why writes are refused, as a sentence for clients; None if they are accepted."""

    def recover(self) -> None:
        """Reopens the vault after a failure; reads wait meanwhile. After a full disk, tries to write again.

        Raises:
            StorageFailedError: the disk still fails.
            StorageFullError: it is still full.
        """


class RecordTransaction(DocumentReader, Protocol):
    """One collection within a running transaction. Reads see committed data and the transaction's own writes.

    The methods do the same as those of RecordEngine, but immediately. Requests belong to the transaction: those of its
    writes must be None.
    """

    def count_all(self) -> int:
        """The number of documents that are not hidden, also of those outside of a caller's bounds: a limit of the vault
        holds for all.
        """

    def put_document(self, write: DocumentWrite) -> WriteReceipt:
        """See RecordEngine."""

    def update_document(self, update: DocumentUpdate) -> WriteReceipt:
        """See RecordEngine."""

    def delete_document(
        self, doc_id: str, *, change: ChangeType | None, details: str = "", visible: Visible | None = None
    ) -> WriteReceipt:
        """See RecordEngine. If `change` is None, nothing is logged."""

    def delete_documents(
        self, where: RecordFilter, *, change: ChangeType | None, details: str = ""
    ) -> BulkDeleteReceipt:
        """See RecordEngine. If `change` is None, nothing is logged."""
