"""Reads the gauges of an open vault."""

import asyncio
from collections.abc import Awaitable, Callable

from mnemon_server.domain.collections import DOCUMENTS, FACTS, MEMORIES, SEMANTIC
from mnemon_server.embedding.batcher import EmbeddingBatcher
from mnemon_server.engines.promises.vault import Vault
from mnemon_server.services.bridge.bridge import Bridge
from mnemon_server.services.documents.store import DocumentStore
from mnemon_server.services.events.store import EventStore
from mnemon_server.services.memories.store import MemoryStore
from mnemon_server.services.shared.gauges import VaultGauges


def gauges_of(
    vault: Vault,
    documents: DocumentStore,
    memories: MemoryStore,
    episodic: EventStore,
    bridge: Bridge,
    batcher: EmbeddingBatcher,
) -> Callable[[], Awaitable[VaultGauges]]:
    """Reads the gauges of a vault."""
    backends = {DOCUMENTS: documents.backend, MEMORIES: memories.backend}
    gathering = documents.waiting, memories.waiting, episodic.waiting

    def pending() -> dict[str, int]:
        counts = {collection.name: backend.pending() for collection, backend in backends.items()}
        return {name: count for name, count in counts.items() if count is not None}

    async def read() -> VaultGauges:
        return VaultGauges(
            waiting_writes=vault.waiting_writes() + sum(each.records for each in gathering),
            waiting_texts=batcher.waiting_texts,
            vectors={
                each.name: vault.collection(each).vector_usage() for each in (DOCUMENTS, MEMORIES, FACTS, SEMANTIC)
            },
            pending_changes=await asyncio.to_thread(pending),
            bridge_waiting=(await bridge.status()).queue_depth,
        )

    return read
