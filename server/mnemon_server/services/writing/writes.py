"""Writes: ids, vectors, intake of many records, batches of concurrent calls, request keys and acknowledgement."""

import asyncio
import math
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from concurrent.futures import Future
from contextlib import asynccontextmanager
from contextvars import Context, ContextVar
from dataclasses import dataclass
from typing import Any, Generic, NamedTuple, Protocol, TypeAlias, TypeVar

import numpy as np

from mnemon_server.domain.encoding import request_digest
from mnemon_server.domain.errors import (
    BackendConnectionError,
    FieldViolation,
    IndexingError,
    InvalidArgumentError,
    MnemonError,
)
from mnemon_server.domain.observation.figures import traced
from mnemon_server.domain.records import AckLevel, RequestKey, WriteReceipt
from mnemon_server.domain.validation import refuse
from mnemon_server.engines.promises.records import RecordEngine, WriteGuard
from mnemon_server.engines.promises.values import DocumentWrite
from mnemon_server.engines.promises.vault import TransactionReceipt, Vault, VaultTransaction
from mnemon_server.services.background.offload import Offload, Pause, completion
from mnemon_server.services.search.embedded_passages import squared_length
from mnemon_server.services.search.index_applier import IndexApplier


def recovery_problem(records: RecordEngine | Vault) -> str:
    """Why writes are refused, after an attempt to open failed records again; empty if they are accepted. Blocks."""
    if records.failure():
        try:
            records.recover()
        except MnemonError as error:
            return str(error)
    return ""


class Counted(Protocol):
    """The answer to a deletion by a filter, or to its dry run."""

    @property
    def deleted_count(self) -> int:
        """How many records were or would be removed."""


Removed = TypeVar("Removed", bound=Counted)


async def delete_matching(
    offload: Offload,
    count: Callable[[], Removed],
    delete: Callable[[], Awaitable[Removed]],
    *,
    unmet: Iterable[FieldViolation],
    dry_run: bool,
) -> Removed:
    """Removes what matches a filter, or counts it. `count` blocks, and so does iterating over `unmet`.

    `unmet` are probable typing errors in the filter. They are refused, unless this is a repeated call that had removed
    the last record with a key: that is answered, with its count.
    """
    found = await offload(list, unmet)
    if dry_run or found:
        matched = await offload(count)
        if dry_run or matched.deleted_count:
            refuse(found)
            return matched
    deleted = await delete()
    if deleted.deleted_count == 0:
        refuse(found)
    return deleted


def request_key(request_id: str, *parts: Any) -> RequestKey | None:
    """The key of a request with the contents `parts`; None if the request has no id."""
    return RequestKey(request_id, request_digest(*parts)) if request_id else None


async def done_once(
    vault: Vault, request: RequestKey | None, action: Callable[[], Awaitable[str]]
) -> TransactionReceipt:
    """Runs an action that is not a transaction, such as writing a file, and stores its answer.

    A replay gets the stored answer, and does not run the action again.
    """
    if (receipt := await replay(vault, request)) is not None:
        return receipt
    answer = await action()
    return await completion(vault.transact(lambda _: answer, request=request))


async def replay(vault: Vault, request: RequestKey | None) -> TransactionReceipt | None:
    """The answer to an earlier request with this key, if any.

    Raises:
        RequestIdReusedError: the id was used for another request.
    """
    if request is None:
        return None
    try:
        return await completion(vault.transact(_refuse_new, request=request))
    except _NewRequestError:
        return None


class _NewRequestError(MnemonError):
    """The request is not a replay. This is the usual case; as a MnemonError, it is not logged."""


def _refuse_new(tx: VaultTransaction) -> str:
    raise _NewRequestError


async def acknowledge(applier: IndexApplier | None, ack: AckLevel, sequence: int) -> None:
    """Waits until a committed change may be acknowledged at this level.

    Raises:
        BackendConnectionError: the change is stored, but the vector index cannot be reached.
    """
    if ack is AckLevel.SEARCHABLE and applier is not None:
        try:
            await completion(applier.applied(sequence), "index")
        except BackendConnectionError as error:
            raise BackendConnectionError(
                f"the change is stored, but not yet in the vector database: {error}"
            ) from error


async def acknowledge_each(
    applier: IndexApplier | None, levels: Sequence[AckLevel], results: Sequence[WriteReceipt | MnemonError]
) -> list[WriteReceipt | MnemonError]:
    """The results of several changes, once each may be acknowledged at its level; an error if one cannot be."""
    acknowledged: list[WriteReceipt | MnemonError] = []
    for level, result in zip(levels, results, strict=True):
        try:
            if not isinstance(result, MnemonError):
                await acknowledge(applier, level, result.sequence)
            acknowledged.append(result)
        except MnemonError as error:
            acknowledged.append(error)
    return acknowledged


_MADE_AT_ONCE = 1_024
_DIGITS = 32
_VARIANTS = {digit: "89ab"[int(digit, 16) & 3] for digit in "0123456789abcdef"}

_spare: list[str] = []
# A forked process must not use the same ids.
os.register_at_fork(after_in_child=_spare.clear)


def new_id() -> str:
    """A random UUID of version 4 as text. Any thread may call it."""
    while True:
        try:
            return _spare.pop()
        except IndexError:
            digits = os.urandom(_MADE_AT_ONCE * _DIGITS // 2).hex()
            _spare.extend(_uuid(digits[start : start + _DIGITS]) for start in range(0, len(digits), _DIGITS))


def _uuid(digits: str) -> str:
    return f"{digits[:8]}-{digits[8:12]}-4{digits[13:16]}-{_VARIANTS[digits[16]]}{digits[17:20]}-{digits[20:]}"


def vector_violations(vector: Sequence[float] | None, dimension: int, field: str) -> Iterable[FieldViolation]:
    """Violations in a vector that a caller gives."""
    if vector is None:
        return
    if len(vector) != dimension:
        yield FieldViolation(field, f"must have {dimension} numbers, as the server's model gives, not {len(vector)}")
        return
    exact = np.array(vector, np.float64)
    # Takes a third of the time of the exact answer, and is true for almost all vectors.
    if 0.0 < squared_length(exact) < math.inf:
        return
    # The greatest number answers both questions: it is not finite if any number is not.
    greatest = float(np.abs(exact).max())
    if not math.isfinite(greatest):
        yield FieldViolation(field, "must contain only finite numbers")
    elif greatest == 0.0:
        yield FieldViolation(field, "must not be all zeros: such a vector has no direction")


def vector_bytes(vector: Sequence[float] | None) -> bytes:
    """A vector as part of the key of a request; empty if the request has none."""
    return b"" if vector is None else np.array(vector, "<f8").tobytes()


class WriteTurn:
    """The turn of one request. Belongs to one event loop."""

    def __init__(self, before: Iterable["WriteTurn"]) -> None:
        """`before` are the turns of the requests before it that are still in progress."""
        self._over = asyncio.Event()
        self._before: list[asyncio.Event] = [turn._over for turn in before]

    def begin(self) -> None:
        """Makes it the turn of the running task."""
        _turn.set(self)

    async def come(self) -> None:
        """Waits until the turns before are over."""
        for turn in self._before:
            await turn.wait()

    def end(self) -> None:
        """Must be called when the request has ended, whether it wrote or not. Further calls have no effect."""
        self._over.set()


_turn: ContextVar[WriteTurn | None] = ContextVar("write_turn", default=None)


@asynccontextmanager
async def in_turn() -> AsyncIterator[None]:
    """Hand a write over within this block: it is entered once the requests before have handed over theirs, or ended."""
    turn = _turn.get()
    if turn is None:
        yield
        return
    await turn.come()
    try:
        yield
    finally:
        turn.end()


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


T = TypeVar("T")
Request = TypeVar("Request")
Stored = TypeVar("Stored")


async def take_in(
    requests: Sequence[Request],
    violations: Callable[[Request], Iterable[FieldViolation]],
    store: Callable[[Sequence[Request]], Awaitable[Sequence[Stored | MnemonError]]],
) -> list[Stored | MnemonError]:
    """Checks each request, and stores the valid ones in one call of `store`, which returns one result for each."""
    problems: list[InvalidArgumentError | None] = []
    pause = Pause()
    for request in requests:
        if problems:
            await pause.where_due()
        problems.append(problem(violations(request)))
    return await take_in_checked(requests, problems, store)


async def take_in_own(
    requests: Sequence[Request],
    guard: WriteGuard | None,
    write_of: Callable[[Request], DocumentWrite],
    store: Callable[[Sequence[Request]], Awaitable[Sequence[Stored | MnemonError]]],
) -> Sequence[Stored | MnemonError]:
    """Stores the requests that the caller may store; the guard refuses the others before `store` sees them.

    `write_of` returns what would be written, without passages.
    """
    if guard is None:
        return await store(requests)
    refusals = await asyncio.to_thread(lambda: guard.refusals([write_of(request) for request in requests]))
    return await take_in_checked(requests, refusals, store)


async def take_in_checked(
    requests: Sequence[Request],
    problems: Sequence[MnemonError | None],
    store: Callable[[Sequence[Request]], Awaitable[Sequence[Stored | MnemonError]]],
) -> list[Stored | MnemonError]:
    """Like `take_in`, for requests that are already checked."""
    valid = [request for request, found in zip(requests, problems, strict=True) if found is None]
    stored = iter(await store(valid) if valid else ())
    return [next(stored) if found is None else found for found in problems]


def problem(violations: Iterable[FieldViolation]) -> InvalidArgumentError | None:
    """The error that names all violations; None without violations."""
    found = list(violations)
    return InvalidArgumentError(found) if found else None


Puts: TypeAlias = WriteBatcher[DocumentWrite, WriteReceipt | Exception]
"""Writes documents; see RecordEngine.put_documents."""


async def put_all(
    puts: Puts, writes: Sequence[DocumentWrite | MnemonError], what: str
) -> list[WriteReceipt | MnemonError]:
    """Stores documents in their order. An error instead of a write is its result."""
    sound = [write for write in writes if not isinstance(write, MnemonError)]
    results: Sequence[WriteReceipt | Exception]
    try:
        # The records of a stream that are embedded sooner must not become those stored before.
        async with in_turn():
            started = puts.start(sound) if sound else None
        results = await started if started else ()
    except Exception as error:  # noqa: BLE001 - it becomes the result of each item
        results = [error] * len(sound)
    stored = iter(results)
    return [write if isinstance(write, MnemonError) else _as_known(next(stored), what) for write in writes]


async def settled(storing: Awaitable[Stored], what: str) -> Stored | MnemonError:
    """The result of storing an item, or its error: an error that is raised would lose the receipts of other items."""
    try:
        return await storing
    except Exception as error:  # noqa: BLE001 - it becomes the result of this item
        return _as_known(error, what)


def _as_known(result: T | Exception, what: str) -> T | MnemonError:
    """The result; an unexpected exception becomes an IndexingError."""
    if isinstance(result, MnemonError) or not isinstance(result, Exception):
        return result
    failure = IndexingError(f"the {what} could not be stored")
    failure.__cause__ = result
    return failure
