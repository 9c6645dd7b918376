"""Converts the table of settings to the values that services and engines take, one group at a time."""

from collections.abc import Container
from datetime import timedelta

from mnemon_server.config.settings import Settings
from mnemon_server.domain.access.quotas import NAMES as QUOTA_NAMES
from mnemon_server.domain.access.quotas import OF_TENANTS_ONLY, UNLIMITED, parse_quotas
from mnemon_server.domain.collections import DOCUMENTS, MEMORIES, Collection
from mnemon_server.domain.errors import ConfigurationError, InvalidArgumentError
from mnemon_server.domain.history import HistorySettings
from mnemon_server.domain.memories import Decay, DecayCurve, DecayPolicy
from mnemon_server.domain.records import metadata_key_problem
from mnemon_server.embedding.base import ModelOptions
from mnemon_server.engines.chroma import ChromaSettings
from mnemon_server.engines.events.settings import EventEngineSettings
from mnemon_server.engines.hnsw import GraphSettings
from mnemon_server.engines.master_keys import NO_MASTER_KEYS, MasterKeys
from mnemon_server.engines.sqlite.scanners import VectorSettings
from mnemon_server.engines.sqlite.upkeep.shadow import NO_SECOND_MODEL, VaultModels
from mnemon_server.engines.sqlite_vault import VaultSettings
from mnemon_server.ranking.fusion import Fusion, FusionMethod, TextModel
from mnemon_server.ranking.heads import Heads
from mnemon_server.ranking.settings import RankingSettings
from mnemon_server.services.events.retention import EventRetentionSettings
from mnemon_server.services.events.store import EventStoreSettings
from mnemon_server.services.feed.retention import ChangeRetentionSettings
from mnemon_server.services.limits.accounts import Accounts
from mnemon_server.services.search.reranking import default_ranker
from mnemon_server.services.search.settings import SearchSettings
from mnemon_server.services.semantic.store import SemanticSettings
from mnemon_server.services.writing.write_pressure import WriteLatency


def accounts_of(settings: Settings) -> Accounts:
    """The accounts of all tenants and callers, with the quotas of the settings.

    Raises:
        ConfigurationError: a quota is not valid.
    """
    of_callers = [name for name in QUOTA_NAMES if name not in OF_TENANTS_ONLY]
    try:
        per_tenant = parse_quotas(settings.quotas_per_tenant, "quotas_per_tenant")
        per_caller = parse_quotas(settings.quotas_per_caller, "quotas_per_caller", of_callers)
    except InvalidArgumentError as error:
        raise ConfigurationError(str(error)) from error
    return Accounts(
        per_tenant if per_tenant != UNLIMITED else UNLIMITED, per_caller if per_caller != UNLIMITED else UNLIMITED
    )


def fusion_of(settings: Settings, model: TextModel | None) -> Fusion:
    """The fusion of meaning and keywords in hybrid searches of all collections and of events."""
    return Fusion(FusionMethod(settings.fusion), settings.fusion_vector_weight, settings.fusion_rrf_k, model)


def model_options(settings: Settings) -> ModelOptions:
    """The settings of an embedding model that is not built in."""
    return ModelOptions(
        settings.embedding_dimensions, settings.embedding_query_prefix, settings.embedding_passage_prefix
    )


def search_settings(settings: Settings, model: TextModel | None) -> SearchSettings:
    """How the passages of all collections are searched."""
    return SearchSettings(
        exact_scan_max=settings.exact_scan_passages_max,
        fusion=fusion_of(settings, model),
        ranker=default_ranker() if settings.search_reranking else None,
    )


def decay_of(settings: Settings) -> dict[DecayPolicy, Decay]:
    """The decay of each policy that has one."""
    return {
        DecayPolicy.REINFORCEABLE: Decay(
            timedelta(hours=settings.reinforceable_half_life_h), DecayCurve(settings.reinforceable_curve)
        ),
        DecayPolicy.CONTEXTUAL: Decay(
            timedelta(hours=settings.contextual_half_life_h), DecayCurve(settings.contextual_curve)
        ),
    }


def semantic_settings(settings: Settings) -> SemanticSettings:
    """The capacity of semantic memory, and the target time of a save."""
    return SemanticSettings(settings.semantic_capacity, WriteLatency(settings.semantic_write_latency_target_ms / 1000))


def event_engine_settings(settings: Settings) -> EventEngineSettings:
    """How timelines are stored on disk."""
    return EventEngineSettings(
        segment_bytes_max=settings.timeline_segment_max_mib << 20,
        segment_events_max=settings.timeline_segment_max_events,
        segment_age_max_s=settings.timeline_segment_max_age_s,
        scrub_interval_s=settings.timeline_scrub_interval_h * 3600,
    )


def history_settings(settings: Settings) -> HistorySettings:
    """How much of the history is kept."""
    return HistorySettings(settings.history_versions, timedelta(days=settings.history_days))


def vault_settings(
    settings: Settings,
    model: TextModel | None,
    *,
    graphs_of: Container[Collection],
    models: VaultModels = NO_SECOND_MODEL,
    master: MasterKeys = NO_MASTER_KEYS,
) -> VaultSettings:
    """How a vault is kept, with local graphs for the vectors of these collections."""
    return VaultSettings(
        vectors=VectorSettings(
            settings.vector_cache_mib << 20, GraphSettings(graph_min=settings.graph_vectors_min), graphs_of
        ),
        events=event_engine_settings(settings),
        ranking=RankingSettings(settings.search_context_weight, fusion_of(settings, model), heads_of(settings)),
        erasure_delay_s=settings.erasure_delay_s,
        history=history_settings(settings),
        models=models,
        master=master,
        is_durable=not is_in_memory(settings),
    )


def heads_of(settings: Settings) -> Heads:
    """The heads of records in new vaults and in vaults that are embedded anew.

    Raises:
        ConfigurationError: a key cannot be one of metadata.
    """
    for key in settings.search_metadata_keys:
        if problem := metadata_key_problem(key):
            raise ConfigurationError(f"search_metadata_keys: the key {key[:80]!r} {problem}")
    return Heads(settings.search_metadata_keys)


def backend_of(settings: Settings, collection: Collection) -> str:
    """The index of a collection's vectors: in_memory, local, or chromadb if the host of a server is set."""
    backends = {DOCUMENTS: settings.knowledge_store_backend, MEMORIES: settings.memory_backend}
    if is_in_memory(settings):
        return "in_memory" if collection is DOCUMENTS else "local"
    return "chromadb" if settings.chroma_host and backends.get(collection) == "chromadb" else "local"


def is_in_memory(settings: Settings) -> bool:
    """Whether all data is lost when the process ends."""
    return settings.knowledge_store_backend == "in_memory"


def chroma_settings(settings: Settings) -> ChromaSettings:
    """The address of the ChromaDB server."""
    return ChromaSettings(host=settings.chroma_host, port=settings.chroma_port, ssl=settings.chroma_ssl)


def event_store_settings(settings: Settings) -> EventStoreSettings:
    """The target time for recording an event, and the retention."""
    retention = event_retention_settings(settings)
    return EventStoreSettings(
        WriteLatency(settings.timeline_write_latency_target_ms / 1000),
        retention.keep_for if retention else None,
        default_ranker() if settings.search_reranking else None,
    )


def event_retention_settings(settings: Settings) -> EventRetentionSettings | None:
    """How old events are removed; None if all events are kept."""
    if settings.timeline_retention_days is None:
        return None
    return EventRetentionSettings(
        timedelta(days=settings.timeline_retention_days),
        settings.timeline_prune_share_max,
        settings.timeline_prune_guard_min_events,
    )


def change_retention_settings(settings: Settings) -> ChangeRetentionSettings:
    """How long, and how many, changes are kept."""
    return ChangeRetentionSettings(timedelta(days=settings.change_retention_days), settings.change_retention_max)
