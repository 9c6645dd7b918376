"""Opens the services over the collections and the change log of a vault."""

from collections.abc import Mapping, Sequence

from mnemon_server.assembly.settings import (
    backend_of,
    change_retention_settings,
    chroma_settings,
    decay_of,
    is_in_memory,
    search_settings,
    semantic_settings,
)
from mnemon_server.config.settings import Settings
from mnemon_server.domain.access import DEFAULT_TENANT
from mnemon_server.domain.clock import system_clock
from mnemon_server.domain.collections import DOCUMENTS, FACTS, MEMORIES, SEMANTIC, Collection
from mnemon_server.domain.facts import Fact
from mnemon_server.domain.kinds import RecordKind
from mnemon_server.domain.semantic import SemanticMemory
from mnemon_server.embedding.base import EmbeddingModel
from mnemon_server.embedding.batcher import EmbeddingBatcher
from mnemon_server.engines.backups.folders import TenantBackups
from mnemon_server.engines.chroma import ChromaIndex
from mnemon_server.engines.promises.backup import Copyable
from mnemon_server.engines.promises.records import RecordEngine
from mnemon_server.engines.promises.values import Fits
from mnemon_server.engines.promises.vault import Vault
from mnemon_server.services.archive.store import ArchiveStore
from mnemon_server.services.background.clock_guard import ClockGuard
from mnemon_server.services.background.offload import Offload
from mnemon_server.services.backup.store import BackupStore
from mnemon_server.services.bridge.bridge import Bridge
from mnemon_server.services.conflicts.judging import Advisor
from mnemon_server.services.conflicts.resolution import ConflictResolver
from mnemon_server.services.documents.store import DocumentStore
from mnemon_server.services.facts.store import FactStore
from mnemon_server.services.facts.stored_form import has_expired, to_fact
from mnemon_server.services.feed.feed import ChangeFeed
from mnemon_server.services.feed.records import ReadRecords
from mnemon_server.services.feed.retention import ChangeRetention
from mnemon_server.services.memories.store import MemoryStore
from mnemon_server.services.rules.store import RuleStore
from mnemon_server.services.search.index_applier import IndexApplier
from mnemon_server.services.search.settings import VectorBackend
from mnemon_server.services.semantic.health import Capacity
from mnemon_server.services.semantic.store import SemanticStore
from mnemon_server.services.semantic.stored_form import to_semantic


def open_documents(settings: Settings, tenant: str, vault: Vault, batcher: EmbeddingBatcher) -> DocumentStore:
    """Opens the knowledge store. Raises ConfigurationError if a setting of its index is not valid."""
    records = vault.collection(DOCUMENTS)
    name = _collection_name(settings.collection, tenant)
    backend = _open_backend(settings, records, DOCUMENTS, name, batcher.model)
    return DocumentStore(records, batcher, backend, search=search_settings(settings, batcher))


def open_memories(settings: Settings, tenant: str, vault: Vault, batcher: EmbeddingBatcher) -> MemoryStore:
    """Opens the memory service. Raises ConfigurationError if a setting of its index is not valid."""
    records = vault.collection(MEMORIES)
    name = _collection_name(settings.memory_collection, tenant)
    backend = _open_backend(settings, records, MEMORIES, name, batcher.model)
    return MemoryStore(records, batcher, backend, search=search_settings(settings, batcher), decay=decay_of(settings))


def open_semantic(
    settings: Settings, vault: Vault, batcher: EmbeddingBatcher, rules: RuleStore, advisor: Advisor | None
) -> SemanticStore:
    """Opens the semantic memory service."""
    return SemanticStore(
        vault,
        batcher,
        resolver=ConflictResolver(rules, advisor),
        settings=semantic_settings(settings),
        search=search_settings(settings, batcher),
    )


def open_facts(settings: Settings, vault: Vault, batcher: EmbeddingBatcher) -> FactStore:
    """Opens the fact store."""
    return FactStore(vault, batcher, search=search_settings(settings, batcher))


def open_archive(settings: Settings, vault: Vault, batcher: EmbeddingBatcher, rules: RuleStore) -> ArchiveStore:
    """Opens the service for exports and imports."""
    capacity = Capacity(settings.semantic_capacity, lambda: vault.collection(SEMANTIC).stats().passage_count)
    return ArchiveStore(vault, batcher, rules=rules, capacity=capacity)


def open_backups(settings: Settings, tenant: str, vault: Copyable) -> BackupStore:
    """Opens the service for backups."""
    return BackupStore(None if is_in_memory(settings) else vault, backups_of(settings, tenant))


def backups_of(settings: Settings, tenant: str) -> TenantBackups | None:
    """The backups that the server keeps of a tenant; None if the settings name no folder for them."""
    return TenantBackups(settings.backup_dir / tenant) if settings.backup_dir else None


def open_feed(settings: Settings, vault: Vault, memories: MemoryStore, offload: Offload) -> ChangeFeed:
    """Opens the service that watches and lists the change log."""
    return ChangeFeed(
        vault.changes,
        vault.subscribe,
        readers=feed_readers(vault, memories),
        offload=offload,
        heartbeat_default_s=settings.watch_heartbeat_s,
    )


def feed_readers(vault: Vault, memories: MemoryStore) -> Mapping[RecordKind, ReadRecords]:
    """Functions that read the records of a vault, or of a part of it, for its feed."""
    return {
        RecordKind.DOCUMENT: vault.collection(DOCUMENTS).get_documents,
        RecordKind.MEMORY: memories.read_many,
        RecordKind.SEMANTIC: _reader_of_semantic(vault),
        RecordKind.EVENT: vault.events.get,
        RecordKind.FACT: _reader_of_facts(vault),
    }


def open_change_retention(
    settings: Settings, vault: Vault, bridge: Bridge, guard: ClockGuard, offload: Offload
) -> ChangeRetention:
    """Opens the trimming of the change log, which starts when entered. Keeps the changes that the bridge still
    needs.
    """
    return ChangeRetention(
        vault.changes,
        change_retention_settings(settings),
        guard=guard,
        offload=offload,
        keep_after=bridge.keep_after if settings.bridge_enabled else lambda: None,
    )


def _open_backend(
    settings: Settings, records: RecordEngine, collection: Collection, name: str, model: EmbeddingModel
) -> VectorBackend:
    backend = backend_of(settings, collection)
    if backend != "chromadb":
        return VectorBackend(backend, name)
    index = ChromaIndex(
        chroma_settings(settings), collection=name, dimension=model.dimension, model_identity=model.identity
    )
    return VectorBackend(backend, name, IndexApplier(records, index))


def _collection_name(name: str, tenant: str) -> str:
    """The name of a collection on a ChromaDB server, where each tenant has its own collections."""
    if tenant == DEFAULT_TENANT:
        return name
    # ChromaDB rejects names such as "team_". Tenant ids never contain a period.
    return f"{name}-{tenant}" if tenant[-1].isalnum() else f"{name}-{tenant}.0"


def _reader_of_semantic(vault: Vault) -> ReadRecords:
    """Returns a function that reads statements by id, including superseded ones."""

    def read(memory_ids: Sequence[str], *, fits: Fits) -> list[SemanticMemory | None]:
        found = vault.collection(SEMANTIC).get_documents(memory_ids, fits=fits)
        return [None if document is None else to_semantic(document) for document in found]

    return read


def _reader_of_facts(vault: Vault) -> ReadRecords:
    """Returns a function that reads facts by record id, without expired ones."""

    def read(record_ids: Sequence[str], *, fits: Fits) -> list[Fact | None]:
        now = system_clock()
        found = vault.collection(FACTS).get_documents(record_ids, fields_only=True, fits=fits)
        return [
            None if document is None or has_expired(document, now) else to_fact(document, as_text=True)
            for document in found
        ]

    return read
