"""A vector index in a collection on a Chroma server."""

import logging
import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mnemon_server.domain.collections import index_name_problem
from mnemon_server.domain.errors import BackendConnectionError, ConfigurationError, EmbeddingModelMismatchError
from mnemon_server.domain.filters import RecordFilter
from mnemon_server.engines.chroma.client import BrokenOffError, ChromaClient, ChromaSettings, RefusedError
from mnemon_server.engines.chroma.records import (
    DIMENSION_KEY,
    DOC_ID_KEY,
    MODEL_KEY,
    PASSAGE_ID_KEY,
    chunks,
    to_record,
    to_similarity,
    to_where,
)
from mnemon_server.engines.promises.values import NO_SCORES, Scores, Vector
from mnemon_server.engines.promises.vector_index import IndexEntry, IndexState

_COLLECTIONS = "/tenants/default_tenant/databases/default_database/collections"
_CHUNK = 256
"""Entries or deleted documents per request: a second of work, for prompt closing and timeouts."""
_BATCH_MAX = 2_000
"""Records per request; Chroma allows some 5,000."""
# Link counts and beam widths with a recall above 0.99 on sentence embeddings. A wider construction beam halves the
# speed of indexing and gains nothing beyond the search beam.
_HNSW = {"space": "cosine", "max_neighbors": 16, "ef_construction": 100, "ef_search": 200}
_SAMPLE_BLOCKS = 5
_SAMPLE_BLOCK_SIZE = 4
_SELF_DISTANCE_MAX = 1e-3
_UNIT_TOLERANCE = 1e-2
_RESOURCE_ERRORS = ("disk is full", "no space left", "permission denied", "too many open files", "readonly database")

log = logging.getLogger(__name__)


class _DamagedError(Exception):
    """The collection cannot be searched. The message is for the log."""


@dataclass(frozen=True, slots=True)
class _Opened:
    id: str
    space: str

    @property
    def path(self) -> str:
        return f"{_COLLECTIONS}/{self.id}"


class ChromaIndex:
    """A `VectorIndex` in a collection of Chroma, which other programs may use, too.

    Chroma's id of the collection is the index's generation: a collection that is created again has another one, so a
    call never changes a collection that was not opened.
    """

    def __init__(self, settings: ChromaSettings, *, collection: str, dimension: int, model_identity: str) -> None:
        """Does not connect yet. A collection of another model is refused.

        Raises:
            ConfigurationError: ChromaDB refuses the name of the collection.
        """
        if problem := index_name_problem(collection):
            raise ConfigurationError(f"the collection name {collection!r} is invalid; it {problem}")
        self._settings = settings
        self._collection = collection
        self._dimension = dimension
        self._marks: dict[str, str | int] = {MODEL_KEY: model_identity, DIMENSION_KEY: dimension}
        self._client = ChromaClient(settings)
        self._opened: _Opened | None = None

    @property
    def name(self) -> str:
        """The key under which the position of this index is stored."""
        return f"chroma:{self._collection}@{self.host}"

    @property
    def host(self) -> str:
        """The address."""
        return self._settings.place

    def open(self) -> IndexState:
        """Finds the collection, or creates it, and checks a sample. A damaged collection is replaced by an empty one.

        Raises:
            BackendConnectionError: the server does not answer.
            EmbeddingModelMismatchError: the collection has vectors of another model.
            ConfigurationError: the collection has records of another program.
        """
        with self._refusals():
            try:
                opened = self._find() or self._create()
                self._check(opened)
            except (_DamagedError, RefusedError) as error:
                if isinstance(error, RefusedError) and not _is_damage(error):
                    raise
                log.warning("the collection %r (%s) is damaged, and recreated: %s", self._collection, self.host, error)
                opened = self._recreate()
            self._opened = opened
            return self._state(opened)

    def apply(self, entries: Sequence[IndexEntry], deleted_doc_ids: Sequence[str]) -> None:
        """Makes the index contain exactly `entries` for their documents, and nothing for the deleted ones."""
        with self._refusals():
            opened = self._opened_before()
            for part in chunks(entries, _CHUNK):
                self._remove(opened, list(dict.fromkeys(entry.doc_id for entry in part)))
                for start in range(0, len(part), _BATCH_MAX):
                    self._upsert(opened, part[start : start + _BATCH_MAX])
            for start in range(0, len(deleted_doc_ids), _CHUNK):
                self._remove(opened, deleted_doc_ids[start : start + _CHUNK])

    def search(self, query: Vector, *, limit: int, equal: RecordFilter) -> Scores:
        """Up to `limit` passages close to the query that match the filter, nearest first. Approximate."""
        if limit <= 0:
            return NO_SCORES
        with self._refusals():
            opened = self._opened_before()
            found = self._query(
                opened, query, limit, ["metadatas", "distances"], to_where(equal), self._settings.search_timeout_s
            )
        pairs = [
            (metadata[PASSAGE_ID_KEY], distance)
            for metadata, distance in zip(found["metadatas"][0], found["distances"][0], strict=True)
            if metadata and PASSAGE_ID_KEY in metadata
        ]
        distances = np.array([distance for _, distance in pairs], np.float32)
        return Scores(np.array([passage for passage, _ in pairs], np.int64), to_similarity(distances, opened.space))

    def ping(self) -> None:
        """Returns once the server has answered. Raises BackendConnectionError."""
        self._client.ping()

    def reset(self) -> IndexState:
        """Drops the collection and creates an empty one.

        The server keeps its texts and vectors in its own files, which only its operator can erase.
        """
        with self._refusals():
            self._opened = self._recreate()
            return self._state(self._opened)

    def close(self) -> None:
        """Ends running calls. Further calls have no effect."""
        self._client.close()

    def _find(self) -> _Opened | None:
        try:
            found = self._call("GET", f"{_COLLECTIONS}/{self._collection}")
        except RefusedError as error:
            if error.status != HTTPStatus.NOT_FOUND:
                raise
            return None
        opened, marks = _opened(found), found["metadata"] or {}
        if MODEL_KEY not in marks:
            self._adopt(opened, marks)
        elif any(marks.get(key) != value for key, value in self._marks.items()):
            raise EmbeddingModelMismatchError(
                f"the collection {self._collection!r} has vectors of {marks[MODEL_KEY]} ({marks.get(DIMENSION_KEY)} "
                f"components each), but {self._marks[MODEL_KEY]} is configured: configure the previous model, or "
                "another collection name after `mnemon-server reembed`"
            )
        return opened

    def _adopt(self, opened: _Opened, marks: Mapping[str, Any]) -> None:
        """Takes over an empty collection that someone else created, with its distance space."""
        if self._count(opened):
            raise ConfigurationError(
                f"the collection {self._collection!r} ({self.host}) has records of another program: set another name"
            )
        others = {key: value for key, value in marks.items() if not key.startswith("hnsw:")}
        self._call("PUT", opened.path, {"new_metadata": others | self._marks})

    def _create(self) -> _Opened:
        body = {"name": self._collection, "configuration": {"hnsw": _HNSW}, "metadata": self._marks}
        return _opened(self._call("POST", _COLLECTIONS, body))

    def _recreate(self) -> _Opened:
        try:
            self._call("DELETE", f"{_COLLECTIONS}/{self._collection}")
        except RefusedError as error:
            if error.status != HTTPStatus.NOT_FOUND:
                raise
        return self._create()

    def _remove(self, opened: _Opened, doc_ids: Sequence[str]) -> None:
        """Chroma's upsert would keep old metadata keys and surplus passages."""
        where = {DOC_ID_KEY: {"$in": list(doc_ids)}}
        written_over = self._call("POST", f"{opened.path}/get", {"where": where, "include": []})["ids"]
        for start in range(0, len(written_over), _BATCH_MAX):
            self._call("POST", f"{opened.path}/delete", {"ids": written_over[start : start + _BATCH_MAX]})

    def _upsert(self, opened: _Opened, entries: Sequence[IndexEntry]) -> None:
        records = [to_record(entry) for entry in entries]
        body = {
            "ids": [record["id"] for record in records],
            "embeddings": np.stack([entry.vector for entry in entries]).astype(np.float32, copy=False),
            "documents": [record["document"] for record in records],
            "metadatas": [record["metadata"] for record in records],
        }
        try:
            self._call("POST", f"{opened.path}/upsert", body)
        except (RefusedError, BrokenOffError) as error:
            half = len(entries) // 2
            if not half or not self._is_too_large(error):
                raise
            # The limit belongs to the server or a proxy, and cannot be queried.
            self._upsert(opened, entries[:half])
            self._upsert(opened, entries[half:])

    def _is_too_large(self, error: RefusedError | BrokenOffError) -> bool:
        """Whether a smaller request may pass. A server that refuses a large one may close the connection while it is
        still being sent; then the refusal is lost.
        """
        if isinstance(error, RefusedError):
            return error.status == HTTPStatus.REQUEST_ENTITY_TOO_LARGE
        try:
            self._client.ping()
        except BackendConnectionError:
            return False
        return True

    def _check(self, opened: _Opened) -> None:
        """Reads a sample of vectors and searches for them. Raises _DamagedError, or Chroma's own error."""
        sample = self._sample(opened)
        norms = np.linalg.norm(sample, axis=1)
        if not np.all(np.abs(norms - 1.0) < _UNIT_TOLERANCE):
            raise _DamagedError("stored vectors are not of unit length")
        missed = sum(not self._finds(opened, vector) for vector in sample)
        # In an intact graph of many nearly identical vectors, a good part of them cannot be reached, and a rebuild
        # would not help. So only if most of the sample is not found, the graph counts as damaged.
        if missed > len(sample) // 2:
            raise _DamagedError(f"{missed} of {len(sample)} stored vectors are not found")

    def _sample(self, opened: _Opened) -> NDArray[np.float32]:
        """Vectors from the whole collection, of shape (up to 20, dimension)."""
        count = self._count(opened)
        step = max(_SAMPLE_BLOCK_SIZE, math.ceil(count / _SAMPLE_BLOCKS))
        body = {"limit": _SAMPLE_BLOCK_SIZE, "include": ["embeddings"]}
        blocks = [
            self._call("POST", f"{opened.path}/get", body | {"offset": offset})["embeddings"]
            for offset in range(0, count, step)
        ]
        vectors = [vector for block in blocks for vector in block]
        return np.array(vectors, np.float32).reshape(-1, self._dimension)

    def _finds(self, opened: _Opened, vector: NDArray[np.float32]) -> bool:
        found = self._query(opened, vector, 1, ["distances"], None, self._settings.call_timeout_s)["distances"]
        return bool(found and found[0] and found[0][0] <= _SELF_DISTANCE_MAX)

    def _query(
        self,
        opened: _Opened,
        vector: Vector,
        limit: int,
        include: list[str],
        where: Mapping[str, Any] | None,
        timeout_s: float,
    ) -> Any:
        query = np.ascontiguousarray(vector, np.float32)
        body = {"query_embeddings": [query], "n_results": limit, "where": where, "include": include}
        return self._client.call("POST", f"{opened.path}/query", body, timeout_s=timeout_s)

    def _count(self, opened: _Opened) -> int:
        return int(self._call("GET", f"{opened.path}/count"))

    def _state(self, opened: _Opened) -> IndexState:
        return IndexState(opened.id, self._count(opened))

    def _call(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> Any:
        return self._client.call(method, path, body, timeout_s=self._settings.call_timeout_s)

    def _opened_before(self) -> _Opened:
        if self._opened is None:
            raise BackendConnectionError(f"the collection {self._collection!r} ({self.host}) must be opened first")
        return self._opened

    @contextmanager
    def _refusals(self) -> Iterator[None]:
        """Raises the server's errors as BackendConnectionError. The original text goes to the log."""
        try:
            yield
        except RefusedError as error:
            log.warning("the vector index at %s failed: %s", self.host, error)
            if error.status == HTTPStatus.NOT_FOUND:
                message = f"the collection {self._collection!r} ({self.host}) no longer exists: it must be opened again"
            else:
                message = f"the vector index ({self.host}) failed; the server's log says why"
            raise BackendConnectionError(message) from None


def _opened(found: Mapping[str, Any]) -> _Opened:
    configuration = found["configuration_json"]
    parts = configuration.get("hnsw") or configuration.get("spann") or {}
    return _Opened(found["id"], parts.get("space", "l2"))


def _is_damage(error: RefusedError) -> bool:
    """Whether an error while opening or checking means damaged data, not a refusal or a lack of resources."""
    if error.status != HTTPStatus.INTERNAL_SERVER_ERROR or not error.error:
        return False
    return not any(reason in str(error).lower() for reason in _RESOURCE_ERRORS)
