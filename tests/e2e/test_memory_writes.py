"""What the memory service promises about writes: request ids, revisions, masks, deletion and bulk streams."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import grpc
import pytest
from google.rpc import error_details_pb2
from grpc import aio
from mnemon.v1 import common_pb2, errors_pb2
from mnemon.v1 import memory_pb2 as pb

from tests.support.memory_messages import compare, contents_of, create, metadata, remember, update, where
from tests.support.server import Connection, detail, failure_of, reason, stream_end, until, violations

DIMENSION = 64
"""Of the hashing embedder."""


async def get(memories: Any, memory_id: str) -> pb.Memory:
    """The memory with this id."""
    return (await memories.GetMemory(pb.GetMemoryRequest(memory_id=memory_id))).memory


@pytest.mark.parametrize(
    "embedding", [[1.0], [0.0] * DIMENSION, [float("nan")] * DIMENSION, [float("inf")] * DIMENSION], ids=len
)
@pytest.mark.asyncio(loop_scope="module")
async def test_a_vector_of_another_dimension_or_of_zeros_is_refused(shared: Connection, embedding: list[float]) -> None:
    assert violations(await failure_of(shared.memories.CreateMemory(create("x", embedding=embedding)))) == {"embedding"}


async def test_a_given_vector_is_the_one_that_is_searched(memories: Any) -> None:
    ahead, aside = [0.0] * DIMENSION, [0.0] * DIMENSION
    ahead[0], aside[0], aside[1] = 250.0, 6e-4, 8e-4
    await memories.CreateMemory(create("words that say nothing", embedding=ahead))
    await memories.CreateMemory(create("other words", embedding=aside))
    answer = await memories.SearchMemories(pb.SearchMemoriesRequest(vector=ahead))
    first, second = answer.results
    assert (first.memory.content, first.score.vector) == ("words that say nothing", pytest.approx(1, abs=1e-6))
    assert (second.score.vector, second.distance) == (pytest.approx(0.6, abs=1e-6), pytest.approx(0.4, abs=1e-6))
    assert answer.diagnostics.mode == common_pb2.SEARCH_MODE_VECTOR


Call = Callable[[Any, str], Awaitable[Any]]


@pytest.mark.parametrize(
    ("call", "other"),
    [
        (lambda stub, _: stub.CreateMemory(create("a", request_id="once")),
         lambda stub, _: stub.CreateMemory(create("b", request_id="once"))),
        (lambda stub, memory_id: stub.UpdateMemory(update(memory_id, "type", type="x", request_id="once")),
         lambda stub, memory_id: stub.UpdateMemory(update(memory_id, "type", type="y", request_id="once"))),
        (lambda stub, memory_id: stub.ReinforceMemory(_on(pb.ReinforceMemoryRequest, memory_id)),
         lambda stub, memory_id: stub.DeleteMemory(_on(pb.DeleteMemoryRequest, memory_id))),
        (lambda stub, memory_id: stub.DeleteMemory(_on(pb.DeleteMemoryRequest, memory_id)),
         lambda stub, memory_id: stub.DeleteMemory(_on(pb.DeleteMemoryRequest, memory_id, expected_revision=1))),
    ],
    ids=["create", "update", "reinforce", "delete"],
)  # fmt: skip
async def test_a_request_id_makes_a_repeated_call_harmless_and_another_call_an_error(
    memories: Any, call: Call, other: Call
) -> None:
    [memory] = await remember(memories, "there before", decay_policy=pb.DECAY_POLICY_REINFORCEABLE)
    first = await call(memories, memory.memory_id)
    await memories.CreateMemory(create("in between"))
    again = await call(memories, memory.memory_id)
    assert (first.receipt.replayed, again.receipt.replayed) == (False, True)
    first.receipt.replayed = True
    assert again.receipt == first.receipt
    error = await failure_of(other(memories, memory.memory_id))
    assert (error.code(), reason(error)) == (grpc.StatusCode.ALREADY_EXISTS, "REQUEST_ID_REUSED")


async def test_a_stale_revision_is_aborted_with_both_revisions_and_changes_nothing(memories: Any) -> None:
    [memory] = await remember(memories, "a", decay_policy=pb.DECAY_POLICY_REINFORCEABLE)
    memory_id = memory.memory_id
    for call in (
        memories.UpdateMemory(update(memory_id, "content", content="b", expected_revision=7)),
        memories.ReinforceMemory(pb.ReinforceMemoryRequest(memory_id=memory_id, expected_revision=7)),
        memories.DeleteMemory(pb.DeleteMemoryRequest(memory_id=memory_id, expected_revision=7)),
    ):
        error = await failure_of(call)
        assert (error.code(), reason(error)) == (grpc.StatusCode.ABORTED, "REVISION_MISMATCH")
        figures = detail(error, error_details_pb2.ErrorInfo).metadata
        assert dict(figures) == {"expected_revision": "7", "actual_revision": "1"}
    unchanged = await get(memories, memory_id)
    assert (unchanged.content, unchanged.revision, unchanged.HasField("reinforce_time")) == ("a", 1, False)
    changed = await memories.UpdateMemory(update(memory_id, "content", content="b", expected_revision=1))
    assert (changed.memory.content, changed.memory.revision) == ("b", 2)


async def test_an_unknown_memory_is_not_found_whatever_revision_is_expected(memories: Any) -> None:
    unknown = "3f0c6f0e-5b51-4a53-9d4e-0b6a3f4f8f11"
    for call in (
        memories.UpdateMemory(update(unknown, "content", content="x", expected_revision=7)),
        memories.ReinforceMemory(pb.ReinforceMemoryRequest(memory_id=unknown, expected_revision=7)),
        memories.DeleteMemory(pb.DeleteMemoryRequest(memory_id=unknown, expected_revision=7)),
        memories.UndeleteMemory(pb.UndeleteMemoryRequest(memory_id=unknown, expected_revision=7)),
    ):
        error = await failure_of(call)
        assert (error.code(), reason(error)) == (grpc.StatusCode.NOT_FOUND, "MEMORY_NOT_FOUND")


async def test_one_of_many_concurrent_changes_of_the_same_revision_succeeds(memories: Any) -> None:
    [memory] = await remember(memories, "a")
    calls = [
        memories.UpdateMemory(update(memory.memory_id, "type", type=f"t{i}", expected_revision=1)) for i in range(20)
    ]
    outcomes = await asyncio.gather(*calls, return_exceptions=True)
    won = [outcome for outcome in outcomes if isinstance(outcome, pb.UpdateMemoryResponse)]
    lost = {outcome.code() for outcome in outcomes if isinstance(outcome, aio.AioRpcError)}
    assert (len(won), lost) == (1, {grpc.StatusCode.ABORTED})
    assert (await get(memories, memory.memory_id)).type == won[0].memory.type


async def test_a_change_touches_only_what_the_mask_names(memories: Any) -> None:
    [before] = await remember(
        memories, "old words", scope={"user": "ada", "agent": "claude"}, type="t", metadata=metadata(a=1, b="x", c=True)
    )
    request = update(
        before.memory_id,
        "content",
        "scope.agent",
        "is_global",
        "decay_policy",
        content="new words",
        scope={"user": "not taken", "agent": "gpt"},
        type="not taken",
        decay_policy=pb.DECAY_POLICY_CONTEXTUAL,
        metadata=metadata(a=9),
        is_global=True,
        set_metadata=metadata(b="y", myKey=2),
        remove_metadata=["c", "unknown"],
    )
    answer = await memories.UpdateMemory(request)
    after = await get(memories, before.memory_id)
    assert (after.content, after.type, after.is_global) == ("new words", "t", True)
    assert (after.scope.user, after.scope.agent) == ("ada", "gpt")
    assert after.decay_policy == pb.DECAY_POLICY_CONTEXTUAL
    assert dict(after.metadata) == metadata(a=1, b="y", myKey=2)
    assert (after.create_time, after.revision) == (before.create_time, 2)
    assert after.update_time == answer.receipt.commit_time
    answer.memory.confidence = after.confidence
    assert answer.memory == after
    found = (await memories.SearchMemories(pb.SearchMemoriesRequest(query="new words"))).results
    assert found[0].score.vector == pytest.approx(1, abs=1e-5)


async def test_a_mask_may_name_metadata_or_scope_as_a_whole(memories: Any) -> None:
    [memory] = await remember(memories, "a", scope={"user": "ada", "agent": "x"}, metadata=metadata(a=1, b=2))
    request = update(memory.memory_id, "metadata", "scope", scope={"user": "bob"}, metadata=metadata(c=3))
    changed = (await memories.UpdateMemory(request)).memory
    assert (dict(changed.metadata), changed.scope) == (metadata(c=3), common_pb2.Scope(user="bob"))


@pytest.mark.parametrize(
    ("paths", "wrong"),
    [
        ((), {"update_mask"}),
        (("*",), {"update_mask"}),
        (("confidence",), {"update_mask"}),
        (("memory_id",), {"update_mask"}),
        (("scope.nobody",), {"update_mask"}),
        (("metadata.topic",), {"update_mask"}),
        (("content",), {"memory.content"}),
        (("type", "content", "nonsense"), {"memory.content", "update_mask"}),
    ],
)
@pytest.mark.asyncio(loop_scope="module")
async def test_a_mask_that_is_empty_or_names_a_fixed_field_is_refused(
    shared: Connection, paths: tuple[str, ...], wrong: set[str]
) -> None:
    [memory] = await remember(shared.memories, "a")
    assert violations(await failure_of(shared.memories.UpdateMemory(update(memory.memory_id, *paths)))) == wrong


async def test_a_key_in_a_mask_is_refused_with_the_fields_that_change_keys(memories: Any) -> None:
    [memory] = await remember(memories, "a", metadata=metadata(myKey=1))
    error = await failure_of(memories.UpdateMemory(update(memory.memory_id, "metadata.my_key")))
    [violation] = detail(error, error_details_pb2.BadRequest).field_violations
    assert "set_metadata and remove_metadata" in violation.description
    assert dict((await get(memories, memory.memory_id)).metadata) == metadata(myKey=1)


@pytest.mark.parametrize(
    ("paths", "keys", "wrong"),
    [
        ((), {"set_metadata": metadata(a=1), "remove_metadata": ["b", "a"]}, {"remove_metadata[1]"}),
        ((), {"set_metadata": {"not a key": common_pb2.MetadataValue(int_value=1)}}, {"set_metadata"}),
        ((), {"set_metadata": {"unset": common_pb2.MetadataValue()}}, {"set_metadata.unset"}),
        ((), {"remove_metadata": ["not a key"]}, {"remove_metadata[0]"}),
        ((), {"remove_metadata": [f"k{i}" for i in range(65)]}, {"remove_metadata"}),
        (("metadata",), {"set_metadata": metadata(a=1)}, {"update_mask"}),
        (("metadata",), {"remove_metadata": ["a"]}, {"update_mask"}),
    ],
)
@pytest.mark.asyncio(loop_scope="module")
async def test_invalid_keys_to_set_or_remove_are_named(
    shared: Connection, paths: tuple[str, ...], keys: dict[str, Any], wrong: set[str]
) -> None:
    [memory] = await remember(shared.memories, "a", metadata=metadata(a=0))
    assert violations(await failure_of(shared.memories.UpdateMemory(update(memory.memory_id, *paths, **keys)))) == wrong
    assert dict((await get(shared.memories, memory.memory_id)).metadata) == metadata(a=0)


async def test_a_change_of_other_keys_is_another_request(memories: Any) -> None:
    [memory] = await remember(memories, "a", metadata=metadata(a=0, b=0))
    first = update(memory.memory_id, remove_metadata=["a"], request_id="once")
    await memories.UpdateMemory(first)
    assert (await memories.UpdateMemory(first)).receipt.replayed
    for other in ({"remove_metadata": ["b"]}, {"remove_metadata": ["a"], "set_metadata": metadata(b=1)}):
        error = await failure_of(memories.UpdateMemory(update(memory.memory_id, request_id="once", **other)))
        assert reason(error) == "REQUEST_ID_REUSED"


async def test_deleting_a_missing_memory_succeeds_if_allowed(memories: Any) -> None:
    unknown = "3f0c6f0e-5b51-4a53-9d4e-0b6a3f4f8f11"
    request = pb.DeleteMemoryRequest(memory_id=unknown, expected_revision=3, allow_missing=True, request_id="once")
    receipt = (await memories.DeleteMemory(request)).receipt
    assert (receipt.id, receipt.outcome, receipt.revision) == (unknown, common_pb2.WRITE_OUTCOME_MISSING, 0)
    assert (await memories.DeleteMemory(request)).receipt.replayed
    [memory] = await remember(memories, "a")
    deletion = pb.DeleteMemoryRequest(memory_id=memory.memory_id, allow_missing=True)
    assert (await memories.DeleteMemory(deletion)).receipt.outcome == common_pb2.WRITE_OUTCOME_DELETED
    assert reason(await failure_of(memories.DeleteMemory(deletion))) == "INVALID_OPERATION"


async def test_a_deleted_memory_cannot_be_changed_until_it_is_undeleted(memories: Any) -> None:
    [memory] = await remember(memories, "come and gone", decay_policy=pb.DECAY_POLICY_REINFORCEABLE)
    memory_id = memory.memory_id
    await memories.DeleteMemory(pb.DeleteMemoryRequest(memory_id=memory_id))
    for call in (
        memories.UpdateMemory(update(memory_id, "type", type="x")),
        memories.ReinforceMemory(pb.ReinforceMemoryRequest(memory_id=memory_id)),
    ):
        assert reason(await failure_of(call)) == "MEMORY_NOT_FOUND"
    request = pb.UndeleteMemoryRequest(memory_id=memory_id, request_id="back", expected_revision=2)
    back = await memories.UndeleteMemory(request)
    assert (back.memory.content, back.memory.revision, back.memory.HasField("delete_time")) == (
        memory.content,
        3,
        False,
    )
    assert (await memories.UndeleteMemory(request)).receipt.replayed
    assert (await get(memories, memory_id)).revision == 3
    assert len((await memories.SearchMemories(pb.SearchMemoriesRequest(query="come and gone"))).results) == 1
    error = await failure_of(memories.UndeleteMemory(pb.UndeleteMemoryRequest(memory_id=memory_id)))
    assert (error.code(), reason(error)) == (grpc.StatusCode.FAILED_PRECONDITION, "INVALID_OPERATION")


async def test_a_purge_takes_a_filter_of_any_kind(memories: Any) -> None:
    await remember(memories, "keep me", "drop me", "drop me too")
    request = pb.PurgeMemoriesRequest(filter=where(compare("content", "CONTAINS", "drop")))
    assert (await memories.PurgeMemories(request)).purged_count == 2
    assert await contents_of(memories, where(), show_deleted=True) == ["keep me"]


async def test_a_bulk_stream_answers_each_message_in_order_and_a_bad_memory_fails_alone(memories: Any) -> None:
    requests = [
        pb.BulkCreateMemoriesRequest(requests=[create(f"text {i} {j}", type=f"t{i}") for j in range(i + 1)])
        for i in range(6)
    ]
    requests[1].requests.append(create(" ", metadata={"unset": common_pb2.MetadataValue()}))
    requests[2].requests.insert(0, pb.CreateMemoryRequest())
    responses = [response async for response in memories.BulkCreateMemories(iter(requests))]
    assert [len(response.results) for response in responses] == [1, 3, 4, 4, 5, 6]
    failed = {
        (i, j): {violation.field for violation in result.error.violations}
        for i, response in enumerate(responses)
        for j, result in enumerate(response.results)
        if result.HasField("error")
    }
    assert failed == {(1, 2): {"memory.content", "memory.metadata.unset"}, (2, 0): {"memory"}}
    assert responses[2].results[0].error.reason == errors_pb2.ERROR_REASON_INVALID_ARGUMENT
    assert (await memories.CountMemories(pb.CountMemoriesRequest())).count == 21
    last = await get(memories, responses[5].results[3].receipt.id)
    assert (last.content, last.type) == ("text 5 3", "t5")


async def test_a_request_id_counts_across_messages_of_a_bulk_stream(memories: Any) -> None:
    contents = [f"text {i // 3}" for i in range(60)]
    requests = [pb.BulkCreateMemoriesRequest(requests=[create(content, request_id=content)]) for content in contents]
    responses = [response async for response in memories.BulkCreateMemories(iter(requests))]
    receipts = [response.results[0].receipt for response in responses]
    assert [receipt.replayed for receipt in receipts] == [False, True, True] * 20
    assert len({receipt.id for receipt in receipts}) == 20


async def test_an_empty_or_too_long_bulk_message_ends_the_stream_after_the_earlier_answers(
    memories: Any,
) -> None:
    for wrong in (pb.BulkCreateMemoriesRequest(), pb.BulkCreateMemoriesRequest(requests=[create()] * 1001)):
        stream = memories.BulkCreateMemories(iter([pb.BulkCreateMemoriesRequest(requests=[create("a")]), wrong]))
        responses, error = await stream_end(stream)
        assert [response.results[0].receipt.revision for response in responses] == [1]
        assert violations(error) == {"requests"}


async def test_a_client_that_leaves_a_bulk_stream_does_not_harm_the_server(connection: Connection) -> None:
    for _ in range(5):
        stream = connection.memories.BulkCreateMemories()
        for i in range(5):
            await stream.write(pb.BulkCreateMemoriesRequest(requests=[create(f"text {i} " + "word " * 500)]))
        stream.cancel()
    await until(lambda: connection.server.open_streams == 0)
    assert (await connection.memories.CreateMemory(create("after"))).memory.confidence == 1.0


def _on(kind: Any, memory_id: str, **fields: Any) -> Any:
    return kind(memory_id=memory_id, request_id="once", **fields)


async def test_a_memory_may_come_with_its_id_but_not_with_another_memorys(connection: Connection) -> None:
    chosen = "3f0c6f0e-5b51-4a53-9d4e-0b6a3f4f8f11"
    request = pb.CreateMemoryRequest(memory=pb.Memory(memory_id=chosen, content="Ada likes tea."), request_id="once")
    created = await connection.memories.CreateMemory(request)
    assert created.memory.memory_id == created.receipt.id == chosen
    assert (await connection.memories.CreateMemory(request)).memory.memory_id == chosen

    taken = pb.CreateMemoryRequest(memory=pb.Memory(memory_id=chosen, content="Ada likes coffee."))
    there = await failure_of(connection.memories.CreateMemory(taken))
    await connection.memories.DeleteMemory(pb.DeleteMemoryRequest(memory_id=chosen))
    deleted = await failure_of(connection.memories.CreateMemory(taken))
    for error in (there, deleted):
        assert (error.code(), reason(error)) == (grpc.StatusCode.ALREADY_EXISTS, "MEMORY_EXISTS")


@pytest.mark.parametrize(
    "memory_id", ["tea", "3F0C6F0E-5B51-4A53-9D4E-0B6A3F4F8F11", "3f0c6f0e5b514a539d4e0b6a3f4f8f11"]
)
@pytest.mark.asyncio(loop_scope="module")
async def test_an_id_that_is_not_a_uuid_is_refused_with_an_example(shared: Connection, memory_id: str) -> None:
    request = pb.CreateMemoryRequest(memory=pb.Memory(memory_id=memory_id, content="Ada likes tea."))
    error = await failure_of(shared.memories.CreateMemory(request))
    [violation] = detail(error, error_details_pb2.BadRequest).field_violations
    assert violation.field == "memory.memory_id"
    assert "3f0c6f0e-5b51-4a53-9d4e-0b6a3f4f8f11" in violation.description
