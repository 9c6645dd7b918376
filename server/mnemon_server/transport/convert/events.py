"""The episodic memory service's requests and answers.

The bodies of events are messages already, and are not read as values. An answer with many of them is written around
them: parsed into a message, they would only be written again.
"""

from collections.abc import Iterable, Sequence
from datetime import date, datetime, tzinfo
from functools import lru_cache
from typing import Any, NamedTuple

from mnemon.v1 import common_pb2
from mnemon.v1 import episodic_pb2 as pb

from mnemon_server.domain.clock import EPOCH
from mnemon_server.domain.events import (
    LIMIT_DEFAULT,
    CompactionProgress,
    Event,
    EventReceipt,
    EventScore,
    EventSelection,
    EventsStatus,
    PrunedEvents,
    RangeSummary,
    RecordEvent,
    StoredEvent,
    WindowPage,
    WindowQuery,
)
from mnemon_server.domain.origins import less_trusted
from mnemon_server.domain.records import Scope, View
from mnemon_server.services.background.offload import Pause
from mnemon_server.services.events.checks import (
    pruning_violations,
    record_violations,
    selection_violations,
    window_violations,
)
from mnemon_server.transport.convert.shared.fields import filled
from mnemon_server.transport.convert.shared.reader import Page, Reader, read_filter, read_min_trust, require
from mnemon_server.transport.convert.shared.wire import field_start
from mnemon_server.transport.status import Failure
from mnemon_server.wire.values import (
    SEARCH_MODES,
    VIEWS,
    fill_diagnostics,
    fill_score,
    fill_time,
    scope_from_pb,
    scope_of,
    time_from_pb,
)

_DAY_ZERO = EPOCH.date().toordinal()
_AT_A_STRETCH = 128
"""Results between two looks at the clock."""


def recorded_to_pb(receipt: EventReceipt, known: StoredEvent | None) -> pb.RecordEventResponse:
    """The receipt of an event; if it is a duplicate, with the event that was known."""
    message = pb.RecordEventResponse()
    target = message.receipt
    target.event_id = receipt.event_id
    target.sequence = receipt.sequence
    target.segment_id = receipt.segment_id
    fill_time(target.commit_time, receipt.commit_time)
    target.duplicate = receipt.duplicate
    target.replayed = receipt.replayed
    if known is not None:
        message.duplicate_of.ParseFromString(known.body)
    return message


async def results_to_pb(outcomes: Sequence[EventReceipt | Failure]) -> pb.BulkRecordEventsResponse:
    """The outcome of each event of a run; yields to other calls."""
    message = pb.BulkRecordEventsResponse()
    results = _Results(message)
    pause = Pause()
    for start in range(0, len(outcomes), _AT_A_STRETCH):
        for outcome in outcomes[start : start + _AT_A_STRETCH]:
            results.add(outcome)
        await pause.where_due()
    return message


def window_to_bytes(page: WindowPage, next_page_token: str, view: View = View.STANDARD) -> bytes:
    """A QueryWindowResponse: the events of a window, and how they were found."""
    message = pb.QueryWindowResponse(next_page_token=next_page_token, truncated=page.truncated)
    fill_diagnostics(message.diagnostics, page.diagnostics)
    bodies = [event.body if view is not View.IDS else _id_alone(event) for event in page.events]
    fits = [_score_to_bytes(score) for score in page.scores] or [b""] * len(bodies)
    pieces = [
        piece
        for body, fit in zip(bodies, fits, strict=True)
        for piece in (_match_start(len(body), len(fit)), body, fit)
    ]
    pieces.append(message.SerializeToString())
    return b"".join(pieces)


def recent_to_bytes(page: WindowPage, next_page_token: str) -> bytes:
    """A ListRecentEventsResponse: a page of the newest events."""
    message = pb.ListRecentEventsResponse(next_page_token=next_page_token)
    return _with_events(page.events, message, pb.ListRecentEventsResponse.EVENTS_FIELD_NUMBER)


def event_to_pb(event: StoredEvent) -> pb.GetEventResponse:
    """One event."""
    message = pb.GetEventResponse()
    message.event.ParseFromString(event.body)
    return message


def summary_to_pb(summary: RangeSummary) -> pb.SummarizeRangeResponse:
    """The counts of a range."""
    types = [pb.TypeCount(event_type=event_type, count=count) for event_type, count in summary.types]
    days = [pb.DayCount(day=date.fromordinal(_DAY_ZERO + day).isoformat(), count=count) for day, count in summary.days]
    return filled(pb.SummarizeRangeResponse(), summary, types=types, days=days)


def pruned_to_pb(pruned: PrunedEvents) -> pb.PruneEventsResponse:
    """The result of a pruning, or of its dry run."""
    return filled(pb.PruneEventsResponse(), pruned, pruned_count=pruned.count)


def progress_to_pb(progress: CompactionProgress) -> pb.CompactTimelineResponse:
    """The progress of a compaction."""
    return filled(pb.CompactTimelineResponse(), progress)


def status_to_pb(status: EventsStatus) -> pb.GetTimelineStatusResponse:
    """The status of the timeline."""
    return filled(pb.GetTimelineStatusResponse(), status)


class _Results:
    """Writes the results of a run into its answer.

    One result is filled again and again, and copied: neighbours were mostly committed together, and a copy takes half
    of the time that new fields take.
    """

    def __init__(self, message: pb.BulkRecordEventsResponse) -> None:
        self._append = message.results.append
        self._filled = pb.RecordEventResult()
        self._receipt = self._filled.receipt
        self._time: datetime | None = None

    def add(self, outcome: EventReceipt | Failure) -> None:
        """Writes the outcome of the next event."""
        if isinstance(outcome, Failure):
            self._append(pb.RecordEventResult(error=outcome.to_item_error()))
            return
        receipt = self._receipt
        receipt.event_id, receipt.sequence, receipt.segment_id, time, receipt.duplicate, receipt.replayed = outcome
        if time is not self._time:
            fill_time(receipt.commit_time, time)
            self._time = time
        self._append(self._filled)


def _with_events(events: Iterable[StoredEvent], rest: Any, field: int) -> bytes:
    """A message with these events in a repeated field, and the other fields of `rest`: joined messages are merged."""
    pieces: list[bytes] = []
    for event in events:
        body = event.body
        pieces += (field_start(field, len(body)), body)
    pieces.append(rest.SerializeToString())
    return b"".join(pieces)


@lru_cache(maxsize=4_096)
def _match_start(body_size: int, fit_size: int) -> bytes:
    """The bytes before the body of a result, whose score follows it."""
    start = field_start(pb.EventMatch.EVENT_FIELD_NUMBER, body_size)
    return field_start(pb.QueryWindowResponse.RESULTS_FIELD_NUMBER, len(start) + body_size + fit_size) + start


def _id_alone(event: StoredEvent) -> bytes:
    return pb.EpisodicEvent(event_id=event.position.event_id).SerializeToString()


def _score_to_bytes(score: EventScore) -> bytes:
    """The field of an EventMatch."""
    message = pb.EventMatch()
    fill_score(message.score, score.relevance, vector=score.similarity, keyword=score.keyword)
    return message.SerializeToString()


_EVERYTHING = EventSelection()

Filtered = pb.QueryWindowRequest | pb.ListRecentEventsRequest | pb.SummarizeRangeRequest | pb.PruneEventsRequest
Span = tuple[datetime | None, datetime | None]
_ANY_TIME: Span = None, None


class PruneTarget(NamedTuple):
    """Which events to remove if they are not named by their ids: those before a time that match."""

    before: datetime | None
    where: EventSelection


def read_record(request: pb.RecordEventRequest) -> RecordEvent:
    """The event to store. This and `read_event` run for every event that is stored."""
    reader = Reader()
    record = RecordEvent(read_event(reader, "event", request.event), request.request_id)
    if reader.violations:
        require(request, "event")
        reader.finish(record_violations(record))
    return record


def read_event(reader: Reader, field: str, message: pb.EpisodicEvent) -> Event:
    """The event as a caller gives it; what only the server sets is left out."""
    metadata = message.metadata
    event_time = time_from_pb(message.event_time) if message.HasField("event_time") else None
    if event_time is None:
        _note_event_time(reader, f"{field}.event_time", message)
        event_time = EPOCH
    return Event(
        message.event_id,
        message.event_type,
        event_time,
        message.content,
        message.context,
        _scope(message.scope.SerializeToString()),
        message.importance if message.HasField("importance") else None,
        message.source,
        reader.metadata(f"{field}.metadata", metadata) if metadata else {},
        conversation=message.conversation,
        payload=message.payload,
    )


def read_window(request: pb.QueryWindowRequest) -> tuple[WindowQuery, View]:
    """The query of a window, and the view of its events."""
    reader = Reader()
    window = request.WhichOneof("window")
    query = WindowQuery(
        where=_selection(reader, request, reader.span("range", request.range) if window == "range" else _ANY_TIME),
        last_days=request.last_days if window == "last_days" else None,
        has_range=window == "range",
        limit=request.limit or LIMIT_DEFAULT,
        text=request.query if request.HasField("query") else None,
        mode=reader.enum("mode", request.mode, SEARCH_MODES),
    )
    view = reader.enum("view", request.view, VIEWS)
    reader.finish(window_violations(query))
    return query, view


def read_recent(request: pb.ListRecentEventsRequest) -> Page[EventSelection]:
    """The page."""
    reader = Reader()
    page = Page(_selection(reader, request), reader.page_size(request.page_size, LIMIT_DEFAULT))
    reader.finish(selection_violations(page.where))
    return page


def read_summary(request: pb.SummarizeRangeRequest) -> tuple[EventSelection, tzinfo]:
    """Which events to count, and the time zone of the days."""
    reader = Reader()
    span = reader.span("range", request.range) if request.HasField("range") else _ANY_TIME
    where, zone = _selection(reader, request, span), reader.time_zone("time_zone", request.time_zone)
    reader.finish(selection_violations(where))
    return where, zone


def read_pruning(request: pb.PruneEventsRequest) -> PruneTarget:
    """Which events are to be removed, if they are not named by their ids."""
    reader = Reader()
    # A time that is not one still limits what goes: without it, the rest would mean more events.
    before = (reader.time("before", request, "before") or EPOCH) if request.HasField("before") else None
    target = PruneTarget(before, _selection(reader, request))
    reader.finish(pruning_violations(before, target.where, request.event_ids, request.request_id))
    return target


@lru_cache(maxsize=4_096)
def _scope(message: bytes) -> Scope:
    """The scope in a serialised message. Events of a stream share few, and its bytes take less time than its texts."""
    return scope_from_pb(common_pb2.Scope.FromString(message))


def _note_event_time(reader: Reader, field: str, message: pb.EpisodicEvent) -> None:
    if message.HasField("event_time"):
        reader.time(field, message, "event_time")
    else:
        reader.note(field, "must be set: it says when the event happened")


def _selection(reader: Reader, request: Filtered, span: Span = _ANY_TIME) -> EventSelection:
    """The filter of events, within a span of time."""
    if span == _ANY_TIME and not request.HasField("filter"):
        return _EVERYTHING
    message: pb.EpisodicEventFilter = request.filter
    start, end = span
    least = read_min_trust(reader, "filter.min_trust", message)
    return EventSelection(
        scope=scope_of(message),
        event_types=frozenset(message.event_types),
        min_importance=message.min_importance if message.HasField("min_importance") else None,
        conversation=message.conversation,
        start=start,
        end=end,
        expression=read_filter(reader, "filter.filter", message.filter) if message.HasField("filter") else None,
        without=less_trusted(least) if least else (),
    )
