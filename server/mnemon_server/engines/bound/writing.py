"""Writes several records of which some may not be written by the caller."""

from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import TypeVar

from mnemon_server.domain.errors import PermissionDeniedError

Write = TypeVar("Write")
Result = TypeVar("Result")


def write_own(
    writes: Sequence[Write],
    owned: Callable[[Write], Write],
    write: Callable[[Sequence[Write]], "Future[list[Result]]"],
) -> "Future[list[Result | PermissionDeniedError]]":
    """Calls `write` with what `owned` returns for each, and returns its results, with an error for each that `owned`
    refuses.
    """
    checked: list[Write | PermissionDeniedError] = []
    for each in writes:
        try:
            checked.append(owned(each))
        except PermissionDeniedError as error:
            checked.append(error)
    merged: Future[list[Result | PermissionDeniedError]] = Future()

    def merge(future: "Future[list[Result]]") -> None:
        if (failure := future.exception()) is not None:
            merged.set_exception(failure)
            return
        results = iter(future.result())
        merged.set_result([each if isinstance(each, PermissionDeniedError) else next(results) for each in checked])

    write([each for each in checked if not isinstance(each, PermissionDeniedError)]).add_done_callback(merge)
    return merged
