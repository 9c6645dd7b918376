"""A vector index in a Chroma collection, hosted by a child process that may crash without harm."""

from collections.abc import Sequence

import numpy as np

from mnemon_server.domain.collections import index_name_problem
from mnemon_server.domain.errors import ConfigurationError
from mnemon_server.domain.filters import RecordFilter
from mnemon_server.engines.chroma.heartbeat import Heartbeat
from mnemon_server.engines.chroma.protocol import Opened, OpenRequest, Operation
from mnemon_server.engines.chroma.records import chunks, to_record, to_similarity, to_where
from mnemon_server.engines.chroma.settings import ChromaSettings
from mnemon_server.engines.chroma.supervisor import Environment, Supervisor
from mnemon_server.engines.promises.values import Scores, Vector
from mnemon_server.engines.promises.vector_index import IndexEntry, IndexState

_CHUNK = 256  # entries or deleted documents per request: a second of work, for prompt closing and timeouts


class ChromaIndex:
    """A `VectorIndex` in a ChromaDB collection, embedded or on a server.

    This process never imports chromadb. After a BackendConnectionError, call `open` and compare generations before
    continuing: a call does not repeat work that may be half done, and does not silently open a different collection.
    """

    def __init__(
        self,
        settings: ChromaSettings,
        *,
        collection: str,
        dimension: int,
        model_identity: str,
        environment: Environment | None = None,
    ) -> None:
        """Does not connect yet.

        Args:
            settings: where the collection is.
            collection: name of the collection.
            dimension: number of components of a vector.
            model_identity: the embedding model's identity; a collection of another model is refused.
            environment: clock, randomness and other dependencies.

        Raises:
            ConfigurationError: ChromaDB refuses the name of the collection.
        """
        if problem := index_name_problem(collection):
            raise ConfigurationError(f"the collection name {collection!r} is invalid; it {problem}")
        request = OpenRequest(
            collection=collection,
            dimension=dimension,
            model_identity=model_identity,
            new_generation="",
            path="" if settings.path is None else str(settings.path.absolute()),
            lock_wait_s=settings.lock_wait_s,
            host=settings.host,
            port=settings.port,
            ssl=settings.ssl,
        )
        self._collection, self._dimension = collection, dimension
        self._supervisor = Supervisor(
            request,
            settings=settings,
            environment=environment or Environment(),
        )
        self._heartbeat = Heartbeat(request.url, self.host) if settings.host else None

    @property
    def name(self) -> str:
        """The key under which the position of this index is stored."""
        return f"chroma:{self._collection}@{self.host}"

    @property
    def host(self) -> str:
        """The address, or "embedded"."""
        return self._supervisor.place

    @property
    def belongs_to_records(self) -> bool:
        """Whether the index is embedded; a server's collection may have other users."""
        return self._supervisor.is_embedded

    @property
    def child_pid(self) -> int | None:
        """The process id of the child that hosts Chroma's client, if it is running."""
        return self._supervisor.child_pid

    def open(self) -> IndexState:
        """Connects, creates what is missing, and checks a sample. A damaged folder is moved to `quarantine` beside it.

        Raises:
            BackendConnectionError: the server or the child does not answer.
            EmbeddingModelMismatchError: the collection has vectors of another model.
            ConfigurationError: the collection has records of another program.
        """
        return _state(self._supervisor.open())

    def apply(self, entries: Sequence[IndexEntry], deleted_doc_ids: Sequence[str]) -> None:
        """Makes the index contain exactly `entries` for their documents, and nothing for the deleted ones."""
        for part in chunks(entries, _CHUNK):
            vectors = np.stack([entry.vector for entry in part]).astype("<f4", copy=False)
            doc_ids = list(dict.fromkeys(entry.doc_id for entry in part))
            self._replace(doc_ids, [to_record(entry) for entry in part], vectors)
        for start in range(0, len(deleted_doc_ids), _CHUNK):
            self._replace(list(deleted_doc_ids[start : start + _CHUNK]), [], np.empty((0, self._dimension), np.float32))

    def search(self, query: Vector, *, limit: int, equal: RecordFilter) -> Scores:
        """Up to `limit` passages close to the query that match the filter, nearest first. Approximate."""
        if limit <= 0:
            return Scores(np.empty(0, np.int64), np.empty(0, np.float64))
        payload = np.ascontiguousarray(query, "<f4").tobytes()
        header, found = self._supervisor.search({"limit": limit, "where": to_where(equal)}, payload)
        count: int = header["count"]
        passage_ids = np.frombuffer(found, "<i8", count).astype(np.int64)
        distances = np.frombuffer(found, "<f4", count, offset=8 * count)
        return Scores(passage_ids, to_similarity(distances, header["space"]))

    def ping(self) -> None:
        """Returns once the server has answered. The files of an embedded index always do.

        It bypasses the child process, whose threads may all be waiting for the server.
        """
        if self._heartbeat is not None:
            self._heartbeat.ask()

    def reset(self) -> IndexState:
        """Empties the index under a new generation.

        For an embedded index, all files are deleted, including those in quarantine. A server drops the collection, but
        keeps its texts and vectors in its own files, which only the operator of that server can erase.
        """
        return _state(self._supervisor.reset())

    def close(self) -> None:
        """Shuts the child down cleanly. Further calls have no effect."""
        self._supervisor.close()

    def _replace(self, doc_ids: list[str], records: list[dict[str, object]], vectors: Vector) -> None:
        self._supervisor.call(Operation.APPLY, {"doc_ids": doc_ids, "records": records}, vectors.tobytes())


def _state(opened: Opened) -> IndexState:
    return IndexState(opened.generation, opened.entry_count)
