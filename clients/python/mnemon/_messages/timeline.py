"""Converts the values of the timeline to protobuf messages, and back."""

from typing import Any

from google.protobuf.message import Message

from mnemon._enums import members_by_number
from mnemon._messages import documents as convert
from mnemon._messages.documents import invalid
from mnemon._messages.fields import check_keywords, field_reader, texts_of
from mnemon._messages.memories import filter_to_pb, some_text, time_to_pb
from mnemon._messages.semantic import share_to_pb, texts_to_pb
from mnemon._values import filters, timeline
from mnemon._values.documents import SCOPE_FIELDS
from mnemon.v1 import common_pb2
from mnemon.v1 import episodic_pb2 as pb

_fields_of = field_reader(timeline.EpisodicEvent, pb.EpisodicEvent.DESCRIPTOR)
_STATES = members_by_number(timeline.TimelineState, common_pb2.State.DESCRIPTOR)


def happened_to_pb(event: timeline.EpisodicEvent) -> pb.EpisodicEvent:
    """An event as a message, without the fields that only the server sets."""
    message = pb.EpisodicEvent(
        **texts_of(event, timeline.TEXTS),
        scope=convert.scope_to_pb(event.scope),
        importance=share_to_pb("importance", event.importance),
        metadata=convert.metadata_to_pb("metadata", event.metadata),
    )
    if event.event_time is not None:
        message.event_time.CopyFrom(time_to_pb("event_time", event.event_time))
    return message


def happened_from_pb(event: pb.EpisodicEvent) -> timeline.EpisodicEvent:
    """An event of the timeline."""
    return timeline.EpisodicEvent(**_fields_of(event))


def event_filter_to_pb(which: timeline.EventFilters) -> pb.EpisodicEventFilter | None:
    """The filter of events, as a message; None means all."""
    given: dict[str, Any] = dict(which)
    check_keywords(given, timeline.EventFilters.__annotations__)
    if not given:
        return None
    fields: dict[str, Any] = {}
    if "event_types" in given:
        fields["event_types"] = _some_types(given["event_types"])
    if "min_importance" in given:
        fields["min_importance"] = share_to_pb("min_importance", given["min_importance"])
    if "where" in given:
        fields["filter"] = filter_to_pb(filters.as_filter(given["where"]))
    scope = {name: some_text(name, given[name]) for name in SCOPE_FIELDS if name in given}
    return pb.EpisodicEventFilter(scope=common_pb2.Scope(**scope), **fields)


def receipt_from_pb(
    receipt: pb.EventReceipt, duplicate_of: timeline.EpisodicEvent | None = None
) -> timeline.EventReceipt:
    """The server's receipt for an event."""
    return timeline.EventReceipt(
        event_id=receipt.event_id,
        sequence=receipt.sequence,
        segment_id=receipt.segment_id,
        commit_time=convert.time_from_pb(receipt, "commit_time"),
        duplicate=receipt.duplicate,
        replayed=receipt.replayed,
        duplicate_of=duplicate_of,
    )


def recorded_from_pb(response: pb.RecordEventResponse) -> timeline.EventReceipt:
    """The receipt of one event, with the event that it repeats."""
    known = happened_from_pb(response.duplicate_of) if response.HasField("duplicate_of") else None
    return receipt_from_pb(response.receipt, known)


def window_from_pb(response: pb.QueryWindowResponse) -> timeline.WindowAnswer:
    """The events of a window."""
    said = response.diagnostics
    return timeline.WindowAnswer(
        tuple(map(_match_from_pb, response.results)),
        response.next_page_token,
        timeline.WindowDiagnostics(
            total_scanned=said.total_candidates,
            filtered_by_context=said.filtered_by_context,
            filtered_by_window=said.filtered_by_window,
            returned=said.returned,
            duration_s=said.duration.ToTimedelta().total_seconds(),
            mode=convert.mode_from_pb(said.mode),
            pending=said.pending,
            **convert.relevance_from_pb(said),
        ),
        truncated=response.truncated,
    )


def page_from_pb(response: pb.ListRecentEventsResponse) -> timeline.TimelinePage:
    """A page of events."""
    return timeline.TimelinePage(tuple(map(happened_from_pb, response.events)), response.next_page_token)


def summary_from_pb(response: pb.SummarizeRangeResponse) -> timeline.EventSummary:
    """How many events there are."""
    return timeline.EventSummary(
        event_count=response.event_count,
        earliest=convert.time_from_pb(response, "earliest"),
        latest=convert.time_from_pb(response, "latest"),
        types={each.event_type: each.count for each in response.types},
        days={each.day: each.count for each in response.days},
    )


def pruned_from_pb(response: pb.PruneEventsResponse) -> timeline.PruneReceipt:
    """Which events were removed."""
    return timeline.PruneReceipt(
        pruned_count=response.pruned_count,
        event_ids=tuple(response.event_ids),
        earliest=convert.time_from_pb(response, "earliest"),
        latest=convert.time_from_pb(response, "latest"),
        segment_count=response.segment_count,
        replayed=response.replayed,
    )


def progress_from_pb(response: pb.CompactTimelineResponse) -> timeline.CompactionProgress:
    """The progress of a compaction."""
    return timeline.CompactionProgress(
        response.processed_bytes,
        response.total_bytes,
        response.segment_count,
        response.reclaimed_bytes,
        response.done,
        response.replayed,
    )


def status_from_pb(response: pb.GetTimelineStatusResponse) -> timeline.TimelineStatus:
    """The state of the timeline."""
    return timeline.TimelineStatus(
        state=_STATES.get(response.state, timeline.TimelineState.UNKNOWN),
        message=response.message,
        event_count=response.event_count,
        segment_count=response.segment_count,
        active_segment_id=response.active_segment_id,
        segment_bytes=response.segment_bytes,
        unsealed_count=response.unsealed_count,
        earliest=convert.time_from_pb(response, "earliest"),
        latest=convert.time_from_pb(response, "latest"),
        index_bytes=response.index_bytes,
        loaded_segment_count=response.loaded_segment_count,
        removal_pending_count=response.removal_pending_count,
        lost=tuple(map(_lost_from_pb, response.lost)),
        scrub_time=convert.time_from_pb(response, "scrub_time"),
        retention_s=seconds_from_pb(response, "retention"),
        text_pending_count=response.text_pending_count,
    )


def seconds_from_pb(message: Message, field: str) -> float | None:
    """The duration in a field of a message, in seconds; None if it is unset."""
    if not message.HasField(field):
        return None
    seconds: float = getattr(message, field).ToTimedelta().total_seconds()
    return seconds


def _match_from_pb(match: pb.EventMatch) -> timeline.EventMatch:
    score = match.score
    return timeline.EventMatch(
        happened_from_pb(match.event),
        timeline.EventScore(
            score.relevance,
            similarity=score.vector if score.HasField("vector") else None,
            keyword=score.keyword if score.HasField("keyword") else None,
        )
        if match.HasField("score")
        else None,
    )


def _lost_from_pb(lost: pb.LostRange) -> timeline.LostRange:
    return timeline.LostRange(
        lost.segment_id,
        lost.first_sequence,
        lost.last_sequence,
        lost.event_count,
        convert.time_from_pb(lost, "notice_time"),
    )


def _some_types(given: object) -> list[str]:
    found = texts_to_pb("event_types", given)
    if not found:
        # In the message, an empty list means any type, but the caller means no type.
        raise invalid("event_types", "must name a type; leave it out for all")
    return found
