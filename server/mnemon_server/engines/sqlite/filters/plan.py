"""Selects the index for a filter by counting, because SQLite's planner has no statistics here.

Conditions that must all hold, and that an index can answer, are counted in their indexes, up to a bound that grows as
long as all of them exceed it. So the choice takes a small share of the time of reading what is chosen. The documents of
the smallest index range are read, and the rest of the filter is checked on each. If every range is wide, the planner
chooses, and conditions on metadata are evaluated as sets. An exception are lists by position: there, a wide range must
not select the index, because all of its documents would be sorted.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import apsw
import numpy as np

from mnemon_server.domain.encoding import SCOPE_FIELDS, scope_values
from mnemon_server.domain.filters import (
    METADATA_PREFIX,
    AllOf,
    AnyOf,
    Condition,
    Expression,
    Operator,
    RecordFilter,
)
from mnemon_server.engines.promises.values import PassageIds
from mnemon_server.engines.sqlite.filters.compiler import compile_filter, required_parts
from mnemon_server.engines.sqlite.filters.metadata_index import ORDERINGS, comparison, metadata_ranges
from mnemon_server.engines.sqlite.passage_map import PassageMap
from mnemon_server.engines.sqlite.query import fetch, id_array, ids_from_text
from mnemon_server.engines.sqlite.tables import Tables

# ruff: noqa: S608 - table and column names are constants; all input is bound

BOUNDS = (2_000, 16_000, 128_000)
"""Up to how many documents of an index range are counted, before those of the other ranges."""

_IN_METADATA = {Operator.EQ, Operator.IN, *ORDERINGS}
_READS_ROW = re.compile(r"\bd\.(?!position\b)")


@dataclass(frozen=True, slots=True)
class _Range:
    """A range of an index that contains all matching documents, each once."""

    table: str
    condition: str
    parameters: tuple[Any, ...]
    rest: RecordFilter
    """The conditions left to check. For a column of the documents table, this is the whole filter."""
    column: str = ""
    """The column of the documents table that is compared; empty for the metadata index."""
    in_order: bool = False
    """Whether it is in the order of positions."""

    @property
    def positions(self) -> str:
        return f"(SELECT position FROM {self.table} WHERE {self.condition})"


def prepare_filter(
    connection: apsw.Connection, tables: Tables, where: RecordFilter, *, by_position: bool = False
) -> tuple[str, list[Any]]:
    """An SQL condition on the documents table, named `d`, and its parameters."""
    ranges = [*_ranges(tables, where)]
    chosen, is_few = _narrowest(connection, ranges, by_position=by_position)
    if chosen is None:
        is_in_metadata = any(not each.column for each in ranges)
        return compile_filter(tables, where, each=by_position and is_in_metadata, ranges=not by_position)
    if chosen.column:
        # The expired documents make a set, unless that costs more than the documents that are read: expired ones of
        # others must cost a caller nothing.
        each = is_few or not tables.collection.expires or _count(connection, chosen, BOUNDS[0]) <= BOUNDS[0]
        return compile_filter(tables, where, each=each, chosen=chosen.column)
    condition, parameters = compile_filter(tables, chosen.rest, each=True, chosen="")
    return f"d.position IN {chosen.positions} AND {condition}", [*chosen.parameters, *parameters]


def prepare_positions(
    connection: apsw.Connection, tables: Tables, where: RecordFilter, *, hidden_too: bool = False
) -> tuple[str, list[Any]]:
    """FROM and WHERE of a statement over the matching documents, named `d`, of which only `position` can be selected.

    It reads no document if indexes can tell which ones match. With `hidden_too`, it may select documents whose only
    mismatch is that they are hidden.
    """
    ranges = [*_ranges(tables, where)]
    chosen, _ = _narrowest(connection, ranges)
    if chosen is None:
        chosen = next((each for each in ranges if not each.column), None)
    if chosen is None or chosen.column:
        condition, parameters = prepare_filter(connection, tables, where)
        return f"FROM {tables.documents} AS d WHERE {condition}", parameters
    condition, parameters = compile_filter(tables, replace(chosen.rest, hidden=None), each=True)
    if _READS_ROW.search(condition):
        condition, parameters = compile_filter(tables, chosen.rest, each=True)
        source = f"{chosen.positions} AS m CROSS JOIN {tables.documents} AS d ON d.position = m.position"
    else:
        source = f"{chosen.positions} AS d"
        condition = f"{condition} AND {_visibility(tables, None if hidden_too else where.hidden)}"
    return f"FROM {source} WHERE {condition}", [*chosen.parameters, *parameters]


def matching_passages(
    connection: apsw.Connection, tables: Tables, passages: PassageMap, where: RecordFilter
) -> PassageIds:
    """The ids of the passages of matching documents, ascending. Hidden documents have no passages."""
    if where.hidden:
        return np.empty(0, np.int64)
    if not replace(where, hidden=False):
        return passages.all()
    source, parameters = prepare_positions(connection, tables, where, hidden_too=True)
    positions = connection.execute(f"SELECT group_concat(d.position) {source}", parameters).get
    return passages.of(ids_from_text(positions))


def matching_few_passages(
    connection: apsw.Connection, tables: Tables, passages: PassageMap, where: RecordFilter, limit: int
) -> PassageIds | None:
    """Like `matching_passages`; None if no index range has at most `limit` documents."""
    if all(_count(connection, each, limit) > limit for each in _ranges(tables, where)):
        return None
    return matching_passages(connection, tables, passages, where)


def filter_passages(
    connection: apsw.Connection, tables: Tables, passage_ids: PassageIds, where: RecordFilter
) -> PassageIds:
    """The given passages whose documents match, in the given order."""
    condition, parameters = compile_filter(tables, where, each=True)
    rows = fetch(
        connection,
        f"SELECT p.id FROM carray(?) AS wanted CROSS JOIN {tables.passages} AS p ON p.id = wanted.value"
        f" CROSS JOIN {tables.documents} AS d ON d.position = p.position WHERE {condition} AND d.hidden = 0",
        (id_array(passage_ids), *parameters),
    )
    return np.fromiter((row[0] for row in rows), np.int64)


def _visibility(tables: Tables, hidden: bool | None) -> str:  # noqa: FBT001 - as in RecordFilter
    """The condition for `d`, from the index of hidden documents alone."""
    if hidden is None:
        return "1"
    index = f"{tables.documents} AS h INDEXED BY {tables.hidden_index}"
    is_hidden = f"EXISTS (SELECT 1 FROM {index} WHERE h.hidden = 1 AND h.position = d.position)"
    return is_hidden if hidden else f"NOT {is_hidden}"


def _narrowest(
    connection: apsw.Connection, ranges: list[_Range], *, by_position: bool = False
) -> tuple[_Range | None, bool]:
    """The range with the fewest documents, and whether they are known to be few; None if all ranges are wide."""
    if len(ranges) == 1 and (ranges[0].in_order or not by_position):
        return ranges[0], False
    for bound in (BOUNDS[:2] if by_position else BOUNDS) if ranges else ():
        counts = [_count(connection, each, bound) for each in ranges]
        if min(counts) <= bound:
            return ranges[counts.index(min(counts))], bound == BOUNDS[0]
    return None, False


def _count(connection: apsw.Connection, counted: _Range, bound: int) -> int:
    rows = f"SELECT 1 FROM {counted.table} WHERE {counted.condition} LIMIT {bound + 1}"
    return int(connection.execute(f"SELECT count(*) FROM ({rows})", counted.parameters).get)


def _ranges(tables: Tables, where: RecordFilter) -> Iterator[_Range]:
    """The index ranges within which all matching documents are."""
    for name, value in zip(SCOPE_FIELDS, scope_values(where.scope), strict=True):
        if value and name in tables.indexed_texts:
            yield _column_range(tables, where, name, {"=": value})
    parts = [*required_parts(*where.parts)]
    for number, part in enumerate(parts):
        rest = replace(where, equal={}, expression=AllOf((*parts[:number], *parts[number + 1 :])))
        yield from _part_ranges(tables, where, rest, part)
    for name, bounds in _spans(tables, parts):
        yield _column_range(tables, where, name, bounds)


def _part_ranges(tables: Tables, where: RecordFilter, rest: RecordFilter, part: Expression) -> Iterator[_Range]:
    """The index ranges of one part of the filter; `rest` is the filter without it."""
    match part:
        case Condition(name, Operator.EQ, (str(value),)) if value and name in tables.indexed_texts:
            yield _column_range(tables, where, name, {"=": value})
        case Condition(name, Operator.IN, values) if name in tables.indexed_texts:
            texts = [value for value in values if isinstance(value, str)]
            if texts and "" not in texts:
                compared, parameter = comparison(texts)
                yield _Range(tables.documents, _in_index(name, compared), (parameter,), rest)
        case AnyOf(choices):
            spans = [next(_spans(tables, required_parts(choice)), None) for choice in choices]
            if spans and None not in spans:
                yield _united(tables, where, [span for span in spans if span])
        case Condition(name) if name.startswith(METADATA_PREFIX):
            yield from _metadata_range(tables, rest, part)


def _spans(tables: Tables, parts: Iterable[Expression]) -> Iterator[tuple[str, dict[str, str]]]:
    """The indexed text columns that the parts limit on both sides, with the limits by operator."""
    spans: dict[str, dict[str, str]] = {}
    for part in parts:
        match part:
            case Condition(name, Operator.GTE | Operator.LT as operator, (str(value),)) if name in tables.indexed_texts:
                spans.setdefault(name, {})[ORDERINGS[operator]] = value
    return ((name, bounds) for name, bounds in spans.items() if len(bounds) == 2)


def _column_range(tables: Tables, where: RecordFilter, name: str, bounds: dict[str, str]) -> _Range:
    """The documents whose text in an indexed column compares as given, by operator."""
    condition = _in_index(name, *(f"{sign} ?" for sign in bounds))
    return _Range(tables.documents, condition, tuple(bounds.values()), where, name, in_order="=" in bounds)


def _united(tables: Tables, where: RecordFilter, spans: Sequence[tuple[str, dict[str, str]]]) -> _Range:
    """The documents within one of several ranges of indexed columns."""
    ranges = [_column_range(tables, where, name, bounds) for name, bounds in spans]
    condition = " OR ".join(f"({each.condition})" for each in ranges)
    return _Range(tables.documents, condition, tuple(value for each in ranges for value in each.parameters), where)


def _in_index(name: str, *comparisons: str) -> str:
    """The indexes exclude empty texts, so SQLite uses them only if the condition excludes them too."""
    return " AND ".join([*(f'"{name}" {each}' for each in comparisons), f"\"{name}\" <> ''"])


def _metadata_range(tables: Tables, rest: RecordFilter, part: Condition) -> Iterator[_Range]:
    if part.operator in _IN_METADATA and not any(isinstance(value, tuple) for value in part.values):
        ranges = metadata_ranges(part.field.removeprefix(METADATA_PREFIX), part.operator, part.values)
        if ranges is not None and len(ranges) == 1:
            [(condition, parameters)] = ranges
            yield _Range(tables.metadata, condition, parameters, rest)
