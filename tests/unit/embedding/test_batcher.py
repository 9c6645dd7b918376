"""The queue in front of the model: sharing, urgency, cancellation, limits, cache, errors and closing."""

import asyncio
import threading

import numpy as np
import pytest
from mnemon_server.domain.access.quotas import Quotas
from mnemon_server.domain.errors import EmbeddingError, NotServingError, QuotaExceededError, TooManyRequestsError
from mnemon_server.embedding.base import Vectors
from mnemon_server.embedding.batcher import EmbeddingBatcher
from mnemon_server.embedding.factory import HashingEmbedder
from mnemon_server.services.limits.accounts import Accounts

from tests.support.gated_embedder import DEADLINE_S, GatedEmbedder, occupied, until


@pytest.fixture
def embedder() -> GatedEmbedder:
    return GatedEmbedder()


async def start(*calls: asyncio.Task[Vectors]) -> None:
    """Lets tasks run until they wait."""
    await asyncio.sleep(0)
    assert not any(call.done() for call in calls)


async def test_concurrent_calls_share_batches_and_get_their_own_vectors(embedder: GatedEmbedder) -> None:
    texts = [f"text number {number}" for number in range(40)]
    async with EmbeddingBatcher(embedder) as batcher, occupied(embedder, batcher):
        calls = [asyncio.create_task(batcher.embed([text, text.upper()])) for text in texts]
        await start(*calls)
        embedder.gate.set()
        answers = await asyncio.gather(*calls)
    for text, vectors in zip(texts, answers, strict=True):
        np.testing.assert_array_equal(vectors, HashingEmbedder().embed([text, text.upper()]))
    assert len(embedder.batches) < 10
    assert threading.get_ident() not in embedder.threads, "tokenising or inference ran on the event loop"


async def test_as_many_batches_run_as_the_embedder_has_capacity_for() -> None:
    embedder = GatedEmbedder(parallelism=3)
    embedder.gate.clear()
    async with EmbeddingBatcher(embedder, batch_tokens_max=10) as batcher:
        call = asyncio.create_task(batcher.embed([f"bulk {number} of many" for number in range(20)]))
        await until(lambda: len(embedder.batches) == 3)
        await start(call)
        embedder.gate.set()
        np.testing.assert_array_equal((await call)[19], HashingEmbedder().embed(["bulk 19 of many"])[0])


async def test_batches_are_bounded_and_hold_texts_of_similar_length(embedder: GatedEmbedder) -> None:
    lengths = [1, 50, 2, 49, 3, 48, 4, 47] * 10
    texts = [f"w{index} " * length for index, length in enumerate(lengths)]
    async with EmbeddingBatcher(embedder, batch_tokens_max=210) as batcher, occupied(embedder, batcher):
        call = asyncio.create_task(batcher.embed(texts))
        await start(call)
        embedder.gate.set()
        await call
    bulk = [[len(text.split()) + 2 for text in batch] for batch in embedder.batches[1:]]
    assert sorted(length for batch in bulk for length in batch) == sorted(length + 2 for length in lengths)
    assert all(len(batch) * max(batch) <= 210 for batch in bulk)
    padded = sum(len(batch) * max(batch) for batch in bulk)
    assert padded < 1.1 * sum(map(sum, bulk))


async def test_a_text_longer_than_a_batch_is_embedded_alone(embedder: GatedEmbedder) -> None:
    async with EmbeddingBatcher(embedder, batch_tokens_max=10) as batcher:
        await batcher.embed(["short", "word " * 100])
    assert sorted(len(batch) for batch in embedder.batches) == [1, 1]


async def test_an_urgent_text_overtakes_earlier_bulk_texts(embedder: GatedEmbedder) -> None:
    async with EmbeddingBatcher(embedder, batch_tokens_max=10) as batcher, occupied(embedder, batcher):
        bulk = asyncio.create_task(batcher.embed([f"bulk {number} of many" for number in range(20)]))
        await start(bulk)
        urgent = asyncio.create_task(batcher.embed(["query"], urgent=True))
        await start(urgent)
        embedder.gate.set()
        await asyncio.gather(bulk, urgent)
    assert embedder.batches[1] == ["query"]
    assert len(embedder.batches) > 5


async def test_a_bulk_text_that_becomes_urgent_moves_ahead_and_is_embedded_once(embedder: GatedEmbedder) -> None:
    embedder.gate.clear()
    async with EmbeddingBatcher(embedder, batch_tokens_max=10) as batcher:
        bulk = asyncio.create_task(batcher.embed([f"bulk {number} of many" for number in range(20)]))
        await until(lambda: len(embedder.batches) == 1)
        urgent = asyncio.create_task(batcher.embed(["bulk 10 of many"], urgent=True))
        await start(urgent)
        embedder.gate.set()
        vectors, (vector,) = await asyncio.gather(bulk, urgent)
    assert embedder.batches[1] == ["bulk 10 of many"]
    assert [text for batch in embedder.batches for text in batch].count("bulk 10 of many") == 1
    np.testing.assert_array_equal(vectors[10], vector)


async def test_a_text_does_not_wait_for_others_while_a_core_is_idle() -> None:
    embedder = GatedEmbedder(parallelism=2)
    async with EmbeddingBatcher(embedder) as batcher, occupied(embedder, batcher):
        await asyncio.wait_for(batcher.embed(["free to go"]), DEADLINE_S)
    assert embedder.batches == [["occupied"], ["free to go"]]


async def test_idle_cores_divide_the_texts_of_a_call() -> None:
    embedder = GatedEmbedder(parallelism=4)
    texts = [f"{number} " + "word " * 29 for number in range(8)]
    async with EmbeddingBatcher(embedder) as batcher, occupied(embedder, batcher):
        call = asyncio.create_task(batcher.embed(texts))
        await until(lambda: len(embedder.batches) == 4)
        embedder.gate.set()
        np.testing.assert_array_equal(await call, HashingEmbedder().embed(texts))
    assert sorted(len(batch) for batch in embedder.batches[1:]) == [2, 3, 3]


async def test_few_tokens_are_not_divided() -> None:
    embedder = GatedEmbedder(parallelism=4)
    texts = [f"{number} short text" for number in range(8)]
    async with EmbeddingBatcher(embedder) as batcher:
        await batcher.embed(texts)
    assert [len(batch) for batch in embedder.batches] == [8]


async def test_the_oldest_text_is_not_starved_by_better_fitting_ones(embedder: GatedEmbedder) -> None:
    async with EmbeddingBatcher(embedder, batch_tokens_max=40) as batcher, occupied(embedder, batcher):
        long = asyncio.create_task(batcher.embed(["word " * 30]))
        await start(long)
        short = asyncio.create_task(batcher.embed([f"short {number}" for number in range(100)]))
        await start(short)
        embedder.gate.set()
        await asyncio.gather(long, short)
    assert embedder.batches[1] == ["word " * 30]


async def test_a_cancelled_call_affects_no_other_and_is_not_embedded(embedder: GatedEmbedder) -> None:
    async with EmbeddingBatcher(embedder) as batcher, occupied(embedder, batcher):
        cancelled = asyncio.create_task(batcher.embed(["only mine", "ours"]))
        other = asyncio.create_task(batcher.embed(["ours", "only theirs"]))
        await start(cancelled, other)
        cancelled.cancel()
        with pytest.raises(asyncio.CancelledError):
            await cancelled
        embedder.gate.set()
        vectors = await other
    np.testing.assert_array_equal(vectors, HashingEmbedder().embed(["ours", "only theirs"]))
    assert "only mine" not in [text for batch in embedder.batches for text in batch]


async def test_a_call_cancelled_while_its_batch_runs_affects_no_other(embedder: GatedEmbedder) -> None:
    async with EmbeddingBatcher(embedder) as batcher, occupied(embedder, batcher) as running:
        other = asyncio.create_task(batcher.embed(["occupied", "next"]))
        await start(other)
        running.cancel()
        embedder.gate.set()
        np.testing.assert_array_equal(await other, HashingEmbedder().embed(["occupied", "next"]))
        with pytest.raises(asyncio.CancelledError):
            await running


async def test_too_many_waiting_texts_are_refused_until_there_is_room(embedder: GatedEmbedder) -> None:
    async with EmbeddingBatcher(embedder, waiting_texts_max=10) as batcher:
        async with occupied(embedder, batcher):
            waiting = asyncio.create_task(batcher.embed([f"text {number}" for number in range(9)]))
            await start(waiting)
            with pytest.raises(TooManyRequestsError) as caught:
                await batcher.embed(["one", "two", "three"])
            assert caught.value.retry_after_s > 0
            urgent = asyncio.create_task(batcher.embed(["query"], urgent=True))
            await start(urgent)
            embedder.gate.set()
            await asyncio.gather(waiting, urgent)
        assert (await batcher.embed(["one", "two", "three"])).shape == (3, 64)


async def test_cancelled_texts_free_their_places(embedder: GatedEmbedder) -> None:
    async with EmbeddingBatcher(embedder, waiting_texts_max=10) as batcher, occupied(embedder, batcher):
        for attempt in range(20):
            call = asyncio.create_task(batcher.embed([f"attempt {attempt} text {number}" for number in range(9)]))
            await start(call)
            call.cancel()
            with pytest.raises(asyncio.CancelledError):
                await call


async def test_a_text_seen_before_is_not_embedded_again(embedder: GatedEmbedder) -> None:
    async with EmbeddingBatcher(embedder) as batcher:
        first = await batcher.embed(["same", "other", "same"])
        second = await batcher.embed(["same"], urgent=True)
    np.testing.assert_array_equal(second[0], first[0])
    np.testing.assert_array_equal(first[2], first[0])
    assert sorted(text for batch in embedder.batches for text in batch) == ["other", "same"]


async def test_changing_a_returned_vector_does_not_change_the_cache(embedder: GatedEmbedder) -> None:
    async with EmbeddingBatcher(embedder) as batcher:
        for _ in range(2):
            vectors = await batcher.embed(["same"])
            np.testing.assert_array_equal(vectors, HashingEmbedder().embed(["same"]))
            vectors[:] = 0


@pytest.mark.parametrize(("entries_max", "again"), [(2, ["b"]), (0, ["a", "b", "c"])])
async def test_the_cache_is_bounded_and_keeps_the_most_recently_used(
    embedder: GatedEmbedder, entries_max: int, again: list[str]
) -> None:
    async with EmbeddingBatcher(embedder, cache_entries_max=entries_max) as batcher:
        for text in ("a", "b", "a", "c"):
            await batcher.embed([text])
        embedder.batches.clear()
        for text in ("c", "a", "b"):
            await batcher.embed([text])
    assert sorted(text for batch in embedder.batches for text in batch) == again


@pytest.mark.parametrize(
    ("word", "message"), [("poison", "the model choked"), ("indigestible", "the tokenizer choked")]
)
async def test_an_error_reaches_only_the_callers_of_its_batch(embedder: GatedEmbedder, word: str, message: str) -> None:
    async with EmbeddingBatcher(embedder) as batcher:
        async with occupied(embedder, batcher):
            calls = [asyncio.create_task(batcher.embed([text])) for text in (word, "innocent")]
            await start(*calls)
            embedder.gate.set()
            errors = await asyncio.gather(*calls, return_exceptions=True)
        assert [str(error) for error in errors] == [message, message]
        assert all(isinstance(error, EmbeddingError) for error in errors)
        assert errors[0] is not errors[1]
        np.testing.assert_array_equal(await batcher.embed(["innocent"]), HashingEmbedder().embed(["innocent"]))


async def test_an_empty_call_is_answered_at_once(embedder: GatedEmbedder) -> None:
    async with EmbeddingBatcher(embedder) as batcher:
        assert (await batcher.embed([])).shape == (0, 64)
    assert embedder.batches == []


async def test_splitting_runs_while_the_model_works(embedder: GatedEmbedder) -> None:
    async with EmbeddingBatcher(embedder) as batcher, occupied(embedder, batcher):
        spans = await asyncio.wait_for(batcher.split(["short", "word " * 500]), DEADLINE_S)
    assert [len(passages) for passages in spans] == [1, len(HashingEmbedder().split("word " * 500))]
    assert len(spans[1]) > 2
    assert threading.get_ident() not in embedder.threads


@pytest.mark.parametrize("text", ["", "a memory of everyday length", "x" * 300, "猫" * 300, "naïve"])
async def test_a_text_is_split_as_the_embedder_splits_it(embedder: GatedEmbedder, text: str) -> None:
    async with EmbeddingBatcher(embedder) as batcher:
        assert await batcher.split([text, "word " * 500]) == [embedder.split(text), embedder.split("word " * 500)]
        assert await batcher.split([text]) == [embedder.split(text)]


async def test_closing_cancels_waiting_texts_and_refuses_new_ones(embedder: GatedEmbedder) -> None:
    batcher = EmbeddingBatcher(embedder)
    async with occupied(embedder, batcher) as running:
        waiting = asyncio.create_task(batcher.embed(["waiting"]))
        await start(waiting)
        closing = asyncio.create_task(batcher.close())
        with pytest.raises(NotServingError):
            await waiting
        with pytest.raises(NotServingError):
            await running
        assert not closing.done(), "closing must wait for the running batch"
        embedder.gate.set()
        await asyncio.wait_for(closing, DEADLINE_S)
        for call in (batcher.embed(["late"]), batcher.split(["late"])):
            with pytest.raises(NotServingError):
                await call
        await batcher.close()


@pytest.mark.parametrize("urgent", [False, True])
async def test_a_tenant_with_one_text_need_not_wait_for_the_thousands_of_another(
    embedder: GatedEmbedder, *, urgent: bool
) -> None:
    async with EmbeddingBatcher(embedder) as batcher, occupied(embedder, batcher):
        many = [f"text {number:04} of the load" for number in range(2_000)]
        load = asyncio.create_task(batcher.of("greedy").embed(many, urgent=urgent))
        await start(load)
        one = asyncio.create_task(batcher.of("other").embed(["text alone"], urgent=urgent))
        await start(one)
        embedder.gate.set()
        await asyncio.gather(load, one)
        position = next(number for number, batch in enumerate(embedder.batches) if "text alone" in batch)
        assert position <= 3
        # Those of one tenant keep their order.
        loaded = [text for batch in embedder.batches for text in batch if text.endswith("load")]
        assert sorted(loaded) == many
        assert loaded[:8] == many[:8]


async def test_waiting_texts_of_a_tenant_leave_room_for_those_of_others(embedder: GatedEmbedder) -> None:
    async with EmbeddingBatcher(embedder, waiting_texts_max=80) as batcher, occupied(embedder, batcher):
        greedy = batcher.of("greedy")
        load = asyncio.create_task(greedy.embed([f"text {number}" for number in range(70)]))
        await start(load)
        with pytest.raises(TooManyRequestsError, match="of this tenant"):
            await greedy.embed(["one more"])
        other = asyncio.create_task(batcher.of("other").embed(["text of another"]))
        await start(other)
        embedder.gate.set()
        await asyncio.gather(other, load)


async def test_each_tenant_pays_for_its_own_texts_and_is_refused_once_it_has_used_its_seconds(
    embedder: GatedEmbedder,
) -> None:
    accounts = Accounts(Quotas(embedding_seconds_per_minute=60), now=lambda: 0.0)
    accounts.of_tenant("spent").note_embedding(60.5)
    async with EmbeddingBatcher(embedder, meter=accounts) as batcher:
        spent, other = batcher.of("spent"), batcher.of("other")
        for ask in (lambda: spent.embed(["a text"]), lambda: asyncio.to_thread(spent.embed_query, "a query")):
            with pytest.raises(QuotaExceededError, match="embedding_seconds_per_minute of tenant:spent") as refused:
                await ask()
            assert refused.value.retry_after_s == pytest.approx(0.5)
        await other.embed(["a text"])
        await asyncio.to_thread(other.embed_query, "a query")
        # What is known costs nothing; what is stored already is embedded.
        await spent.embed(["a text"])
        await asyncio.to_thread(spent.embed_blocking, ["another text"])
    assert 0 < accounts.usage_of("other").embedding_seconds < 60
    assert accounts.usage_of("spent").embedding_seconds > 60.5
