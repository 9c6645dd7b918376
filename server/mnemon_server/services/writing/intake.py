"""Stores several items at once, with one result each, in their order; an invalid one does not affect the others."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import TypeAlias, TypeVar

from mnemon_server.domain.errors import FieldViolation, IndexingError, InvalidArgumentError, MnemonError
from mnemon_server.domain.records import WriteReceipt
from mnemon_server.engines.promises.records import WriteGuard
from mnemon_server.engines.promises.values import DocumentWrite
from mnemon_server.services.background.pause import Pause
from mnemon_server.services.writing.write_batcher import WriteBatcher
from mnemon_server.services.writing.write_order import in_turn

T = TypeVar("T")
Request = TypeVar("Request")
Stored = TypeVar("Stored")


async def take_in(
    requests: Sequence[Request],
    violations: Callable[[Request], Iterable[FieldViolation]],
    store: Callable[[Sequence[Request]], Awaitable[Sequence[Stored | MnemonError]]],
) -> list[Stored | MnemonError]:
    """Checks each request, and stores the valid ones in one call.

    Args:
        requests: what is to be stored.
        violations: what is wrong with a request.
        store: stores the valid requests, with one result each; not called if no request is valid.
    """
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
    """Stores the requests that the caller may store; the others are refused before `store` sees them.

    Args:
        requests: what is to be stored; it was checked.
        guard: tells which of them are not the caller's; None if all are.
        write_of: what would be written, without passages.
        store: stores requests, with one result each.
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
