"""Adds the duration to the answer of a search, and turns unexpected errors into SearchError."""

from collections.abc import Callable
from dataclasses import replace
from functools import wraps
from time import perf_counter
from typing import ParamSpec, TypeVar

from mnemon_server.domain.documents import SearchAnswer
from mnemon_server.domain.errors import MnemonError, SearchError
from mnemon_server.domain.events import WindowPage
from mnemon_server.domain.facts import FactSearchAnswer
from mnemon_server.domain.memories import MemorySearchAnswer
from mnemon_server.domain.semantic import SimilarAnswer

P = ParamSpec("P")
Answer = TypeVar(
    "Answer", SearchAnswer, MemorySearchAnswer, FactSearchAnswer, SimilarAnswer, WindowPage, WindowPage | None
)


def timed_search(search: Callable[P, Answer]) -> Callable[P, Answer]:
    """Wraps a search: its answer, if there is one, has the duration, checks included; an unexpected error becomes a
    SearchError.
    """

    @wraps(search)
    def timed(*args: P.args, **kwargs: P.kwargs) -> Answer:
        started = perf_counter()
        try:
            answer = search(*args, **kwargs)
        except MnemonError:
            raise
        except Exception as error:
            raise SearchError("the search failed") from error
        if answer is None:
            return answer  # type: ignore[unreachable] # for the kinds of answer that are never None
        return replace(answer, diagnostics=replace(answer.diagnostics, duration_s=perf_counter() - started))

    return timed
