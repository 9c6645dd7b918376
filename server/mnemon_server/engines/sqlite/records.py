"""The record engine on SQLite: one file, one writer, readers beside it."""

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from pathlib import Path

import apsw

from mnemon_server.domain.clock import Clock, from_microseconds, system_clock, to_microseconds
from mnemon_server.domain.documents import Document
from mnemon_server.domain.encoding import document_digest
from mnemon_server.domain.errors import EmbeddingModelMismatchError, RevisionMismatchError, StorageFailedError
from mnemon_server.domain.filters import RecordFilter
from mnemon_server.domain.records import BulkDeleteReceipt, RequestKey, WriteOutcome, WriteReceipt
from mnemon_server.engines.base import (
    DocumentChange,
    DocumentWrite,
    IndexPosition,
    PassageIds,
    PassageLocation,
    RecordStats,
    Scores,
    Vector,
)
from mnemon_server.engines.folder import FolderLock
from mnemon_server.engines.sqlite import changes, documents, keyword_index, requests
from mnemon_server.engines.sqlite.query import fetch, id_array
from mnemon_server.engines.sqlite.readers import ReaderPool
from mnemon_server.engines.sqlite.schema import close_quietly, open_reader, open_writer
from mnemon_server.engines.sqlite.vectors import VectorScanner
from mnemon_server.engines.sqlite.writer import Writer


class SQLiteRecordEngine:
    """Keeps everything in `records.db` of a folder that this process holds alone."""

    def __init__(
        self,
        folder: Path,
        *,
        model_identity: str,
        dimension: int,
        clock: Clock = system_clock,
        vector_cache_bytes_max: int = 256 << 20,
        vfs: str | None = None,
    ) -> None:
        """Opens the folder, creating what is missing.

        Args:
            folder: where `records.db` lies; created with mode 0700.
            model_identity: the embedding model of all vectors here.
            dimension: components of a vector.
            clock: the time of commits and of the lifetime of request ids.
            vector_cache_bytes_max: vectors are held in memory up to this size, and read from the file beyond it.
            vfs: the file layer: the name of a registered SQLite VFS; the operating system's where None.

        Raises:
            ConfigurationError: another process holds the folder, the file is not ours, or its format is newer.
            EmbeddingModelMismatchError: the vectors stored here are another model's.
            StorageFailedError: the file cannot be read.
        """
        self._clock = clock
        self._path = folder / "records.db"
        self._vfs = vfs
        self._model_identity = model_identity
        self._dimension = dimension
        self._cache_bytes_max = vector_cache_bytes_max
        self._listeners: list[Callable[[], None]] = []
        self._recovering = threading.Lock()
        self._lock = FolderLock(folder)
        try:
            self._open()
        except BaseException:
            self._lock.close()
            raise

    # Writes

    def put_document(self, write: DocumentWrite) -> Future[WriteReceipt]:
        """See RecordEngine."""
        digest = document_digest(write.document)
        return self._writer.submit(lambda connection: self._put(connection, write, digest))

    def delete_document(
        self, doc_id: str, *, request: RequestKey | None = None, expected_revision: int | None = None
    ) -> Future[WriteReceipt]:
        """See RecordEngine."""
        return self._writer.submit(lambda connection: self._delete(connection, doc_id, request, expected_revision))

    def delete_documents(self, where: RecordFilter, *, request: RequestKey | None = None) -> Future[BulkDeleteReceipt]:
        """See RecordEngine."""
        return self._writer.submit(lambda connection: self._delete_matching(connection, where, request))

    def set_index_position(self, index: str, position: IndexPosition) -> Future[None]:
        """See RecordEngine."""
        return self._writer.submit(lambda connection: changes.set_position(connection, index, position))

    # Reads

    def get_documents(self, doc_ids: Sequence[str], *, vectors: bool = False) -> list[Document | None]:
        """See RecordEngine."""
        marks = ", ".join("?" * len(doc_ids))
        with self._readers.lend() as connection:
            rows = documents.select(connection, f"id IN ({marks})", tuple(doc_ids), vectors=vectors)
        found = {document.doc_id: document for _, _, document in rows}
        return [found.get(doc_id) for doc_id in doc_ids]

    def list_documents(
        self, where: RecordFilter, *, after: int = 0, limit: int, vectors: bool = False
    ) -> list[tuple[int, Document]]:
        """See RecordEngine."""
        condition, parameters = documents.where_clause(where)
        condition = f"{condition} AND position > ? ORDER BY position LIMIT ?"
        with self._readers.lend() as connection:
            rows = documents.select(connection, condition, (*parameters, after, limit), vectors=vectors)
        return [(position, document) for position, _, document in rows]

    def count_documents(self, where: RecordFilter) -> int:
        """See RecordEngine."""
        condition, parameters = documents.where_clause(where)
        with self._readers.lend() as connection:
            statement = f"SELECT count(*) FROM document WHERE {condition}"  # noqa: S608 - values are bound
            return int(connection.execute(statement, parameters).get)

    def has_metadata_key(self, key: str) -> bool:
        """See RecordEngine."""
        with self._readers.lend() as connection:
            statement = "SELECT EXISTS (SELECT 1 FROM document_metadata WHERE key = ?)"
            return bool(connection.execute(statement, (key,)).get)

    def match_passages(self, where: RecordFilter) -> PassageIds:
        """See RecordEngine."""
        with self._readers.lend() as connection:
            return documents.matching_passages(connection, where)

    def scan_vectors(self, query: Vector, among: PassageIds | None = None) -> Scores:
        """See RecordEngine."""
        return self._vectors.scan(query, among)

    def search_keywords(self, query: str, among: PassageIds | None = None) -> Scores:
        """See RecordEngine."""
        with self._readers.lend() as connection:
            return Scores(*keyword_index.search(connection, query, among))

    def locate_passages(self, passage_ids: Sequence[int]) -> list[PassageLocation]:
        """See RecordEngine."""
        with self._readers.lend() as connection:
            rows = fetch(
                connection,
                "SELECT p.id, d.id, p.ordinal, p.start, p.stop FROM carray(?) AS wanted CROSS JOIN passage AS p"
                " ON p.id = wanted.value CROSS JOIN document AS d ON d.position = p.position",
                (id_array(passage_ids),),
            )
        found = {row[0]: PassageLocation(*row) for row in rows}
        return [found[passage_id] for passage_id in passage_ids if passage_id in found]

    def changes_after(self, sequence: int, *, limit: int) -> list[DocumentChange]:
        """See RecordEngine."""
        with self._readers.lend() as connection:
            return changes.after(connection, sequence, limit)

    def count_changes_after(self, sequence: int) -> int:
        """See RecordEngine."""
        with self._readers.lend() as connection:
            return changes.count_after(connection, sequence)

    def index_position(self, index: str) -> IndexPosition:
        """See RecordEngine."""
        with self._readers.lend() as connection:
            return changes.position(connection, index)

    def stats(self) -> RecordStats:
        """See RecordEngine."""
        return self._stats

    def subscribe(self, on_commit: Callable[[], None]) -> Callable[[], None]:
        """See RecordEngine."""
        self._listeners = [*self._listeners, on_commit]
        return lambda: self._listeners.remove(on_commit)

    # Life

    def failure(self) -> str | None:
        """See RecordEngine."""
        return self._writer.failure

    def recover(self) -> None:
        """See RecordEngine."""
        with self._recovering:
            if self._writer.failure is None:
                return
            self._readers.close()
            self._writer.close()
            self._open()

    def close(self) -> None:
        """See RecordEngine."""
        # The writer goes last: the last connection to go tidies the log away, and only it may write.
        self._readers.close()
        self._writer.close()
        self._lock.close()

    def _open(self) -> None:
        try:
            connection = open_writer(self._path, self._vfs)
        except apsw.Error as error:
            raise StorageFailedError("records.db cannot be opened; the log says why") from error
        try:
            # What a failed sync left in the page cache alone reaches the disk here, before anything is built on it.
            connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)
            _check_model(connection, self._model_identity)
            self._stats = changes.stats(connection)
            self._sequence, self._documents_added = self._stats.sequence, 0
            self._readers = ReaderPool(lambda: open_reader(self._path, self._vfs))
            self._vectors = VectorScanner(self._readers, connection, self._dimension, self._cache_bytes_max)
        except apsw.Error as error:
            close_quietly(connection)
            raise StorageFailedError("records.db cannot be read; the log says why") from error
        except BaseException:
            close_quietly(connection)
            raise
        self._writer = Writer(
            connection,
            before_commit=self._before_commit,
            after_commit=self._after_commit,
            after_rollback=self._after_rollback,
        )

    # On the writer's thread, inside its transaction

    def _before_commit(self, connection: apsw.Connection) -> None:
        if self._sequence != self._stats.sequence:
            changes.set_last_sequence(connection, self._sequence)
        requests.forget_expired(connection, self._now())

    def _after_commit(self) -> None:
        passages_added = self._vectors.publish()
        self._stats = RecordStats(
            self._stats.document_count + self._documents_added,
            self._stats.passage_count + passages_added,
            self._sequence,
        )
        self._documents_added = 0
        for listener in self._listeners:
            listener()

    def _after_rollback(self) -> None:
        self._sequence, self._documents_added = self._stats.sequence, 0
        self._vectors.discard()

    def _now(self) -> int:
        return to_microseconds(self._clock())

    def _put(self, connection: apsw.Connection, write: DocumentWrite, digest: bytes) -> WriteReceipt:
        now = self._now()
        if (answer := requests.stored_answer(connection, write.request, now)) is not None:
            return requests.receipt_from_answer(answer)
        doc_id = write.document.doc_id
        found = documents.find(connection, doc_id)
        _check_revision(doc_id, write.expected_revision, found.revision if found else 0)
        added: list[int] = []
        removed: list[int] = []
        if found and found.digest == digest:
            receipt = _receipt(doc_id, WriteOutcome.UNCHANGED, found.revision, now, found.sequence)
        else:
            receipt, added, removed = self._store(connection, write, digest, found, now)
        requests.store_answer(connection, write.request, requests.receipt_to_answer(receipt), now)
        self._vectors.stage(added, [passage.vector for passage in write.passages] if added else [], removed)
        self._documents_added += receipt.outcome is WriteOutcome.CREATED
        return receipt

    def _store(
        self,
        connection: apsw.Connection,
        write: DocumentWrite,
        digest: bytes,
        found: documents.Found | None,
        now: int,
    ) -> tuple[WriteReceipt, list[int], list[int]]:
        """The receipt, and the passages added and removed."""
        self._sequence += 1
        removed: list[int] = []
        if found is None:
            added = documents.insert(connection, write, digest, self._sequence, now)
        else:
            removed, added = documents.replace(connection, found.position, write, digest, self._sequence, now)
        outcome = WriteOutcome.REPLACED if found else WriteOutcome.CREATED
        revision = found.revision + 1 if found else 1
        return _receipt(write.document.doc_id, outcome, revision, now, self._sequence), added, removed

    def _delete(
        self, connection: apsw.Connection, doc_id: str, request: RequestKey | None, expected_revision: int | None
    ) -> WriteReceipt:
        now = self._now()
        if (answer := requests.stored_answer(connection, request, now)) is not None:
            return requests.receipt_from_answer(answer)
        found = documents.find(connection, doc_id)
        _check_revision(doc_id, expected_revision, found.revision if found else 0)
        removed: list[int] = []
        if found is None:
            receipt = _receipt(doc_id, WriteOutcome.MISSING, 0, now, self._sequence)
        else:
            removed = self._remove(connection, doc_id, found.position)
            receipt = _receipt(doc_id, WriteOutcome.DELETED, found.revision, now, self._sequence)
        requests.store_answer(connection, request, requests.receipt_to_answer(receipt), now)
        self._vectors.stage([], [], removed)
        self._documents_added -= receipt.outcome is WriteOutcome.DELETED
        return receipt

    def _delete_matching(
        self, connection: apsw.Connection, where: RecordFilter, request: RequestKey | None
    ) -> BulkDeleteReceipt:
        now = self._now()
        if (answer := requests.stored_answer(connection, request, now)) is not None:
            return requests.bulk_from_answer(answer)
        condition, parameters = documents.where_clause(where)
        statement = f"SELECT id, position FROM document WHERE {condition}"  # noqa: S608 - values are bound
        rows = fetch(connection, statement, parameters)
        removed = [passage for row in rows for passage in self._remove(connection, *row)]
        receipt = BulkDeleteReceipt(len(rows), sequence=self._sequence)
        requests.store_answer(connection, request, requests.bulk_to_answer(receipt), now)
        self._vectors.stage([], [], removed)
        self._documents_added -= len(rows)
        return receipt

    def _remove(self, connection: apsw.Connection, doc_id: str, position: int) -> list[int]:
        self._sequence += 1
        removed = documents.delete(connection, position)
        documents.remember_deletion(connection, doc_id, self._sequence)
        return removed


def _receipt(doc_id: str, outcome: WriteOutcome, revision: int, now: int, sequence: int) -> WriteReceipt:
    return WriteReceipt(doc_id, outcome, revision, from_microseconds(now), sequence=sequence)


def _check_revision(doc_id: str, expected: int | None, actual: int) -> None:
    if expected is not None and expected != actual:
        raise RevisionMismatchError(doc_id, expected, actual)


def _check_model(connection: apsw.Connection, identity: str) -> None:
    """Records the model of a new store; refuses to open a store of another model."""
    with connection:
        connection.execute("INSERT OR IGNORE INTO meta (key, value) VALUES ('embedding_model', ?)", (identity,))
        stored = connection.execute("SELECT value FROM meta WHERE key = 'embedding_model'").get
    if stored != identity:
        raise EmbeddingModelMismatchError(
            f"the vectors stored here were made by {stored}, and the configured model is {identity}: configure the "
            "former again, or embed everything anew with `mnemon-server reembed`"
        )
