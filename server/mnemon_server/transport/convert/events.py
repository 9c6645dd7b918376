"""The episodic memory service's answers as messages.

The bodies of events are messages already, and are not read as values. An answer with many of them is written around
them: parsed into a message, they would only be written again.
"""

from collections.abc import Iterable, Sequence
from datetime import date, datetime
from functools import lru_cache
from typing import Any

from mnemon.v1 import common_pb2
from mnemon.v1 import episodic_pb2 as pb

from mnemon_server.domain.clock import EPOCH
from mnemon_server.domain.events import (
    CompactionProgress,
    EventReceipt,
    EventScore,
    EventsState,
    EventsStatus,
    LostRange,
    PrunedEvents,
    RangeSummary,
    StoredEvent,
    WindowDiagnostics,
    WindowPage,
)
from mnemon_server.domain.records import View
from mnemon_server.services.background.pause import Pause
from mnemon_server.transport.convert.shared.wire import field_start
from mnemon_server.transport.status import Failure
from mnemon_server.wire.values import (
    SEARCH_MODES_TO_PB,
    duration_to_pb,
    fill_relevance,
    fill_score,
    fill_time,
    time_to_pb,
)

_STATES_TO_PB = {state: common_pb2.State.Value(f"STATE_{state.name}") for state in EventsState}
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
    _fill_diagnostics(message.diagnostics, page.diagnostics)
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
    message = pb.SummarizeRangeResponse(event_count=summary.event_count)
    _fill_ends(message, summary.earliest, summary.latest)
    for event_type, count in summary.types:
        message.types.add(event_type=event_type, count=count)
    for day, count in summary.days:
        message.days.add(day=date.fromordinal(_DAY_ZERO + day).isoformat(), count=count)
    return message


def pruned_to_pb(pruned: PrunedEvents) -> pb.PruneEventsResponse:
    """The result of a pruning, or of its dry run."""
    message = pb.PruneEventsResponse(
        pruned_count=pruned.count,
        event_ids=pruned.event_ids,
        segment_count=pruned.segment_count,
        replayed=pruned.replayed,
    )
    _fill_ends(message, pruned.earliest, pruned.latest)
    return message


def progress_to_pb(progress: CompactionProgress) -> pb.CompactTimelineResponse:
    """The progress of a compaction."""
    return pb.CompactTimelineResponse(
        processed_bytes=progress.processed_bytes,
        total_bytes=progress.total_bytes,
        segment_count=progress.segment_count,
        reclaimed_bytes=progress.reclaimed_bytes,
        done=progress.done,
        replayed=progress.replayed,
    )


def status_to_pb(status: EventsStatus) -> pb.GetTimelineStatusResponse:
    """The status of the timeline."""
    message = pb.GetTimelineStatusResponse(
        state=_STATES_TO_PB[status.state],
        message=status.message,
        event_count=status.event_count,
        segment_count=status.segment_count,
        active_segment_id=status.active_segment_id,
        segment_bytes=status.segment_bytes,
        unsealed_count=status.unsealed_count,
        index_bytes=status.index_bytes,
        loaded_segment_count=status.loaded_segment_count,
        removal_pending_count=status.removal_pending_count,
        lost=map(_lost_to_pb, status.lost),
        retention=None if status.retention_s is None else duration_to_pb(status.retention_s),
        text_pending_count=status.text_pending_count,
    )
    _fill_ends(message, status.earliest, status.latest)
    if status.scrub_time is not None:
        fill_time(message.scrub_time, status.scrub_time)
    return message


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


def _fill_diagnostics(target: common_pb2.SearchDiagnostics, diagnostics: WindowDiagnostics) -> None:
    target.exact = diagnostics.exact
    target.total_candidates = diagnostics.total_scanned
    target.filtered_by_context = diagnostics.filtered_by_context
    target.filtered_by_window = diagnostics.filtered_by_window
    target.returned = diagnostics.returned
    target.duration.CopyFrom(duration_to_pb(diagnostics.duration_s))
    if diagnostics.mode is not None:
        target.mode = SEARCH_MODES_TO_PB[diagnostics.mode]
    target.pending = diagnostics.pending
    fill_relevance(target, diagnostics.relevance)


def _fill_ends(target: Any, earliest: datetime | None, latest: datetime | None) -> None:
    """Writes the times of the first and the last event, if there are events."""
    if earliest is not None:
        fill_time(target.earliest, earliest)
    if latest is not None:
        fill_time(target.latest, latest)


def _lost_to_pb(lost: LostRange) -> pb.LostRange:
    return pb.LostRange(
        segment_id=lost.segment_id,
        first_sequence=lost.first_sequence,
        last_sequence=lost.last_sequence,
        event_count=lost.event_count,
        notice_time=time_to_pb(lost.notice_time),
    )
