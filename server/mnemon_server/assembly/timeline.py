"""Opens what works on a vault's timeline: the service, the retention and the bridge."""

from contextlib import AbstractAsyncContextManager, nullcontext
from typing import Any

from mnemon_server.assembly.settings import episodic_settings, timeline_retention_settings
from mnemon_server.config.settings import Settings
from mnemon_server.embedding.batcher import EmbeddingBatcher
from mnemon_server.engines.promises.vault import Vault
from mnemon_server.services.bridge.bridge import Bridge
from mnemon_server.services.semantic.store import SemanticStore
from mnemon_server.services.shared.clock_guard import ClockGuard
from mnemon_server.services.shared.offload import Offload
from mnemon_server.services.timeline.retention import TimelineRetention
from mnemon_server.services.timeline.store import EpisodicStore


def open_episodic(settings: Settings, vault: Vault, batcher: EmbeddingBatcher) -> EpisodicStore:
    """Opens the timeline's service."""
    return EpisodicStore(vault.timeline, vault, batcher, settings=episodic_settings(settings))


def open_timeline_retention(
    settings: Settings, vault: Vault, episodic: EpisodicStore, guard: ClockGuard, offload: Offload
) -> AbstractAsyncContextManager[Any]:
    """Opens the removal of old events, which runs while entered. Does nothing if all events are kept."""
    retention = timeline_retention_settings(settings)
    if retention is None:
        return nullcontext()
    return TimelineRetention(
        vault.timeline,
        retention,
        guard=guard,
        pruning=episodic.pruning,
        health=episodic.health,
        offload=offload,
    )


def make_bridge(vault: Vault, semantic: SemanticStore, offload: Offload) -> Bridge:
    """Creates the bridge, which starts when entered."""
    return Bridge(vault, vault.timeline, semantic, offload=offload)
