"""The scenarios of memory operations, each over a real channel against a real server."""

import uuid
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import grpc
import pytest
from google.rpc import error_details_pb2
from mnemon import AsyncClient
from mnemon.v1 import common_pb2
from mnemon.v1 import memory_pb2 as pb

from tests.support.memory_messages import create, metadata, remember
from tests.support.ports import HeldPort
from tests.support.server import bare_server, detail, eventually, failure_of, reason, whole_server

NOBODY = "00000000-0000-4000-8000-000000000000"
HALF_LIFE, ROUNDING = timedelta(hours=0.001), 1e-4
FAST = {f"{policy}_half_life_h": HALF_LIFE / timedelta(hours=1) for policy in ("reinforceable", "contextual")}
"""Half-lives of 3.6 seconds, so that confidence fades while a test looks on."""


async def get(memories: Any, memory_id: str) -> pb.Memory:
    """The memory with this id."""
    return (await memories.GetMemory(pb.GetMemoryRequest(memory_id=memory_id))).memory


async def search(memories: Any, query: str, **fields: Any) -> pb.SearchMemoriesResponse:
    """The answer to a search."""
    return await memories.SearchMemories(pb.SearchMemoriesRequest(query=query, **fields))


def found(answer: pb.SearchMemoriesResponse) -> list[str]:
    """The contents of the results, best first."""
    return [match.memory.content for match in answer.results]


def faded(since: datetime, now: datetime) -> float:
    """The confidence that is left of 1."""
    return float(0.5 ** ((now - since) / HALF_LIFE))


async def test_creating_a_memory_with_all_fields(memories: Any) -> None:
    before = datetime.now(UTC) - timedelta(seconds=5)
    sent = pb.Memory(
        content="User prefers Python",
        scope={"user": "ada", "household": "home", "persona": "mentor", "agent": "claude", "project": "my-project"},
        personality="engineer",
        type="preference",
        decay_policy=pb.DECAY_POLICY_STABLE,
        metadata=metadata(language="python", rank=1, sure=0.5, old=False),
        is_global=False,
    )
    answer = await memories.CreateMemory(pb.CreateMemoryRequest(memory=sent))
    stored = answer.memory
    assert str(uuid.UUID(stored.memory_id)) == stored.memory_id == answer.receipt.id
    assert (stored.confidence, stored.revision) == (1.0, 1)
    assert answer.receipt.outcome == common_pb2.WRITE_OUTCOME_CREATED
    assert before < stored.create_time.ToDatetime(UTC) < datetime.now(UTC) + timedelta(seconds=5)
    assert stored.create_time == stored.update_time == answer.receipt.commit_time
    assert not stored.HasField("reinforce_time") and not stored.HasField("delete_time")
    for field in ("content", "scope", "personality", "type", "is_global", "decay_policy", "metadata"):
        assert getattr(stored, field) == getattr(sent, field)
    assert await get(memories, stored.memory_id) == stored


async def test_creating_a_memory_with_minimal_fields(memories: Any) -> None:
    stored = (await memories.CreateMemory(create("test"))).memory
    got = await get(memories, stored.memory_id)
    assert (got.content, got.personality, got.type, got.is_global) == ("test", "", "", False)
    assert got.scope == common_pb2.Scope()
    assert (got.decay_policy, got.confidence, len(got.metadata)) == (pb.DECAY_POLICY_STABLE, 1.0, 0)


async def test_search_with_no_filters(memories: Any) -> None:
    kept, gone = await remember(memories, "Ada has python preferences", "Bob has python preferences")
    await memories.DeleteMemory(pb.DeleteMemoryRequest(memory_id=gone.memory_id))
    answer = await search(memories, "python preferences")
    assert ([match.memory.memory_id for match in answer.results], answer.diagnostics.returned) == ([kept.memory_id], 1)
    assert answer.results[0].memory.confidence == 1.0
    assert 0 < answer.results[0].score.relevance <= 1


async def test_search_with_tag_filters(memories: Any) -> None:
    await remember(memories, "python, both", scope={"agent": "claude", "project": "my-project"})
    await remember(memories, "python, agent", scope={"agent": "claude", "project": "other"})
    await remember(memories, "python, project", scope={"agent": "gpt", "project": "my-project"})
    [deleted] = await remember(memories, "python, deleted", scope={"agent": "claude", "project": "my-project"})
    await memories.DeleteMemory(pb.DeleteMemoryRequest(memory_id=deleted.memory_id))
    chosen = pb.MemoryFilter(scope={"agent": "claude", "project": "my-project"})
    assert found(await search(memories, "python", filter=chosen)) == ["python, both"]


async def test_search_respects_limit(memories: Any) -> None:
    await remember(memories, *(f"python fact {i}" for i in range(12)))
    for limit, count in ((5, 5), (1, 1), (1000, 12)):
        answer = await search(memories, "python fact", limit=limit)
        assert (len(answer.results), answer.diagnostics.returned) == (count, count)
    assert len((await search(memories, "python fact")).results) == 10


async def test_get_existing_non_deleted_memory(tmp_path: Path) -> None:
    async with whole_server(tmp_path, **FAST) as connected:
        memories = connected.memories
        [fading] = await remember(memories, "fades", decay_policy=pb.DECAY_POLICY_CONTEXTUAL)
        seen = [1.0]

        async def has_faded() -> bool:
            seen.append((await get(memories, fading.memory_id)).confidence)
            return seen[-1] < 0.95

        await eventually(has_faded)
        assert seen == sorted(seen, reverse=True)
        before = datetime.now(UTC)
        got = await get(memories, fading.memory_id)
        created = got.create_time.ToDatetime(UTC)
        assert faded(created, datetime.now(UTC)) - ROUNDING <= got.confidence <= faded(created, before) + ROUNDING


async def test_get_deleted_memory(memories: Any) -> None:
    [memory] = await remember(memories, "gone")
    await memories.DeleteMemory(pb.DeleteMemoryRequest(memory_id=memory.memory_id))
    error = await failure_of(memories.GetMemory(pb.GetMemoryRequest(memory_id=memory.memory_id)))
    assert (error.code(), reason(error)) == (grpc.StatusCode.NOT_FOUND, "MEMORY_NOT_FOUND")


async def test_get_non_existent_memory(memories: Any) -> None:
    error = await failure_of(memories.GetMemory(pb.GetMemoryRequest(memory_id=NOBODY)))
    assert (error.code(), reason(error)) == (grpc.StatusCode.NOT_FOUND, "MEMORY_NOT_FOUND")
    resource = detail(error, error_details_pb2.ResourceInfo)
    assert (resource.resource_type, resource.resource_name) == ("mnemon.Memory", NOBODY)


async def test_reinforce_a_reinforceable_memory(tmp_path: Path) -> None:
    async with whole_server(tmp_path, **FAST) as connected:
        memories = connected.memories
        [memory] = await remember(memories, "fades", decay_policy=pb.DECAY_POLICY_REINFORCEABLE)

        async def has_faded() -> bool:
            return (await get(memories, memory.memory_id)).confidence < 0.9

        await eventually(has_faded)
        answer = await memories.ReinforceMemory(pb.ReinforceMemoryRequest(memory_id=memory.memory_id))
        assert (answer.memory.confidence, answer.memory.revision, answer.receipt.revision) == (1.0, 2, 2)
        reinforced = answer.memory.reinforce_time.ToDatetime(UTC)
        assert reinforced > memory.create_time.ToDatetime(UTC) + timedelta(seconds=0.3)
        got = await get(memories, memory.memory_id)
        assert (got.reinforce_time, got.create_time) == (answer.memory.reinforce_time, memory.create_time)
        assert got.confidence >= faded(reinforced, datetime.now(UTC)) - ROUNDING


@pytest.mark.parametrize(
    ("policy", "name"), [(pb.DECAY_POLICY_STABLE, "stable"), (pb.DECAY_POLICY_CONTEXTUAL, "contextual")]
)
async def test_reinforce_a_stable_or_a_contextual_memory(memories: Any, policy: int, name: str) -> None:
    [memory] = await remember(memories, "a fact", decay_policy=policy)
    error = await failure_of(memories.ReinforceMemory(pb.ReinforceMemoryRequest(memory_id=memory.memory_id)))
    assert (error.code(), reason(error)) == (grpc.StatusCode.FAILED_PRECONDITION, "INVALID_OPERATION")
    assert f"{name} memory cannot be reinforced" in str(error.details())
    assert (await get(memories, memory.memory_id)).revision == 1


async def test_delete_an_existing_memory(memories: Any) -> None:
    gone, kept = await remember(memories, "python, to be deleted", "python, to be kept")
    answer = await memories.DeleteMemory(pb.DeleteMemoryRequest(memory_id=gone.memory_id))
    assert (answer.receipt.id, answer.receipt.outcome) == (gone.memory_id, common_pb2.WRITE_OUTCOME_DELETED)
    for mode in (common_pb2.SEARCH_MODE_HYBRID, common_pb2.SEARCH_MODE_VECTOR, common_pb2.SEARCH_MODE_KEYWORD):
        assert found(await search(memories, "python deleted", mode=mode)) == [kept.content]
    page = await memories.ListMemories(pb.ListMemoriesRequest(show_deleted=True))
    assert [memory.HasField("delete_time") for memory in page.memories] == [True, False]


async def test_delete_an_already_deleted_memory(memories: Any) -> None:
    [memory] = await remember(memories, "gone")
    request = pb.DeleteMemoryRequest(memory_id=memory.memory_id)
    await memories.DeleteMemory(request)
    error = await failure_of(memories.DeleteMemory(request))
    assert (error.code(), reason(error)) == (grpc.StatusCode.FAILED_PRECONDITION, "INVALID_OPERATION")


async def test_delete_a_non_existent_memory(memories: Any) -> None:
    error = await failure_of(memories.DeleteMemory(pb.DeleteMemoryRequest(memory_id=NOBODY)))
    assert (error.code(), reason(error)) == (grpc.StatusCode.NOT_FOUND, "MEMORY_NOT_FOUND")


async def test_healthy_service(memories: Any) -> None:
    gone, _, _ = await remember(memories, "one", "two", "three")
    await memories.DeleteMemory(pb.DeleteMemoryRequest(memory_id=gone.memory_id))
    status = await memories.GetStatus(pb.GetStatusRequest())
    assert (status.state, status.message) == (common_pb2.STATE_READY, "")
    assert (status.backend, status.host, status.collection) == ("local", "embedded", "memories")
    assert (status.memory_count, status.deleted_count) == (2, 1)


async def test_unhealthy_service(tmp_path: Path) -> None:
    port = HeldPort()
    unreachable = {"memory_backend": "chromadb", "chroma_host": "127.0.0.1", "chroma_port": port.number}
    async with whole_server(tmp_path, **unreachable) as connected:
        await remember(connected.memories, "acknowledged all the same")
        last = pb.GetStatusResponse()

        async def is_unhealthy() -> bool:
            last.CopyFrom(await connected.memories.GetStatus(pb.GetStatusRequest()))
            return bool(last.state == common_pb2.STATE_DEGRADED)

        await eventually(is_unhealthy)
        assert last.message
        async with AsyncClient(str(connected.server.address)) as client:
            assert (await client.memories.status()).status == "unhealthy"
        assert (last.backend, last.host) == ("chromadb", port.address)
        assert last.memory_count == 1


async def test_a_service_that_is_starting_says_so_and_serves_nothing_else() -> None:
    async with bare_server() as connected:
        status = await connected.memories.GetStatus(pb.GetStatusRequest())
        assert (status.state, status.message) == (common_pb2.STATE_UNAVAILABLE, "the server is starting")
        error = await failure_of(connected.memories.CreateMemory(create("test")))
        assert (error.code(), reason(error)) == (grpc.StatusCode.UNAVAILABLE, "NOT_SERVING")
