"""The write operations of one collection, which run on the writer's thread within its transaction."""

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TypeVar

import apsw

from mnemon_server.domain.errors import MnemonError
from mnemon_server.domain.history import Author, HistorySettings
from mnemon_server.domain.records import BulkDeleteReceipt, RequestKey, WriteReceipt
from mnemon_server.engines.promises.related import RelatedDocuments, RelatedQuery
from mnemon_server.engines.promises.values import DocumentWrite, IndexPosition, RecordStats
from mnemon_server.engines.sqlite import journal, requests
from mnemon_server.engines.sqlite.connections import Connections
from mnemon_server.engines.sqlite.document_writes import DocumentWrites, Effects
from mnemon_server.engines.sqlite.documents import DocumentTable
from mnemon_server.engines.sqlite.follower import Follower
from mnemon_server.engines.sqlite.history import History
from mnemon_server.engines.sqlite.journal import Journal, Operation
from mnemon_server.engines.sqlite.passage_map import PassageMap
from mnemon_server.engines.sqlite.tables import stored_heads
from mnemon_server.engines.sqlite.vector_blocks import VectorPacking
from mnemon_server.engines.sqlite.vectors import VectorScanner
from mnemon_server.ranking.heads import Heads

R = TypeVar("R", WriteReceipt, BulkDeleteReceipt)

LOADED_TOGETHER_MIN = 100_000
"""With this many passages, vectors and the passages of each document are loaded at the same time. With fewer, a
further connection takes longer than it saves.
"""


class Mutations(Follower):
    """The writes of one collection, and their effects on counts and searches.

    Effects on counts, searches and the log are held back until the call has succeeded.
    """

    vectors: VectorScanner
    passages: PassageMap
    heads: Heads

    def __init__(
        self,
        table: DocumentTable,
        journal: Journal,
        connections: Connections,
        open_vectors: Callable[[apsw.Connection], VectorScanner],
        versions: "tuple[Mutations, HistorySettings] | None" = None,
    ) -> None:
        """`versions` says where earlier versions are kept, and how many; None keeps none."""
        self.table = table
        self._versions: Mutations | None = None
        history = None
        if versions is not None:
            self._versions, kept = versions
            history = History(table, self._versions.writes, journal, kept)
        self.writes: DocumentWrites = DocumentWrites(table, journal, history)
        self._journal = journal
        self._connections = connections
        self._removals = connections.removals
        self._open_vectors = open_vectors
        self.stats = RecordStats(0, 0, 0)
        self._sequence = self._documents_added = 0

    # Calls with a single write

    def put(self, connection: apsw.Connection, write: DocumentWrite, digest: bytes) -> WriteReceipt:
        """See RecordEngine.put_document."""
        return self.once(connection, write.request, WriteReceipt, partial(self.writes.put, write=write, digest=digest))

    def put_each(
        self, connection: apsw.Connection, writes: Sequence[DocumentWrite], digests: Sequence[bytes]
    ) -> list[WriteReceipt | Exception]:
        """See RecordEngine.put_documents. Consecutive new documents are written together.

        Raises an exception if a write fails after it has written.
        """
        asked = [write.request for write in writes if write.request is not None]
        answered = {*requests.stored_answers(connection, asked, self._journal.now())}
        existing = self.table.existing(connection, [write.document.doc_id for write in writes])
        results: list[WriteReceipt | Exception] = []
        new: list[tuple[DocumentWrite, bytes]] = []
        for write, digest in zip(writes, digests, strict=True):
            request_id = write.request.stored_id if write.request else ""
            is_new = write.document.doc_id not in existing and not write.expected_revision
            if is_new and request_id not in answered:
                new.append((write, digest))
            else:
                results += self._create(connection, new)
                new = []
                results.append(self._attempt(connection, write, digest))
            existing.add(write.document.doc_id)
            if request_id:
                answered.add(request_id)
        return results + self._create(connection, new)

    def _create(self, connection: apsw.Connection, new: Sequence[tuple[DocumentWrite, bytes]]) -> list[WriteReceipt]:
        """Stores documents that do not exist, each as a call of its own."""
        if not new:
            return []
        operation = self._journal.begin(None, apart=True)
        effects = self.begin(operation)
        receipts = self.writes.create(connection, effects, new)
        answers = [
            (write.request, requests.receipt_to_answer(receipt))
            for (write, _), receipt in zip(new, receipts, strict=True)
            if write.request is not None
        ]
        requests.store_answers(connection, answers, operation.now)
        self.stage(effects)
        self._journal.stage(operation)
        return receipts

    def _attempt(self, connection: apsw.Connection, write: DocumentWrite, digest: bytes) -> WriteReceipt | Exception:
        written = connection.total_changes()
        try:
            return self.put(connection, write, digest)
        except MnemonError as error:
            if connection.total_changes() != written:
                raise
            return error

    def once(
        self,
        connection: apsw.Connection,
        request: RequestKey | None,
        kind: type[R],
        perform: Callable[[apsw.Connection, Effects], R],
        author: Author | None = None,
    ) -> R:
        """The receipt of a call, of the given kind. A repeated request has no effect, and gets its first receipt.

        Raises:
            RequestIdReusedError: the id was used for another request.
        """
        operation = self._journal.begin(request, author=author)
        if (answer := requests.stored_answer(connection, request, operation.now)) is not None:
            return requests.receipt_from_answer(kind, answer)
        effects = self.begin(operation)
        receipt = perform(connection, effects)
        if request is not None:
            requests.store_answer(connection, request, requests.receipt_to_answer(receipt), operation.now)
        self.stage(effects)
        self._journal.stage(operation)
        return receipt

    # Parts of a call

    def begin(self, operation: Operation) -> Effects:
        """Starts a call, without effects so far."""
        versions = None if self._versions is None else self._versions.begin(operation)
        return Effects(operation, self._sequence, versions=versions)

    def stage(self, effects: Effects) -> None:
        """Stages the effects of a call that has succeeded. The journal stages its log entries."""
        self.is_touched = True
        passages = effects.passages
        self.vectors.stage(passages.added, passages.vectors, passages.removed)
        self.passages.stage(passages.runs)
        self._removals.stage(records=effects.removed)
        self._documents_added += effects.documents_added
        # A call may change versions itself, and through the documents that they are of.
        self._sequence = max(self._sequence, effects.sequence)
        if self._versions is not None and effects.versions is not None:
            self._versions.stage(effects.versions)

    def related(self, connection: apsw.Connection, query: RelatedQuery) -> RelatedDocuments:
        """See RecordEngine.related_documents. Uses what the connection sees."""
        if self.table.related is None:
            raise ValueError(f"documents of {self.table.tables.collection.name!r} have no related fields")
        return self.table.related.find(connection, self.vectors.scan_stored, query)

    def set_index_position(self, connection: apsw.Connection, index: str, position: IndexPosition) -> None:
        """See RecordEngine.set_index_position."""
        journal.set_position(connection, self.table.tables, index, position)
        self.writes.followed = True

    def vector_packing(self, dimension: int) -> VectorPacking:
        """Packs the vectors of `dimension` components. Call its methods once the state is loaded."""
        return VectorPacking(self.table.tables, dimension, lambda: self.vectors.origin)

    # With the transactions; see Follower

    def load(self, connection: apsw.Connection) -> None:
        """Loads the stored state."""
        self.is_touched = False
        tables = self.table.tables
        self.heads = stored_heads(connection)
        self.stats = journal.stats(connection, tables)
        self._sequence, self._documents_added = self.stats.sequence, 0
        self.writes.followed = journal.is_followed(connection, tables)
        if self.stats.passage_count < LOADED_TOGETHER_MIN:
            self.vectors, self.passages = self._open_vectors(connection), PassageMap(tables, connection)
            return
        with ThreadPoolExecutor(1, "passage-loader") as loader:
            passages = loader.submit(self._read_passages)
            self.vectors = self._open_vectors(connection)
            self.passages = passages.result()

    def _read_passages(self) -> PassageMap:
        with self._connections.lend() as connection:
            return PassageMap(self.table.tables, connection)

    def before_commit(self, connection: apsw.Connection) -> None:
        """Stores the position of the newest change."""
        if self._sequence != self.stats.sequence:
            journal.set_last_sequence(connection, self.table.tables, self._sequence)

    def after_commit(self) -> None:
        """Publishes the staged effects."""
        passages_added = self.vectors.publish()
        self.passages.publish()
        if self._sequence != self.stats.sequence:
            self.stats = RecordStats(
                self.stats.document_count + self._documents_added,
                self.stats.passage_count + passages_added,
                self._sequence,
            )
            self._documents_added = 0
        self.is_touched = False

    def after_rollback(self) -> None:
        """Discards the staged effects."""
        self.is_touched = False
        self._sequence, self._documents_added = self.stats.sequence, 0
        self.vectors.discard()
        self.passages.discard()
