"""A batch of LangGraph's store operations as calls of `client.facts`: what to ask, and where each answer goes."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import zip_longest
from typing import Any, TypedDict, cast

from langgraph.store.base import (
    GetOp,
    Item,
    ListNamespacesOp,
    MatchCondition,
    Op,
    PutOp,
    Result,
    SearchItem,
    SearchOp,
)

from mnemon._errors import InvalidArgumentError
from mnemon._values.facts import Fact, FactIndex, FactMatch, PutResult

PAGE_MAX = 1_000
"""Most names that the server takes, and most results that it returns, in one call."""
_ANY = "*"

Name = tuple[tuple[str, ...], str]
"""The namespace and the key of an item."""


class IndexFields(TypedDict, total=False):
    """The part of LangGraph's `IndexConfig` that is the store's to choose; the server embeds, with its own model."""

    fields: list[str] | None
    """Paths of the texts that are searched where a put names none, such as "text" or "messages[*].content"."""


@dataclass(frozen=True, slots=True)
class Gets:
    """Items by name, each with the positions in the batch that ask for it."""

    renew_ttl: bool
    positions: dict[Name, list[int]]

    def results(self, facts: Iterable[Fact]) -> Iterator[tuple[int, Item]]:
        """The item for each position that has one."""
        for fact in facts:
            for position in self.positions[fact.namespace, fact.key]:
                yield position, _item(fact)


@dataclass(frozen=True, slots=True)
class Search:
    """One search; `pages` are the offsets and limits that it takes."""

    position: int
    arguments: dict[str, Any]
    pages: tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True)
class Listing:
    """One list of namespaces, from the first to before the last."""

    position: int
    arguments: dict[str, Any]
    first: int
    last: int


@dataclass(frozen=True, slots=True)
class Batch:
    """What a batch asks. As in LangGraph's own stores, its reads see what was there before its writes."""

    blank: tuple[Result, ...]
    """What each operation gives where nothing is found."""
    gets: tuple[Gets, ...]
    searches: tuple[Search, ...]
    listings: tuple[Listing, ...]
    puts: tuple[Fact, ...]
    deletes: tuple[Name, ...]

    @classmethod
    def of(cls, ops: Iterable[Op], index: FactIndex) -> "Batch":
        """The calls for these operations; `index` is for puts that name none. Of writes of one item the last wins.

        Raises ValueError for what is no operation of a store.
        """
        given = list(enumerate(ops))
        last = {(op.namespace, op.key): op for _, op in given if isinstance(op, PutOp)}
        return cls(
            blank=tuple(_blank(op) for _, op in given),
            gets=tuple(_gets((at, op) for at, op in given if isinstance(op, GetOp))),
            searches=tuple(_search(at, op) for at, op in given if isinstance(op, SearchOp)),
            listings=tuple(_listings((at, op) for at, op in given if isinstance(op, ListNamespacesOp))),
            puts=tuple(_fact(op, op.value, index) for op in last.values() if op.value is not None),
            deletes=tuple(name for name, op in last.items() if op.value is None),
        )


def index_of(index: IndexFields | None) -> FactIndex:
    """What a store's index configuration says. Raises ValueError where it asks for an embedder of its own."""
    if not index:
        return None
    if foreign := sorted(index.keys() - {"fields"}):
        raise ValueError(f"the server embeds, with its own model: leave {', '.join(foreign)} out of index")
    return index.get("fields") or None


def search_item(match: FactMatch) -> SearchItem:
    """What a search found, as LangGraph has it."""
    fact = match.fact
    return SearchItem(fact.namespace, fact.key, dict(fact.value), *_times(fact), match.score)


def raise_first_error(results: Iterable[PutResult]) -> None:
    """Raises what the first put that failed would have raised alone; the others are stored."""
    for result in results:
        if result.error:
            raise result.error


def _item(fact: Fact) -> Item:
    created, updated = _times(fact)
    return Item(value=dict(fact.value), key=fact.key, namespace=fact.namespace, created_at=created, updated_at=updated)


def _times(fact: Fact) -> tuple[datetime, datetime]:
    # A fact that the server returns has both.
    return cast(datetime, fact.create_time), cast(datetime, fact.update_time)


def _blank(op: Op) -> Result:
    match op:
        case GetOp() | PutOp():
            return None
        case SearchOp() | ListNamespacesOp():
            return []
    raise ValueError(f"{type(op).__name__} is not an operation of a store")


def _gets(ops: Iterable[tuple[int, GetOp]]) -> Iterator[Gets]:
    found: dict[bool, dict[Name, list[int]]] = {}
    for position, op in ops:
        found.setdefault(op.refresh_ttl, {}).setdefault((op.namespace, op.key), []).append(position)
    for renew_ttl, positions in found.items():
        names = list(positions)
        for start in range(0, len(names), PAGE_MAX):
            yield Gets(renew_ttl, {name: positions[name] for name in names[start : start + PAGE_MAX]})


def _search(position: int, op: SearchOp) -> Search:
    starts = range(0, op.limit, PAGE_MAX)
    arguments = {
        "query": op.query or "",
        "namespace": op.namespace_prefix,
        "subtree": True,
        "where": op.filter,
        "renew_ttl": op.refresh_ttl,
    }
    return Search(position, arguments, tuple((op.offset + start, min(PAGE_MAX, op.limit - start)) for start in starts))


def _listings(ops: Iterable[tuple[int, ListNamespacesOp]]) -> Iterator[Listing]:
    for position, op in ops:
        conditions = op.match_conditions or ()
        prefix, suffix = _joined(conditions, "prefix"), _joined(conditions, "suffix")
        if prefix is not None and suffix is not None:
            arguments = {"prefix": prefix, "suffix": suffix[::-1], "max_depth": op.max_depth or 0}
            yield Listing(position, arguments, op.offset, op.offset + op.limit)


def _joined(conditions: Iterable[MatchCondition], kind: str) -> tuple[str, ...] | None:
    """One path that matches where all of the kind do, suffixes back to front; None where they exclude each other."""
    joined: tuple[str, ...] = ()
    for condition in conditions:
        if condition.match_type != kind:
            continue
        path = condition.path if kind == "prefix" else condition.path[::-1]
        pairs = list(zip_longest(joined, path, fillvalue=_ANY))
        if any(_ANY not in pair and pair[0] != pair[1] for pair in pairs):
            return None
        joined = tuple(label if other == _ANY else other for label, other in pairs)
    return joined


def _fact(op: PutOp, value: Any, index: FactIndex) -> Fact:
    if not op.key:
        # The server would choose one, under which nobody would look for the item.
        raise InvalidArgumentError.of("key", "must not be empty")
    return Fact(
        namespace=op.namespace,
        key=op.key,
        value=dict(value),
        index=index if op.index is None else op.index,
        ttl=None if op.ttl is None else timedelta(minutes=op.ttl),
    )
