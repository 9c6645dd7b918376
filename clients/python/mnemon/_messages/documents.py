"""Converts the values of the client to protobuf messages, and back."""

import sys
import warnings
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from traceback import walk_stack
from typing import Any

from google.protobuf import timestamp_pb2
from google.protobuf.message import Message

from mnemon._arguments import plain
from mnemon._enums import choice as choice
from mnemon._enums import numbers_by_member
from mnemon._errors import (
    FieldViolation,
    IgnoredFilterWarning,
    InternalError,
    InvalidArgumentError,
    UnmatchedFilterWarning,
)
from mnemon._values import documents as values
from mnemon.v1 import common_pb2, knowledge_store_pb2

_INT64_MIN, _INT64_MAX = -(2**63), 2**63 - 1
_Filtered = (
    knowledge_store_pb2.SearchDocumentsResponse
    | knowledge_store_pb2.ListDocumentsResponse
    | knowledge_store_pb2.CountDocumentsResponse
)


def invalid(field: str, description: str) -> InvalidArgumentError:
    """An error about one field that cannot be sent."""
    return InvalidArgumentError.of(field, description)


def text(field: str, given: object) -> str:
    """Text that can be sent: a str that UTF-8 can encode."""
    if not isinstance(given, str):
        raise invalid(field, f"must be text, not {type(given).__name__}")
    try:
        given.encode()
    except UnicodeEncodeError as error:
        raise invalid(field, f"must be valid Unicode; character {error.start} is a lone surrogate") from None
    return given


def metadata_to_pb(field: str, metadata: object) -> dict[str, common_pb2.MetadataValue]:
    """Metadata as messages. Raises InvalidArgumentError, which names the key, for an invalid value."""
    if not isinstance(metadata, Mapping):
        raise invalid(field, f"must be a mapping of keys to values, not {type(metadata).__name__}")
    return {text(f"{field} key", key): value_to_pb(f"{field}.{key}", value) for key, value in metadata.items()}


def keys(field: str, given: Iterable[str]) -> list[str]:
    """Keys of metadata. A single text is an error, since it would be read as its letters."""
    if isinstance(given, str):
        raise invalid(field, f"must be several keys, such as [{given!r}]")
    return [text(field, key) for key in given]


def filters_to_pb(filters: Mapping[str, values.FilterValue] | None) -> dict[str, common_pb2.MetadataValue]:
    """Filters as messages. An invalid value is sent unset, so that the server ignores and reports it."""
    if not isinstance(filters, Mapping | None):
        raise invalid("filters", f"must be a mapping of keys to values, not {type(filters).__name__}")
    found = {}
    for key, value in (filters or {}).items():
        try:
            found[text("filters key", key)] = value_to_pb(f"filters.{key}", value)
        except InvalidArgumentError:
            if not isinstance(key, str):
                raise
            found[key] = common_pb2.MetadataValue()
    return found


def value_to_pb(field: str, value: object) -> common_pb2.MetadataValue:
    """One typed value as a message. Raises InvalidArgumentError, which names the field, for an invalid value."""
    match value := plain(value):
        case bool():
            return common_pb2.MetadataValue(bool_value=value)
        case int():
            if not _INT64_MIN <= value <= _INT64_MAX:
                raise invalid(field, "must fit into 64 bits")
            return common_pb2.MetadataValue(int_value=value)
        case float():
            return common_pb2.MetadataValue(double_value=value)
        case str():
            return common_pb2.MetadataValue(string_value=text(field, value))
        case datetime():
            return common_pb2.MetadataValue(timestamp_value=time_to_pb(field, value))
        case list() | tuple():
            items = common_pb2.StringList(values=[text(f"{field}[{index}]", item) for index, item in enumerate(value)])
            return common_pb2.MetadataValue(string_list_value=items)
    raise invalid(
        field, "must be text, a whole number, a number, a boolean, a list of texts or a time; null is not a value"
    )


def time_to_pb(field: str, value: datetime) -> timestamp_pb2.Timestamp:
    """A time as a message. Raises InvalidArgumentError, which names the field, if it has no time zone."""
    if value.tzinfo is None:
        raise invalid(field, "must carry a time zone, such as datetime.now(UTC)")
    time = timestamp_pb2.Timestamp()
    try:
        time.FromDatetime(value)
    except (OverflowError, ValueError):
        raise invalid(field, f"must be within the years 1 to 9999 in UTC, not {value.isoformat()}") from None
    return time


def time_from_pb(message: Message, field: str) -> datetime | None:
    """The time in a field of a message; None if it is unset."""
    return getattr(message, field).ToDatetime(UTC) if message.HasField(field) else None


def value_from_pb(key: str, value: common_pb2.MetadataValue) -> values.MetadataValue:
    """The value of a message, with its type."""
    match value.WhichOneof("kind"):
        case "string_value":
            return value.string_value
        case "int_value":
            return value.int_value
        case "double_value":
            return value.double_value
        case "bool_value":
            return value.bool_value
        case "string_list_value":
            return list(value.string_list_value.values)
        case "timestamp_value":
            return value.timestamp_value.ToDatetime(UTC)
    raise InternalError(f"metadata {key!r} has a kind of value that this client does not know; a newer one is needed")


def metadata_from_pb(metadata: Mapping[str, common_pb2.MetadataValue]) -> dict[str, values.MetadataValue]:
    """The metadata of a message."""
    return {key: value_from_pb(key, value) for key, value in metadata.items()}


def scope_to_pb(scope: values.Scope | None) -> common_pb2.Scope | None:
    """A scope as a message."""
    if scope is None:
        return None
    return common_pb2.Scope(**{name: text(f"scope.{name}", getattr(scope, name)) for name in values.SCOPE_FIELDS})


def scope_from_pb(scope: common_pb2.Scope) -> values.Scope:
    """The scope of a message."""
    return values.Scope(*(getattr(scope, name) for name in values.SCOPE_FIELDS))


def document_from_pb(document: knowledge_store_pb2.Document) -> values.Document:
    """The document of a message."""
    return values.Document(
        doc_id=document.doc_id,
        content=document.content,
        metadata=metadata_from_pb(document.metadata),
        scope=scope_from_pb(document.scope),
        revision=document.revision,
        create_time=time_from_pb(document, "create_time"),
        update_time=time_from_pb(document, "update_time"),
        passage_count=document.passage_count,
        embeddings=tuple(tuple(embedding.values) for embedding in document.embeddings),
    )


def answer_from_pb(response: knowledge_store_pb2.SearchDocumentsResponse) -> values.SearchAnswer:
    """The answer of a search."""
    return values.SearchAnswer(
        results=tuple(_result_from_pb(result) for result in response.results),
        **_filter_notes(response),
        diagnostics=diagnostics_from_pb(response.diagnostics),
        truncated=response.truncated,
    )


def diagnostics_from_pb(diagnostics: common_pb2.SearchDiagnostics) -> values.SearchDiagnostics:
    """How an answer was found."""
    return values.SearchDiagnostics(
        mode=mode_from_pb(diagnostics.mode),
        exact=diagnostics.exact,
        total_candidates=diagnostics.total_candidates,
        scanned=diagnostics.scanned,
        pending=diagnostics.pending,
        degraded=diagnostics.degraded,
        duration_s=diagnostics.duration.ToTimedelta().total_seconds(),
        **relevance_from_pb(diagnostics),
    )


def mode_to_pb(mode: str | None) -> Any:
    """The search mode; None leaves it to the server."""
    return None if mode is None else MODES_TO_PB[choice("mode", mode, values.SearchMode)]


def relevance_from_pb(diagnostics: common_pb2.SearchDiagnostics) -> dict[str, Any]:
    """The fields of Relevance."""
    return {
        "best_relevance": diagnostics.best_relevance if diagnostics.HasField("best_relevance") else None,
        "relevance_floor": diagnostics.relevance_floor if diagnostics.HasField("relevance_floor") else None,
        "nothing_relevant": diagnostics.nothing_relevant,
    }


def mode_from_pb(mode: int) -> values.SearchMode | None:
    """The search mode; None if it is unset or unknown to this client."""
    return _MODES_FROM_PB.get(mode)


def _result_from_pb(match: knowledge_store_pb2.DocumentMatch) -> values.SearchResult:
    passage, score = match.passage, match.score
    return values.SearchResult(
        document=document_from_pb(match.document),
        score=score.relevance,
        source=match.source,
        vector_score=score.vector if score.HasField("vector") else None,
        keyword_score=score.keyword if score.HasField("keyword") else None,
        passage=values.Passage(passage.index, passage.start, passage.end) if match.HasField("passage") else None,
    )


def _filter_notes(response: _Filtered) -> dict[str, Any]:
    return {
        "ignored_filters": tuple(values.IgnoredFilter(each.key, each.reason) for each in response.ignored_filters),
        "unmatched_filters": tuple(
            values.UnmatchedFilter(each.key, each.reason) for each in response.unmatched_filters
        ),
    }


def check_filters(response: _Filtered, *, strict: bool) -> None:
    """Warns of filters that were ignored or can match nothing; raises InvalidArgumentError for them if `strict`."""
    told: list[Any] = [*response.ignored_filters, *response.unmatched_filters]
    if strict and (violations := [FieldViolation(f"filters.{each.key}", each.reason) for each in told]):
        message = "; ".join(f"{violation.field}: {violation.description}" for violation in violations)
        raise InvalidArgumentError(message, reason="INVALID_ARGUMENT", violations=violations)
    warn_of_filters(response.ignored_filters, response.unmatched_filters)


def warn_of_filters(ignored: Iterable[Any], unmatched: Iterable[Any]) -> None:
    """Warns of filters, each with a `key` and a `reason`, where the caller's code calls this package."""
    found: list[tuple[str, type[Warning]]]
    found = [(f"the filter {each.key!r} was not applied: {each.reason}", IgnoredFilterWarning) for each in ignored]
    found += [(f"the filter {each.key!r} finds nothing: {each.reason}", UnmatchedFilterWarning) for each in unmatched]
    level = _outside() if found else 0
    for message, kind in found:
        warnings.warn(message, kind, stacklevel=level)


def _outside() -> int:
    """The level, for the function that calls this one, of the nearest frame outside of the client and the server."""
    frames = (frame.f_globals.get("__name__", "").partition(".")[0] for frame, _ in walk_stack(sys._getframe(1)))
    return next((level for level, name in enumerate(frames, 1) if name not in ("mnemon", "mnemon_server")), 1)


def no_answer(mode: str | None) -> values.SearchAnswer:
    """The answer to a search for zero results."""
    chosen = choice("mode", mode or values.SearchMode.HYBRID, values.SearchMode)
    diagnostics = values.SearchDiagnostics(
        mode=chosen, exact=True, total_candidates=0, scanned=0, pending=0, degraded="", duration_s=0.0
    )
    return values.SearchAnswer((), (), diagnostics)


def receipt_from_pb(receipt: common_pb2.WriteReceipt) -> values.WriteReceipt:
    """The server's receipt for a write."""
    return values.WriteReceipt(
        id=receipt.id,
        outcome=_OUTCOMES_FROM_PB.get(receipt.outcome, values.WriteOutcome.UNKNOWN),
        revision=receipt.revision,
        commit_time=time_from_pb(receipt, "commit_time"),
        replayed=receipt.replayed,
    )


def page_from_pb(response: knowledge_store_pb2.ListDocumentsResponse) -> values.DocumentPage:
    """A page of documents."""
    return values.DocumentPage(
        documents=tuple(document_from_pb(document) for document in response.documents),
        next_page_token=response.next_page_token,
        **_filter_notes(response),
    )


def model_from_pb(model: common_pb2.EmbeddingModel) -> values.EmbeddingModel:
    """The model that makes the vectors."""
    return values.EmbeddingModel(model.name, model.revision, model.precision, model.dimension)


def health_from_pb(response: knowledge_store_pb2.CheckHealthResponse) -> values.StoreHealth:
    """The health of the store."""
    return values.StoreHealth(
        status=_HEALTH_FROM_PB.get(response.state, values.HealthStatus.UNKNOWN),
        message=response.message,
        backend=response.backend,
        host=response.host,
        collection=response.collection,
        embedding_model=model_from_pb(response.embedding_model),
        document_count=response.document_count,
        passage_count=response.passage_count,
        pending=response.pending_count,
        latency_s=response.latency.ToTimedelta().total_seconds() if response.HasField("latency") else None,
        removal_pending_count=response.removal_pending_count,
        removal_out_of_reach_count=response.removal_out_of_reach_count,
    )


VIEWS_TO_PB = numbers_by_member(values.View, common_pb2.View.DESCRIPTOR)
MODES_TO_PB = {
    values.SearchMode.VECTOR: common_pb2.SEARCH_MODE_VECTOR,
    values.SearchMode.KEYWORD: common_pb2.SEARCH_MODE_KEYWORD,
    values.SearchMode.HYBRID: common_pb2.SEARCH_MODE_HYBRID,
}

ACKS_TO_PB = {
    values.AckLevel.DURABLE: common_pb2.ACK_LEVEL_DURABLE,
    values.AckLevel.SEARCHABLE: common_pb2.ACK_LEVEL_SEARCHABLE,
}

_MODES_FROM_PB: dict[int, values.SearchMode] = {pb: mode for mode, pb in MODES_TO_PB.items()}

_OUTCOMES_FROM_PB = {
    common_pb2.WRITE_OUTCOME_CREATED: values.WriteOutcome.CREATED,
    common_pb2.WRITE_OUTCOME_REPLACED: values.WriteOutcome.REPLACED,
    common_pb2.WRITE_OUTCOME_UNCHANGED: values.WriteOutcome.UNCHANGED,
    common_pb2.WRITE_OUTCOME_DELETED: values.WriteOutcome.DELETED,
    common_pb2.WRITE_OUTCOME_MISSING: values.WriteOutcome.MISSING,
}

_HEALTH_FROM_PB: dict[int, values.HealthStatus] = {
    common_pb2.STATE_READY: values.HealthStatus.HEALTHY,
    common_pb2.STATE_STARTING: values.HealthStatus.STARTING,
    common_pb2.STATE_DEGRADED: values.HealthStatus.DEGRADED,
    common_pb2.STATE_UNAVAILABLE: values.HealthStatus.UNHEALTHY,
}
