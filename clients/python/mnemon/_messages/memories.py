"""Converts the values of memories to protobuf messages, and back."""

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any

from mnemon._messages import documents as convert
from mnemon._messages.documents import invalid
from mnemon._messages.fields import check_keywords, field_reader, texts_of
from mnemon._values import documents as values
from mnemon._values import filters, memories
from mnemon.v1 import common_pb2
from mnemon.v1 import memory_pb2 as pb

_fields_of = field_reader(memories.Memory, pb.Memory.DESCRIPTOR)
_TEXTS = tuple(name for name in memories.TAGS if name not in values.SCOPE_FIELDS)
_TIMES = {
    "created_from": ("created", "start_time"),
    "created_to": ("created", "end_time"),
    "reinforced_from": ("reinforced", "start_time"),
    "reinforced_to": ("reinforced", "end_time"),
}

DECAYS_TO_PB = {
    memories.DecayPolicy.STABLE: pb.DECAY_POLICY_STABLE,
    memories.DecayPolicy.REINFORCEABLE: pb.DECAY_POLICY_REINFORCEABLE,
    memories.DecayPolicy.CONTEXTUAL: pb.DECAY_POLICY_CONTEXTUAL,
}
_DECAYS_FROM_PB = {
    pb.DECAY_POLICY_UNSPECIFIED: memories.DecayPolicy.STABLE,
    **{wire: decay for decay, wire in DECAYS_TO_PB.items()},
}
_STATUSES: dict[int, values.HealthStatus] = {
    common_pb2.STATE_READY: values.HealthStatus.HEALTHY,
    common_pb2.STATE_STARTING: values.HealthStatus.STARTING,
    # Without their vector database, memories are unhealthy for a person; the message says why.
    common_pb2.STATE_DEGRADED: values.HealthStatus.UNHEALTHY,
    common_pb2.STATE_UNAVAILABLE: values.HealthStatus.UNHEALTHY,
}


def memory_to_pb(memory: memories.Memory) -> pb.Memory:
    """A memory as a message, without the fields that only the server sets."""
    return pb.Memory(
        **texts_of(memory, memories.TEXTS),
        scope=convert.scope_to_pb(memory.scope),
        decay_policy=DECAYS_TO_PB[convert.choice("decay", memory.decay, memories.DecayPolicy)],
        metadata=convert.metadata_to_pb("metadata", memory.metadata),
        is_global=_flag("is_global", memory.is_global),
    )


def memory_from_pb(memory: pb.Memory) -> memories.Memory:
    """The memory of a message."""
    return memories.Memory(
        **_fields_of(memory),
        # A policy that a later server adds is shown by its number.
        decay=_DECAYS_FROM_PB.get(memory.decay_policy, str(memory.decay_policy)),
        embeddings=tuple(tuple(embedding.values) for embedding in memory.embeddings),
    )


def vector_to_pb(field: str, given: Sequence[float] | None, *, may_be_empty: bool = False) -> list[float] | None:
    """A vector for a message. Raises InvalidArgumentError if it is empty or holds anything but numbers."""
    if given is None:
        return None
    try:
        found = [float(number) for number in given]
    except (TypeError, ValueError):
        raise invalid(field, "must be a sequence of numbers") from None
    if not found and not may_be_empty:
        raise invalid(field, "must not be empty; leave it out, and the server embeds the text")
    return found


def memory_filter_to_pb(which: memories.MemoryFilters, min_confidence: float | None = None) -> pb.MemoryFilter | None:
    """The filter of memories, as a message; None means all."""
    given: dict[str, Any] = dict(which)
    check_keywords(given, memories.MemoryFilters.__annotations__)
    if not given and min_confidence is None:
        return None
    fields: dict[str, Any] = {name: some_text(name, given[name]) for name in _TEXTS if name in given}
    for name, (span, end) in _TIMES.items():
        if name in given:
            fields.setdefault(span, {})[end] = time_to_pb(name, given[name])
    if "is_global" in given:
        fields["is_global"] = _flag("is_global", given["is_global"])
    if "where" in given:
        fields["filter"] = filter_to_pb(filters.as_filter(given["where"]))
    return pb.MemoryFilter(
        scope=common_pb2.Scope(**{name: some_text(name, given[name]) for name in values.SCOPE_FIELDS if name in given}),
        metadata=convert.metadata_to_pb("metadata", given.get("metadata", {})),
        min_confidence=min_confidence,
        **fields,
    )


def filter_to_pb(given: filters.Filter) -> common_pb2.Filter:
    """A filter as a message."""
    match given:
        case filters.AllOf(parts):
            return common_pb2.Filter(all_of=_filters_to_pb(parts))
        case filters.AnyOf(parts):
            return common_pb2.Filter(any_of=_filters_to_pb(parts))
        case filters.Negation(part):
            return common_pb2.Filter(none_of=_filters_to_pb([part]))
        case filters.Condition(field, operator, compared):
            name = convert.text("where", field)
            return common_pb2.Filter(
                condition=common_pb2.Condition(
                    field=name,
                    comparator=common_pb2.Comparator.Value(f"COMPARATOR_{operator.name}"),
                    values=[convert.value_to_pb(f"where.{name}", value) for value in compared],
                )
            )
    raise invalid("where", "must be made with F, &, | and ~")


def time_to_pb(field: str, given: object) -> Any:
    """A time as a message."""
    if not isinstance(given, datetime):
        raise invalid(field, f"must be a datetime with a time zone, not {type(given).__name__}")
    return convert.time_to_pb(field, given)


def recall_from_pb(response: pb.SearchMemoriesResponse) -> memories.RecallAnswer:
    """The answer of a search for memories."""
    return memories.RecallAnswer(
        tuple(_match_from_pb(result) for result in response.results),
        convert.diagnostics_from_pb(response.diagnostics),
        response.truncated,
    )


def page_from_pb(response: pb.ListMemoriesResponse) -> memories.MemoryPage:
    """A page of memories."""
    return memories.MemoryPage(tuple(map(memory_from_pb, response.memories)), response.next_page_token)


def forecast_from_pb(forecast: pb.MemoryForecast) -> memories.MemoryForecast:
    """A memory whose confidence decays."""
    return memories.MemoryForecast(
        memory_from_pb(forecast.memory), forecast.confidence_then, convert.time_from_pb(forecast, "fade_time")
    )


def status_from_pb(response: pb.GetStatusResponse) -> memories.MemoryStatus:
    """The state of the memory service."""
    index = response.index
    return memories.MemoryStatus(
        status=_STATUSES.get(response.state, values.HealthStatus.UNKNOWN),
        error=response.message,
        backend=response.backend,
        host=response.host,
        collection=response.collection,
        memory_count=response.memory_count,
        deleted_count=response.deleted_count,
        index=memories.VectorIndexStatus(
            flat_count=index.flat_count,
            graph_count=index.graph_count,
            dead_count=index.dead_count,
            bytes=index.memory_bytes,
            snapshot_time=convert.time_from_pb(index, "snapshot_time"),
            pending=index.pending_count,
            removal_pending_count=index.removal_pending_count,
            removal_out_of_reach_count=index.removal_out_of_reach_count,
        ),
    )


def _match_from_pb(match: pb.MemoryMatch) -> memories.MemoryMatch:
    return memories.MemoryMatch(
        memory=memory_from_pb(match.memory),
        score=match.score.relevance,
        similarity=match.score.vector if match.score.HasField("vector") else None,
        distance=match.distance if match.HasField("distance") else None,
        keyword_score=match.score.keyword if match.score.HasField("keyword") else None,
        explanation=_explanation_from_pb(match.explanation) if match.HasField("explanation") else None,
    )


def _explanation_from_pb(explanation: pb.MatchExplanation) -> memories.MatchExplanation:
    return memories.MatchExplanation(
        parts=tuple(
            memories.ScorePart(part.name, part.score, part.weight, part.contribution) for part in explanation.parts
        ),
        matched_terms=tuple(explanation.matched_terms),
        confidence=explanation.confidence,
        passage_start=explanation.passage_start,
        passage_end=explanation.passage_end,
    )


def _filters_to_pb(parts: Iterable[filters.Filter]) -> common_pb2.FilterList:
    return common_pb2.FilterList(filters=map(filter_to_pb, parts))


def some_text(field: str, given: object) -> str:
    """Text of a filter. Raises InvalidArgumentError if it is empty, because an empty text in a message means all."""
    found = convert.text(field, given)
    if not found:
        raise invalid(field, f'must not be empty: leave it out, or say where=~F("{field}").exists()')
    return found


def _flag(field: str, given: object) -> bool:
    if not isinstance(given, bool):
        raise invalid(field, f"must be True or False, not {given!r}")
    return given
