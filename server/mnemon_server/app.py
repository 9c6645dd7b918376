"""The one place where the server is put together. Everything that holds something is closed in reverse order."""

import asyncio
import os
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import timedelta
from pathlib import Path
from typing import cast

import grpc

from mnemon_server.config import Settings
from mnemon_server.domain.collections import DOCUMENTS, MEMORIES
from mnemon_server.domain.memories import Decay, DecayCurve, DecayPolicy
from mnemon_server.embedding.base import Embedder, EmbeddingModel
from mnemon_server.embedding.batcher import EmbeddingBatcher
from mnemon_server.embedding.factory import open_embedder
from mnemon_server.embedding.graph_cache import Precision
from mnemon_server.engines.base import RecordEngine, Vault
from mnemon_server.engines.chroma.index import ChromaIndex
from mnemon_server.engines.hnsw import GraphSettings
from mnemon_server.engines.in_memory import InMemoryVault
from mnemon_server.engines.sqlite.vault import SQLiteVault
from mnemon_server.services.event_feed import EventFeed
from mnemon_server.services.event_retention import EventRetention
from mnemon_server.services.index_applier import IndexApplier
from mnemon_server.services.knowledge_store import DocumentStore
from mnemon_server.services.memory import MemoryStore
from mnemon_server.services.offload import Offload
from mnemon_server.services.vaults import OpenVault, VaultPool
from mnemon_server.transport.server import GrpcServer
from mnemon_server.transport.tenancy import DEFAULT_TENANT

Report = Callable[[str], None]

FEED_THREADS = 4
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
        vaults = await stack.enter_async_context(open_vaults(settings, report=report))
        # What is wrong with the data folder is said at the start, not at the first call.
        async with vaults.use(DEFAULT_TENANT):
            pass
        stack.push_async_callback(server.shut_down)
        await server.serve(vaults)
        yield server


@asynccontextmanager
async def open_vaults(settings: Settings, *, report: Report) -> AsyncIterator[VaultPool]:
    """The vaults of all tenants, and the embedder that they share."""
    async with AsyncExitStack() as stack:
        embedder = await asyncio.to_thread(open_configured_embedder, settings, report)
        stack.callback(embedder.close)
        batcher = EmbeddingBatcher(
            embedder, cache_entries_max=settings.embedding_cache_entries, waiting_texts_max=WAITING_TEXTS_MAX
        )
        await stack.enter_async_context(batcher)

        async def open_vault(tenant: str) -> OpenVault:
            return await _open_vault(settings, tenant, batcher, embedder.model)

        # What is kept in memory alone would be lost with an idle vault.
        idle_s = None if _is_in_memory(settings) else settings.vault_idle_s
        yield await stack.enter_async_context(VaultPool(open_vault, open_max=settings.vaults_open_max, idle_s=idle_s))


@asynccontextmanager
async def open_document_store(settings: Settings, *, report: Report) -> AsyncIterator[DocumentStore]:
    """The knowledge store of the settings, with its engines."""
    async with open_vaults(settings, report=report) as vaults, vaults.use(DEFAULT_TENANT) as vault:
        yield vault.documents


def user_cache_folder() -> Path:
    """Where converted models are kept for all servers of this user."""
    root = os.environ.get("XDG_CACHE_HOME")
    return (Path(root) if root else Path.home() / ".cache") / "mnemon"


def vault_folder(settings: Settings, tenant: str = DEFAULT_TENANT) -> Path:
    """Where a tenant's records lie, and all that is derived from them."""
    return settings.data_dir / "tenants" / tenant


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


def decay_of(settings: Settings) -> dict[DecayPolicy, Decay]:
    """How the memories of each policy fade that fade."""
    return {
        DecayPolicy.REINFORCEABLE: Decay(
            timedelta(hours=settings.reinforceable_half_life_h), DecayCurve(settings.reinforceable_curve)
        ),
        DecayPolicy.CONTEXTUAL: Decay(
            timedelta(hours=settings.contextual_half_life_h), DecayCurve(settings.contextual_curve)
        ),
    }


async def _open_vault(settings: Settings, tenant: str, batcher: EmbeddingBatcher, model: EmbeddingModel) -> OpenVault:
    async with AsyncExitStack() as stack:
        vault = await asyncio.to_thread(_open_records, settings, tenant, model)
        stack.push_async_callback(asyncio.to_thread, vault.close)
        documents = await asyncio.to_thread(_open_documents, settings, tenant, vault, batcher, model)
        stack.push_async_callback(documents.aclose)
        memories = await asyncio.to_thread(_open_memories, settings, tenant, vault, batcher, model)
        stack.push_async_callback(memories.aclose)
        offload = Offload(FEED_THREADS, "event-reader")
        stack.push_async_callback(asyncio.to_thread, offload.close)
        feed = _open_feed(settings, vault, memories, offload)
        stack.callback(feed.close)
        await stack.enter_async_context(_retention(settings, vault, offload))
        return OpenVault(documents=documents, memories=memories, feed=feed, close=stack.pop_all().aclose)


def _is_in_memory(settings: Settings) -> bool:
    return settings.knowledge_store_backend == "in_memory"


def _open_records(settings: Settings, tenant: str, model: EmbeddingModel) -> Vault:
    if _is_in_memory(settings):
        return InMemoryVault()
    backends = (DOCUMENTS, settings.knowledge_store_backend), (MEMORIES, settings.memory_backend)
    return SQLiteVault(
        vault_folder(settings, tenant),
        model_identity=model.identity,
        dimension=model.dimension,
        vector_cache_bytes_max=settings.vector_cache_mib << 20,
        graph=GraphSettings(graph_min=settings.graph_vectors_min),
        # What ChromaDB indexes needs no second graph.
        graphs_of=[collection for collection, backend in backends if backend == "local"],
    )


def _open_documents(
    settings: Settings, tenant: str, vault: Vault, batcher: EmbeddingBatcher, model: EmbeddingModel
) -> DocumentStore:
    records = vault.collection(DOCUMENTS)
    collection = _collection_name(settings.collection, tenant)
    in_chroma = settings.knowledge_store_backend == "chromadb"
    return DocumentStore(
        records,
        batcher,
        model=model,
        backend=settings.knowledge_store_backend,
        collection=collection,
        applier=_open_applier(settings, tenant, records, model, collection, "chroma") if in_chroma else None,
        exact_scan_max=settings.exact_scan_passages_max,
        vector_weight=settings.fusion_vector_weight,
    )


def _open_memories(
    settings: Settings, tenant: str, vault: Vault, batcher: EmbeddingBatcher, model: EmbeddingModel
) -> MemoryStore:
    records = vault.collection(MEMORIES)
    collection = _collection_name(settings.memory_collection, tenant)
    in_chroma = settings.memory_backend == "chromadb" and not _is_in_memory(settings)
    return MemoryStore(
        records,
        batcher,
        model=model,
        backend=settings.memory_backend,
        collection=collection,
        applier=_open_applier(settings, tenant, records, model, collection, "chroma-memories") if in_chroma else None,
        decay=decay_of(settings),
        exact_scan_max=settings.exact_scan_passages_max,
        vector_weight=settings.fusion_vector_weight,
    )


def _open_applier(
    settings: Settings, tenant: str, records: RecordEngine, model: EmbeddingModel, collection: str, folder: str
) -> IndexApplier:
    index = ChromaIndex(
        collection=collection,
        dimension=model.dimension,
        model_identity=model.identity,
        path=None if settings.chroma_host else vault_folder(settings, tenant) / folder,
        host=settings.chroma_host,
        port=settings.chroma_port,
        ssl=settings.chroma_ssl,
    )
    return IndexApplier(records, index)


def _collection_name(name: str, tenant: str) -> str:
    """On a server that several tenants share, each has collections of its own."""
    return name if tenant == DEFAULT_TENANT else f"{name}-{tenant}"


def _open_feed(settings: Settings, vault: Vault, memories: MemoryStore, offload: Offload) -> EventFeed:
    return EventFeed(
        vault.events,
        vault.subscribe,
        read_documents=vault.collection(DOCUMENTS).get_documents,
        read_memories=memories.read_many,
        offload=offload,
        heartbeat_default_s=settings.watch_heartbeat_s,
    )


def _retention(settings: Settings, vault: Vault, offload: Offload) -> EventRetention:
    return EventRetention(
        vault.events,
        keep_for=timedelta(days=settings.event_retention_days),
        keep_max=settings.event_retention_max,
        offload=offload,
    )
