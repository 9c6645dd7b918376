"""Large messages are sent one in a turn of the event loop, and take no memory once their call has ended."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import grpc
import pytest
from grpc import aio
from mnemon_server.domain.errors import NotServingError
from mnemon_server.services.background.offload import LARGE_BYTES
from mnemon_server.services.limits.accounts import Accounts
from mnemon_server.services.limits.outbox import Outbox
from mnemon_server.services.reading.answers import WEIGHT, AnswerMemory, Room
from mnemon_server.transport.conversions import Conversions
from mnemon_server.transport.interceptors.access import Access
from mnemon_server.transport.interceptors.base import Call, Method, current_call
from mnemon_server.transport.interceptors.codec import Codec, Receiver
from mnemon_server.transport.interceptors.limiter import Limiter
from mnemon_server.transport.interceptors.pipeline import Pipeline, Steps
from mnemon_server.transport.interceptors.stream_writer import StreamWriter
from mnemon_server.transport.interceptors.time_limit import DefaultDeadline

from tests.support.server import until
from tests.support.turns import Turns

CALLS = 4


class Exchange:
    """The transport of a call: notes in which turn of the loop each message is written."""

    def __init__(self, turns: Turns, written: list[int]) -> None:
        self._turns, self._written = turns, written

    def peer(self) -> str:
        return "ipv4:127.0.0.1:1"

    def set_trailing_metadata(self, metadata: Any) -> None:
        """Is not looked at."""

    def time_remaining(self) -> float | None:
        return None

    def add_done_callback(self, callback: Any) -> None:
        """The calls do not end."""

    async def read(self) -> bytes:
        return b""

    async def write(self, message: bytes) -> None:
        self._written.append(self._turns.count)

    async def abort(self, *status: Any) -> None:
        raise aio.AbortError

    def cancelled(self) -> bool:
        return False

    def done(self) -> bool:
        return False

    def code(self) -> grpc.StatusCode:
        return grpc.StatusCode.INTERNAL


def pipeline() -> Pipeline:
    outbox = Outbox(wait_s=5.0)
    limiter = Limiter(unary_calls_max=CALLS, streams_max=CALLS, accounts=Accounts(), outbox=outbox)
    return Pipeline(
        Steps(
            access=Access(None, {}),
            receiver=Receiver(seconds=5.0),
            limiter=limiter,
            streams=StreamWriter(write_timeout_s=5.0, outbox=outbox, large=limiter.large),
            deadline=DefaultDeadline(seconds=5.0),
            codec=Codec(message_bytes_max=4 << 20, conversions=Conversions()),
        )
    )


async def turns_of_streams(size: int) -> list[int]:
    """The turns in which streams write a message of this size each."""

    async def messages(request: Any, context: Any) -> AsyncIterator[bytes]:
        yield bytes(size)

    answer = pipeline().wrapped(Method("/tea.Tea/Watch", grpc.unary_stream_rpc_method_handler(messages)))
    written: list[int] = []

    async def watch(number: int, turns: Turns) -> None:
        current_call.set(Call("a request", connection=str(number)))
        exchange: Any = Exchange(turns, written)
        await answer(None, exchange)

    async with Turns() as turns:
        await asyncio.gather(*(watch(number, turns) for number in range(CALLS)))
    return written


async def turns_of_answers(size: int) -> list[int]:
    """The turns in which single calls get an answer of this size each."""

    async def read(request: Any, context: Any) -> bytes:
        return bytes(size)

    answer = pipeline().wrapped(Method("/tea.Tea/Read", grpc.unary_unary_rpc_method_handler(read)))

    async def call(number: int, turns: Turns) -> int:
        current_call.set(Call("a request", connection=str(number)))
        exchange: Any = Exchange(turns, [])
        await answer(None, exchange)
        return turns.count

    async with Turns() as turns:
        return await asyncio.gather(*(call(number, turns) for number in range(CALLS)))


@pytest.mark.parametrize("turns_of", [turns_of_streams, turns_of_answers])
async def test_large_messages_come_one_in_a_turn(turns_of: Callable[[int], Awaitable[list[int]]]) -> None:
    assert len(set(await turns_of(LARGE_BYTES + 1))) == CALLS


@pytest.mark.parametrize("turns_of", [turns_of_streams, turns_of_answers])
async def test_small_messages_do_not_wait(turns_of: Callable[[int], Awaitable[list[int]]]) -> None:
    assert len(set(await turns_of(100))) == 1


class Message(bytes):
    """Tells when no one holds it any more."""

    gone = 0

    def __del__(self) -> None:
        Message.gone += 1


async def one_message(*_: Any) -> AsyncIterator[bytes]:
    """A message, and none after it."""
    yield Message(b"tea")
    await asyncio.Event().wait()


async def read_all(requests: AsyncIterator[bytes], _: Any) -> AsyncIterator[bytes]:
    async for request in requests:
        del request
    yield b""


@pytest.mark.parametrize(
    ("handler", "requests"),
    [
        (grpc.unary_stream_rpc_method_handler(one_message), None),
        (grpc.stream_stream_rpc_method_handler(read_all, request_deserializer=lambda data: data), one_message()),
    ],
    ids=["sent", "received"],
)
async def test_a_stream_that_waits_for_its_next_message_does_not_keep_the_last(handler: Any, requests: Any) -> None:
    answer, before = pipeline().wrapped(Method("/tea.Tea/Talk", handler)), Message.gone
    current_call.set(Call("a request", connection="1"))
    exchange: Any = Exchange(Turns(), [])
    call = asyncio.create_task(answer(requests, exchange))
    await until(lambda: Message.gone > before)
    call.cancel()
    await asyncio.wait([call])


async def is_answered(call: "asyncio.Future[Any]", end: "asyncio.Future[bytes]") -> None:
    end.set_result(b"tea")
    assert await call == b"tea"


async def fails(call: "asyncio.Future[Any]", end: "asyncio.Future[bytes]") -> None:
    end.set_exception(NotServingError("no tea"))
    with pytest.raises(aio.AbortError):
        await call


async def is_cancelled(call: "asyncio.Future[Any]", end: "asyncio.Future[bytes]") -> None:
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call


@pytest.mark.parametrize("ends", [is_answered, fails, is_cancelled])
async def test_an_answer_takes_memory_until_its_call_ends(ends: Callable[..., Awaitable[None]]) -> None:
    memory, end = AnswerMemory(1 << 30), asyncio.get_running_loop().create_future()

    async def read(request: Any, context: Any) -> bytes:
        room = current_call.get().room = Room(memory)
        assert room.fits("a record", 100_000)
        return bytes(await end)

    answer = pipeline().wrapped(Method("/tea.Tea/Read", grpc.unary_unary_rpc_method_handler(read)))
    current_call.set(Call("a request", connection="1"))
    exchange: Any = Exchange(Turns(), [])
    call = asyncio.ensure_future(answer(None, exchange))
    await until(lambda: memory.used == WEIGHT * 100_000)
    await ends(call, end)
    assert memory.used == 0
