"""The vector store as a library for code in the same process.

    from mnemon_server.vector_store import LocalVectorStore

    with LocalVectorStore("vectors") as store:
        store.store("note-1", "Ada prefers window seats.", {"topic": "travel"})
        for found in store.search("Where does Ada like to sit?", n_results=3, where={"topic": "travel"}):
            print(found.similarity, found.content)

Stores open on first use, so creating one does not fail if a backend is unavailable. All of them implement the protocol
`VectorStore`. A change of the backend keeps the stored texts: the records in `path` are authoritative, and an index in
ChromaDB is built from them.
"""

import threading
from collections.abc import Mapping
from contextlib import ExitStack
from os import PathLike
from types import TracebackType
from typing import Self

import structlog

from mnemon_server.assembly.embedder import open_configured_embedder
from mnemon_server.assembly.settings import chroma_settings, search_settings, vault_settings
from mnemon_server.config.loading import settings_from_arguments
from mnemon_server.config.settings import Settings
from mnemon_server.domain.collections import DOCUMENTS
from mnemon_server.domain.errors import (
    BackendConnectionError,
    ConfigurationError,
    InvalidArgumentError,
    MnemonError,
    NotFoundError,
)
from mnemon_server.domain.records import FilterValue, MetadataValue
from mnemon_server.embedding.base import EmbeddingModel
from mnemon_server.engines.chroma import ChromaIndex
from mnemon_server.engines.sqlite_vault import SQLiteVault
from mnemon_server.services.documents.stored_texts import Neighbour, StoredText
from mnemon_server.services.documents.vector_store import N_RESULTS_DEFAULT, RecordVectorStore, VectorStore
from mnemon_server.services.search.index_applier import IndexApplier

__all__ = [
    "BackendConnectionError",
    "ChromaVectorStore",
    "ConfigurationError",
    "InvalidArgumentError",
    "LocalVectorStore",
    "MnemonError",
    "Neighbour",
    "NotFoundError",
    "StoredText",
    "VectorStore",
    "get_vector_store",
]

log = structlog.get_logger(__name__)

DEFAULTS = Settings()
DEFAULT_PATH = DEFAULTS.data_dir / "vector-store"
COLLECTION = "vectors"
BACKENDS = ("local", "chromadb")


class ConfiguredVectorStore:
    """A `VectorStore` created from settings. Its `data_dir` is the folder of the records.

    `with` may be nested. Leaving the outermost block closes the store; a later use opens it again.
    """

    def __init__(self, settings: Settings, *, uses_chroma: bool) -> None:
        self._settings = settings
        self._uses_chroma = uses_chroma
        self._lock = threading.Lock()
        self._stack = ExitStack()
        self._store: RecordVectorStore | None = None
        self._users = 0

    @property
    def configuration(self) -> tuple[Settings, bool]:
        """The values that identify a store."""
        return self._settings, self._uses_chroma

    def store(self, id: str, content: str, metadata: Mapping[str, MetadataValue] | None = None) -> None:  # noqa: A002
        """See VectorStore."""
        self._opened().store(id, content, metadata)

    def get(self, id: str) -> StoredText | None:  # noqa: A002
        """See VectorStore."""
        return self._opened().get(id)

    def search(
        self, query: str, n_results: int = N_RESULTS_DEFAULT, where: Mapping[str, FilterValue] | None = None
    ) -> list[Neighbour]:
        """See VectorStore."""
        return self._opened().search(query, n_results, where)

    def delete(self, id: str) -> bool:  # noqa: A002
        """See VectorStore."""
        return self._opened().delete(id)

    def update_metadata(self, id: str, metadata: Mapping[str, MetadataValue]) -> None:  # noqa: A002
        """See VectorStore."""
        self._opened().update_metadata(id, metadata)

    def count(self) -> int:
        """See VectorStore."""
        return self._opened().count()

    def heartbeat(self) -> bool:
        """See VectorStore."""
        try:
            store = self._opened()
        except MnemonError as error:
            log.warning("the vector store cannot be opened", error=str(error))
            return False
        return store.heartbeat()

    def close(self) -> None:
        """Closes the engines. Stored texts stay."""
        with self._lock:
            self._store = None
            self._stack.close()

    def __enter__(self) -> Self:
        with self._lock:
            self._users += 1
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with self._lock:
            self._users -= 1
            is_last = self._users == 0
        if is_last:
            self.close()

    def _opened(self) -> RecordVectorStore:
        with self._lock:
            if self._store is None:
                with ExitStack() as opening:
                    self._store = self._open(opening)
                    self._stack = opening.pop_all()
            return self._store

    def _open(self, stack: ExitStack) -> RecordVectorStore:
        settings = self._settings
        embedder = open_configured_embedder(settings, _report)
        stack.callback(embedder.close)
        vault = SQLiteVault(
            settings.data_dir,
            model_identity=embedder.model.identity,
            dimension=embedder.model.dimension,
            settings=vault_settings(settings, None, graphs_of=() if self._uses_chroma else (DOCUMENTS,)),
        )
        stack.callback(vault.close)
        records = vault.collection(DOCUMENTS)
        applier = IndexApplier(records, self._index(embedder.model)) if self._uses_chroma else None
        store = RecordVectorStore(records, embedder, applier=applier, search=search_settings(settings, None))
        stack.callback(store.close)
        return store

    def _index(self, model: EmbeddingModel) -> ChromaIndex:
        return ChromaIndex(
            chroma_settings(self._settings),
            collection=self._settings.collection,
            dimension=model.dimension,
            model_identity=model.identity,
        )


class LocalVectorStore(ConfiguredVectorStore):
    """Texts in the folder `path`, with their vectors in memory."""

    def __init__(
        self, path: str | PathLike[str] = DEFAULT_PATH, *, embedding_model: str = DEFAULTS.embedding_model
    ) -> None:
        settings = settings_from_arguments({"data_dir": path, "embedding_model": embedding_model})
        super().__init__(settings, uses_chroma=False)


class ChromaVectorStore(ConfiguredVectorStore):
    """Texts in the folder `path`, indexed by the ChromaDB server at `host`; without one, by the local index.

    While ChromaDB is unavailable, `heartbeat` returns False, searches use the records, and writes are applied to
    ChromaDB later. No data is lost.
    """

    def __init__(
        self,
        path: str | PathLike[str] = DEFAULT_PATH,
        *,
        host: str = "",
        port: int = DEFAULTS.chroma_port,
        ssl: bool = False,
        collection: str = COLLECTION,
        embedding_model: str = DEFAULTS.embedding_model,
    ) -> None:
        settings = settings_from_arguments(
            {
                "data_dir": path,
                "chroma_host": host,
                "chroma_port": port,
                "chroma_ssl": ssl,
                "collection": collection,
                "embedding_model": embedding_model,
            }
        )
        super().__init__(settings, uses_chroma=bool(host))


_stores: dict[tuple[Settings, bool], ConfiguredVectorStore] = {}
_making = threading.Lock()


def get_vector_store(
    backend: str = "local",
    *,
    path: str | PathLike[str] = DEFAULT_PATH,
    host: str = "",
    port: int = DEFAULTS.chroma_port,
    ssl: bool = False,
    collection: str = COLLECTION,
    embedding_model: str = DEFAULTS.embedding_model,
) -> ConfiguredVectorStore:
    """The vector store of a configuration, always the same object: "local", or "chromadb" on the server at `host`.

    Raises:
        ConfigurationError: the backend is unknown. The message names the known ones.
    """
    if backend not in BACKENDS:
        raise ConfigurationError(f"{backend!r} is not a vector store; choose one of {', '.join(BACKENDS)}")
    if backend == "local":
        store: ConfiguredVectorStore = LocalVectorStore(path, embedding_model=embedding_model)
    else:
        store = ChromaVectorStore(
            path, host=host, port=port, ssl=ssl, collection=collection, embedding_model=embedding_model
        )
    with _making:
        return _stores.setdefault(store.configuration, store)


def _report(sentence: str) -> None:
    log.info(sentence)
