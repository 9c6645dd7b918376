"""The collection in the child process. Only this module uses chromadb."""

import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import chromadb
import httpx
import numpy as np
from chromadb.config import Settings
from chromadb.errors import ChromaError, InternalError, NotFoundError
from numpy.typing import NDArray

from mnemon_server.engines.chroma.protocol import CollectionError, Failure, Frame, Opened, OpenRequest
from mnemon_server.engines.chroma.records import (
    DIMENSION_KEY,
    DOC_ID_KEY,
    GENERATION_KEY,
    MODEL_KEY,
    PASSAGE_ID_KEY,
)

# Link counts and beam widths with a recall above 0.99 on sentence embeddings. A wider construction beam halves the
# speed of indexing and gains nothing beyond the search beam.
_HNSW = {"space": "cosine", "max_neighbors": 16, "ef_construction": 100, "ef_search": 200}
_SAMPLE_BLOCKS = 5
_SAMPLE_BLOCK_SIZE = 4
_SELF_DISTANCE_MAX = 1e-3
_UNIT_TOLERANCE = 1e-2
_RESOURCE_ERRORS = ("disk is full", "no space left", "permission denied", "too many open files", "readonly database")


class HostedCollection:
    """One open collection. Searches may run concurrently, also with one write."""

    def __init__(self, request: OpenRequest) -> None:
        """Connects and opens or creates the collection. Raises CollectionError."""
        self._request = request
        self._client = connect(request)
        try:
            self._collection = self._find_or_create()
        except BaseException:
            self._client.close()
            raise

    def reopen(self, request: OpenRequest) -> None:
        """Looks the collection up again, or creates it, on the same connection. Raises CollectionError."""
        self._request = request
        self._collection = self._find_or_create()

    def opened(self) -> Opened:
        """A description of the open collection."""
        marks = self._collection.metadata
        return Opened(marks[GENERATION_KEY], self._collection.count(), self._space)

    def apply(self, frame: Frame) -> Frame:
        """Replaces all records of `doc_ids` by `records`, whose vectors are the payload.

        Deletes first, because Chroma's upsert keeps old metadata keys and surplus passages. After a kill in between,
        applying again repairs the collection.
        """
        records = frame.header["records"]
        vectors = np.frombuffer(frame.payload, np.float32).reshape(len(records), self._request.dimension)
        written_over = self._collection.get(where={DOC_ID_KEY: {"$in": frame.header["doc_ids"]}}, include=[])["ids"]
        batch = self._client.get_max_batch_size()
        for ids in _batches(written_over, batch):
            self._collection.delete(ids=list(ids))
        for start in range(0, len(records), batch):
            self._upsert(records[start : start + batch], vectors[start : start + batch])
        return Frame({})

    def search(self, frame: Frame) -> Frame:
        """Passage ids (int64) and distances (float32) of the records nearest to the payload's vector."""
        found = self._collection.query(
            query_embeddings=np.frombuffer(frame.payload, np.float32).reshape(1, self._request.dimension),
            n_results=frame.header["limit"],
            where=frame.header["where"],
            include=["metadatas", "distances"],
        )
        pairs = [
            (metadata[PASSAGE_ID_KEY], distance)
            for metadata, distance in zip(found["metadatas"][0], found["distances"][0], strict=True)
            if metadata and PASSAGE_ID_KEY in metadata
        ]
        ids = np.array([pair[0] for pair in pairs], np.int64)
        distances = np.array([pair[1] for pair in pairs], np.float32)
        return Frame({"count": len(pairs), "space": self._space}, ids.tobytes() + distances.tobytes())

    def recreate(self, generation: str) -> Opened:
        """Drops the collection with its content and creates an empty one."""
        self._client.delete_collection(self._request.collection)
        self._collection = self._create(generation)
        return self.opened()

    def check(self) -> None:
        """Reads a sample of vectors and searches for them. Raises CollectionError (DAMAGED), or Chroma's own errors."""
        sample = self._sample()
        norms = np.linalg.norm(sample, axis=1)
        if not np.all(np.abs(norms - 1.0) < _UNIT_TOLERANCE):
            raise CollectionError(Failure.DAMAGED, "stored vectors are not of unit length")
        missed = sum(not self._finds(vector) for vector in sample)
        # In an intact graph of many nearly identical vectors, a good part of them cannot be reached, and a rebuild
        # would not help. So only if most of the sample is not found, the graph counts as damaged.
        if missed > len(sample) // 2:
            raise CollectionError(Failure.DAMAGED, f"{missed} of {len(sample)} stored vectors are not found")

    def close(self) -> None:
        """Closes the client. All writes must have finished."""
        self._client.close()

    def _upsert(self, records: Sequence[dict[str, Any]], vectors: NDArray[np.float32]) -> None:
        try:
            self._collection.upsert(
                ids=[record["id"] for record in records],
                embeddings=vectors,
                documents=[record["document"] for record in records],
                metadatas=[record["metadata"] for record in records],
            )
        except Exception as error:
            half = len(records) // 2
            if not half or _status_of(error) != httpx.codes.REQUEST_ENTITY_TOO_LARGE:
                raise
            # The limit belongs to the server or a proxy, and cannot be queried.
            self._upsert(records[:half], vectors[:half])
            self._upsert(records[half:], vectors[half:])

    @property
    def _space(self) -> str:
        configuration = self._collection.configuration_json
        return str((configuration.get("hnsw") or configuration.get("spann") or {}).get("space", "l2"))

    def _find_or_create(self) -> Any:
        try:
            collection = self._client.get_collection(self._request.collection, embedding_function=None)
        except NotFoundError:
            if self._request.expected_generation:
                raise CollectionError(Failure.STALE, "the collection does not exist") from None
            return self._create(self._request.new_generation)
        marks = collection.metadata or {}
        if GENERATION_KEY not in marks:
            return self._adopt(collection)
        if (marks.get(MODEL_KEY), marks.get(DIMENSION_KEY)) != (self._request.model_identity, self._request.dimension):
            held = f"{marks.get(MODEL_KEY)} ({marks.get(DIMENSION_KEY)} components each)"
            raise CollectionError(Failure.MISMATCH, held)
        if self._request.expected_generation not in ("", marks[GENERATION_KEY]):
            raise CollectionError(Failure.STALE, "another program has recreated the collection")
        return collection

    def _create(self, generation: str) -> Any:
        return self._client.create_collection(
            self._request.collection,
            configuration={"hnsw": _HNSW},
            metadata=self._marks(generation),
            embedding_function=None,
        )

    def _adopt(self, collection: Any) -> Any:
        """Takes over an empty collection that was created by someone else, with its distance space."""
        if collection.count():
            raise CollectionError(Failure.FOREIGN, "the collection holds records of another program")
        others = {key: value for key, value in (collection.metadata or {}).items() if not key.startswith("hnsw:")}
        collection.modify(metadata=others | self._marks(self._request.new_generation))
        return self._client.get_collection(self._request.collection, embedding_function=None)

    def _marks(self, generation: str) -> dict[str, str | int]:
        return {
            GENERATION_KEY: generation,
            MODEL_KEY: self._request.model_identity,
            DIMENSION_KEY: self._request.dimension,
        }

    def _sample(self) -> NDArray[np.float32]:
        """Vectors from the whole collection, of shape (up to 20, dimension)."""
        count = self._collection.count()
        step = max(_SAMPLE_BLOCK_SIZE, math.ceil(count / _SAMPLE_BLOCKS))
        blocks = [
            self._collection.get(limit=_SAMPLE_BLOCK_SIZE, offset=offset, include=["embeddings"])["embeddings"]
            for offset in range(0, count, step)
        ]
        return np.array([vector for block in blocks for vector in block], np.float32).reshape(
            -1, self._request.dimension
        )

    def _finds(self, vector: NDArray[np.float32]) -> bool:
        distances = self._collection.query(query_embeddings=[vector], n_results=1, include=["distances"])["distances"]
        return bool(distances and distances[0] and distances[0][0] <= _SELF_DISTANCE_MAX)


def connect(request: OpenRequest) -> Any:
    """A Chroma client, without telemetry. For a server, it connects at once."""
    if request.path:
        return chromadb.PersistentClient(Path(request.path), settings=Settings(anonymized_telemetry=False))
    settings = Settings(anonymized_telemetry=False)
    try:
        # A URL: Chroma's client ignores the port of hosts that begin with "http", and rejects IPv6 addresses.
        return chromadb.HttpClient(request.url, ssl=request.url.startswith("https"), settings=settings)
    except ValueError as error:  # the client's error for a refused connection
        raise CollectionError(Failure.UNREACHABLE, str(error)) from error


def failure_of(error: BaseException) -> Failure:
    """Classifies an error of Chroma or of its transport."""
    if isinstance(error, CollectionError):
        return error.failure
    if isinstance(error, httpx.TransportError):
        return Failure.UNREACHABLE
    if isinstance(error, NotFoundError):
        return Failure.STALE
    return Failure.FAILED


def is_damage(error: BaseException) -> bool:
    """Whether an error while opening or checking means damaged data, rather than a refusal or a lack of resources."""
    if isinstance(error, CollectionError):
        return error.failure is Failure.DAMAGED
    if isinstance(error, OSError | MemoryError | httpx.TransportError):
        return False
    if isinstance(error, ChromaError) and not isinstance(error, InternalError):
        return False  # the request was refused, or a limit of the server's
    if _status_of(error) not in (None, httpx.codes.INTERNAL_SERVER_ERROR):
        return False
    # Everything else that Chroma raises, including panics of its native code, which are not an `Exception`.
    return not any(reason in str(error).lower() for reason in _RESOURCE_ERRORS)


def _status_of(error: BaseException) -> int | None:
    """The HTTP status of a response that is not one of Chroma's own errors; None for other errors."""
    answer = getattr(error.__context__, "response", None)
    return None if answer is None else int(answer.status_code)


def _batches(items: Sequence[str], size: int) -> Iterator[Sequence[str]]:
    for start in range(0, len(items), size):
        yield items[start : start + size]
