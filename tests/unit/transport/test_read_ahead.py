"""Work on a stream runs ahead of its answers, within limits and never out of order."""

import asyncio
import random
import weakref
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from concurrent.futures import Future
from contextlib import aclosing, nullcontext
from datetime import UTC, datetime

import pytest
from mnemon_server.domain.documents import Document
from mnemon_server.domain.records import WriteOutcome, WriteReceipt
from mnemon_server.engines.promises.values import DocumentWrite
from mnemon_server.services.writing.writes import WriteBatcher, put_all
from mnemon_server.transport.servicers.bulk import ReadAhead

from tests.support.server import until

NOW = datetime(2026, 1, 1, tzinfo=UTC)


class Requests:
    """A stream that counts how much of it was read."""

    def __init__(self, *items: str, error: Exception | None = None) -> None:
        self.items, self.error, self.read = items, error, 0

    async def __aiter__(self) -> AsyncIterator[str]:
        for item in self.items:
            self.read += 1
            yield item
        if self.error:
            raise self.error


def ahead(work: Callable[[str], Awaitable[str]], *, ahead: int = 3, weight_max: int = 100) -> ReadAhead[str, str]:
    """Requests are words. Their letters are the records that they change, and the number of letters is the weight."""
    return ReadAhead(work, keys=set, weight=len, ahead=ahead, weight_max=weight_max, piece=nullcontext)


async def test_answers_come_in_order_whichever_takes_longest() -> None:
    rng = random.Random(3)
    words = [chr(0x4E00 + i) for i in range(50)]

    async def work(word: str) -> str:
        for _ in range(rng.randrange(20)):
            await asyncio.sleep(0)
        return word

    assert [answer async for answer in ahead(work).run(aiter(Requests(*words)))] == words


async def test_writes_keep_the_order_of_the_stream_whichever_takes_longest() -> None:
    rng, written = random.Random(4), list[str]()
    words = [chr(0x4E00 + i) for i in range(50)]

    def write(documents: Sequence[DocumentWrite]) -> Future[list[WriteReceipt | Exception]]:
        written.extend(each.document.doc_id for each in documents)
        done = Future[list[WriteReceipt | Exception]]()
        done.set_result([WriteReceipt(each.document.doc_id, WriteOutcome.CREATED, 1, NOW) for each in documents])
        return done

    puts = WriteBatcher(write)

    async def work(word: str) -> str:
        for _ in range(0 if word == words[7] else rng.randrange(20)):
            await asyncio.sleep(0)
        if word == words[7]:
            return word  # writes nothing
        await put_all(puts, [DocumentWrite(document=Document(word, word), passages=())], "document")
        return word

    assert [answer async for answer in ahead(work).run(aiter(Requests(*words)))] == words
    assert written == words[:7] + words[8:]


async def test_concurrency_is_limited_and_the_stream_is_read_no_further() -> None:
    requests, gate, working = Requests(*"abcdefgh"), asyncio.Event(), 0

    async def work(word: str) -> str:
        nonlocal working
        working += 1
        await gate.wait()
        return word

    answers = ahead(work).run(aiter(requests))
    async with aclosing(answers):  # type: ignore[type-var]
        first = asyncio.create_task(anext(answers))
        await until(lambda: working == 3)
        for _ in range(20):
            await asyncio.sleep(0)
        # One more was read and waits.
        assert (working, requests.read) == (3, 4)
        gate.set()
        assert await first == "a"
        assert [answer async for answer in answers] == list("bcdefgh")


@pytest.mark.parametrize(
    ("words", "weight_max", "together"),
    [
        (["ab", "bc", "d"], 100, [{"ab"}, {"bc", "d"}]),  # both change b
        (["aaa", "bbb", "c"], 4, [{"aaa"}, {"bbb", "c"}]),  # too heavy together
        (["aaaaaaaa", "b"], 4, [{"aaaaaaaa"}, {"b"}]),  # too heavy to run with others
    ],
)
async def test_requests_for_the_same_record_or_over_the_weight_limit_wait(
    words: list[str], weight_max: int, together: list[set[str]]
) -> None:
    seen: list[set[str]] = []
    in_work: set[str] = set()

    async def work(word: str) -> str:
        in_work.add(word)
        for _ in range(20):
            await asyncio.sleep(0)
        seen.append(set(in_work))
        in_work.discard(word)
        return word

    assert [answer async for answer in ahead(work, weight_max=weight_max).run(aiter(Requests(*words)))] == words
    assert seen[0] == together[0]
    assert seen[1] == together[1]


async def test_an_error_of_the_work_comes_in_its_place_and_ends_the_stream() -> None:
    cancelled: list[str] = []

    async def work(word: str) -> str:
        if word == "b":
            raise ValueError(word)
        try:
            await (asyncio.sleep(0) if word == "a" else asyncio.Event().wait())
        except asyncio.CancelledError:
            cancelled.append(word)
            raise
        return word

    answers, error = await _until_error(ahead(work).run(aiter(Requests(*"abc"))))
    assert (answers, str(error), cancelled) == (["a"], "b", ["c"])


async def test_an_error_of_the_stream_comes_after_the_earlier_answers() -> None:
    async def work(word: str) -> str:
        return word

    answers, error = await _until_error(ahead(work).run(aiter(Requests(*"abcde", error=ConnectionError()))))
    assert (answers, type(error)) == (list("abcde"), ConnectionError)


async def _until_error(stream: AsyncIterator[str]) -> tuple[list[str], Exception]:
    answers = []
    try:
        async for answer in stream:
            answers.append(answer)  # noqa: PERF401 - what came before the error counts
    except (ValueError, ConnectionError) as error:
        return answers, error
    raise AssertionError("no error came")


async def test_a_stream_that_waits_for_its_next_request_does_not_keep_the_last() -> None:
    class Request(str):
        """One that tells whether it is still held."""

    kept: list[weakref.ref[str]] = []

    async def requests() -> AsyncIterator[str]:
        request = Request("a")
        kept.append(weakref.ref(request))
        yield request
        del request
        await asyncio.Event().wait()

    async def work(word: str) -> str:
        return "done"

    answers = ahead(work).run(requests())
    assert await anext(answers) == "done"
    waiting = asyncio.create_task(anext(answers))  # type: ignore[arg-type]
    await until(lambda: kept[0]() is None)
    waiting.cancel()
    await asyncio.wait([waiting])
