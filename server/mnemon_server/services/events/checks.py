"""Checks of events, queries of the timeline and prunings: every problem is named with its field.

Nearly all events are valid, and there are many. So each event is first checked with a few comparisons; only an invalid
one is checked again for what to say about it.
"""

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime

from mnemon_server.domain.documents import CONTENT_BYTES_MAX, QUERY_BYTES_MAX
from mnemon_server.domain.encoding import scope_values
from mnemon_server.domain.errors import FieldViolation
from mnemon_server.domain.events import (
    CONTEXT_BYTES_MAX,
    CONVERSATION_BYTES_MAX,
    EVENT_ID_BYTES_MAX,
    EVENT_TYPE_BYTES_MAX,
    EVENT_TYPES_MAX,
    FILTER_FIELDS,
    IDS_MAX,
    LAST_DAYS_MAX,
    LIMIT_MAX,
    PAYLOAD_BYTES_MAX,
    SOURCE_BYTES_MAX,
    Event,
    EventSelection,
    RecordEvent,
    WindowQuery,
)
from mnemon_server.domain.filters import expression_violations
from mnemon_server.domain.origins import is_sound_origin
from mnemon_server.domain.records import MetadataValue, Scope
from mnemon_server.domain.validation import (
    REQUEST_ID_BYTES_MAX,
    id_violations,
    is_id,
    is_text,
    metadata_violations,
    request_id_violations,
    scope_violations,
    share_violations,
    text_violations,
)
from mnemon_server.services.events.new_events import to_utc

TIME_PROBLEM = "must be in the years 1 to 9999, in UTC"


def is_sound(request: RecordEvent) -> bool:
    """Whether an event that is to be stored is valid."""
    event = request.event
    return (
        event.event_type != ""
        and is_id(event.event_type, EVENT_TYPE_BYTES_MAX)
        and is_id(event.event_id, EVENT_ID_BYTES_MAX)
        and _is_sound_scope(event.scope)
        and is_text(event.content, CONTENT_BYTES_MAX)
        and not event.content.isspace()
        and is_text(event.context, CONTEXT_BYTES_MAX)
        and is_text(event.source, SOURCE_BYTES_MAX)
        and is_id(event.conversation, CONVERSATION_BYTES_MAX)
        and is_text(event.payload, PAYLOAD_BYTES_MAX)
        and (event.importance is None or 0.0 <= event.importance <= 1.0)
        and (event.event_time.tzinfo is UTC or _has_utc(event.event_time))
        and (not event.metadata or not any(_metadata_violations(event.metadata, "")))
        and is_id(request.request_id, REQUEST_ID_BYTES_MAX)
    )


def record_violations(request: RecordEvent) -> Iterable[FieldViolation]:
    """Violations in an event that is to be stored; empty exactly where `is_sound`."""
    yield from event_violations(request.event)
    yield from request_id_violations(request.request_id)


def event_violations(event: Event, field: str = "event") -> Iterable[FieldViolation]:
    """Violations in an event from a caller."""
    yield from id_violations(event.event_id, f"{field}.event_id", EVENT_ID_BYTES_MAX)
    if not event.scope.user:
        yield FieldViolation(f"{field}.scope.user", "must name the user that the event belongs to")
    yield from scope_violations(event.scope, f"{field}.scope")
    if not event.event_type:
        yield FieldViolation(f"{field}.event_type", "must name the kind of event")
    yield from id_violations(event.event_type, f"{field}.event_type", EVENT_TYPE_BYTES_MAX)
    yield from text_violations(event.content, f"{field}.content", CONTENT_BYTES_MAX)
    if event.content.isspace():
        yield FieldViolation(f"{field}.content", "must not be blank; leave it out if the type says all")
    yield from text_violations(event.context, f"{field}.context", CONTEXT_BYTES_MAX)
    yield from text_violations(event.source, f"{field}.source", SOURCE_BYTES_MAX)
    yield from id_violations(event.conversation, f"{field}.conversation", CONVERSATION_BYTES_MAX)
    yield from text_violations(event.payload, f"{field}.payload", PAYLOAD_BYTES_MAX)
    yield from share_violations(event.importance, f"{field}.importance")
    yield from time_violations(event.event_time, f"{field}.event_time")
    yield from _metadata_violations(event.metadata, f"{field}.metadata")


def time_violations(time: datetime | None, field: str) -> Iterable[FieldViolation]:
    """Violations in a time."""
    if time is not None and not _has_utc(time):
        yield FieldViolation(field, TIME_PROBLEM)


def event_id_violations(event_id: str, field: str = "event_id") -> Iterable[FieldViolation]:
    """Violations in the id of an event to read or to remove."""
    if not event_id:
        yield FieldViolation(field, "must not be empty")
    yield from id_violations(event_id, field, EVENT_ID_BYTES_MAX)


def window_violations(query: WindowQuery) -> Iterable[FieldViolation]:
    """Violations in a query of a time window."""
    if query.last_days is not None:
        if query.has_range:
            yield FieldViolation("last_days", "must not be set together with range")
        if not 1 <= query.last_days <= LAST_DAYS_MAX:
            yield FieldViolation("last_days", f"must be 1 to {LAST_DAYS_MAX:,}")
    yield from limit_violations(query.limit, "limit")
    yield from selection_violations(query.where)
    if query.text is not None:
        yield from text_violations(query.text, "query", QUERY_BYTES_MAX)
        if query.after is not None:
            yield FieldViolation("page_token", "must be empty with a query: its best matches come on one page")


def limit_violations(limit: int, field: str) -> Iterable[FieldViolation]:
    """Violations in the number of events to return."""
    if not 1 <= limit <= LIMIT_MAX:
        yield FieldViolation(field, f"must be 1 to {LIMIT_MAX:,}")


def selection_violations(where: EventSelection) -> Iterable[FieldViolation]:
    """Violations in a selection of events; a problem with its times is named with the field "range"."""
    yield from scope_violations(where.scope, "filter.scope")
    if len(where.event_types) > EVENT_TYPES_MAX:
        yield FieldViolation("filter.event_types", f"must be at most {EVENT_TYPES_MAX}")
    else:
        for event_type in where.event_types:
            yield from id_violations(event_type, "filter.event_types", EVENT_TYPE_BYTES_MAX)
    yield from share_violations(where.min_importance, "filter.min_importance")
    yield from id_violations(where.conversation, "filter.conversation", CONVERSATION_BYTES_MAX)
    yield from expression_violations(where.expression, FILTER_FIELDS)
    yield from _range_violations(where.start, where.end)


def pruning_violations(
    before: datetime | None, where: EventSelection, event_ids: Sequence[str], request_id: str
) -> Iterable[FieldViolation]:
    """Violations in a pruning. It selects events by a time, a filter or both, or names them by their ids."""
    if event_ids and (before is not None or where):
        yield FieldViolation("event_ids", "must not be set together with before or filter")
    elif not event_ids and before is None and not where:
        yield FieldViolation("filter", "must not be empty if before and event_ids are: it would mean every event")
    if len(event_ids) > IDS_MAX:
        yield FieldViolation("event_ids", f"must be at most {IDS_MAX:,}")
    else:
        for number, event_id in enumerate(event_ids):
            yield from event_id_violations(event_id, f"event_ids[{number}]")
    yield from time_violations(before, "before")
    yield from selection_violations(where)
    yield from request_id_violations(request_id)


def _range_violations(start: datetime | None, end: datetime | None) -> Iterable[FieldViolation]:
    found = [*time_violations(start, "range.start_time"), *time_violations(end, "range.end_time")]
    yield from found
    if start is not None and end is not None and not found and to_utc(end) < to_utc(start):
        yield FieldViolation("range.end_time", "must not be before range.start_time")


def _is_sound_scope(scope: Scope) -> bool:
    return scope.user != "" and all(map(is_id, scope_values(scope))) and is_sound_origin(scope)


def _has_utc(time: datetime) -> bool:
    """Whether the time can be expressed in UTC, and so as a Timestamp."""
    try:
        to_utc(time)
    except OverflowError:
        return False
    return True


def _metadata_violations(metadata: Mapping[str, MetadataValue], field: str) -> Iterable[FieldViolation]:
    yield from metadata_violations(metadata, field)
    for key, value in metadata.items():
        if isinstance(value, datetime):
            yield from time_violations(value, f"{field}.{key}")
