"""Which index answers a filter: chosen by counting, since the planner keeps no statistics.

Where a scope or another indexed text leaves few documents, these are read and everything else is checked on each of
them. Else whatever the planner takes is as good as another, and conditions on metadata are answered as sets.
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


def prepare_filter(connection: apsw.Connection, tables: Tables, where: RecordFilter) -> tuple[str, list[Any]]:
    """A condition on the rows of the documents' table, named `d`, and its parameters."""
    chosen = _most_telling(connection, tables, where)
    return compile_filter(tables, where, each=chosen is not None, chosen=chosen)


def _most_telling(connection: apsw.Connection, tables: Tables, where: RecordFilter) -> str | None:
    """The indexed column that leaves the fewest documents, where these are few."""
    counts = {name: _count(connection, tables, name, value) for name, value in _equalities(tables, where)}
    best = min(counts, key=counts.__getitem__, default=None)
    return best if best is not None and counts[best] <= FEW else None


def _count(connection: apsw.Connection, tables: Tables, name: str, value: str) -> int:
    rows = f'SELECT 1 FROM {tables.documents} WHERE "{name}" = ? AND "{name}" <> \'\' LIMIT {FEW + 1}'
    return int(connection.execute(f"SELECT count(*) FROM ({rows})", (value,)).get)


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
