"""How several items are stored at once: one result each, in their order; what is wrong with one fails it alone."""

from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import TypeVar

from mnemon_server.domain.errors import FieldViolation, IndexingError, InvalidArgumentError, MnemonError

Request = TypeVar("Request")
Stored = TypeVar("Stored")


async def take_in(
    requests: Sequence[Request],
    violations: Callable[[Request], Iterable[FieldViolation]],
    store: Callable[[Sequence[Request]], Awaitable[Sequence[Stored | MnemonError]]],
) -> list[Stored | MnemonError]:
    """Checks each request, and stores those that are right, all in one call.

    Args:
        requests: what is to be stored.
        violations: what is wrong with one of them.
        store: stores those with which nothing is, and says what each came to; not called if there are none.
    """
    return await take_in_checked(requests, [problem(violations(request)) for request in requests], store)


async def take_in_checked(
    requests: Sequence[Request],
    problems: Sequence[InvalidArgumentError | None],
    store: Callable[[Sequence[Request]], Awaitable[Sequence[Stored | MnemonError]]],
) -> list[Stored | MnemonError]:
    """The same of requests that were checked already."""
    right = [request for request, found in zip(requests, problems, strict=True) if found is None]
    stored = iter(await store(right) if right else ())
    return [next(stored) if found is None else found for found in problems]


def problem(violations: Iterable[FieldViolation]) -> InvalidArgumentError | None:
    """The error that names what is wrong; None where nothing is."""
    found = list(violations)
    return InvalidArgumentError(found) if found else None


async def settled(storing: Awaitable[Stored], what: str) -> Stored | MnemonError:
    """What storing an item comes to; its failure is a result, too, and does not take the receipts of the others."""
    try:
        return await storing
    except MnemonError as error:
        return error
    except Exception as error:  # noqa: BLE001 - told as the item's own
        failure = IndexingError(f"the {what} could not be stored")
        failure.__cause__ = error
        return failure
