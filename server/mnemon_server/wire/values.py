"""Converts the types that all services share, in both directions: scope, metadata, receipts, diagnostics, times."""

from collections.abc import Mapping, MutableMapping
from datetime import datetime, timedelta
from typing import Any

from google.protobuf.duration_pb2 import Duration
from google.protobuf.timestamp_pb2 import Timestamp
from mnemon.v1 import common_pb2 as pb

from mnemon_server.domain.clock import EPOCH
from mnemon_server.domain.documents import HealthStatus
from mnemon_server.domain.events import WindowDiagnostics
from mnemon_server.domain.records import (
    METADATA_LIST_MAX,
    AckLevel,
    FilterNotes,
    MetadataValue,
    Relevance,
    Scope,
    SearchDiagnostics,
    SearchMode,
    View,
    WriteOutcome,
    WriteReceipt,
)
from mnemon_server.domain.semantic import SimilarityDiagnostics
from mnemon_server.wire.enums import members_of, numbers_of

ACK_LEVELS = members_of(pb.AckLevel, AckLevel, AckLevel.DURABLE)
SEARCH_MODES = members_of(pb.SearchMode, SearchMode, SearchMode.HYBRID)
SEARCH_MODES_TO_PB = numbers_of(pb.SearchMode, SearchMode)
VIEWS = members_of(pb.View, View, View.STANDARD)
STATES_TO_PB: Mapping[HealthStatus, pb.State.ValueType] = {
    HealthStatus.HEALTHY: pb.STATE_READY,
    HealthStatus.STARTING: pb.STATE_STARTING,
    HealthStatus.DEGRADED: pb.STATE_DEGRADED,
    HealthStatus.UNHEALTHY: pb.STATE_UNAVAILABLE,
}
_NO_SCOPE = Scope()
_COUNTED = tuple(
    field.name
    for field in pb.SearchDiagnostics.DESCRIPTOR.fields
    if not (field.has_presence or field.enum_type is not None)
)
"""The plain fields; each kind of search has some of them."""
_OUTCOMES_TO_PB = numbers_of(pb.WriteOutcome, WriteOutcome)


def scope_of(owner: Any) -> Scope:
    """The scope in the `scope` of a message; fields that are not set are empty."""
    if not owner.HasField("scope"):
        return _NO_SCOPE
    return scope_from_pb(owner.scope)


def scope_from_pb(scope: pb.Scope) -> Scope:
    """The scope in a message. One field after the other: every record passes here."""
    return Scope(
        scope.user, scope.household, scope.persona, scope.agent, scope.project, scope.origin, scope.origin_name
    )


def fill_scope(owner: Any, scope: Scope) -> None:
    """Writes the fields that are set into the `scope` of a message. Most fields of most scopes are not set."""
    if scope.user:
        owner.scope.user = scope.user
    if scope.household:
        owner.scope.household = scope.household
    if scope.persona:
        owner.scope.persona = scope.persona
    if scope.agent:
        owner.scope.agent = scope.agent
    if scope.project:
        owner.scope.project = scope.project
    if scope.origin:
        owner.scope.origin = scope.origin
    if scope.origin_name:
        owner.scope.origin_name = scope.origin_name


def metadata_from_pb(
    metadata: Mapping[str, pb.MetadataValue], list_max: int | None = METADATA_LIST_MAX + 1
) -> dict[str, Any]:
    """The values by key; `list_max` as in `value_from_pb`. An unset or invalid value is None, which checks refuse."""
    return {key: value_from_pb(value, list_max) for key, value in metadata.items()} if metadata else {}


def value_from_pb(value: pb.MetadataValue, list_max: int | None = METADATA_LIST_MAX + 1) -> MetadataValue | None:
    """The value with its type; None if it is unset or an invalid time.

    Reads at most `list_max` texts of a list: one more than allowed, so that validation refuses the list. None reads
    all.
    """
    kind = value.WhichOneof("kind")
    match kind:
        case None:
            return None
        case "string_list_value":
            return tuple(value.string_list_value.values[:list_max])
        case "timestamp_value":
            return time_from_pb(value.timestamp_value)
        case _:
            plain: str | int | float | bool = getattr(value, kind)
            return plain


def fill_metadata(target: MutableMapping[str, pb.MetadataValue], metadata: Mapping[str, MetadataValue]) -> None:
    """Writes metadata into the map field of a message."""
    for key, value in metadata.items():
        _fill_value(target[key], value)


def time_from_pb(message: Timestamp) -> datetime | None:
    """The time in UTC, to the microsecond; None outside of the years 1 to 9999."""
    nanos = message.nanos
    if not 0 <= nanos < 1_000_000_000:
        return None
    try:
        # By keyword, a timedelta takes half as long again to make, and every record has times.
        return EPOCH + timedelta(0, message.seconds, nanos // 1000)
    except OverflowError:
        return None


def time_to_pb(time: datetime) -> Timestamp:
    """The time as a message."""
    message = Timestamp()
    fill_time(message, time)
    return message


def fill_time(target: Timestamp, time: datetime | None) -> None:
    """Writes a time into the field of a message, which stays unset without one."""
    if time is None:
        return
    delta = time - EPOCH
    target.seconds = delta.days * 86_400 + delta.seconds
    target.nanos = delta.microseconds * 1000


def duration_to_pb(seconds: float) -> Duration:
    """A duration that is not negative, as a message."""
    nanoseconds = round(seconds * 1e9)
    return Duration(seconds=nanoseconds // 1_000_000_000, nanos=nanoseconds % 1_000_000_000)


def receipt_to_pb(receipt: WriteReceipt) -> pb.WriteReceipt:
    """The receipt as a message."""
    message = pb.WriteReceipt()
    fill_receipt(message, receipt)
    return message


def fill_receipt(target: pb.WriteReceipt, receipt: WriteReceipt) -> None:
    """Writes a receipt into the field of a message."""
    target.id = receipt.id
    target.outcome = _OUTCOMES_TO_PB[receipt.outcome]
    target.revision = receipt.revision
    fill_time(target.commit_time, receipt.commit_time)
    target.replayed = receipt.replayed


def filter_notes_to_pb(notes: FilterNotes) -> dict[str, Any]:
    """The fields of an answer that list filters which were ignored or cannot match."""
    return {
        "ignored_filters": [pb.IgnoredFilter(key=note.key, reason=note.reason) for note in notes.ignored],
        "unmatched_filters": [pb.UnmatchedFilter(key=note.key, reason=note.reason) for note in notes.unmatched],
    }


def fill_score(
    target: pb.Score, relevance: float, *, vector: float | None = None, keyword: float | None = None
) -> None:
    """Writes a score into the field of a message."""
    target.relevance = relevance
    if vector is not None:
        target.vector = vector
    if keyword is not None:
        target.keyword = keyword


def fill_relevance(target: pb.SearchDiagnostics, relevance: Relevance | None) -> None:
    """Writes how well the best match of a query fits it, if there was a query."""
    if relevance is None:
        return
    target.best_relevance = relevance.best
    if relevance.floor is not None:
        target.relevance_floor = relevance.floor
    target.nothing_relevant = relevance.is_low


def fill_diagnostics(
    target: pb.SearchDiagnostics, diagnostics: SearchDiagnostics | SimilarityDiagnostics | WindowDiagnostics
) -> pb.SearchDiagnostics:
    """Writes how a search was carried out into a message, and returns that."""
    for name in _COUNTED:
        if count := getattr(diagnostics, name, 0):
            setattr(target, name, count)
    if isinstance(diagnostics, WindowDiagnostics):
        target.total_candidates = diagnostics.total_scanned
    if diagnostics.mode is not None:
        target.mode = SEARCH_MODES_TO_PB[diagnostics.mode]
    target.duration.CopyFrom(duration_to_pb(diagnostics.duration_s))
    fill_relevance(target, diagnostics.relevance)
    return target


def _fill_value(target: pb.MetadataValue, value: MetadataValue) -> None:
    match value:
        case bool():  # before int, because bool is a subclass
            target.bool_value = value
        case str():
            target.string_value = value
        case int():
            target.int_value = value
        case float():
            target.double_value = value
        case datetime():
            fill_time(target.timestamp_value, value)
        case _:
            # Select this kind of value even if the list is empty.
            target.string_list_value.SetInParent()
            target.string_list_value.values.extend(value)
