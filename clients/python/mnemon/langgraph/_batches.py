"""A batch of LangGraph's store operations as calls of `client.facts`: the calls, and the position of each answer."""

import warnings
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import timedelta
from itertools import zip_longest
from typing import Any, TypedDict, cast

from langgraph.store.base import (
    GetOp,
    IndexConfig,
    Item,
    ListNamespacesOp,
    MatchCondition,
    Op,
    PutOp,
    Result,
    SearchOp,
    TTLConfig,
)

from mnemon._values.facts import Fact, FactIndex, PutResult
from mnemon.langgraph._searching import PAGE_MAX, Name, names_to_renew, times
from mnemon.shared.errors import InvalidArgumentError

_ANY = "*"


class IndexFields(TypedDict, total=False):
    """The part of LangGraph's `IndexConfig` that a store can choose; the server embeds with its own model."""

    fields: list[str] | None
    """Paths of the searched texts for a put without its own, such as "text" or "messages[*].content"."""


_WHOLE = "$"
"""LangGraph's name for the whole value."""
_UNUSED = frozenset({"dims", "embed", "ann_index_config", "distance_type"})
"""Keys of an embedder's index, the last two in LangGraph's store for PostgreSQL."""


@dataclass(frozen=True, slots=True)
class Gets:
    """Items by name, each with the positions in the batch that request it."""

    renew_ttl: bool
    positions: dict[Name, list[int]]

    def results(self, facts: Iterable[Fact]) -> Iterator[tuple[int, Item]]:
        """The item for each position, as far as it exists."""
        for fact in facts:
            for position in self.positions[fact.namespace, fact.key]:
                yield position, _item(fact)

    def renewals(self, facts: Iterable[Fact]) -> list[Name]:
        """Found items whose ttl is to be renewed."""
        return names_to_renew(facts) if self.renew_ttl else []


@dataclass(frozen=True, slots=True)
class Listing:
    """One list of namespaces, from the first to before the last."""

    position: int
    arguments: dict[str, Any]
    first: int
    last: int


@dataclass(frozen=True, slots=True)
class Batch:
    """The calls of a batch. As in LangGraph's own stores, reads see the state before the writes."""

    blank: tuple[Result, ...]
    """The result of each operation that finds nothing."""
    gets: tuple[Gets, ...]
    searches: tuple[tuple[int, SearchOp], ...]
    """Each with its position."""
    listings: tuple[Listing, ...]
    puts: tuple[Fact, ...]
    deletes: tuple[Name, ...]

    @classmethod
    def of(cls, ops: Iterable[Op], index: FactIndex) -> "Batch":
        """The calls for these operations; `index` is for puts without their own. The last write of an item wins.

        Raises ValueError for anything but an operation of a store, and InvalidArgumentError for a negative limit or
        offset.
        """
        given = list(enumerate(ops))
        for _, op in given:
            if isinstance(op, SearchOp | ListNamespacesOp):
                _check_page(op)
        last = {(op.namespace, op.key): op for _, op in given if isinstance(op, PutOp)}
        return cls(
            blank=tuple(_blank(op) for _, op in given),
            gets=tuple(_gets((at, op) for at, op in given if isinstance(op, GetOp))),
            searches=tuple((at, op) for at, op in given if isinstance(op, SearchOp)),
            listings=tuple(_listings((at, op) for at, op in given if isinstance(op, ListNamespacesOp))),
            puts=tuple(_fact(op, op.value, index) for op in last.values() if op.value is not None),
            deletes=tuple(name for name, op in last.items() if op.value is None),
        )


def index_of(index: IndexFields | IndexConfig | None) -> FactIndex:
    """The index configuration of a store.

    A UserWarning names the keys of an embedder, which is not used. Raises ValueError for an unknown key.
    """
    if not index:
        return None
    if unknown := sorted(index.keys() - _UNUSED - {"fields"}):
        raise ValueError(f"index has 'fields', 'dims' and 'embed', and not {', '.join(map(repr, unknown))}")
    if ignored := sorted(index.keys() & _UNUSED):
        warnings.warn(
            f"index: {', '.join(map(repr, ignored))} {'are' if len(ignored) > 1 else 'is'} not used: the Mnemon"
            " server embeds the items, with the model that it was started with",
            stacklevel=3,
        )
    return _paths(index.get("fields"))


def ttl_of(ttl: Mapping[str, object] | None) -> TTLConfig | None:
    """A store's ttl configuration, checked. Raises ValueError for an unknown key or another type."""
    if ttl is None:
        return None
    known = TTLConfig.__annotations__.keys()
    if not isinstance(ttl, dict) or ttl.keys() - known:
        raise ValueError(f"ttl must have keys among {', '.join(map(repr, sorted(known)))}, not {ttl!r}")
    return cast(TTLConfig, ttl)


def _paths(given: Iterable[str] | None) -> FactIndex:
    """If the whole value is among them, the default texts."""
    paths = list(given or ())
    return None if _WHOLE in paths else paths or None


def raise_first_error(results: Iterable[PutResult]) -> None:
    """Raises the error of the first put that failed; the others are stored."""
    for result in results:
        if result.error:
            raise result.error


def _item(fact: Fact) -> Item:
    created, updated = times(fact)
    return Item(value=dict(fact.value), key=fact.key, namespace=fact.namespace, created_at=created, updated_at=updated)


def _check_page(op: SearchOp | ListNamespacesOp) -> None:
    # LangGraph's own stores count it from the end, and leave out the last results, or refuse it with an error of SQL.
    for name, given in (("limit", op.limit), ("offset", op.offset)):
        if given < 0:
            raise InvalidArgumentError.of(name, f"must be at least 0, not {given}")


def _blank(op: Op) -> Result:
    match op:
        case GetOp() | PutOp():
            return None
        case SearchOp() | ListNamespacesOp():
            return []
    raise ValueError(f"Unknown operation type: {type(op)}")


def _gets(ops: Iterable[tuple[int, GetOp]]) -> Iterator[Gets]:
    found: dict[bool, dict[Name, list[int]]] = {}
    for position, op in ops:
        found.setdefault(op.refresh_ttl, {}).setdefault((op.namespace, op.key), []).append(position)
    for renew_ttl, positions in found.items():
        names = list(positions)
        for start in range(0, len(names), PAGE_MAX):
            yield Gets(renew_ttl, {name: positions[name] for name in names[start : start + PAGE_MAX]})


def _listings(ops: Iterable[tuple[int, ListNamespacesOp]]) -> Iterator[Listing]:
    for position, op in ops:
        conditions = op.match_conditions or ()
        for condition in conditions:
            if condition.match_type not in ("prefix", "suffix"):
                raise ValueError(f"Unsupported match type: {condition.match_type}")
        prefix, suffix = _joined(conditions, "prefix"), _joined(conditions, "suffix")
        if prefix is not None and suffix is not None:
            arguments = {"prefix": prefix, "suffix": suffix[::-1], "max_depth": op.max_depth or 0}
            yield Listing(position, arguments, op.offset, op.offset + op.limit)


def _joined(conditions: Iterable[MatchCondition], kind: str) -> tuple[str, ...] | None:
    """One path that matches where all of the kind do, suffixes back to front; None if they exclude each other."""
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
        # The server would choose a key that no one knows.
        raise InvalidArgumentError.of("key", "must not be empty")
    return Fact(
        namespace=op.namespace,
        key=op.key,
        value=dict(value),
        index=index if op.index is None else op.index is not False and _paths(op.index),
        ttl=None if op.ttl is None else timedelta(minutes=op.ttl),
    )
