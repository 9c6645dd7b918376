"""What a collection of records promises."""

from collections.abc import Callable, Sequence
from concurrent.futures import Future
from datetime import datetime
from typing import Protocol

from mnemon_server.domain.changes import ChangeType
from mnemon_server.domain.documents import Document
from mnemon_server.domain.filters import RecordFilter
from mnemon_server.domain.records import BulkDeleteReceipt, FilterValue, RequestKey, WriteReceipt
from mnemon_server.engines.promises.related import RelatedDocuments, RelatedQuery
from mnemon_server.engines.promises.values import (
    DocumentChange,
    DocumentUpdate,
    DocumentWrite,
    Excerpt,
    FieldsOnly,
    Fits,
    IndexPosition,
    PassageIds,
    PassageLocation,
    RecordStats,
    Scores,
    Vector,
    VectorUsage,
)


class RecordEngine(Protocol):
    """One collection of a vault: documents, their passages, vectors and words.

    Any thread may call any method. Reads block, see everything acknowledged before they began, and each one sees a
    single moment. Writes return a future at once and are atomic: a document, its passages, vectors, words, change and
    request id are all there or none is. When a write's future holds a result, the write is on stable storage (where
    the engine has one) and every read that begins later sees it. Writes take effect in the order of their calls.

    The future of a write raises
        RevisionMismatchError: `expected_revision` is not the record's; to put, 0 stands for "does not exist", and to
            update or delete, what does not exist is MISSING whatever is expected;
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
        """Changes the document as `update` says; outcome MISSING, with revision 0, if it does not exist.

        Outcome REPLACED, or UNCHANGED as above. A document that becomes hidden leaves every search at once, and comes
        back, under new passage ids, when it is not hidden any more. The change names the fields that changed, metadata
        keys as "metadata.key".
        """

    def delete_document(
        self,
        doc_id: str,
        *,
        request: RequestKey | None = None,
        expected_revision: int | None = None,
        change: ChangeType = ChangeType.KNOWLEDGE_DELETED,
    ) -> Future[WriteReceipt]:
        """Removes a document for good, from the keyword index too; outcome MISSING if it does not exist."""

    def delete_documents(
        self,
        where: RecordFilter,
        *,
        request: RequestKey | None = None,
        change: ChangeType = ChangeType.KNOWLEDGE_DELETED,
    ) -> Future[BulkDeleteReceipt]:
        """Removes every document that matches, in one transaction; their events share one commit."""

    def get_documents(
        self,
        doc_ids: Sequence[str],
        *,
        vectors: bool = False,
        fields_only: FieldsOnly = False,
        fits: Fits | None = None,
    ) -> list[Document | None]:
        """The documents with these ids, hidden ones too, in their order; None for each that does not exist.

        With `fields_only`, see there, they come without content, metadata and, but for `vectors`, passages. `fits` is
        asked once about each that is there, in the order of the ids; what it turns down is None, too. The size is that
        of what would be read.
        """

    def list_documents(
        self,
        where: RecordFilter,
        *,
        after: int = 0,
        limit: int,
        skip: int = 0,
        vectors: bool = False,
        descending: bool = False,
        fields_only: FieldsOnly = False,
        fits: Fits | None = None,
    ) -> list[tuple[int, Document]]:
        """Up to `limit` documents that match, each with its position, in the order of first indexing.

        `after` is the position of the last one seen; 0 where none was. Replacing a document does not move it, so that
        pages neither repeat nor skip a document that was there throughout. `skip`: so many that match are passed over
        first. `descending`: in the opposite order. The first document that does not fit ends the run.
        """

    def distinct_texts(self, field: str, *, after: str = "", limit: int) -> list[str]:
        """Up to `limit` different texts behind `after` that an indexed field of text holds, by code point, ascending.

        Hidden documents, and empty texts, do not count. It costs about as much as there are texts, however many
        documents share one.
        """

    def count_documents(self, where: RecordFilter) -> int:
        """How many documents match."""

    def has_metadata_key(self, key: str, *, like: FilterValue | None = None) -> bool:
        """Whether any document carries this key; with `like`, under it a value of just the type of that one."""

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

        Raises StorageFullError or StorageFailedError where it could not be written; the graph goes on.
        """

    def locate_passages(self, passage_ids: Sequence[int]) -> list[PassageLocation]:
        """Where these passages are, in their order; those that are gone are left out. Ids are never used again."""

    def read_excerpts(self, passage_ids: Sequence[int], *, metadata_keys: Sequence[str] = ()) -> dict[int, Excerpt]:
        """What these passages say, by id; those that are gone are left out. No document is read into memory whole."""

    def changes_after(self, sequence: int, *, limit: int) -> list[DocumentChange]:
        """The documents whose newest change came after `sequence`, oldest change first, with vectors.

        A document that changed several times is there once; one that was deleted is there until `forget_deletions`.
        """

    def count_changes_after(self, sequence: int) -> int:
        """How many documents `changes_after` would give without a limit."""

    def index_position(self, index: str) -> IndexPosition:
        """How far the index of this name has come; the default where it was never set."""

    def set_index_position(self, index: str, position: IndexPosition, *, emptied: bool = False) -> Future[None]:
        """Remembers how far the index has come; deletions up to there need not be kept for it.

        `emptied`: and that nothing is in its files of what was removed before.
        """

    def index_removals(self, index: str) -> int:
        """How many documents were removed or replaced since the index was last empty, and may be in its files.

        Each is counted in the transaction that removes it, for every index whose position was ever set.
        """

    def stats(self) -> RecordStats:
        """How much is stored; hidden documents count, their passages do not."""

    def removals_pending(self) -> int:
        """Records of the vault, of all collections, that were removed or replaced and may be in its files still.

        That is a matter of seconds, unless somebody has been reading for longer. Indexes count their own.
        """

    def subscribe(self, on_commit: Callable[[], None]) -> Callable[[], None]:
        """Calls `on_commit` after every commit, on a thread of the engine's; must not block. Returns what ends it."""

    def failure(self) -> str | None:
        """Why writes are not accepted, as a sentence for clients; None while they are."""

    def recover(self) -> None:
        """Opens the vault anew after a failure; does nothing if there was no failure. Reads wait meanwhile.

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

    def delete_document(self, doc_id: str, *, change: ChangeType | None, details: str = "") -> WriteReceipt:
        """See RecordEngine; with `change` None, the log says nothing of it."""

    def delete_documents(
        self, where: RecordFilter, *, change: ChangeType | None, details: str = ""
    ) -> BulkDeleteReceipt:
        """See RecordEngine; with `change` None, the log says nothing of it."""
