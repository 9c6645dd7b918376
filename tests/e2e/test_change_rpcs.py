"""The change service over gRPC: how each change is reported, page by page and as a stream, with and without records."""

import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import grpc
import pytest
from google.protobuf.duration_pb2 import Duration
from google.protobuf.timestamp_pb2 import Timestamp
from google.rpc import error_details_pb2
from mnemon.v1 import changes_pb2 as pb
from mnemon.v1 import knowledge_store_pb2, memory_pb2

from tests.support.memory_messages import create, metadata, remember, update, where
from tests.support.server import Connection, bare_server, detail, failure_of, reason, stream_end, whole_server

GRACE_S = 180.0
"""A server that waited for the streams would take this long. A third of it is far less than that on any machine."""


async def all_changes(connection: Connection, **request: Any) -> list[pb.Change]:
    """All changes of the log, read page by page."""
    changes: list[pb.Change] = []
    while True:
        page = await connection.changes.ListChanges(pb.ListChangesRequest(**request))
        changes += page.changes
        if page.caught_up:
            return changes
        request["cursor"] = page.cursor


async def change_everything(connection: Connection) -> memory_pb2.Memory:
    """Makes one change of each type. Returns the memory that is left."""
    memories, store = connection.memories, connection.store
    kept, purged = await remember(
        memories, "kept", "purged", decay_policy=memory_pb2.DECAY_POLICY_REINFORCEABLE, scope={"user": "ada"}
    )
    changed = update(kept.memory_id, "type", type="t")
    changed.set_metadata["a"].int_value = 1
    await memories.UpdateMemory(changed)
    await memories.ReinforceMemory(memory_pb2.ReinforceMemoryRequest(memory_id=kept.memory_id))
    await memories.DeleteMemory(memory_pb2.DeleteMemoryRequest(memory_id=kept.memory_id, request_id="forget"))
    await memories.UndeleteMemory(memory_pb2.UndeleteMemoryRequest(memory_id=kept.memory_id))
    await memories.DeleteMemory(memory_pb2.DeleteMemoryRequest(memory_id=purged.memory_id))
    await memories.PurgeMemories(memory_pb2.PurgeMemoriesRequest(only_deleted=True))
    document = knowledge_store_pb2.Document(doc_id="doc", content="a document")
    await store.IndexDocument(knowledge_store_pb2.IndexDocumentRequest(document=document))
    await store.DeleteDocument(knowledge_store_pb2.DeleteDocumentRequest(doc_id="doc"))
    return (await memories.GetMemory(memory_pb2.GetMemoryRequest(memory_id=kept.memory_id))).memory


async def test_every_change_is_listed_once_in_order_with_the_changed_fields(connection: Connection) -> None:
    kept = await change_everything(connection)
    changes = await all_changes(connection, page_size=3)
    assert [pb.ChangeType.Name(change.type).removeprefix("CHANGE_TYPE_") for change in changes] == [
        "MEMORY_CREATED", "MEMORY_CREATED", "MEMORY_UPDATED", "MEMORY_REINFORCED", "MEMORY_DELETED",
        "MEMORY_UNDELETED", "MEMORY_DELETED", "MEMORY_PURGED", "KNOWLEDGE_INDEXED", "KNOWLEDGE_DELETED",
    ]  # fmt: skip
    sequences = [change.sequence for change in changes]
    assert sequences == sorted(set(sequences))
    assert len({change.change_id for change in changes}) == len({change.commit_id for change in changes}) == 10
    times = [change.commit_time.ToNanoseconds() for change in changes]
    assert times == sorted(times)
    assert abs(datetime.now(UTC) - changes[-1].commit_time.ToDatetime(UTC)).total_seconds() < 60
    own = [change for change in changes if change.record_id == kept.memory_id]
    assert [change.revision for change in own] == [1, 2, 3, 4, 5]
    assert {change.scope.user for change in own} == {"ada"}
    assert sorted(own[1].changed_fields) == ["metadata.a", "type"]
    assert [change.request_id for change in own] == ["", "", "", "forget", ""]
    assert [change.record_id for change in changes[-2:]] == ["doc", "doc"]
    assert all(change.WhichOneof("record") is None for change in changes)


async def test_the_full_view_carries_the_current_record_or_nothing(connection: Connection) -> None:
    kept = await change_everything(connection)
    document = knowledge_store_pb2.Document(doc_id="there", content="a document", metadata=metadata(a=1))
    await connection.store.IndexDocument(knowledge_store_pb2.IndexDocumentRequest(document=document))
    for change in await all_changes(connection, view=pb.CHANGE_VIEW_FULL):
        if change.record_id == kept.memory_id:
            change.memory.confidence = kept.confidence
            assert change.memory == kept
        elif change.record_id == "there":
            assert (change.document.content, change.document.metadata) == ("a document", document.metadata)
        else:
            assert change.WhichOneof("record") is None


async def test_a_filter_selects_by_type_scope_and_record(connection: Connection) -> None:
    kept = await change_everything(connection)
    deleted = [pb.CHANGE_TYPE_MEMORY_DELETED, pb.CHANGE_TYPE_KNOWLEDGE_DELETED]
    assert [e.type for e in await all_changes(connection, filter={"types": deleted})] == [deleted[0]] * 2 + deleted[1:]
    assert len(await all_changes(connection, filter={"scope": {"user": "ada"}})) == 8
    assert len(await all_changes(connection, filter={"record_ids": [kept.memory_id, "doc"]})) == 7
    both = {"types": deleted, "record_ids": [kept.memory_id]}
    assert [change.request_id for change in await all_changes(connection, filter=both)] == ["forget"]


async def test_changes_of_one_call_share_their_commit(connection: Connection) -> None:
    await remember(connection.memories, "a", "b", "c", type="t")
    await connection.memories.PurgeMemories(memory_pb2.PurgeMemoriesRequest(filter=where(type="t")))
    purged = await all_changes(connection, filter={"types": [pb.CHANGE_TYPE_MEMORY_PURGED]})
    assert (len(purged), len({change.commit_id for change in purged})) == (3, 1)


async def test_a_watch_and_a_list_can_continue_each_other(connection: Connection) -> None:
    await remember(connection.memories, *(f"m{i}" for i in range(5)))
    page = await connection.changes.ListChanges(pb.ListChangesRequest(page_size=2))
    watch = connection.changes.WatchChanges(pb.WatchChangesRequest(cursor=page.cursor, max_batch_size=2))
    started = await watch.read()
    assert started.WhichOneof("payload") == "started"
    assert started.started.heartbeat_interval == Duration(seconds=15)
    assert started.started.retained_since == page.changes[0].commit_time
    watched = list(page.changes)
    while len(watched) < 4:
        message = await watch.read()
        assert len(message.batch.changes) <= 2
        watched += message.batch.changes
    watch.cancel()
    rest = await connection.changes.ListChanges(pb.ListChangesRequest(cursor=message.cursor))
    watched += rest.changes
    assert (watched, rest.caught_up) == (await all_changes(connection), True)
    assert len(watched) == 5


async def test_a_watch_from_now_gets_what_is_committed_after_it_started(connection: Connection) -> None:
    await remember(connection.memories, "before")
    watch = connection.changes.WatchChanges(pb.WatchChangesRequest(view=pb.CHANGE_VIEW_FULL))
    assert (await watch.read()).HasField("started")
    [memory] = await remember(connection.memories, "after")
    message = await watch.read()
    [change] = message.batch.changes
    assert (change.memory.content, change.record_id, message.batch.caught_up) == ("after", memory.memory_id, True)
    watch.cancel()


async def test_a_watch_from_a_time_begins_with_the_first_event_at_or_after_it(connection: Connection) -> None:
    _, second, _ = await remember(connection.memories, "a", "b", "c")
    request = pb.ListChangesRequest(start_time=second.create_time)
    assert (await connection.changes.ListChanges(request)).changes[0].record_id == second.memory_id
    watch = connection.changes.WatchChanges(pb.WatchChangesRequest(start_time=second.create_time))
    assert (await watch.read()).HasField("started")
    assert (await watch.read()).batch.changes[0].record_id == second.memory_id
    watch.cancel()


async def test_every_invalid_field_is_named_at_once(connection: Connection) -> None:
    wrong: dict[str, Any] = {
        "start_time": Timestamp(nanos=-1),
        "filter": {"types": [0], "scope": {"user": "u" * 257}, "record_ids": ["a"] * 257},
        "view": 9,
    }
    expected = {"start_time", "filter.types[0]", "filter.scope.user", "filter.record_ids", "view"}
    listing = await failure_of(connection.changes.ListChanges(pb.ListChangesRequest(page_size=-1, **wrong)))
    extra = {"heartbeat_interval": Duration(seconds=1), "max_batch_size": -1}
    _, watching = await stream_end(connection.changes.WatchChanges(pb.WatchChangesRequest(**wrong, **extra)))
    for error, fields in ((listing, {"page_size"}), (watching, set(extra))):
        assert (error.code(), reason(error)) == (grpc.StatusCode.INVALID_ARGUMENT, "INVALID_ARGUMENT")
        named = {violation.field for violation in detail(error, error_details_pb2.BadRequest).field_violations}
        assert named == expected | fields


@pytest.mark.parametrize("cursor", ["", "made up", "x" * 100_000], ids=len)
async def test_an_invented_cursor_is_refused(connection: Connection, cursor: str) -> None:
    error = await failure_of(connection.changes.ListChanges(pb.ListChangesRequest(cursor=cursor)))
    assert (error.code(), reason(error)) == (grpc.StatusCode.INVALID_ARGUMENT, "INVALID_CURSOR")
    messages, error = await stream_end(connection.changes.WatchChanges(pb.WatchChangesRequest(cursor=cursor)))
    assert (messages, error.code(), reason(error)) == ([], grpc.StatusCode.INVALID_ARGUMENT, "INVALID_CURSOR")


async def test_a_shutdown_ends_watches_at_once_with_the_reason(tmp_path: Path) -> None:
    async with whole_server(tmp_path, shutdown_grace_s=GRACE_S) as connection:
        watches = [connection.changes.WatchChanges(pb.WatchChangesRequest(earliest=True)) for _ in range(20)]
        for watch in watches:
            assert (await watch.read()).HasField("started")
        started = time.monotonic()
        await connection.server.shut_down()
        assert time.monotonic() - started < GRACE_S / 3
        for watch in watches:
            _, error = await stream_end(watch)
            assert (error.code(), reason(error)) == (grpc.StatusCode.UNAVAILABLE, "NOT_SERVING")


async def test_a_server_that_is_starting_refuses_watches_and_lists() -> None:
    async with bare_server() as connected:
        error = await failure_of(connected.changes.ListChanges(pb.ListChangesRequest()))
        assert (error.code(), reason(error)) == (grpc.StatusCode.UNAVAILABLE, "NOT_SERVING")
        messages, error = await stream_end(connected.changes.WatchChanges(pb.WatchChangesRequest()))
        assert (messages, error.code(), reason(error)) == ([], grpc.StatusCode.UNAVAILABLE, "NOT_SERVING")


async def test_full_events_of_large_records_come_in_messages_within_the_size_limit(tmp_path: Path) -> None:
    async with whole_server(tmp_path, max_message_mib=4) as connected:
        for i in range(8):
            await connected.memories.CreateMemory(create(f"{i}" + "x" * 900_000, embedding=[1.0] * 64))
        changes = await all_changes(connected, view=pb.CHANGE_VIEW_FULL)
        assert [change.memory.content[0] for change in changes] == [str(i) for i in range(8)]
        watch = connected.changes.WatchChanges(pb.WatchChangesRequest(earliest=True, view=pb.CHANGE_VIEW_FULL))
        watched: list[pb.Change] = []
        while len(watched) < 8:
            watched += (await watch.read()).batch.changes
        assert watched == changes
        watch.cancel()
