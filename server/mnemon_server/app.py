"""The one place where the server is put together. Everything that holds something is closed in reverse order."""

import asyncio
import os
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import cast

import grpc

from mnemon_server.config import Settings
from mnemon_server.embedding.base import Embedder, EmbeddingModel
from mnemon_server.embedding.batcher import EmbeddingBatcher
from mnemon_server.embedding.factory import open_embedder
from mnemon_server.embedding.graph_cache import Precision
from mnemon_server.engines.base import RecordEngine
from mnemon_server.engines.chroma.index import ChromaIndex
from mnemon_server.engines.in_memory import InMemoryRecordEngine
from mnemon_server.engines.sqlite.records import SQLiteRecordEngine
from mnemon_server.services.index_applier import IndexApplier
from mnemon_server.services.knowledge_store import DocumentStore
from mnemon_server.transport.server import GrpcServer

Report = Callable[[str], None]

TENANT = "default"
WAITING_TEXTS_MAX = 65_536
"""The passages of one bulk message of the largest size have room three times over."""


@asynccontextmanager
async def running_server(
    settings: Settings, *, report: Report, extra_handlers: tuple[grpc.GenericRpcHandler, ...] = ()
) -> AsyncIterator[GrpcServer]:
    """Serves until the block is left, and then ends politely.

    Args:
        settings: what to serve, and where.
        report: gets a sentence about each step of the start that can take long.
        extra_handlers: further services.

    Raises:
        ConfigurationError: the address, the data folder or the model cannot be had, with what would help.
    """
    async with AsyncExitStack() as stack:
        # The address first: a second server on it must not touch the data.
        server = await stack.enter_async_context(GrpcServer(settings, extra_handlers=extra_handlers))
        store = await stack.enter_async_context(open_document_store(settings, report=report))
        stack.push_async_callback(server.shut_down)
        await server.serve(store)
        yield server


@asynccontextmanager
async def open_document_store(settings: Settings, *, report: Report) -> AsyncIterator[DocumentStore]:
    """The knowledge store of the settings, with its engines."""
    async with AsyncExitStack() as stack:
        embedder = await asyncio.to_thread(open_configured_embedder, settings, report)
        stack.callback(embedder.close)
        batcher = EmbeddingBatcher(
            embedder, cache_entries_max=settings.embedding_cache_entries, waiting_texts_max=WAITING_TEXTS_MAX
        )
        await stack.enter_async_context(batcher)
        store = await asyncio.to_thread(_open_store, settings, batcher, embedder.model)
        yield await stack.enter_async_context(store)


def user_cache_folder() -> Path:
    """Where converted models are kept for all servers of this user."""
    root = os.environ.get("XDG_CACHE_HOME")
    return (Path(root) if root else Path.home() / ".cache") / "mnemon"


def records_folder(settings: Settings) -> Path:
    """Where the records lie, and all that is derived from them."""
    return settings.data_dir / "tenants" / TENANT


def open_configured_embedder(settings: Settings, report: Report) -> Embedder:
    """The embedder of the settings; the caller closes it."""
    return open_embedder(
        settings.embedding_model,
        precision=cast("Precision", settings.embedding_precision),
        model_dir=settings.embedding_model_dir,
        cache_dir=settings.model_cache_dir or user_cache_folder(),
        allow_download=settings.embedding_allow_download,
        threads=settings.embedding_threads,
        progress=report,
    )


def _open_store(settings: Settings, batcher: EmbeddingBatcher, model: EmbeddingModel) -> DocumentStore:
    records = _open_records(settings, model)
    try:
        applier = _open_applier(settings, records, model)
    except BaseException:
        records.close()
        raise
    return DocumentStore(
        records,
        batcher,
        model=model,
        backend=settings.knowledge_store_backend,
        collection=settings.collection,
        applier=applier,
        exact_scan_max=settings.exact_scan_passages_max,
        vector_weight=settings.fusion_vector_weight,
    )


def _open_records(settings: Settings, model: EmbeddingModel) -> RecordEngine:
    if settings.knowledge_store_backend == "in_memory":
        return InMemoryRecordEngine()
    return SQLiteRecordEngine(
        records_folder(settings),
        model_identity=model.identity,
        dimension=model.dimension,
        vector_cache_bytes_max=settings.vector_cache_mib << 20,
    )


def _open_applier(settings: Settings, records: RecordEngine, model: EmbeddingModel) -> IndexApplier | None:
    if settings.knowledge_store_backend != "chromadb":
        return None
    index = ChromaIndex(
        collection=settings.collection,
        dimension=model.dimension,
        model_identity=model.identity,
        path=None if settings.chroma_host else records_folder(settings) / "chroma",
        host=settings.chroma_host,
        port=settings.chroma_port,
        ssl=settings.chroma_ssl,
    )
    return IndexApplier(records, index)
