"""Opens what works on a vault's timeline: the service, the retention and the bridge."""

from contextlib import AbstractAsyncContextManager, nullcontext
from datetime import timedelta
from typing import Any

from mnemon_server.config.settings import Settings
from mnemon_server.embedding.batcher import EmbeddingBatcher
from mnemon_server.engines.promises.vault import Vault
from mnemon_server.engines.timeline.settings import TimelineSettings
from mnemon_server.services.bridge.bridge import Bridge
from mnemon_server.services.semantic.store import SemanticStore
from mnemon_server.services.shared.clock_guard import ClockGuard
from mnemon_server.services.shared.offload import Offload
from mnemon_server.services.timeline.retention import TimelineRetention, TimelineRetentionSettings
from mnemon_server.services.timeline.store import EpisodicStore


def timeline_settings(settings: Settings) -> TimelineSettings:
    """How timelines are stored on disk."""
    return TimelineSettings(
        segment_bytes_max=settings.timeline_segment_max_mib << 20,
        segment_events_max=settings.timeline_segment_max_events,
        segment_age_max_s=settings.timeline_segment_max_age_s,
        scrub_interval_s=settings.timeline_scrub_interval_h * 3600,
    )


def open_episodic(settings: Settings, vault: Vault, batcher: EmbeddingBatcher) -> EpisodicStore:
    """Opens the timeline's service."""
    return EpisodicStore(
        vault.timeline,
        vault,
        batcher,
        write_latency_target_s=settings.timeline_write_latency_target_ms / 1000,
        keep_for=_retention_of(settings),
    )


def open_timeline_retention(
    settings: Settings, vault: Vault, episodic: EpisodicStore, guard: ClockGuard, offload: Offload
) -> AbstractAsyncContextManager[Any]:
    """Opens the removal of old events, which runs while entered. Does nothing if all events are kept."""
    keep_for = _retention_of(settings)
    if keep_for is None:
        return nullcontext()
    return TimelineRetention(
        vault.timeline,
        TimelineRetentionSettings(
            keep_for, settings.timeline_prune_share_max, settings.timeline_prune_guard_min_events
        ),
        guard=guard,
        pruning=episodic.pruning,
        health=episodic.health,
        offload=offload,
    )


def make_bridge(vault: Vault, semantic: SemanticStore, offload: Offload) -> Bridge:
    """Creates the bridge, which starts when entered."""
    return Bridge(vault, vault.timeline, semantic, offload=offload)


def _retention_of(settings: Settings) -> timedelta | None:
    days = settings.timeline_retention_days
    return None if days is None else timedelta(days=days)
