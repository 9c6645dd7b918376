"""Filtered searches among many memories find what comparing each memory finds, also after many changes."""

import asyncio
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from mnemon.v1 import common_pb2, memory_pb2
from numpy.typing import NDArray

from tests.bench.vectors import Vectors, topical_vectors
from tests.support.server import Connection, whole_server

LIMIT = 10
QUERIES = 30
SHARES = (1.0, 0.5, 0.05, 0.005, 0.0001)
IN_FLIGHT = 64
TAIL = 1_024
"""New vectors that the graph may have yet to take."""


@dataclass
class Oracle:
    """The expected content: one row for each memory, and which memories are alive."""

    ids: list[str]
    vectors: Vectors
    ranks: NDArray[np.int64]
    alive: NDArray[np.bool_]

    def nearest(self, query: NDArray[np.float32], bound: int) -> set[str]:
        """The ids of the nearest memories whose rank is below the bound."""
        rows = np.flatnonzero(self.alive & (self.ranks < bound))
        cosines = self.vectors[rows] @ query
        best = rows[np.argsort(-cosines, kind="stable")[: min(LIMIT, int((cosines > 0.0).sum()))]]
        return {self.ids[row] for row in best}


async def run(data_dir: Path, count: int, graph_vectors_min: int) -> None:
    """Stores memories, deletes a third, updates a third, and compares every answer with the oracle's."""
    vectors = topical_vectors(2 * count + QUERIES, 64, seed=5)
    settings: dict[str, Any] = {"graph_vectors_min": graph_vectors_min, "exact_scan_passages_max": graph_vectors_min}
    async with whole_server(data_dir, **settings) as server:
        oracle = await stored(server, vectors[:count])
        await purge_a_third(server, oracle)
        await update_a_third(server, oracle, vectors[count : 2 * count])
        await graph_settled(server, int(oracle.alive.sum()))
        exact = {share: await check(server, oracle, vectors[2 * count :], share) for share in SHARES}
    # If most memories match, the graph must have answered. Otherwise the graph would not have been tested.
    assert exact[1.0] < QUERIES
    assert exact[0.5] < QUERIES


async def stored(server: Connection, vectors: Vectors) -> Oracle:
    ranks = np.random.default_rng(6).permutation(len(vectors))
    ids: list[str] = []

    async def requests() -> Any:
        for start in range(0, len(vectors), 500):
            yield memory_pb2.BulkCreateMemoriesRequest(
                requests=[
                    create_request(row, int(ranks[row]), vectors[row])
                    for row in range(start, min(start + 500, len(vectors)))
                ]
            )

    async for answer in server.memories.BulkCreateMemories(requests()):
        ids += [result.receipt.id for result in answer.results]
    assert all(ids)
    return Oracle(ids, vectors.copy(), ranks, np.ones(len(vectors), np.bool_))


def create_request(row: int, rank: int, vector: NDArray[np.float32]) -> memory_pb2.CreateMemoryRequest:
    memory = memory_pb2.Memory(content=f"memory {row}")
    memory.metadata["rank"].int_value = rank
    memory.metadata["third"].int_value = row % 3
    return memory_pb2.CreateMemoryRequest(memory=memory, embedding=vector.tolist())


async def purge_a_third(server: Connection, oracle: Oracle) -> None:
    gone = np.arange(len(oracle.ids)) % 3 == 0
    request = memory_pb2.PurgeMemoriesRequest()
    request.filter.metadata["third"].int_value = 0
    answer = await server.memories.PurgeMemories(request, timeout=300)
    assert answer.purged_count == gone.sum()
    oracle.alive[gone] = False


async def update_a_third(server: Connection, oracle: Oracle, vectors: Vectors) -> None:
    rows = iter(range(1, len(oracle.ids), 3))

    async def update_all() -> None:
        for row in rows:
            oracle.vectors[row] = vectors[row]
            request = memory_pb2.UpdateMemoryRequest(embedding=vectors[row].tolist())
            request.memory.memory_id, request.memory.content = oracle.ids[row], f"memory {row} as it is now"
            request.update_mask.paths.append("content")
            await server.memories.UpdateMemory(request)

    await asyncio.gather(*(update_all() for _ in range(IN_FLIGHT)))


async def graph_settled(server: Connection, alive: int) -> None:
    """Waits until the graph holds most living memories and its dead entries were handled."""

    async def is_settled() -> bool:
        index = (await server.memories.GetStatus(memory_pb2.GetStatusRequest())).index
        assert index.flat_count + index.graph_count - index.dead_count == alive
        return bool(index.graph_count > alive / 3 and index.flat_count <= TAIL and index.dead_count <= alive / 3)

    async with asyncio.timeout(1_800):
        while not await is_settled():  # noqa: ASYNC110 - a settled graph sends no signal
            await asyncio.sleep(0.05)


async def check(server: Connection, oracle: Oracle, queries: Vectors, share: float) -> int:
    """Returns how many answers were exact. Fails if an answer misses an expected memory."""
    bound = max(1, round(share * len(oracle.ids)))
    exact, recalls = 0, []
    for query in queries:
        request = memory_pb2.SearchMemoriesRequest(vector=query.tolist(), limit=LIMIT)
        if share < 1:
            condition = request.filter.filter.condition
            condition.field, condition.comparator = "metadata.rank", common_pb2.COMPARATOR_LT
            condition.values.add(int_value=bound)
        answer = await server.memories.SearchMemories(request, timeout=60)
        found = {match.memory.memory_id for match in answer.results}
        expected = oracle.nearest(query, bound)
        assert len(found) == len(expected), f"{len(found)} of {len(expected)} at a share of {share}"
        if answer.diagnostics.exact:
            exact += 1
            assert found == expected
        elif expected:
            recalls.append(len(found & expected) / len(expected))
    assert not recalls or np.mean(recalls) >= 0.99, f"recall {np.mean(recalls)} at a share of {share}"
    return exact


async def test_filtered_searches_equal_the_oracle_after_deletes_and_updates(tmp_path: Path) -> None:
    await run(tmp_path, count=1_500, graph_vectors_min=250)


@pytest.mark.slow
@pytest.mark.timeout(3_600)
async def test_filtered_searches_equal_the_oracle_at_a_hundred_thousand_memories(tmp_path: Path) -> None:
    await run(tmp_path, count=100_000, graph_vectors_min=20_000)
