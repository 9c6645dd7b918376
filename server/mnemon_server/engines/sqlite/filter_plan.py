"""Which index answers a filter: chosen by counting, since the planner keeps no statistics.

Where a scope or another indexed text, or a range of it, leaves few documents, these are read and everything else is
checked on each of them. Else whatever the planner takes is as good as another, and conditions on metadata are answered
as sets; but where documents are wanted by position, a range that leaves many would have them all sorted first.
"""

from collections.abc import Iterator
from typing import Any

import apsw

from mnemon_server.domain.encoding import SCOPE_FIELDS, scope_values
from mnemon_server.domain.filters import AllOf, Condition, Expression, Operator, RecordFilter
from mnemon_server.engines.sqlite.filters import compile_filter
from mnemon_server.engines.sqlite.tables import Tables

# ruff: noqa: S608 - names of tables and columns are constants of the program; whatever was sent is bound

FEW = 2_000

Bound = tuple[str, str]
"""A sign of comparison, and a text."""


def prepare_filter(
    connection: apsw.Connection, tables: Tables, where: RecordFilter, *, by_position: bool = False
) -> tuple[str, list[Any]]:
    """A condition on the rows of the documents' table, named `d`, and its parameters."""
    chosen = _most_telling(connection, tables, where)
    is_few = chosen is not None
    return compile_filter(tables, where, each=is_few, chosen=chosen, ranges=is_few or not by_position)


def _most_telling(connection: apsw.Connection, tables: Tables, where: RecordFilter) -> str | None:
    """The indexed column that leaves the fewest documents, where these are few."""
    bounds = {**_ranges(tables, where), **{name: [("=", value)] for name, value in _equalities(tables, where)}}
    counts = {name: _count(connection, tables, name, each) for name, each in bounds.items()}
    best = min(counts, key=counts.__getitem__, default=None)
    return best if best is not None and counts[best] <= FEW else None


def _count(connection: apsw.Connection, tables: Tables, name: str, bounds: list[Bound]) -> int:
    within = " AND ".join(f'"{name}" {sign} ?' for sign, _ in bounds)
    rows = f"SELECT 1 FROM {tables.documents} WHERE {within} AND \"{name}\" <> '' LIMIT {FEW + 1}"
    return int(connection.execute(f"SELECT count(*) FROM ({rows})", tuple(value for _, value in bounds)).get)


def _ranges(tables: Tables, where: RecordFilter) -> dict[str, list[Bound]]:
    """Indexed columns that must lie between two texts, and these."""
    found: dict[str, list[Bound]] = {}
    for part in _required(where.expression):
        match part:
            case Condition(name, Operator.GTE | Operator.LT as operator, (str(value),)) if name in tables.indexed_texts:
                found.setdefault(name, []).append((">=" if operator is Operator.GTE else "<", value))
    return {name: bounds for name, bounds in found.items() if {sign for sign, _ in bounds} == {">=", "<"}}


def _equalities(tables: Tables, where: RecordFilter) -> Iterator[tuple[str, str]]:
    """Indexed columns, and the text that each must have."""
    yield from ((name, value) for name, value in zip(SCOPE_FIELDS, scope_values(where.scope), strict=True) if value)
    for part in _required(where.expression):
        match part:
            case Condition(name, Operator.EQ, (str(value),)) if value and name in tables.indexed_texts:
                yield name, value


def _required(expression: Expression | None) -> Iterator[Expression]:
    """The parts that must all hold."""
    if isinstance(expression, AllOf):
        for part in expression.parts:
            yield from _required(part)
    elif expression is not None:
        yield expression
