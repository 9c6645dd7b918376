"""Gathers writes: records that arrive while the engine writes are written together next, in their order."""

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from contextvars import Context
from dataclasses import dataclass
from typing import Any, Generic, NamedTuple, TypeVar

from mnemon_server.domain.errors import MnemonError
from mnemon_server.domain.observation.tracing import traced
from mnemon_server.services.background.engine_futures import completion

Write = TypeVar("Write")
Receipt = TypeVar("Receipt")

TOGETHER_MAX = 1_000
BULK_MIN = 100
"""A call with at least this many records gains nothing from being gathered with others."""


@dataclass(slots=True)
class Waiting:
    """Counts the records that batchers have not handed over yet."""

    records: int = 0


class _Call(NamedTuple, Generic[Write]):
    writes: Sequence[Write]
    waiter: "asyncio.Future[Any]"


class WriteBatcher(Generic[Write, Receipt]):
    """Gathers writes as reads are gathered: no call waits for others, and the busier the store, the larger a batch.

    The engine gets the records in the order of the calls. Cancelling a caller does not take its records back. Belongs
    to one event loop.
    """

    def __init__(
        self, write: "Callable[[Sequence[Write]], Future[list[Receipt]]]", counted: Waiting | None = None
    ) -> None:
        """`write` does not block, and returns one result for each record, in their order. What waits is `counted`."""
        self._write = write
        self._counted = Waiting() if counted is None else counted
        self._waiting: list[_Call[Write]] = []
        self._sending: asyncio.Task[None] | None = None
        self._answering: set[asyncio.Task[None]] = set()

    def start(self, writes: Sequence[Write]) -> "asyncio.Future[list[Receipt | MnemonError]]":
        """Starts to store records. The future gets one result for each; if the write failed, its error.

        Pass at most TOGETHER_MAX records: the engine stores them in one transaction.
        """
        call: _Call[Write] = _Call(writes, asyncio.get_running_loop().create_future())
        self._waiting.append(call)
        self._counted.records += len(writes)
        if len(writes) >= BULK_MIN:
            self._send_now()
        elif self._sending is None:
            # In its own context: the write belongs to the first caller no more than to the others.
            self._sending = asyncio.create_task(self._send_in_turn(), context=Context())
        return traced("write", call.waiter)

    async def _send_in_turn(self) -> None:
        try:
            while self._waiting:
                for calls, future in self._hand_over(self._take()):
                    await _answer(calls, future)
                # A caller that has just been answered may send its next record, which then joins this batch.
                await asyncio.sleep(0)
        finally:
            self._sending = None

    def _send_now(self) -> None:
        """Hands over all waiting calls, even while another write is running."""
        while self._waiting:
            for calls, future in self._hand_over(self._take()):
                task = asyncio.create_task(_answer(calls, future), context=Context())
                self._answering.add(task)
                task.add_done_callback(self._answering.discard)

    def _take(self) -> list[_Call[Write]]:
        """The calls of the next batch."""
        size = count = 0
        for call in self._waiting:
            if count and size + len(call.writes) > TOGETHER_MAX:
                break
            size += len(call.writes)
            count += 1
        self._counted.records -= size
        taken, self._waiting = self._waiting[:count], self._waiting[count:]
        return taken

    def _hand_over(self, calls: Sequence[_Call[Write]]) -> "list[tuple[Sequence[_Call[Write]], Future[list[Receipt]]]]":
        try:
            return [(calls, self._write([write for call in calls for write in call.writes]))]
        except Exception as error:  # noqa: BLE001 - the callers receive it
            if len(calls) > 1:
                # Nothing was stored. One call may have caused that, and must not fail the others.
                return [handed for call in calls for handed in self._hand_over([call])]
            failed: Future[list[Receipt]] = Future()
            failed.set_exception(error)
            return [(calls, failed)]


async def _answer(calls: Sequence[_Call[Any]], future: "Future[list[Any]]") -> None:
    """Gives every caller the results of its records."""
    try:
        results = await completion(future)
    except MnemonError as error:
        for call in calls:
            if not call.waiter.done():
                # A copy for each record: one error raised in several tasks would mix their tracebacks.
                call.waiter.set_result([copy_of(error) for _ in call.writes])
        return
    except Exception as error:  # noqa: BLE001 - the callers receive it
        for call in calls:
            if not call.waiter.done():
                call.waiter.set_exception(error)
        return
    finally:
        # There is no result only if the loop ends.
        for call in calls if not future.done() or future.cancelled() else ():
            call.waiter.cancel()
    start = 0
    for call in calls:
        end = start + len(call.writes)
        if not call.waiter.done():
            call.waiter.set_result(results[start:end])
        start = end


def copy_of(error: MnemonError) -> MnemonError:
    """An equal error. Its constructor cannot make it: it takes parts of the message, not the message."""
    copied = type(error).__new__(type(error), *error.args)
    copied.__dict__.update(error.__dict__)
    return copied
