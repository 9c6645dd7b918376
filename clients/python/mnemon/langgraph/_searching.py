"""A search of LangGraph's as calls of `client.facts`, one after the other: each call depends on the answer before."""

from collections.abc import Awaitable, Callable, Generator, Iterable
from datetime import datetime
from operator import methodcaller
from typing import Any, TypeAlias, TypeVar, cast

from langgraph.store.base import SearchItem, SearchOp

from mnemon._values.facts import Fact, FactMatch
from mnemon.langgraph._filters import SplitFilter

_Step = TypeVar("_Step")
_Result = TypeVar("_Result")

PAGE_MAX = 1_000
"""The maximum number of names and of results in one call."""
_PAGE_MIN = 100
_SKIPPED_MAX = 100_000
"""The maximum number of results of a query that the server skips."""

Name: TypeAlias = tuple[tuple[str, ...], str]
"""The namespace and the key of an item."""
Call: TypeAlias = Callable[[Any], Any]
"""Calls a method of `client.facts`; awaited on an asyncio client."""
Steps: TypeAlias = Generator[Call, Any, list[FactMatch]]
"""Yields calls, and receives the answer of each."""


def take(steps: Generator[_Step, Any, _Result], call: Callable[[_Step], Any]) -> _Result:
    """Takes the steps: each gets the answer of its call. Returns their result."""
    try:
        step = next(steps)
        while True:
            step = steps.send(call(step))
    except StopIteration as end:
        result: _Result = end.value
        return result


async def take_async(steps: Generator[_Step, Any, _Result], call: Callable[[_Step], Awaitable[Any]]) -> _Result:
    """Like `take`, with calls that are awaited."""
    try:
        step = next(steps)
        while True:
            step = steps.send(await call(step))
    except StopIteration as end:
        result: _Result = end.value
        return result


def search_steps(op: SearchOp) -> Generator[Call, Any, list[SearchItem]]:
    """The results of a search, in the order of LangGraph's own store.

    With a query, the items that it finds come first, best first. Behind them, without a score, come the others that
    match the filter: those that are not indexed, or have nothing in common with it.
    """
    where = SplitFilter.of(op.filter)
    found = yield from _found(op, where)
    if op.refresh_ttl:
        yield from _renew(match.fact for match in found)
    return [_item(match) for match in found]


def _found(op: SearchOp, where: SplitFilter) -> Steps:
    if op.limit <= 0:
        return []
    has_query = bool((op.query or "").strip())
    ranked: list[FactMatch] | None = None
    if not where.rest:
        page = yield from _page(op, where, op.offset, op.limit)
        if len(page) == op.limit or not has_query:
            return page
        ranked = None if op.offset else page
    end = op.offset + op.limit
    if ranked is None:
        ranked = yield from _ranked(op, where, end) if has_query else _none()
    found = ranked if len(ranked) >= end else (yield from _with_others(ranked, op, where, end))
    return found[op.offset : end]


def _page(op: SearchOp, where: SplitFilter, offset: int, limit: int) -> Steps:
    """This many results after an offset; fewer only at the end."""
    found: list[FactMatch] = []
    while (missing := limit - len(found)) > 0:
        size = min(PAGE_MAX, missing)
        answer = yield methodcaller(
            "search",
            op.query or "",
            **_arguments(op, where),
            offset=offset + len(found),
            limit=size,
        )
        found += answer
        # A truncated answer continues behind its last result.
        if len(answer) < size and not (answer.truncated and answer):
            break
    return found


def _ranked(op: SearchOp, where: SplitFilter, end: int) -> Steps:
    """The first results that match the whole filter."""
    found: list[FactMatch] = []
    start, size = 0, _page_size(end)
    while len(found) < end and start <= _SKIPPED_MAX:
        page = yield from _page(op, where, start, size)
        found += filter(_holds(where), page)
        start += size
        if len(page) < size:
            break
    return found[:end]


def _with_others(ranked: list[FactMatch], op: SearchOp, where: SplitFilter, end: int) -> Steps:
    """The results, and behind them the other facts that match, as they are listed."""
    found = list(ranked)
    seen = {_name(match.fact) for match in ranked}
    token = ""
    while len(found) < end:
        page = yield methodcaller(
            "list_page", **_arguments(op, where), page_size=_page_size(end + len(ranked)), page_token=token
        )
        found += (FactMatch(fact) for fact in page.facts if where.holds(fact) and _name(fact) not in seen)
        token = page.next_page_token
        if not token:
            break
    return found


def _none() -> Steps:
    yield from ()
    return []


def _renew(facts: Iterable[Fact]) -> Generator[Call, Any, None]:
    """Renews the ttl of the returned items only, not of others that were read."""
    names = names_to_renew(facts)
    for start in range(0, len(names), PAGE_MAX):
        yield methodcaller("renew", names[start : start + PAGE_MAX])


def _arguments(op: SearchOp, where: SplitFilter) -> dict[str, Any]:
    return {"namespace": op.namespace_prefix, "subtree": True, "where": where.asked or None}


def _page_size(wanted: int) -> int:
    return min(PAGE_MAX, max(_PAGE_MIN, wanted))


def _holds(where: SplitFilter) -> Callable[[FactMatch], bool]:
    return lambda match: where.holds(match.fact)


def _name(fact: Fact) -> Name:
    return fact.namespace, fact.key


def _item(match: FactMatch) -> SearchItem:
    fact = match.fact
    return SearchItem(fact.namespace, fact.key, dict(fact.value), *times(fact), match.score)


def names_to_renew(facts: Iterable[Fact]) -> list[Name]:
    """The facts that have a ttl."""
    return [_name(fact) for fact in facts if fact.ttl is not None]


def times(fact: Fact) -> tuple[datetime, datetime]:
    """When a fact was created and last changed; an answer of the server always has both."""
    return cast(datetime, fact.create_time), cast(datetime, fact.update_time)
