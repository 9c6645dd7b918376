"""The event service over gRPC: what each change is told as, page by page and as a stream, with and without records."""

from collections.abc import AsyncIterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import grpc
import pytest
import pytest_asyncio
from google.protobuf.duration_pb2 import Duration
from google.protobuf.timestamp_pb2 import Timestamp
from google.rpc import error_details_pb2
from mnemon.v1 import events_pb2 as pb
from mnemon.v1 import knowledge_store_pb2, memory_pb2

from tests.support.memory_messages import create, metadata, remember, update, where
from tests.support.server import Connection, bare_server, detail, failure_of, reason, stream_end, whole_server


@pytest_asyncio.fixture
async def connection(tmp_path: Path) -> AsyncIterator[Connection]:
    """A server on an empty folder."""
    async with whole_server(tmp_path) as connected:
        yield connected


async def all_events(connection: Connection, **request: Any) -> list[pb.Event]:
    """Everything that the log has, from pages as they come."""
    events: list[pb.Event] = []
    while True:
        page = await connection.events.ListEvents(pb.ListEventsRequest(**request))
        events += page.events
        if page.caught_up:
            return events
        request["cursor"] = page.cursor


async def change_everything(connection: Connection) -> memory_pb2.Memory:
    """One event of each type; the memory that is left."""
    memories, store = connection.memories, connection.store
    kept, purged = await remember(
        memories, "kept", "purged", decay_policy=memory_pb2.DECAY_POLICY_REINFORCEABLE, scope={"user": "ada"}
    )
    await memories.UpdateMemory(update(kept.memory_id, "type", "metadata.a", type="t", metadata=metadata(a=1)))
    await memories.ReinforceMemory(memory_pb2.ReinforceMemoryRequest(memory_id=kept.memory_id))
    await memories.DeleteMemory(memory_pb2.DeleteMemoryRequest(memory_id=kept.memory_id, request_id="forget"))
    await memories.UndeleteMemory(memory_pb2.UndeleteMemoryRequest(memory_id=kept.memory_id))
    await memories.DeleteMemory(memory_pb2.DeleteMemoryRequest(memory_id=purged.memory_id))
    await memories.PurgeMemories(memory_pb2.PurgeMemoriesRequest(only_deleted=True))
    document = knowledge_store_pb2.Document(doc_id="doc", content="a document")
    await store.IndexDocument(knowledge_store_pb2.IndexDocumentRequest(document=document))
    await store.DeleteDocument(knowledge_store_pb2.DeleteDocumentRequest(doc_id="doc"))
    return (await memories.GetMemory(memory_pb2.GetMemoryRequest(memory_id=kept.memory_id))).memory


async def test_every_change_is_told_once_in_order_with_what_changed(connection: Connection) -> None:
    kept = await change_everything(connection)
    events = await all_events(connection, page_size=3)
    assert [pb.EventType.Name(event.type).removeprefix("EVENT_TYPE_") for event in events] == [
        "MEMORY_CREATED", "MEMORY_CREATED", "MEMORY_UPDATED", "MEMORY_REINFORCED", "MEMORY_DELETED",
        "MEMORY_UNDELETED", "MEMORY_DELETED", "MEMORY_PURGED", "KNOWLEDGE_INDEXED", "KNOWLEDGE_DELETED",
    ]  # fmt: skip
    sequences = [event.sequence for event in events]
    assert sequences == sorted(set(sequences))
    assert len({event.event_id for event in events}) == len({event.commit_id for event in events}) == 10
    times = [event.commit_time.ToNanoseconds() for event in events]
    assert times == sorted(times)
    assert abs(datetime.now(UTC) - events[-1].commit_time.ToDatetime(UTC)).total_seconds() < 60
    own = [event for event in events if event.record_id == kept.memory_id]
    assert [event.revision for event in own] == [1, 2, 3, 4, 5]
    assert {event.scope.user for event in own} == {"ada"}
    assert sorted(own[1].changed_fields) == ["metadata.a", "type"]
    assert [event.request_id for event in own] == ["", "", "", "forget", ""]
    assert [event.record_id for event in events[-2:]] == ["doc", "doc"]
    assert all(event.WhichOneof("record") is None for event in events)


async def test_the_full_view_carries_the_record_as_it_is_now_or_nothing(connection: Connection) -> None:
    kept = await change_everything(connection)
    document = knowledge_store_pb2.Document(doc_id="there", content="a document", metadata=metadata(a=1))
    await connection.store.IndexDocument(knowledge_store_pb2.IndexDocumentRequest(document=document))
    for event in await all_events(connection, view=pb.EVENT_VIEW_FULL):
        if event.record_id == kept.memory_id:
            event.memory.confidence = kept.confidence
            assert event.memory == kept
        elif event.record_id == "there":
            assert (event.document.content, event.document.metadata) == ("a document", document.metadata)
        else:
            assert event.WhichOneof("record") is None


async def test_a_filter_chooses_by_type_scope_and_record(connection: Connection) -> None:
    kept = await change_everything(connection)
    deleted = [pb.EVENT_TYPE_MEMORY_DELETED, pb.EVENT_TYPE_KNOWLEDGE_DELETED]
    assert [e.type for e in await all_events(connection, filter={"types": deleted})] == [deleted[0]] * 2 + deleted[1:]
    assert len(await all_events(connection, filter={"scope": {"user": "ada"}})) == 8
    assert len(await all_events(connection, filter={"record_ids": [kept.memory_id, "doc"]})) == 7
    both = {"types": deleted, "record_ids": [kept.memory_id]}
    assert [event.request_id for event in await all_events(connection, filter=both)] == ["forget"]


async def test_events_of_one_call_share_their_commit(connection: Connection) -> None:
    await remember(connection.memories, "a", "b", "c", type="t")
    await connection.memories.PurgeMemories(memory_pb2.PurgeMemoriesRequest(filter=where(type="t")))
    purged = await all_events(connection, filter={"types": [pb.EVENT_TYPE_MEMORY_PURGED]})
    assert (len(purged), len({event.commit_id for event in purged})) == (3, 1)


async def test_a_watch_and_a_list_continue_each_other(connection: Connection) -> None:
    await remember(connection.memories, *(f"m{i}" for i in range(5)))
    page = await connection.events.ListEvents(pb.ListEventsRequest(page_size=2))
    watch = connection.events.WatchEvents(pb.WatchEventsRequest(cursor=page.cursor, max_batch_size=2))
    started = await watch.read()
    assert started.WhichOneof("payload") == "started"
    assert started.started.heartbeat_interval == Duration(seconds=15)
    assert started.started.retained_since == page.events[0].commit_time
    watched = list(page.events)
    while len(watched) < 4:
        message = await watch.read()
        assert len(message.batch.events) <= 2
        watched += message.batch.events
    watch.cancel()
    rest = await connection.events.ListEvents(pb.ListEventsRequest(cursor=message.cursor))
    watched += rest.events
    assert (watched, rest.caught_up) == (await all_events(connection), True)
    assert len(watched) == 5


async def test_a_watch_from_now_is_told_what_is_committed_after_it_started(connection: Connection) -> None:
    await remember(connection.memories, "before")
    watch = connection.events.WatchEvents(pb.WatchEventsRequest(view=pb.EVENT_VIEW_FULL))
    assert (await watch.read()).HasField("started")
    [memory] = await remember(connection.memories, "after")
    message = await watch.read()
    [event] = message.batch.events
    assert (event.memory.content, event.record_id, message.batch.caught_up) == ("after", memory.memory_id, True)
    watch.cancel()


async def test_a_watch_from_a_time_begins_with_the_first_event_at_or_after_it(connection: Connection) -> None:
    _, second, _ = await remember(connection.memories, "a", "b", "c")
    request = pb.ListEventsRequest(start_time=second.create_time)
    assert (await connection.events.ListEvents(request)).events[0].record_id == second.memory_id
    watch = connection.events.WatchEvents(pb.WatchEventsRequest(start_time=second.create_time))
    assert (await watch.read()).HasField("started")
    assert (await watch.read()).batch.events[0].record_id == second.memory_id
    watch.cancel()


async def test_every_field_that_is_wrong_is_named_at_once(connection: Connection) -> None:
    wrong: dict[str, Any] = {
        "start_time": Timestamp(nanos=-1),
        "filter": {"types": [0], "scope": {"user": "u" * 257}, "record_ids": ["a"] * 257},
        "view": 9,
    }
    expected = {"start_time", "filter.types[0]", "filter.scope.user", "filter.record_ids", "view"}
    listing = await failure_of(connection.events.ListEvents(pb.ListEventsRequest(page_size=-1, **wrong)))
    extra = {"heartbeat_interval": Duration(seconds=1), "max_batch_size": -1}
    _, watching = await stream_end(connection.events.WatchEvents(pb.WatchEventsRequest(**wrong, **extra)))
    for error, fields in ((listing, {"page_size"}), (watching, set(extra))):
        assert (error.code(), reason(error)) == (grpc.StatusCode.INVALID_ARGUMENT, "INVALID_ARGUMENT")
        named = {violation.field for violation in detail(error, error_details_pb2.BadRequest).field_violations}
        assert named == expected | fields


@pytest.mark.parametrize("cursor", ["", "made up", "x" * 100_000], ids=len)
async def test_a_cursor_that_is_made_up_is_refused(connection: Connection, cursor: str) -> None:
    error = await failure_of(connection.events.ListEvents(pb.ListEventsRequest(cursor=cursor)))
    assert (error.code(), reason(error)) == (grpc.StatusCode.INVALID_ARGUMENT, "INVALID_CURSOR")
    messages, error = await stream_end(connection.events.WatchEvents(pb.WatchEventsRequest(cursor=cursor)))
    assert (messages, error.code(), reason(error)) == ([], grpc.StatusCode.INVALID_ARGUMENT, "INVALID_CURSOR")


async def test_a_shutdown_ends_watches_at_once_and_says_why(connection: Connection) -> None:
    watches = [connection.events.WatchEvents(pb.WatchEventsRequest(earliest=True)) for _ in range(20)]
    for watch in watches:
        assert (await watch.read()).HasField("started")
    started = datetime.now(UTC)
    await connection.server.shut_down()
    assert (datetime.now(UTC) - started).total_seconds() < 5
    for watch in watches:
        _, error = await stream_end(watch)
        assert (error.code(), reason(error)) == (grpc.StatusCode.UNAVAILABLE, "NOT_SERVING")


async def test_a_server_that_is_starting_refuses_watches_and_lists() -> None:
    async with bare_server() as connected:
        error = await failure_of(connected.events.ListEvents(pb.ListEventsRequest()))
        assert (error.code(), reason(error)) == (grpc.StatusCode.UNAVAILABLE, "NOT_SERVING")
        messages, error = await stream_end(connected.events.WatchEvents(pb.WatchEventsRequest()))
        assert (messages, error.code(), reason(error)) == ([], grpc.StatusCode.UNAVAILABLE, "NOT_SERVING")


async def test_full_events_of_large_records_come_in_messages_that_are_small_enough(tmp_path: Path) -> None:
    async with whole_server(tmp_path, max_message_mib=4) as connected:
        for i in range(8):
            await connected.memories.CreateMemory(create(f"{i}" + "x" * 900_000, embedding=[1.0] * 64))
        events = await all_events(connected, view=pb.EVENT_VIEW_FULL)
        assert [event.memory.content[0] for event in events] == [str(i) for i in range(8)]
        watch = connected.events.WatchEvents(pb.WatchEventsRequest(earliest=True, view=pb.EVENT_VIEW_FULL))
        watched: list[pb.Event] = []
        while len(watched) < 8:
            watched += (await watch.read()).batch.events
        assert watched == events
        watch.cancel()
