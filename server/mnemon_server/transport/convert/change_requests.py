"""Requests to the change service as values.

Each function raises InvalidArgumentError if a field cannot be read as a value, and then with everything that is wrong;
see `Reader`. Only the feed reads a cursor.
"""

from collections.abc import Mapping

from google.protobuf.duration_pb2 import Duration
from mnemon.v1 import changes_pb2 as pb

from mnemon_server.domain.changes import BATCH_DEFAULT, BATCH_MAX, RECORD_IDS_MAX, ChangeFilter, ChangeType
from mnemon_server.domain.clock import EPOCH
from mnemon_server.domain.documents import DOC_ID_BYTES_MAX
from mnemon_server.domain.feed import (
    EVERYTHING,
    HEARTBEAT_MAX_S,
    HEARTBEAT_MIN_S,
    TYPES_MAX,
    Cursor,
    Edge,
    ListQuery,
    Start,
    WatchQuery,
)
from mnemon_server.domain.validation import id_violations, scope_violations
from mnemon_server.transport.convert.shared.reader import Reader
from mnemon_server.wire.values import scope_of

CHANGE_TYPES: Mapping[int, ChangeType] = {
    pb.ChangeType.Value(f"CHANGE_TYPE_{type_.name}"): type_ for type_ in ChangeType
}
CHANGE_VIEWS: Mapping[int, bool] = {
    pb.CHANGE_VIEW_UNSPECIFIED: False,
    pb.CHANGE_VIEW_BASIC: False,
    pb.CHANGE_VIEW_FULL: True,
}
"""Whether a view is the full one."""


def read_watch(request: pb.WatchChangesRequest) -> WatchQuery:
    """The request for a watch."""
    reader = Reader()
    if request.HasField("earliest") and not request.earliest:
        reader.note("earliest", "must be true; to start now, leave it out")
    if request.max_batch_size < 0:
        reader.note("max_batch_size", "must not be negative; 0 is the default")
    query = WatchQuery(
        start=_start(reader, request, unset=Edge.NOW),
        where=_filter(reader, request.filter) if request.HasField("filter") else EVERYTHING,
        full=reader.enum("view", request.view, CHANGE_VIEWS),
        heartbeat_s=_heartbeat(reader, request.heartbeat_interval) if request.HasField("heartbeat_interval") else None,
        batch_max=min(request.max_batch_size or BATCH_DEFAULT, BATCH_MAX),
    )
    reader.finish()
    return query


def read_list(request: pb.ListChangesRequest) -> ListQuery:
    """The page to read."""
    reader = Reader()
    query = ListQuery(
        start=_start(reader, request, unset=Edge.EARLIEST),
        where=_filter(reader, request.filter) if request.HasField("filter") else EVERYTHING,
        full=reader.enum("view", request.view, CHANGE_VIEWS),
        limit=reader.page_size(request.page_size),
    )
    reader.finish()
    return query


def _start(reader: Reader, request: pb.WatchChangesRequest | pb.ListChangesRequest, *, unset: Edge) -> Start:
    match request.WhichOneof("start"):
        case "cursor":
            return Cursor(request.cursor)
        case "start_time":
            return reader.time("start_time", request, "start_time") or EPOCH
        case "earliest":
            return Edge.EARLIEST
        case _:
            return unset


def _filter(reader: Reader, message: pb.ChangeFilter) -> ChangeFilter:
    """The filter of changes."""
    types = _types(reader, message)
    scope = scope_of(message)
    reader.violations += scope_violations(scope, "filter.scope")
    if len(message.record_ids) > RECORD_IDS_MAX:
        reader.note("filter.record_ids", f"must be at most {RECORD_IDS_MAX}")
    else:
        for index, record_id in enumerate(message.record_ids):
            reader.violations += id_violations(record_id, f"filter.record_ids[{index}]", DOC_ID_BYTES_MAX)
    return ChangeFilter(types=types, scope=scope, record_ids=frozenset(message.record_ids))


def _types(reader: Reader, message: pb.ChangeFilter) -> frozenset[ChangeType]:
    if len(message.types) > TYPES_MAX:
        reader.note("filter.types", f"must be at most {TYPES_MAX}")
        return frozenset()
    return frozenset(
        reader.enum(f"filter.types[{index}]", number, CHANGE_TYPES) for index, number in enumerate(message.types)
    )


def _heartbeat(reader: Reader, message: Duration) -> float:
    seconds = message.seconds + message.nanos / 1e9
    if not HEARTBEAT_MIN_S <= seconds <= HEARTBEAT_MAX_S:
        reader.note(
            "heartbeat_interval", f"must be {HEARTBEAT_MIN_S:g} s to {HEARTBEAT_MAX_S:g} s; unset is the default"
        )
    return seconds
