"""Selects the index for a filter by counting, because SQLite's planner has no statistics here.

If a scope or another indexed text, or a range of it, leaves few documents, those are read, and the rest of the filter
is checked on each. Otherwise the planner chooses, and conditions on metadata are evaluated as sets. An exception are
lists by position: there, a range that leaves many documents must not select the index, because all of them would be
sorted.
"""

from collections.abc import Iterator
from typing import Any

import apsw
import numpy as np

from mnemon_server.domain.encoding import SCOPE_FIELDS, scope_values
from mnemon_server.domain.filters import AllOf, Condition, Expression, Operator, RecordFilter
from mnemon_server.engines.promises.values import PassageIds
from mnemon_server.engines.sqlite.filters import compile_filter
from mnemon_server.engines.sqlite.query import fetch, id_array
from mnemon_server.engines.sqlite.tables import Tables

# ruff: noqa: S608 - table and column names are constants; all input is bound

FEW = 2_000

Bound = tuple[str, str]
"""A comparison operator and a text."""


def prepare_filter(
    connection: apsw.Connection, tables: Tables, where: RecordFilter, *, by_position: bool = False
) -> tuple[str, list[Any]]:
    """An SQL condition on the documents table, named `d`, and its parameters."""
    chosen = _most_selective(connection, tables, where)
    is_few = chosen is not None
    return compile_filter(tables, where, each=is_few, chosen=chosen, ranges=is_few or not by_position)


def matching_passages(connection: apsw.Connection, tables: Tables, where: RecordFilter) -> PassageIds:
    """The ids of the passages of matching documents, ascending. Hidden documents have no passages."""
    condition, parameters = prepare_filter(connection, tables, where)
    # The join order is fixed, because without statistics the planner may start with the passages. Fetching many ids
    # as one text takes a third of the time of fetching them as rows.
    ids = connection.execute(
        f"SELECT group_concat(p.id) FROM {tables.documents} AS d CROSS JOIN {tables.passages} AS p"
        f" ON p.position = d.position WHERE {condition} AND d.hidden = 0",
        parameters,
    ).get
    return np.sort(np.fromstring(ids or "", np.int64, sep=","))


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


def _most_selective(connection: apsw.Connection, tables: Tables, where: RecordFilter) -> str | None:
    """The indexed column that leaves the fewest documents, if at most FEW."""
    bounds = {**_ranges(tables, where), **{name: [("=", value)] for name, value in _equalities(tables, where)}}
    counts = {name: _count(connection, tables, name, each) for name, each in bounds.items()}
    best = min(counts, key=counts.__getitem__, default=None)
    return best if best is not None and counts[best] <= FEW else None


def _count(connection: apsw.Connection, tables: Tables, name: str, bounds: list[Bound]) -> int:
    within = " AND ".join(f'"{name}" {sign} ?' for sign, _ in bounds)
    rows = f"SELECT 1 FROM {tables.documents} WHERE {within} AND \"{name}\" <> '' LIMIT {FEW + 1}"
    return int(connection.execute(f"SELECT count(*) FROM ({rows})", tuple(value for _, value in bounds)).get)


def _ranges(tables: Tables, where: RecordFilter) -> dict[str, list[Bound]]:
    """Indexed columns that must lie between two texts, with these texts."""
    found: dict[str, list[Bound]] = {}
    for part in _required(where.expression):
        match part:
            case Condition(name, Operator.GTE | Operator.LT as operator, (str(value),)) if name in tables.indexed_texts:
                found.setdefault(name, []).append((">=" if operator is Operator.GTE else "<", value))
    return {name: bounds for name, bounds in found.items() if {sign for sign, _ in bounds} == {">=", "<"}}


def _equalities(tables: Tables, where: RecordFilter) -> Iterator[tuple[str, str]]:
    """Indexed columns, with the text that each must equal."""
    yield from ((name, value) for name, value in zip(SCOPE_FIELDS, scope_values(where.scope), strict=True) if value)
    for part in _required(where.expression):
        match part:
            case Condition(name, Operator.EQ, (str(value),)) if value and name in tables.indexed_texts:
                yield name, value


def _required(expression: Expression | None) -> Iterator[Expression]:
    """The parts that must all match."""
    if isinstance(expression, AllOf):
        for part in expression.parts:
            yield from _required(part)
    elif expression is not None:
        yield expression
