"""The scenarios of semantic memory, its retrieval and its index, each over a real channel against a real server."""

import asyncio
import shutil
import uuid
from collections.abc import Awaitable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import grpc
import pytest
from google.protobuf.timestamp_pb2 import Timestamp
from google.rpc import error_details_pb2
from grpc import aio
from mnemon.v1 import changes_pb2 as changes
from mnemon.v1 import common_pb2
from mnemon.v1 import semantic_pb2 as pb
from mnemon_server.services.writing.write_pressure import SAMPLES_MIN

from tests.support.memory_messages import compare, metadata
from tests.support.semantic_load import Overload, agreement, answers, load
from tests.support.semantic_messages import (
    axis,
    contents_known,
    know,
    save,
    status_of,
    until_state,
)
from tests.support.server import (
    Connection,
    detail,
    eventually,
    failure_of,
    health_of,
    reason,
    until,
    whole_server,
)

SERVICE = "mnemon.v1.SemanticMemoryService"
NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


def at(moment: datetime) -> Timestamp:
    """The time as a message."""
    message = Timestamp()
    message.FromDatetime(moment)
    return message


def found(answer: pb.SearchSimilarResponse) -> list[str]:
    """The contents of the results, most similar first."""
    return [match.memory.content for match in answer.results]


async def search(semantic: Any, **request: Any) -> pb.SearchSimilarResponse:
    """The answer to a search along the first axis, unless it says otherwise."""
    return await semantic.SearchSimilar(pb.SearchSimilarRequest(**{"vector": axis(1.0), **request}))


async def told(connection: Connection, *names: str) -> list[changes.Change]:
    """All changes of these types."""
    numbers = [changes.ChangeType.Value(f"CHANGE_TYPE_{name}") for name in names]
    request = changes.ListChangesRequest(filter=changes.ChangeFilter(types=numbers), page_size=1000)
    page = await connection.changes.ListChanges(request)
    assert page.caught_up
    return list(page.changes)


async def test_persist_semantic_memory_record(connection: Connection) -> None:
    semantic = connection.semantic
    incomplete = pb.SaveSemanticMemoryRequest(memory=pb.SemanticMemory(importance=7.0))
    error = await failure_of(semantic.SaveSemanticMemory(incomplete))
    assert error.code() == grpc.StatusCode.INVALID_ARGUMENT
    named = {violation.field for violation in detail(error, error_details_pb2.BadRequest).field_violations}
    assert named == {"memory.content", "memory.importance", "memory.scope.user"}

    terms = {"scope": {"persona": "butler"}, "importance": 0.8, "source": "user", "metadata": metadata(topic="home")}
    answer = await semantic.SaveSemanticMemory(save("Ada lives in Berlin.", embedding=axis(0.0, 5.0), **terms))
    assert str(uuid.UUID(answer.receipt.id)) == answer.memory.memory_id
    request = pb.GetSemanticMemoryRequest(memory_id=answer.memory.memory_id, view=common_pb2.VIEW_FULL)
    stored = (await semantic.GetSemanticMemory(request)).memory
    assert (stored.content, stored.scope.user, stored.scope.persona) == ("Ada lives in Berlin.", "ada", "butler")
    assert (stored.importance, stored.source, stored.metadata) == (0.8, "user", metadata(topic="home"))
    assert list(stored.embedding) == pytest.approx(axis(0.0, 1.0))

    # The same content is a duplicate only for this user and persona.
    for spelling in ("Ada lives in Berlin.", " Ada  lives\tin Berlin. ", "Ada lives in Ｂｅｒｌｉｎ."):
        again = await semantic.SaveSemanticMemory(save(spelling, **terms))
        assert (again.duplicate, again.memory.memory_id) == (True, stored.memory_id)
    for other in ({"scope": {"persona": "coach"}}, {"scope": {"persona": "butler"}, "user": "bob"}):
        assert not (await semantic.SaveSemanticMemory(save("Ada lives in Berlin.", **other))).duplicate
    saved = await told(connection, "SEMANTIC_SAVED")
    assert [change.scope.user for change in saved] == ["ada", "ada", "bob"]
    assert saved[0].record_id == stored.memory_id


async def test_a_duplicate_is_known_after_a_restart(tmp_path: Path) -> None:
    async with whole_server(tmp_path) as server:
        [stored] = await know(server.semantic, "Ada lives in Berlin.")
    async with whole_server(tmp_path) as server:
        again = await server.semantic.SaveSemanticMemory(save("Ada lives in Berlin."))
        assert (again.duplicate, again.memory) == (True, stored)


async def test_query_semantic_memory_records(semantic: Any) -> None:
    for turn in range(5):
        vector = axis(1.0, turn / 10)
        await know(semantic, f"fact {turn}", embedding=vector, source="user", metadata=metadata(turn=turn))
    await know(semantic, "of bob", user="bob", embedding=axis(1.0))
    mine = pb.SemanticMemoryFilter(scope={"user": "ada"})
    answer = await search(semantic, filter=mine)
    assert found(answer) == ["fact 0", "fact 1", "fact 2"]
    expected = [1.0, 1 / 1.01**0.5, 1 / 1.04**0.5]
    assert [match.score.relevance for match in answer.results] == pytest.approx(expected, abs=1e-6)
    assert [(match.memory.source, match.memory.metadata) for match in answer.results] == [
        ("user", metadata(turn=turn)) for turn in range(3)
    ]
    assert found(await search(semantic, filter=mine, limit=1)) == ["fact 0"]
    assert len((await search(semantic, filter=mine, limit=100)).results) == 5


async def test_threshold_and_window_enforcement(semantic: Any) -> None:
    # From the first axis: cosine 1, 0.8, 0.6 and 0; one hour apart.
    for hour, (name, vector) in enumerate(
        (("same", axis(2.0)), ("close", axis(0.8, 0.6)), ("loose", axis(0.6, 0.8)), ("aside", axis(0.0, 1.0)))
    ):
        await know(semantic, name, embedding=vector, create_time=at(NOON + timedelta(hours=hour)))
    answer = await search(semantic)
    assert found(answer) == ["same", "close"]
    counts = answer.diagnostics
    assert (counts.total_candidates, counts.matched_count, counts.filtered_count) == (4, 2, 2)
    assert (counts.filtered_by_threshold, counts.filtered_by_window, counts.returned) == (2, 0, 2)

    # The threshold is inclusive, and so are both ends of the window.
    assert found(await search(semantic, vector=axis(0.0, 1.0), min_score=1.0)) == ["aside"]
    window = pb.SemanticMemoryFilter(
        created={"start_time": at(NOON + timedelta(hours=1)), "end_time": at(NOON + timedelta(hours=2))}
    )
    answer = await search(semantic, filter=window, min_score=0.0)
    assert found(answer) == ["close", "loose"]
    counts = answer.diagnostics
    assert (counts.filtered_by_window, counts.filtered_by_threshold, counts.matched_count) == (2, 0, 2)
    nothing = await search(semantic, filter=window, min_score=0.9)
    assert (found(nothing), nothing.diagnostics.matched_count, nothing.diagnostics.filtered_count) == ([], 0, 4)
    # The counts include matches that the limit cut off.
    cut = await search(semantic, min_score=0.0, limit=1)
    assert (cut.diagnostics.matched_count, cut.diagnostics.returned) == (4, 1)


async def test_context_isolation(semantic: Any) -> None:
    homes = [(household, persona) for household in ("north", "south") for persona in ("butler", "coach")]
    for household, persona in homes:
        scope = {"household": household, "persona": persona}
        for turn in range(5):
            await know(semantic, f"{household} {persona} {turn}", scope=scope, embedding=axis(1.0))
    for household, persona in homes:
        where = pb.SemanticMemoryFilter(scope={"household": household, "persona": persona})
        answer = await search(semantic, filter=where, limit=100)
        assert sorted(found(answer)) == [f"{household} {persona} {turn}" for turn in range(5)]
        assert (answer.diagnostics.filtered_by_context, answer.diagnostics.total_candidates) == (15, 20)
        assert await contents_known(semantic, filter=where) == sorted(found(answer))
    nobody = pb.SemanticMemoryFilter(scope={"household": "east"})
    assert found(await search(semantic, filter=nobody, min_score=0.0)) == []
    # A further filter narrows the context and never widens it.
    anything = pb.SemanticMemoryFilter(scope={"household": "north"}, filter=compare("persona", "EQ", "coach"))
    assert {name.rsplit(" ", 1)[0] for name in found(await search(semantic, filter=anything, limit=100))} == {
        "north coach"
    }


# The index


@dataclass
class Warming:
    """What a client saw of a server while its index was being built."""

    counts: list[int] = field(default_factory=list)
    """How many vectors the index had, one look after the other."""
    total: int = 0
    refusals: list[aio.AioRpcError] = field(default_factory=list)
    health: dict[str, str] = field(default_factory=dict)


async def watch_warming(server: Connection, timeout_s: float) -> Warming:
    """Looks on until the index is warm."""
    seen = Warming()
    async with asyncio.timeout(timeout_s):
        while (status := await status_of(server.semantic)).state == common_pb2.STATE_STARTING:
            assert f"{status.total_count:,}" in status.message
            seen.counts.append(status.indexed_count)
            seen.total = status.total_count
            if not seen.refusals:
                names = (SERVICE, "readiness", "", "liveness", "mnemon.v1.MemoryService")
                seen.health = {name: await health_of(server, name) for name in names}
                calls = (
                    server.semantic.SaveSemanticMemory(save("too early")),
                    server.semantic.SearchSimilar(pb.SearchSimilarRequest(query="too early")),
                    server.semantic.ListSemanticMemories(pb.ListSemanticMemoriesRequest()),
                )
                seen.refusals = [await failure_of(call) for call in calls]
            await asyncio.sleep(0.01)
    return seen


async def bootstrap(folder: Path, count: int, users: int, **settings: Any) -> float:
    """A server that boots with an empty index: it says so, builds it, and then answers; the agreement with before."""
    async with whole_server(folder, **settings) as server:
        await load(server.semantic, count, users)
        await eventually(lambda: _has_graph(server.semantic, count), timeout_s=600)
        before = await answers(server.semantic, users)
    shutil.rmtree(folder / "tenants" / "default" / "semantic-index")

    async with whole_server(folder, health_check_interval_s=0.05, **settings) as server:
        seen = await watch_warming(server, timeout_s=600)
        assert seen.health == {
            SERVICE: "NOT_SERVING", "readiness": "NOT_SERVING", "": "NOT_SERVING",
            "liveness": "SERVING", "mnemon.v1.MemoryService": "SERVING",
        }  # fmt: skip
        for error in seen.refusals:
            assert (error.code(), reason(error)) == (grpc.StatusCode.UNAVAILABLE, "INDEX_WARMING")
            assert detail(error, error_details_pb2.RetryInfo).retry_delay.ToNanoseconds() > 0
        assert seen.total == count
        assert seen.counts == sorted(seen.counts)
        assert len({indexed for indexed in seen.counts if 0 < indexed < count}) >= 2
        await eventually(lambda: _serves(server))
        status = await status_of(server.semantic)
        assert (status.record_count, status.indexed_count, status.total_count) == (count, count, count)
        assert status.graph_count > 0
        assert "too early" not in found(await search(server.semantic, vector=[], query="too early"))
        await know(server.semantic, "in time")
        return agreement(before, await answers(server.semantic, users))


async def test_index_bootstrap(tmp_path: Path) -> None:
    # So few candidates are compared one by one, so the result is exactly the same.
    assert await bootstrap(tmp_path, 3_000, 50, graph_vectors_min=1_000) == 1.0


@pytest.mark.slow
@pytest.mark.timeout(1_800)
async def test_index_bootstrap_of_a_hundred_thousand_statements(tmp_path: Path) -> None:
    # With this many, the graph proposes candidates, and no two graphs are the same.
    assert await bootstrap(tmp_path, 100_000, 1_000) >= 0.97


@pytest.mark.parametrize(("count", "graph_min"), [(2_000, 1_000), pytest.param(11_000, 9_000, marks=pytest.mark.slow)])
async def test_snapshot_and_restore(tmp_path: Path, count: int, graph_min: int) -> None:
    index = tmp_path / "tenants" / "default" / "semantic-index"
    async with whole_server(tmp_path, graph_vectors_min=1_000) as server:
        await load(server.semantic, count, 50)
        await eventually(lambda: _has_graph(server.semantic, count), timeout_s=600)
        if count > 10_000:
            # After so many changes, a rotation is due.
            await eventually(lambda: _has_snapshot(server.semantic), timeout_s=60)
            assert [path.name for path in index.iterdir()]
        rotated = (await status_of(server.semantic)).snapshot_time
        asked = await server.semantic.CreateSnapshot(pb.CreateSnapshotRequest())
        assert (asked.snapshot_time.ToDatetime(), asked.message) >= (rotated.ToDatetime(), "")
        assert (await status_of(server.semantic)).snapshot_time == asked.snapshot_time
        before = await answers(server.semantic, 50)
    async with whole_server(tmp_path, graph_vectors_min=1_000) as server:
        while (error := await _refusal(know(server.semantic, "the first write", embedding=axis(1.0)))) is not None:
            assert reason(error) == "INDEX_WARMING"
        status = await status_of(server.semantic)
        # The newest snapshot was loaded: a new graph would not have one yet.
        assert status.graph_count >= graph_min
        assert status.snapshot_time.ToDatetime() >= asked.snapshot_time.ToDatetime()
        assert agreement(before, await answers(server.semantic, 50)) >= 0.99


async def test_health_and_backpressure_at_the_capacity(tmp_path: Path) -> None:
    async with whole_server(tmp_path, semantic_capacity=3, health_check_interval_s=0.05) as server:
        semantic = server.semantic
        await know(semantic, "one", "two")
        assert (await status_of(semantic)).state == common_pb2.STATE_READY
        await know(semantic, "three")
        refused = await failure_of(semantic.SaveSemanticMemory(save("four")))
        assert (refused.code(), reason(refused)) == (grpc.StatusCode.RESOURCE_EXHAUSTED, "THROTTLED")
        assert detail(refused, error_details_pb2.RetryInfo).retry_delay.ToNanoseconds() > 0
        degraded = await status_of(semantic)
        assert (degraded.state, degraded.capacity) == (common_pb2.STATE_DEGRADED, 3)
        assert "capacity" in degraded.message
        # It still serves reads and keeps its statements.
        assert (await semantic.SaveSemanticMemory(save("two"))).duplicate
        assert found(await search(semantic, vector=[], query="three")) == ["three"]
        assert await health_of(server, SERVICE) == "SERVING"
        [warning] = await told(server, "SEMANTIC_WARNING")
        assert warning.warning.remediation
        await semantic.DeleteSemanticMemories(
            pb.DeleteSemanticMemoriesRequest(filter=pb.SemanticMemoryFilter(filter=compare("content", "EQ", "one")))
        )
        await eventually(lambda: _told(server, "SEMANTIC_HEALTHY", 1))
        assert (await status_of(semantic)).state == common_pb2.STATE_READY
        await know(semantic, "four")


async def test_health_and_backpressure_under_overload(tmp_path: Path) -> None:
    """Every save takes longer than the target, so any writing is an overload, however fast the machine is."""
    async with whole_server(tmp_path, semantic_write_latency_target_ms=0.001) as server:
        semantic, overload = server.semantic, Overload(server.semantic)
        async with overload.of(20):
            degraded = await until_state(semantic, common_pb2.STATE_DEGRADED)
            await until(lambda: overload.refusals)
            # Some writes are admitted nevertheless.
            before = overload.saved
            await until(lambda: overload.saved > before)
        assert "longer" in degraded.message
        assert degraded.write_latency.ToNanoseconds() > degraded.write_latency_target.ToNanoseconds() == 1_000
        refused = {(error.code(), reason(error)) for error in overload.refusals}
        assert refused == {(grpc.StatusCode.RESOURCE_EXHAUSTED, "THROTTLED")}
        delays = [detail(error, error_details_pb2.RetryInfo).retry_delay for error in overload.refusals]
        assert all(delay.ToNanoseconds() > 0 for delay in delays)

        # It recovers by itself, and a slow writer is never refused.
        recovered = await until_state(semantic, common_pb2.STATE_READY)
        assert recovered.message == ""
        await know(semantic, *(f"at leisure {i}" for i in range(SAMPLES_MIN - 1)))
        assert (await status_of(semantic)).state == common_pb2.STATE_READY
        await eventually(lambda: _is_well_again(server))
        warnings = await told(server, "SEMANTIC_WARNING")
        assert "longer" in warnings[0].warning.message
        # Acknowledged statements are stored, and refused ones are not.
        assert (await status_of(semantic)).record_count == overload.saved + SAMPLES_MIN - 1


async def _refusal(call: Awaitable[Any]) -> aio.AioRpcError | None:
    """Why a call failed; None where it did not."""
    try:
        await call
    except aio.AioRpcError as error:
        return error
    return None


async def _told(server: Connection, name: str, count: int) -> bool:
    """Whether there were so many changes of this type."""
    return len(await told(server, name)) >= count


async def _is_well_again(server: Connection) -> bool:
    """Whether there were warnings, and each of them ended."""
    warnings, ends = await told(server, "SEMANTIC_WARNING"), await told(server, "SEMANTIC_HEALTHY")
    return 0 < len(warnings) == len(ends)


async def _has_graph(semantic: Any, count: int) -> bool:
    """Whether nearly all vectors are in the graph."""
    return (await status_of(semantic)).graph_count > count - 1_024


async def _has_snapshot(semantic: Any) -> bool:
    """Whether a snapshot was written."""
    return (await status_of(semantic)).HasField("snapshot_time")


async def _serves(server: Connection) -> bool:
    """Whether health says so of everything that waits for the index."""
    return [await health_of(server, name) for name in (SERVICE, "readiness", "")] == ["SERVING"] * 3
