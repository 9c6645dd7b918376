"""Opens what works on a vault's timeline: the service, the retention and the bridge."""

from contextlib import AbstractAsyncContextManager, nullcontext
from typing import Any

from mnemon_server.assembly.settings import event_retention_settings, event_store_settings
from mnemon_server.config.settings import Settings
from mnemon_server.embedding.batcher import EmbeddingBatcher
from mnemon_server.engines.promises.vault import Vault
from mnemon_server.services.bridge.bridge import Bridge
from mnemon_server.services.events.retention import EventRetention
from mnemon_server.services.events.store import EventStore
from mnemon_server.services.semantic.store import SemanticStore
from mnemon_server.services.shared.clock_guard import ClockGuard
from mnemon_server.services.shared.offload import Offload


def open_event_store(settings: Settings, vault: Vault, batcher: EmbeddingBatcher) -> EventStore:
    """Opens the timeline's service."""
    return EventStore(vault.events, vault, batcher, settings=event_store_settings(settings))


def open_event_retention(
    settings: Settings, vault: Vault, episodic: EventStore, guard: ClockGuard, offload: Offload
) -> AbstractAsyncContextManager[Any]:
    """Opens the removal of old events, which runs while entered. Does nothing if all events are kept."""
    retention = event_retention_settings(settings)
    if retention is None:
        return nullcontext()
    return EventRetention(
        vault.events,
        retention,
        guard=guard,
        pruning=episodic.pruning,
        health=episodic.health,
        offload=offload,
    )


def make_bridge(vault: Vault, semantic: SemanticStore, offload: Offload) -> Bridge:
    """Creates the bridge, which starts when entered."""
    return Bridge(vault, vault.events, semantic, offload=offload)
