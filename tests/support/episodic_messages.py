"""Short helpers for requests to the timeline and the bridge, and for their answers."""

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Any

from google.protobuf.timestamp_pb2 import Timestamp
from mnemon.v1 import bridge_pb2, changes_pb2
from mnemon.v1 import episodic_pb2 as pb

PAGE_MAX = 1_000


def at(time: datetime) -> Timestamp:
    """A protobuf Timestamp of the time."""
    message = Timestamp()
    message.FromDatetime(time)
    return message


def happened(
    content: str = "Ada had lunch.",
    when: datetime | None = None,
    *,
    user: str = "ada",
    scope: Mapping[str, str] | None = None,
    event_type: str = "conversation",
    **fields: Any,
) -> pb.EpisodicEvent:
    """An event of a user, with the current time unless one is given. `scope` adds further fields of its scope."""
    return pb.EpisodicEvent(
        content=content,
        scope={"user": user, **(scope or {})},
        event_type=event_type,
        event_time=at(when or datetime.now(UTC)),
        **fields,
    )


async def record(episodic: Any, *events: pb.EpisodicEvent) -> list[pb.EventReceipt]:
    """Stores events one after the other. Returns their receipts."""
    return [(await episodic.RecordEvent(pb.RecordEventRequest(event=event))).receipt for event in events]


def contents(events: Iterable[pb.EpisodicEvent]) -> list[str]:
    """The contents of the events, in order."""
    return [event.content for event in events]


async def recent(episodic: Any, **request: Any) -> list[pb.EpisodicEvent]:
    """All events, newest first."""
    events: list[pb.EpisodicEvent] = []
    token = ""
    while True:
        wanted = pb.ListRecentEventsRequest(page_size=PAGE_MAX, page_token=token, **request)
        page = await episodic.ListRecentEvents(wanted)
        events += page.events
        if not (token := page.next_page_token):
            return events


async def compact(episodic: Any, request_id: str = "") -> list[pb.CompactTimelineResponse]:
    """Compacts the timeline. Returns every reported step."""
    return [step async for step in episodic.CompactTimeline(pb.CompactTimelineRequest(request_id=request_id))]


async def timeline_status(episodic: Any) -> pb.GetTimelineStatusResponse:
    """The status of the timeline."""
    return await episodic.GetTimelineStatus(pb.GetTimelineStatusRequest())


async def bridge_status(bridge: Any) -> bridge_pb2.GetBridgeStatusResponse:
    """The status of the bridge."""
    return await bridge.GetBridgeStatus(bridge_pb2.GetBridgeStatusRequest())


async def told(changes: Any, type_name: str, *, full: bool = False) -> list[changes_pb2.Change]:
    """All changes of one type, in order, with their records if `full`."""
    where = changes_pb2.ChangeFilter(types=[f"CHANGE_TYPE_{type_name}"])
    view = changes_pb2.CHANGE_VIEW_FULL if full else changes_pb2.CHANGE_VIEW_BASIC
    found: list[changes_pb2.Change] = []
    cursor: dict[str, str] = {}
    while True:
        request = changes_pb2.ListChangesRequest(filter=where, view=view, page_size=PAGE_MAX, **cursor)
        page = await changes.ListChanges(request)
        found += page.changes
        if page.caught_up:
            return found
        cursor = {"cursor": page.cursor}
