"""Searches among more memories than are compared one by one find what comparing all of them would find."""

import time
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import pytest_asyncio
from mnemon_server.domain.collections import MEMORIES
from mnemon_server.domain.memories import (
    CreateMemory,
    DecayPolicy,
    Memory,
    MemoryFilter,
    MemoryQuery,
    MemorySearchAnswer,
)
from mnemon_server.domain.records import Relevance, SearchMode
from mnemon_server.embedding.batcher import EmbeddingBatcher
from mnemon_server.embedding.factory import HashingEmbedder
from mnemon_server.engines.hnsw.settings import GraphSettings
from mnemon_server.services.memories.store import MemoryStore
from mnemon_server.services.search.settings import SearchSettings

from tests.support.memory_stores import Opened, contents, open_memories
from tests.support.vaults import DIMENSION

COUNT = 4_000
WAIT_S = 60.0
WORDS = ("amber", "birch", "cedar", "delta", "ember", "fjord", "grove", "heath", "inlet", "jetty", "knoll", "meadow")
GRAPH = GraphSettings(graph_min=1_000, tail_max=64)

BEYOND_500 = SearchSettings(exact_scan_max=500)


class Large:
    """Many memories, in a store that asks the graph first and in one over the same records that compares them all."""

    def __init__(self, opened: Opened, exact: MemoryStore) -> None:
        self.opened, self.store, self.exact = opened, opened.store, exact

    async def both(self, query: MemoryQuery) -> tuple[MemorySearchAnswer, MemorySearchAnswer]:
        """The store's answer and that of comparing everything."""
        return await self.store.search(query), await self.exact.search(query)

    async def near_or_opposite(self, query: MemoryQuery) -> int:
        """How many memories are found with the query's vector and with its opposite: every memory is near to one."""
        opposite = replace(query, vector=tuple(-value for value in query.vector or ()))
        return sum([len((await self.store.search(each)).results) for each in (query, opposite)])


def vectors(count: int, seed: int) -> list[tuple[float, ...]]:
    """Vectors distributed like those of texts: around topics, which are the same for every seed."""
    rng = np.random.default_rng(seed)
    topics = np.random.default_rng(1).normal(size=(40, DIMENSION))
    scattered = topics[rng.integers(40, size=count)] + 0.4 * rng.normal(size=(count, DIMENSION))
    return [tuple(vector.tolist()) for vector in scattered]


async def fill(opened: Opened) -> None:
    """Stores memories around 40 topics. Every 8th can fade, and half of those have faded."""
    rng = np.random.default_rng(11)
    embeddings = vectors(COUNT, seed=11)
    texts = [" ".join(rng.choice(WORDS, 5)) for _ in range(COUNT)]

    async def create(wanted: Callable[[int], bool]) -> None:
        requests = [
            CreateMemory(
                memory=Memory(
                    "",
                    f"{texts[i]} {i}",
                    type=f"t{i % 2}",
                    metadata={"twentieth": i % 20, "rare": i % 1000 == 0},
                    decay_policy=DecayPolicy.CONTEXTUAL if i % 8 == 0 else DecayPolicy.STABLE,
                ),
                embedding=embeddings[i],
            )
            for i in range(COUNT)
            if wanted(i)
        ]
        for start in range(0, len(requests), 1000):
            await opened.store.create_many(requests[start : start + 1000])

    opened.clock.pass_hours(-1000)
    await create(lambda i: i % 16 == 0)
    opened.clock.pass_hours(1000)
    await create(lambda i: i % 16 != 0)


def wait_for_graph(opened: Opened, count: int) -> None:
    """Waits until the graph holds this many vectors."""
    deadline = time.monotonic() + WAIT_S
    while opened.vault.collection(MEMORIES).vector_usage().graph_count < count:
        assert time.monotonic() < deadline, "no graph was built"
        time.sleep(0.05)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def large(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Large]:
    folder = tmp_path_factory.mktemp("large") / "vault"
    async with open_memories(folder, graph=GRAPH, search=BEYOND_500) as opened:
        await fill(opened)
        wait_for_graph(opened, COUNT - GRAPH.tail_max)
        embedder = HashingEmbedder(DIMENSION)
        async with EmbeddingBatcher(embedder) as batcher:
            records = opened.vault.collection(MEMORIES)
            exact = MemoryStore(records, batcher, search=SearchSettings(exact_scan_max=10 * COUNT), clock=opened.clock)
            yield Large(opened, exact)
            await exact.aclose()
        embedder.close()


pytestmark = pytest.mark.asyncio(loop_scope="module")


def recall(found: MemorySearchAnswer, wanted: MemorySearchAnswer) -> float:
    """The share of the wanted results that were found."""
    if not wanted.results:
        return 1.0
    there = {match.memory.memory_id for match in found.results}
    return sum(match.memory.memory_id in there for match in wanted.results) / len(wanted.results)


@pytest.mark.parametrize(
    "where",
    [
        MemoryFilter(),
        MemoryFilter(type="t1"),
        MemoryFilter(metadata={"twentieth": 7}),
        MemoryFilter(metadata={"rare": True}),
        MemoryFilter(type="t1", metadata={"rare": True}),
        MemoryFilter(metadata={"twentieth": 99}),
    ],
)
@pytest.mark.parametrize("limit", [1, 10, 200])
async def test_a_vector_search_finds_what_comparing_everything_finds(
    large: Large, where: MemoryFilter, limit: int
) -> None:
    recalls = []
    for vector in vectors(10, seed=limit):
        answer, exact = await large.both(MemoryQuery(vector=vector, limit=limit, where=where))
        assert len(answer.results) == len(exact.results)
        assert exact.diagnostics.exact
        recalls.append(recall(answer, exact))
        if answer.diagnostics.exact:
            assert recalls[-1] == 1.0
    assert np.mean(recalls) >= 0.99


async def test_a_small_result_does_not_cause_a_full_comparison(large: Large) -> None:
    [vector] = vectors(1, seed=3)
    answer = await large.store.search(MemoryQuery(vector=vector))
    assert not answer.diagnostics.exact
    assert answer.diagnostics.scanned == 0


async def test_a_selective_filter_is_answered_by_comparing_its_matches(large: Large) -> None:
    [vector] = vectors(1, seed=4)
    query = MemoryQuery(vector=vector, where=MemoryFilter(metadata={"rare": True}, min_confidence=0.0))
    answer = await large.store.search(query)
    assert answer.diagnostics.exact
    assert (answer.diagnostics.scanned, answer.diagnostics.total_candidates) == (4, 4)
    assert await large.near_or_opposite(query) == 4
    unfaded = replace(query, where=MemoryFilter(metadata={"rare": True}))
    answer = await large.store.search(unfaded)
    assert answer.diagnostics.exact
    assert answer.diagnostics.total_candidates == await large.near_or_opposite(unfaded) == 2, "two of them have faded"


async def test_faded_memories_are_never_found_and_always_replaced(large: Large) -> None:
    for vector in vectors(5, seed=5):
        answer, exact = await large.both(MemoryQuery(vector=vector, limit=300))
        assert len(answer.results) == 300
        assert all(match.memory.confidence >= 0.3 for match in answer.results)
        assert recall(answer, exact) >= 0.99


async def test_everything_can_be_requested(large: Large) -> None:
    [vector] = vectors(1, seed=6)
    where = MemoryFilter(metadata={"twentieth": 8})
    found = await large.near_or_opposite(MemoryQuery(vector=vector, limit=1000, where=where))
    faded = sum(1 for i in range(COUNT) if i % 20 == 8 and i % 16 == 0)
    assert found == COUNT // 20 - faded


@pytest.mark.parametrize("mode", [SearchMode.HYBRID, SearchMode.KEYWORD])
@pytest.mark.parametrize("where", [MemoryFilter(), MemoryFilter(type="t1"), MemoryFilter(metadata={"rare": True})])
async def test_a_keyword_search_finds_what_comparing_everything_finds(
    large: Large, mode: SearchMode, where: MemoryFilter
) -> None:
    for i, vector in enumerate(vectors(8, seed=7)):
        text = f"{WORDS[i]} {WORDS[i + 2]} {100 * i}"
        query = MemoryQuery(text=text, vector=vector, mode=mode, where=replace(where, min_confidence=0.0))
        answer, exact = await large.both(query)
        assert [match.score for match in answer.results] == pytest.approx([match.score for match in exact.results])
        assert recall(answer, exact) >= 0.9  # results with equal scores may replace each other


async def test_a_keyword_search_finds_no_faded_memory(large: Large) -> None:
    for mode in (SearchMode.HYBRID, SearchMode.KEYWORD):
        for text in ("amber 16", "birch cedar 32 64 160", "meadow"):
            answer = await large.store.search(MemoryQuery(text=text, mode=mode, limit=50))
            assert len(answer.results) == 50
            assert all(match.memory.confidence >= 0.3 for match in answer.results)


async def test_a_minimum_score_ends_a_search_early(large: Large) -> None:
    [vector] = vectors(1, seed=9)
    best = (await large.store.search(MemoryQuery(vector=vector, limit=3))).results
    least = (best[1].score + best[2].score) / 2
    answer = await large.store.search(MemoryQuery(vector=vector, limit=100, min_score=least))
    assert [match.memory for match in answer.results] == [match.memory for match in best[:2]]
    assert not answer.diagnostics.exact


@pytest.mark.parametrize("mode", SearchMode)
async def test_a_minimum_that_nothing_reaches_still_tells_the_best_relevance(large: Large, mode: SearchMode) -> None:
    for i, vector in enumerate(vectors(4, seed=11)):
        query = MemoryQuery(text=f"{WORDS[i]} {WORDS[i + 2]} {100 * i}", vector=vector, mode=mode, limit=3)
        free = await large.store.search(query)
        bound = await large.store.search(replace(query, min_score=1.0))
        assert bound.results == ()
        assert free.diagnostics.relevance is not None
        assert bound.diagnostics.relevance == Relevance(free.results[0].score, 1.0)
        assert free.diagnostics.relevance.best == free.results[0].score


async def test_second_place_in_both_meaning_and_words_may_be_the_best_overall(tmp_path: Path) -> None:
    """At first it ranks behind everything that the graph and the words propose."""
    rng = np.random.default_rng(12)

    def toward_first_axis(cosine: float) -> tuple[float, ...]:
        rest = rng.normal(size=DIMENSION - 1)
        return (cosine, *(np.sqrt(1 - cosine**2) * rest / np.linalg.norm(rest)).tolist())

    memories = [(f"nothing {i}", 0.7) for i in range(600)] + [(f"zebra {i}", 0.0) for i in range(1_100)]
    memories.append(("zebra among a few more words than the others", 0.6))
    requests = [CreateMemory(memory=Memory("", text), embedding=toward_first_axis(cosine)) for text, cosine in memories]
    graph = GraphSettings(graph_min=500, tail_max=1)
    async with open_memories(tmp_path / "vault", graph=graph, search=BEYOND_500) as opened:
        for start in range(0, len(requests), 1_000):
            await opened.store.create_many(requests[start : start + 1_000])
        wait_for_graph(opened, len(requests) - 1)
        query = MemoryQuery(text="zebra", vector=(1.0, *(0.0,) * (DIMENSION - 1)), limit=1)
        answer = await opened.store.search(query)
    assert not answer.diagnostics.exact
    assert contents(answer.results) == ["zebra among a few more words than the others"]
