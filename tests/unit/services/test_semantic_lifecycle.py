"""The index warms up first, writes are throttled when necessary, and the status and the log report both."""

import asyncio
import re
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from mnemon_server.domain.changes import ChangeType
from mnemon_server.domain.errors import IndexWarmingError, ThrottledError
from mnemon_server.domain.semantic import IndexState, SavedSemantic, SemanticFilter, SimilarQuery, Snapshot
from mnemon_server.engines.hnsw.settings import GraphSettings
from mnemon_server.services.writing.write_pressure import WriteLatency

from tests.support.gated_embedder import GatedEmbedder, until
from tests.support.semantic_stores import ADA, OpenedSemantic, contents, details, eventually, open_semantic, statement
from tests.support.vaults import DIMENSION

WARNING, HEALTHY = ChangeType.SEMANTIC_WARNING, ChangeType.SEMANTIC_HEALTHY
GRAPH = GraphSettings(graph_min=1_000, tail_max=64)
WINDOW_S = 2.0


def states(opened: OpenedSemantic) -> list[ChangeType]:
    """The changes of state in the log."""
    return [change.type for change in opened.changes(WARNING, HEALTHY)]


async def until_told(opened: OpenedSemantic, *expected: ChangeType) -> None:
    """Waits until the log has these changes of state and no others."""

    async def are_told() -> bool:
        told = states(opened)
        assert told == list(expected)[: len(told)]
        return len(told) == len(expected)

    await eventually(are_told)


async def saved_or_refused(opened: OpenedSemantic, contents: list[str]) -> list[SavedSemantic | ThrottledError]:
    """The results of statements that are all saved at the same time."""
    given = np.eye(DIMENSION)[0].tolist()
    results = await asyncio.gather(
        *(opened.store.save(statement(content, embedding=given)) for content in contents), return_exceptions=True
    )
    return [result for result in results if isinstance(result, SavedSemantic | ThrottledError)]


# Warming


async def test_only_the_status_answers_until_the_graph_is_loaded(tmp_path: Path) -> None:
    rng = np.random.default_rng(2)
    folder, count = tmp_path / "vault", 6_000
    unbuilt = GraphSettings(graph_min=10 * count)
    async with open_semantic(folder, graph=unbuilt) as opened:
        for start in range(0, count, 1_000):
            vectors = rng.normal(size=(1_000, DIMENSION)).tolist()
            await opened.store.save_many([statement(f"{start} {i}", embedding=v) for i, v in enumerate(vectors)])
        one = (await opened.store.list(limit=1)).items[0]
        asked = SimilarQuery(vector=vectors[0], top_k=5, min_similarity=0.0)
        before = await opened.store.search(asked)
    async with open_semantic(folder, graph=GRAPH) as opened:
        status = await opened.store.status()
        assert not opened.store.is_warm
        assert (status.state, status.total_count) == (IndexState.STARTING, count)
        assert re.fullmatch(rf"the index is warming up: it has [\d,]+ of {count:,} vectors", status.message)
        calls: list[Callable[[], Awaitable[object]]] = [
            lambda: opened.store.search(SimilarQuery(text="x")),
            lambda: opened.say("x"),
            lambda: opened.store.save_many([statement("x")]),
            lambda: opened.store.get(one.memory_id),
            lambda: opened.store.list(limit=1),
            lambda: opened.store.delete([one.memory_id]),
            opened.store.create_snapshot,
        ]
        for call in calls:
            with pytest.raises(IndexWarmingError, match=f"of {count:,} vectors") as refusal:
                await call()
            assert refusal.value.retry_after_s > 0
        seen = []

        async def is_ready() -> bool:
            status = await opened.store.status()
            seen.append(status.indexed_count)
            assert status.total_count == count
            return status.state is IndexState.READY

        await eventually(is_ready)
        assert opened.store.is_warm
        assert seen == sorted(seen) and seen[-1] == count and len(set(seen)) > 2
        status = await opened.store.status()
        assert (status.record_count, status.superseded_count, status.message) == (count, 0, "")
        assert status.graph_count > 0
        assert contents((await opened.store.search(asked)).results) == contents(before.results)
        assert (await opened.store.delete([one.memory_id])).deleted_count == 1


# Capacity


@pytest.fixture
async def full(tmp_path: Path) -> AsyncIterator[OpenedSemantic]:
    """A store with a capacity of three statements, which are stored."""
    async with open_semantic(tmp_path / "vault", capacity=3) as opened:
        for number in range(3):
            await opened.say(f"statement {number}", request_id=f"r{number}")
        yield opened


async def test_at_the_capacity_new_statements_are_refused_until_there_is_room(full: OpenedSemantic) -> None:
    with pytest.raises(ThrottledError, match="the capacity of 3 statements is reached") as refusal:
        await full.say("statement 3")
    assert refusal.value.retry_after_s > 0
    status = await full.store.status()
    assert (status.state, status.record_count, status.capacity) == (IndexState.DEGRADED, 3, 3)
    assert status.message == "the capacity of 3 statements is reached"
    page = await full.store.list(limit=10)
    assert len(page.items) == 3
    await full.store.delete([page.items[0].memory_id])
    assert (await full.store.status()).state is IndexState.READY
    assert not (await full.say("statement 3")).duplicate


async def test_at_the_capacity_duplicates_repeated_requests_and_reads_are_answered(full: OpenedSemantic) -> None:
    assert (await full.say("statement 1")).duplicate
    replayed = await full.say("statement 2", request_id="r2")
    assert replayed.receipt is not None and replayed.receipt.replayed and not replayed.duplicate
    assert len((await full.store.search(SimilarQuery(text="statement", min_similarity=0.0))).results) == 3


async def test_a_refused_statement_leaves_its_request_id_unused(full: OpenedSemantic) -> None:
    with pytest.raises(ThrottledError):
        await full.say("statement 3", request_id="late")
    await full.store.delete([(await full.store.list(limit=1)).items[0].memory_id])
    saved = await full.say("statement 3", request_id="late")
    assert saved.receipt is not None and not saved.receipt.replayed


async def test_at_the_capacity_nothing_is_embedded(tmp_path: Path) -> None:
    embedder = GatedEmbedder()
    async with open_semantic(tmp_path, capacity=1, embedder=embedder) as opened:
        await opened.say("statement 0")
        embedder.batches.clear()
        with pytest.raises(ThrottledError):
            await opened.say("statement 1")
        assert embedder.batches == []


async def test_concurrent_saves_fill_the_capacity_exactly(tmp_path: Path) -> None:
    async with open_semantic(tmp_path / "vault", capacity=50) as opened:
        await opened.say("statement 0")
        results = await saved_or_refused(opened, [f"statement {i % 60}" for i in range(120)])
        assert len(results) == 120
        assert (await opened.store.status()).record_count == 50
        # Every accepted statement may have been sent twice. The refused ones were refused both times.
        assert sum(isinstance(result, SavedSemantic) for result in results) >= 50
        again = await opened.store.save_many([statement(f"statement {i}") for i in range(60)])
        assert sum(isinstance(result, SavedSemantic) and result.duplicate for result in again) == 50


async def test_a_cancelled_save_takes_no_capacity(tmp_path: Path) -> None:
    embedder = GatedEmbedder()
    async with open_semantic(tmp_path, capacity=2, embedder=embedder) as opened:
        embedder.gate.clear()
        leaving = asyncio.create_task(opened.store.save_many([statement("one"), statement("two")]))
        await until(lambda: len(embedder.batches) == 1)
        leaving.cancel()
        with pytest.raises(asyncio.CancelledError):
            await leaving
        embedder.gate.set()
        for content in ("three", "four"):
            assert not (await opened.say(content)).duplicate


async def test_the_log_reports_once_that_the_capacity_is_reached_and_once_that_there_is_room(
    full: OpenedSemantic,
) -> None:
    await until_told(full, WARNING)
    for number in range(3, 6):
        with pytest.raises(ThrottledError):
            await full.say(f"statement {number}")
    [warning] = full.changes(WARNING, HEALTHY)
    assert (warning.record_id, details(warning)) == (
        "semantic-index",
        {
            "severity": "warning",
            "message": "the capacity of 3 statements is reached",
            "remediation": "delete statements, or raise the capacity",
        },
    )
    await full.store.delete([], SemanticFilter(scope=ADA))
    await until_told(full, WARNING, HEALTHY)
    healthy = full.changes(HEALTHY)[0]
    assert details(healthy) == {"severity": "info", "message": "writes are accepted again", "remediation": ""}


async def test_the_end_of_a_warning_is_logged_even_after_a_restart(tmp_path: Path) -> None:
    async with open_semantic(tmp_path / "vault", capacity=1) as opened:
        await opened.say("statement")
        await until_told(opened, WARNING)
    async with open_semantic(tmp_path / "vault", capacity=1) as opened:
        await opened.store.status()
        await opened.store.list(limit=1)
        assert states(opened) == [WARNING]
    async with open_semantic(tmp_path / "vault", capacity=2) as opened:
        assert (await opened.store.status()).state is IndexState.READY
        await until_told(opened, WARNING, HEALTHY)


# Write latency


async def test_slow_writes_are_throttled_until_the_overload_ends(tmp_path: Path) -> None:
    """Every save takes longer than a microsecond: an overload that lasts until saves stop."""
    async with open_semantic(tmp_path / "vault", write_latency=WriteLatency(1e-6, WINDOW_S)) as opened:
        saved = refused = run = 0
        # The latency is looked at every 50 ms, in which a quick machine saves hundreds of statements.
        while not refused and run < 1_000:
            results = await saved_or_refused(opened, [f"statement {run} {i}" for i in range(40)])
            assert len(results) == 40
            refused = sum(isinstance(result, ThrottledError) for result in results)
            saved, run = saved + 40 - refused, run + 1
        assert refused > 0
        status = await opened.store.status()
        assert (status.state, status.message) == (
            IndexState.DEGRADED,
            "a write takes longer than the target of 1e-06 s",
        )
        assert status.write_latency_s > status.write_latency_target_s == 1e-6
        assert (await opened.store.list(limit=1)).items
        # No call is made until the log reports the end.
        await until_told(opened, WARNING, HEALTHY)
        assert (await opened.store.status()).state is IndexState.READY
        assert (await opened.store.status()).record_count == saved
        assert not (await opened.say("afterwards")).duplicate


async def test_fast_writes_are_not_throttled(tmp_path: Path) -> None:
    async with open_semantic(tmp_path / "vault", write_latency=WriteLatency(30.0)) as opened:
        results = await saved_or_refused(opened, [f"statement {i}" for i in range(300)])
        assert all(isinstance(result, SavedSemantic) for result in results)
        status = await opened.store.status()
        assert status.state is IndexState.READY
        assert 0.0 < status.write_latency_s < 30.0
        assert states(opened) == []


# Snapshots and status


async def test_a_snapshot_is_written_on_request(tmp_path: Path) -> None:
    folder = tmp_path / "vault"
    async with open_semantic(folder, graph=GRAPH) as opened:
        none = await opened.store.create_snapshot()
        assert none == Snapshot(None, "an index without a graph needs no snapshot (statements: 0)")
        vectors = np.random.default_rng(3).normal(size=(2_000, DIMENSION)).tolist()
        await opened.store.save_many([statement(str(i), embedding=vector) for i, vector in enumerate(vectors)])

        async def is_saved() -> bool:
            return (await opened.store.status()).snapshot_time is not None

        await eventually(is_saved)
        opened.clock.pass_hours(1)
        written = await opened.store.create_snapshot(request_id="once")
        assert written == Snapshot(opened.clock())
        opened.clock.pass_hours(1)
        assert await opened.store.create_snapshot(request_id="once") == replace(written, replayed=True)
        assert (await opened.store.status()).snapshot_time == written.time
        assert [path for path in (folder / "semantic-index").rglob("*") if path.is_file()]


async def test_the_status_of_closed_records_reports_it_and_does_not_raise(tmp_path: Path) -> None:
    async with open_semantic(tmp_path / "vault") as opened:
        await opened.say("statement")
        opened.vault.close()
        status = await opened.store.status()
        assert status.state in (IndexState.UNAVAILABLE, IndexState.READY)
        await opened.store.aclose()
        assert (await opened.store.status()).state is IndexState.UNAVAILABLE
