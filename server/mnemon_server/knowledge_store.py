"""The knowledge store as a library for an agent in the same process.

    from mnemon_server.knowledge_store import get_knowledge_store

    async with get_knowledge_store() as store:
        await store.index_document("note-1", "Ada prefers window seats.", {"topic": "travel"})
        results = await store.search("Where does Ada like to sit?", top_k=3, filters={"topic": "travel"})

Stores open on first use, so creating one does not fail if a backend is unavailable. All of them implement the protocol
`KnowledgeStore`. Code that depends on the protocol can switch between them by configuration alone.
"""

import asyncio
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from os import PathLike
from types import TracebackType
from typing import Any, Protocol, Self, runtime_checkable

import structlog
from mnemon import IgnoredFilterWarning, UnmatchedFilterWarning
from mnemon.shared.warnings import warn_of_filters

from mnemon_server.app import open_document_store
from mnemon_server.config.loading import load_settings, settings_from_arguments
from mnemon_server.config.settings import Settings
from mnemon_server.domain.documents import (
    TOP_K_DEFAULT,
    Document,
    DocumentFilter,
    IndexRequest,
    SearchQuery,
    SearchResult,
)
from mnemon_server.domain.errors import (
    BackendConnectionError,
    ConfigurationError,
    DocumentNotFoundError,
    EmbeddingError,
    IndexingError,
    InvalidArgumentError,
    KnowledgeStoreError,
    MnemonError,
    SearchError,
)
from mnemon_server.domain.records import FilterValue, MetadataValue, WriteOutcome
from mnemon_server.domain.validation import refuse, type_violations
from mnemon_server.services.documents.store import DocumentStore

__all__ = [
    "BackendConnectionError",
    "ChromaDBStore",
    "ConfigurationError",
    "Document",
    "DocumentNotFoundError",
    "EmbeddingError",
    "IgnoredFilterWarning",
    "InMemoryStore",
    "IndexingError",
    "InvalidArgumentError",
    "InvalidDocumentError",
    "InvalidSearchError",
    "KnowledgeStore",
    "KnowledgeStoreError",
    "LocalStore",
    "MnemonError",
    "SearchError",
    "SearchResult",
    "UnmatchedFilterWarning",
    "get_knowledge_store",
]

log = structlog.get_logger(__name__)

DEFAULTS = Settings()


@runtime_checkable
class KnowledgeStore(Protocol):
    """Documents that can be searched by meaning. All methods may be called concurrently by many tasks.

    Errors are KnowledgeStoreErrors: InvalidDocumentError, InvalidSearchError, EmbeddingError, IndexingError,
    SearchError, BackendConnectionError. Disk errors, such as StorageFullError, are other MnemonErrors.

    Parameters are as narrow as possible, so that classes may accept more: any mapping as metadata, a default `top_k`.
    """

    async def index_document(self, doc_id: str, content: str, metadata: dict[str, Any]) -> bool:
        """Stores a document, replacing one with the same id completely. Returns True once it is on stable storage."""

    async def search(self, query: str, top_k: int, filters: dict[str, Any] | None = None) -> list[SearchResult]:
        """The `top_k` (at most 100) most relevant documents, best first.

        Filters are values that the metadata must equal, all of them; 5 equals 5.0. A key that is invalid, or that no
        document has, is ignored with an IgnoredFilterWarning. A value of another type than the documents have under
        its key finds nothing, with an UnmatchedFilterWarning. A blank query, or a `top_k` of 0 or less, finds nothing.
        """

    async def get_by_id(self, doc_id: str) -> Document | None:
        """The document, or None."""

    async def delete(self, doc_id: str) -> bool:
        """Removes the document. Returns False if it did not exist."""

    async def health_check(self) -> bool:
        """Whether the store answers, and its backend answers or is starting. Does not raise."""


class InvalidDocumentError(IndexingError, InvalidArgumentError):
    """A document, or its id, is invalid; `violations` names each field. It is also a ValueError."""

    reason = InvalidArgumentError.reason


class InvalidSearchError(SearchError, InvalidArgumentError):
    """A search is invalid; `violations` names each field. It is also a ValueError."""

    reason = InvalidArgumentError.reason


class ConfiguredStore:
    """A `KnowledgeStore` created from settings. While it is open, it belongs to the event loop that opened it.

    `async with` may be nested. Leaving the outermost block closes the store, as do `aclose` and the end of
    `asyncio.run`; a later use opens it again.
    """

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._kept: tuple[asyncio.Task[None], asyncio.Future[DocumentStore]] | None = None
        """The task that keeps the store open, and the store once it is."""
        self._users = 0

    async def index_document(
        self, doc_id: str, content: str, metadata: Mapping[str, MetadataValue] | None = None
    ) -> bool:
        """See KnowledgeStore."""
        given = {} if metadata is None else metadata
        with _invalid_as(InvalidDocumentError):
            refuse(type_violations({"document.doc_id": doc_id, "document.content": content}, str))
            refuse(type_violations({"document.metadata": given}, Mapping))
            store = await self._opened()
            await store.index(IndexRequest(document=Document(doc_id, content, given)))
        return True

    async def search(
        self, query: str, top_k: int = TOP_K_DEFAULT, filters: Mapping[str, FilterValue] | None = None
    ) -> list[SearchResult]:
        """See KnowledgeStore."""
        given = {} if filters is None else filters
        with _invalid_as(InvalidSearchError):
            refuse(type_violations({"query": query}, str))
            refuse(type_violations({"top_k": top_k}, int))
            refuse(type_violations({"filters": given}, Mapping))
            store = await self._opened()
            where = DocumentFilter(filters=given)
            answer = await store.search(SearchQuery(text=query, top_k=top_k, where=where))
        warn_of_filters(answer.filters.ignored, answer.filters.unmatched)
        return list(answer.results)

    async def get_by_id(self, doc_id: str) -> Document | None:
        """See KnowledgeStore."""
        try:
            with _invalid_as(InvalidDocumentError):
                refuse(type_violations({"doc_id": doc_id}, str))
                store = await self._opened()
                return await store.get(doc_id)
        except DocumentNotFoundError:
            return None

    async def delete(self, doc_id: str) -> bool:
        """See KnowledgeStore."""
        with _invalid_as(InvalidDocumentError):
            refuse(type_violations({"doc_id": doc_id}, str))
            store = await self._opened()
            receipt = await store.delete(doc_id, allow_missing=True)
        return receipt.outcome is WriteOutcome.DELETED

    async def health_check(self) -> bool:
        """See KnowledgeStore."""
        try:
            store = await self._opened()
        except MnemonError as error:
            log.warning("the knowledge store cannot be opened", error=str(error))
            return False
        return (await store.check_health()).is_serving

    async def aclose(self) -> None:
        """Closes the engines, if they are open. Acknowledged data stays stored, and a later use opens them again."""
        if self._kept is None or self._kept[0].done():
            return
        keeper, opened = self._kept
        _check_loop(keeper)
        await asyncio.wait([opened])
        keeper.cancel()
        await asyncio.wait([keeper])
        if not keeper.cancelled() and (error := keeper.exception()):
            raise error

    async def __aenter__(self) -> Self:
        self._users += 1
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._users -= 1
        if self._users == 0:
            await self.aclose()

    async def _opened(self) -> DocumentStore:
        while self._kept is not None and not self._kept[0].done():
            keeper, opened = self._kept
            _check_loop(keeper)
            if not keeper.cancelling():
                return await asyncio.shield(opened)
            await asyncio.wait([keeper])
        opened = asyncio.get_running_loop().create_future()
        self._kept = asyncio.create_task(self._keep_open(opened)), opened
        return await asyncio.shield(opened)

    async def _keep_open(self, opened: "asyncio.Future[DocumentStore]") -> None:
        """Holds the engines until it is cancelled: by `aclose`, or by `asyncio.run` at its end."""
        try:
            async with open_document_store(self._settings, report=_report) as store:
                opened.set_result(store)
                await asyncio.Event().wait()
        except Exception as error:
            if opened.done():
                raise
            opened.set_exception(error)
        finally:
            opened.cancel()


class ChromaDBStore(ConfiguredStore):
    """Documents in the records of `data_dir`, indexed by the ChromaDB server at `host`; without one, locally.

    While ChromaDB is unavailable, `health_check` returns False, searches use the records, and writes are applied to
    ChromaDB later. No data is lost.
    """

    def __init__(
        self,
        *,
        host: str = "",
        port: int = DEFAULTS.chroma_port,
        ssl: bool = False,
        collection: str = DEFAULTS.collection,
        data_dir: str | PathLike[str] = DEFAULTS.data_dir,
        embedding_model: str = DEFAULTS.embedding_model,
    ) -> None:
        super().__init__(
            _settings(
                "chromadb",
                chroma_host=host,
                chroma_port=port,
                chroma_ssl=ssl,
                collection=collection,
                data_dir=data_dir,
                embedding_model=embedding_model,
            )
        )


class LocalStore(ConfiguredStore):
    """Documents in the records of `data_dir`. Every search compares all of them."""

    def __init__(
        self,
        *,
        data_dir: str | PathLike[str] = DEFAULTS.data_dir,
        embedding_model: str = DEFAULTS.embedding_model,
    ) -> None:
        super().__init__(_settings("local", data_dir=data_dir, embedding_model=embedding_model))


class InMemoryStore(ConfiguredStore):
    """Documents in memory. Closing the store deletes them."""

    def __init__(self, *, embedding_model: str = DEFAULTS.embedding_model) -> None:
        super().__init__(_settings("in_memory", embedding_model=embedding_model))


_stores: dict[Settings, ConfiguredStore] = {}


def get_knowledge_store() -> ConfiguredStore:
    """The knowledge store for the environment's configuration. The same object is returned while that is unchanged.

    Reads `KNOWLEDGE_STORE_BACKEND`, `_HOST`, `_PORT`, `_COLLECTION` and `_EMBEDDING_MODEL` in addition to the settings
    in `server/CONFIGURATION.md`; `server/LIBRARY.md` has examples. Without a host, the local index serves.

    Raises:
        ConfigurationError: a value is invalid. The message names the setting and what would be valid.
    """
    settings = load_settings(environ=os.environ).settings
    if settings not in _stores:
        _stores[settings] = ConfiguredStore(settings)
    return _stores[settings]


def _settings(backend: str, **arguments: Any) -> Settings:
    return settings_from_arguments({"knowledge_store_backend": backend, **arguments})


@contextmanager
def _invalid_as(kind: type[InvalidArgumentError]) -> Iterator[None]:
    try:
        yield
    except InvalidArgumentError as error:
        raise kind(error.violations) from error


def _check_loop(keeper: "asyncio.Task[None]") -> None:
    if keeper.get_loop() is not asyncio.get_running_loop():
        raise KnowledgeStoreError(
            "the store is open in another event loop: close it there, by `async with` or `await store.aclose()`, "
            "before another loop uses it"
        )


def _report(sentence: str) -> None:
    log.info(sentence)
