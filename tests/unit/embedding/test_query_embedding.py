"""Queries embedded from any thread: direct runs, the queue behind them, cache, errors and closing."""

import asyncio
import threading
from collections.abc import AsyncIterator
from concurrent.futures import Future, ThreadPoolExecutor

import numpy as np
import pytest
import pytest_asyncio
from mnemon_server.domain.errors import EmbeddingError, MnemonError, NotServingError, TooManyRequestsError
from mnemon_server.embedding.base import Vectors
from mnemon_server.embedding.batcher import EmbeddingBatcher
from mnemon_server.embedding.factory import HashingEmbedder

from tests.support.gated_embedder import DEADLINE_S, GatedEmbedder, until

WAITING_MAX = 5


@pytest.fixture
def embedder() -> GatedEmbedder:
    return GatedEmbedder()


@pytest_asyncio.fixture
async def batcher(embedder: GatedEmbedder) -> AsyncIterator[EmbeddingBatcher]:
    async with EmbeddingBatcher(embedder, batch_tokens_max=10, waiting_texts_max=WAITING_MAX) as batcher:
        yield batcher
        embedder.gate.set()


def query(batcher: EmbeddingBatcher, text: str) -> asyncio.Future[Vectors]:
    """The text as a query, from its own thread."""
    answer: Future[Vectors] = Future()

    def ask() -> None:
        try:
            answer.set_result(batcher.embed_query(text))
        except MnemonError as error:
            answer.set_exception(error)

    threading.Thread(target=ask, daemon=True).start()
    return asyncio.wrap_future(answer)


def expected(text: str) -> Vectors:
    return HashingEmbedder().embed([text])[0]


async def under_way(embedder: GatedEmbedder, *texts: str) -> None:
    """Waits until the model is working on these texts, each in its own run."""
    await until(lambda: all([text] in embedder.batches for text in texts))


async def waiting_queries(batcher: EmbeddingBatcher) -> list[asyncio.Future[Vectors]]:
    """The maximum number of waiting queries, all in the queue."""
    before = batcher.waiting_texts
    queries = [query(batcher, f"query {number}") for number in range(WAITING_MAX)]
    await until(lambda: batcher.waiting_texts == before + WAITING_MAX)
    return queries


@pytest.mark.parametrize("parallelism", [1, 4])
async def test_many_threads_get_their_own_vectors(parallelism: int) -> None:
    texts = [f"question number {number % 150}" for number in range(600)]
    async with EmbeddingBatcher(GatedEmbedder(parallelism)) as batcher:
        with ThreadPoolExecutor(16) as threads:
            vectors = await asyncio.to_thread(lambda: list(threads.map(batcher.embed_query, texts)))
    np.testing.assert_array_equal(vectors, HashingEmbedder().embed(texts))


async def test_a_query_is_embedded_in_the_calling_thread(embedder: GatedEmbedder, batcher: EmbeddingBatcher) -> None:
    def ask() -> int:
        np.testing.assert_array_equal(batcher.embed_query("question"), expected("question"))
        return threading.get_ident()

    assert embedder.threads == {await asyncio.to_thread(ask)}


async def test_a_query_seen_before_is_not_embedded_again(embedder: GatedEmbedder, batcher: EmbeddingBatcher) -> None:
    for _ in range(2):
        vector = await query(batcher, "question")
        np.testing.assert_array_equal(vector, expected("question"))
        vector[:] = 0
    np.testing.assert_array_equal((await batcher.embed(["question", "text"]))[0], expected("question"))
    np.testing.assert_array_equal(await query(batcher, "text"), expected("text"))
    assert embedder.batches == [["question"], ["text"]]


async def test_a_query_does_not_wait_for_bulk_texts(embedder: GatedEmbedder, batcher: EmbeddingBatcher) -> None:
    embedder.gate.clear()
    bulk = asyncio.create_task(batcher.embed(["bulk one", "bulk two"]))
    await until(lambda: len(embedder.batches) == 1)
    np.testing.assert_array_equal(await query(batcher, "free question"), expected("free question"))
    assert not bulk.done()
    embedder.gate.set()
    await bulk


async def test_queries_beyond_the_number_of_cores_wait_but_overtake_bulk_texts(
    embedder: GatedEmbedder, batcher: EmbeddingBatcher
) -> None:
    embedder.gate.clear()
    bulk = asyncio.create_task(batcher.embed(["a bulk text of seven words"] + [f"bulk {n}" for n in range(4)]))
    await until(lambda: len(embedder.batches) == 1)
    direct = query(batcher, "direct")
    await under_way(embedder, "direct")
    queries = await waiting_queries(batcher)
    embedder.gate.set()
    vectors = await asyncio.gather(*queries)
    np.testing.assert_array_equal(vectors, HashingEmbedder().embed([f"query {number}" for number in range(5)]))
    await asyncio.gather(bulk, direct)
    assert set(embedder.batches[2]) == {f"query {number}" for number in range(5)}
    assert len(embedder.batches) > 3, "bulk texts should still have been waiting"


async def test_too_many_waiting_queries_are_refused(embedder: GatedEmbedder, batcher: EmbeddingBatcher) -> None:
    embedder.gate.clear()
    occupied = [asyncio.create_task(batcher.embed(["bulk"])), query(batcher, "direct")]
    await under_way(embedder, "bulk", "direct")
    queries = await waiting_queries(batcher)
    with pytest.raises(TooManyRequestsError):
        await query(batcher, "too many")
    embedder.gate.set()
    await asyncio.gather(*occupied, *queries)


async def test_a_failing_query_fails_alone_and_the_next_one_works(
    embedder: GatedEmbedder, batcher: EmbeddingBatcher
) -> None:
    for _ in range(3):
        with pytest.raises(EmbeddingError, match="the model choked"):
            await query(batcher, "poison")
    embedder.gate.clear()
    bulk = asyncio.create_task(batcher.embed(["bulk"]))
    await under_way(embedder, "bulk")
    np.testing.assert_array_equal(await query(batcher, "free of it"), expected("free of it"))
    embedder.gate.set()
    await bulk


async def test_closing_waits_for_a_running_query(embedder: GatedEmbedder, batcher: EmbeddingBatcher) -> None:
    embedder.gate.clear()
    direct = query(batcher, "direct")
    await under_way(embedder, "direct")
    closing = asyncio.create_task(batcher.close())
    await asyncio.wait([closing], timeout=0.1)
    assert not closing.done()
    embedder.gate.set()
    await asyncio.wait_for(closing, DEADLINE_S)
    np.testing.assert_array_equal(await direct, expected("direct"))


async def test_closing_cancels_waiting_queries_and_refuses_new_ones(
    embedder: GatedEmbedder, batcher: EmbeddingBatcher
) -> None:
    embedder.gate.clear()
    bulk = asyncio.create_task(batcher.embed(["bulk"]))
    direct = query(batcher, "direct")
    await under_way(embedder, "bulk", "direct")
    queries = await waiting_queries(batcher)
    closing = asyncio.create_task(batcher.close())
    for call in (*queries, bulk):
        with pytest.raises(NotServingError):
            await call
    embedder.gate.set()
    await asyncio.wait_for(closing, DEADLINE_S)
    await direct
    for text in ("late", "direct"):
        with pytest.raises(NotServingError):
            await query(batcher, text)


async def test_a_thread_gets_the_vectors_of_many_texts(embedder: GatedEmbedder, batcher: EmbeddingBatcher) -> None:
    embedder.gate.set()
    texts = ["one", "two words", "one"]
    for _ in range(2):
        vectors = await asyncio.to_thread(batcher.embed_blocking, texts)
        np.testing.assert_array_equal(vectors, [expected(text) for text in texts])
    assert (await asyncio.to_thread(batcher.embed_blocking, [])).shape[0] == 0
    with pytest.raises(TooManyRequestsError):
        await asyncio.to_thread(batcher.embed_blocking, [f"text {number}" for number in range(WAITING_MAX + 1)])
    await batcher.close()
    with pytest.raises(NotServingError):
        await asyncio.to_thread(batcher.embed_blocking, ["late"])
