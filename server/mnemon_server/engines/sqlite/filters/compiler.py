"""Filters as SQL, with the semantics of `domain/filters.py`: conditions with bound values, and the index to read."""

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any

import apsw
import numpy as np

from mnemon_server.domain.clock import to_microseconds
from mnemon_server.domain.collections import COMMON_FIELDS, FieldType, UsualText
from mnemon_server.domain.encoding import SCOPE_FIELDS, encode_metadata, scope_values
from mnemon_server.domain.filters import (
    METADATA_PREFIX,
    OPPOSITES,
    AllOf,
    AnyOf,
    Condition,
    Expression,
    NoneOf,
    Operator,
    RecordFilter,
    matches,
)
from mnemon_server.domain.records import MetadataValue
from mnemon_server.engines.promises.values import PassageIds
from mnemon_server.engines.sqlite.filters.metadata_index import (
    ORDERINGS,
    comparison,
    item_row,
    metadata_ranges,
    metadata_row,
    metadata_rows,
)
from mnemon_server.engines.sqlite.passage_map import PassageMap
from mnemon_server.engines.sqlite.query import fetch, id_array, ids_from_text
from mnemon_server.engines.sqlite.tables import Tables, encode_texts, unusual

# Filters that hold for documents with the usual text of their collection.


def holds_usually(expression: Expression, usual: UsualText) -> bool:
    """Whether a filter compares only the fields of the index, and holds for every document with the usual text."""
    return _fields(expression) <= {usual.field, *usual.compared} and _truth(expression, usual) is True


def _fields(expression: Expression) -> set[str]:
    if isinstance(expression, Condition):
        return {expression.field}
    return {field for part in expression.parts for field in _fields(part)}


def _truth(expression: Expression, usual: UsualText) -> bool | None:
    """A filter's result for documents with the usual text; None if it depends on other fields."""
    match expression:
        case Condition(field):
            return matches(expression, lambda _: usual.value) if field == usual.field else None
        case AllOf(parts):
            return _negated(_any(_negated(_truth(part, usual)) for part in parts))
        case AnyOf(parts):
            return _any(_truth(part, usual) for part in parts)
        case NoneOf(parts):
            return _negated(_any(_truth(part, usual) for part in parts))


def _any(truths: Iterable[bool | None]) -> bool | None:
    known = {*truths}
    return True if True in known else None if None in known else False


def _negated(truth: bool | None) -> bool | None:  # noqa: FBT001 - a truth value of three
    return None if truth is None else not truth


# ruff: noqa: S608 - table and column names are constants; all input is bound

_TIMES = ("create_time", "update_time")
_LOWER_BOUNDS = (Operator.GT, Operator.GTE)
_NEVER, _ALWAYS = "0", "1"


def compile_filter(
    tables: Tables, where: RecordFilter, *, each: bool = False, chosen: str | None = None, ranges: bool = True
) -> tuple[str, list[Any]]:
    """An SQL condition on the documents table, named `d`, and its parameters.

    Set `each` if few rows are checked one by one; otherwise metadata indexes may select the rows. `chosen` names the
    text column whose index is to select the rows. Without `ranges`, ranges of texts do not use an index.
    """
    compiler = _Compiler(tables, each=each, chosen=chosen, ranges=ranges)
    conditions = [_visibility(where.hidden)] if where.hidden is not None else []
    for name, value in zip(SCOPE_FIELDS, scope_values(where.scope), strict=True):
        if value:
            conditions.append(compiler.text_among(name, [value]))
    conditions += [compiler.required(part) for part in required_parts(*where.parts)]
    return " AND ".join(conditions) or _ALWAYS, compiler.parameters


def required_parts(*expressions: Expression) -> Iterator[Expression]:
    """The smallest parts of the expressions that must all match."""
    for expression in expressions:
        if isinstance(expression, AllOf):
            yield from required_parts(*expression.parts)
        else:
            yield expression


def _visibility(hidden: bool) -> str:  # noqa: FBT001 - the condition is named by its value
    return f"d.hidden = {int(hidden)}"


@dataclass(slots=True)
class _Compiler:
    """Every method returns a condition that is true or false, never NULL, and collects its parameters in order."""

    tables: Tables
    each: bool
    chosen: str | None
    ranges: bool
    row: str = "d"
    """The name of the row whose columns are compared."""
    parameters: list[Any] = field(default_factory=list)

    def bind(self, condition: str, *values: Any) -> str:
        self.parameters += values
        return condition

    def required(self, part: Expression) -> str:
        """A part of the filter that must hold."""
        usual, tables = self.tables.collection.usual, self.tables
        if usual is None or not holds_usually(part, usual):
            return self.expression(part)
        # Only documents without the usual text can fail to match, and their index has all that is compared.
        compiler = replace(self, each=True, chosen="", row="u", parameters=[])
        failing = f"u.{unusual(usual)} AND u.position = d.position AND NOT {compiler.expression(part)}"
        index = f"{tables.documents} AS u INDEXED BY {tables.unusual_index}"
        return self.bind(f"NOT EXISTS (SELECT 1 FROM {index} WHERE {failing})", *compiler.parameters)

    def expression(self, expression: Expression) -> str:
        match expression:
            case AllOf(parts):
                return self._joined(" AND ", parts, _ALWAYS)
            case AnyOf(parts):
                return self._joined(" OR ", parts, _NEVER)
            case NoneOf(parts):
                return f"NOT {self._joined(' OR ', parts, _NEVER)}"
            case Condition(name, operator, values) if operator in OPPOSITES:
                return f"NOT {self._condition(name, OPPOSITES[operator], values)}"
            case Condition(name, operator, values):
                return self._condition(name, operator, values)

    def _joined(self, operator: str, parts: Sequence[Expression], empty: str) -> str:
        return f"({operator.join(self.expression(part) for part in parts)})" if parts else empty

    def _condition(self, name: str, operator: Operator, values: tuple[MetadataValue, ...]) -> str:
        if name.startswith(METADATA_PREFIX):
            return self._metadata(name.removeprefix(METADATA_PREFIX), operator, values)
        own = {field.name: field.type for field in self.tables.collection.fields}
        if name not in own and name not in COMMON_FIELDS:
            return self._absent(operator, values)
        kind = own.get(name, FieldType.TIME if name in _TIMES else FieldType.TEXT)
        if kind is FieldType.TEXT:
            return self._text(name, operator, values)
        if kind is FieldType.TEXTS:
            return self._texts(f'{self.row}."{name}"', operator, values)
        if name == self.tables.collection.expires and operator in (Operator.LT, Operator.LTE) and not self.each:
            return self._ended(f'"{name}"', operator, values[0])
        return self._nullable(f'{self.row}."{name}"', kind, operator, values)

    def _absent(self, operator: Operator, values: tuple[MetadataValue, ...]) -> str:
        return _ALWAYS if operator is Operator.EXISTS and values[0] is False else _NEVER

    # Columns

    def _text(self, name: str, operator: Operator, values: tuple[MetadataValue, ...]) -> str:
        column = f'{self.row}."{name}"'
        if operator is Operator.EXISTS:
            return f"{column} <> ''" if values[0] else f"{column} = ''"
        texts = [value for value in values if isinstance(value, str)]
        if not texts:
            return _NEVER
        if operator is Operator.CONTAINS:
            return self.bind(f"instr({column}, ?) > 0", texts[0])
        if operator in ORDERINGS:
            return self._text_ordered(name, operator, texts[0])
        return self.text_among(name, texts)

    def _text_ordered(self, name: str, operator: Operator, text: str) -> str:
        ordered = self.bind(f"{self._indexed(name, self.ranges)} {ORDERINGS[operator]} ?", text)
        # A text above a lower bound is not empty. SQLite uses the index only if the condition says so.
        return f"({ordered} AND {self.row}.\"{name}\" <> '')" if operator in _LOWER_BOUNDS and text else ordered

    def _indexed(self, name: str, may_choose: bool) -> str:  # noqa: FBT001 - what it says is what it takes
        """A text column. A unary plus prevents the use of its index."""
        return f'{"" if may_choose and self.chosen in (None, name) else "+"}{self.row}."{name}"'

    def text_among(self, name: str, texts: list[str]) -> str:
        """The indexes exclude empty texts, so SQLite uses them only if the condition excludes them too."""
        column = self._indexed(name, may_choose=True)
        parts = [f"{column} = ''"] if "" in texts else []
        if wanted := [text for text in texts if text]:
            compared, parameter = comparison(wanted)
            parts.append(self.bind(f"({column} {compared} AND {column} <> '')", parameter))
        return f"({' OR '.join(parts)})"

    def _nullable(self, column: str, kind: FieldType, operator: Operator, values: tuple[MetadataValue, ...]) -> str:
        if operator is Operator.EXISTS:
            return f"{column} IS NOT NULL" if values[0] else f"{column} IS NULL"
        stored = [metadata_row(value)[1] for value in values if _is_of(kind, value)]
        if not stored or operator is Operator.CONTAINS:
            return _NEVER
        if operator in ORDERINGS:
            return self.bind(f"({column} IS NOT NULL AND {column} {ORDERINGS[operator]} ?)", stored[0])
        return f"({column} IS NOT NULL AND {self._among(column, stored)})"

    def _ended(self, column: str, operator: Operator, value: MetadataValue) -> str:
        """As a set, because few documents have expired. Another index can then serve the rest of the filter."""
        if not isinstance(value, datetime):
            return _NEVER
        ended = f"SELECT position FROM {self.tables.documents} WHERE {column} IS NOT NULL AND {column}"
        return self.bind(f"d.position IN ({ended} {ORDERINGS[operator]} ?)", to_microseconds(value))

    def _texts(self, column: str, operator: Operator, values: tuple[MetadataValue, ...]) -> str:
        if operator is Operator.EXISTS:
            return f"{column} <> '[]'" if values[0] else f"{column} = '[]'"
        if operator is Operator.CONTAINS:
            items = f"EXISTS (SELECT 1 FROM json_each({column}) WHERE value = ?)"
            return self.bind(items, values[0]) if isinstance(values[0], str) else _NEVER
        lists = [encode_texts(value) for value in values if isinstance(value, tuple)]
        return self._among(column, lists) if lists and operator not in ORDERINGS else _NEVER

    def _among(self, column: str, values: Sequence[Any]) -> str:
        groups: dict[type, list[Any]] = {}
        for value in values:
            # Integers and floats in one array would all become floats and lose digits.
            groups.setdefault(type(value), []).append(value)
        parts = []
        for wanted in groups.values():
            compared, parameter = comparison(wanted)
            parts.append(self.bind(f"{column} {compared}", parameter))
        return f"({' OR '.join(parts)})"

    # Metadata

    def _metadata(self, key: str, operator: Operator, values: tuple[MetadataValue, ...]) -> str:
        if operator is Operator.EXISTS:
            there = self._in_metadata("key = ? AND NOT (type = 'text' AND value = '')", key)
            return there if values[0] else f"NOT {there}"
        if operator is Operator.CONTAINS:
            return self._metadata_contains(key, values[0]) if isinstance(values[0], str) else _NEVER
        ranges = metadata_ranges(key, operator, values)
        if ranges is None:
            return self._metadata_text_ordered(key, ORDERINGS[operator], values[0])
        parts = [self._in_metadata(condition, *parameters) for condition, parameters in ranges]
        parts += [self._metadata_list(key, value) for value in values if isinstance(value, tuple)]
        return f"({' OR '.join(parts)})" if parts else _NEVER

    def _metadata_text_ordered(self, key: str, sign: str, text: MetadataValue) -> str:
        short = self._in_metadata(f"key = ? AND type = 'text' AND value {sign} ?", key, text)
        return f"({short} OR {self._in_long_text(key, f'value {sign} ?', text)})"

    def _metadata_contains(self, key: str, part: str) -> str:
        short = self._in_metadata("key = ? AND type = 'text' AND instr(value, ?) > 0", key, part)
        item = self._in_metadata("key = ? AND type = ? AND value = ?", key, *item_row(part))
        return f"({short} OR {item} OR {self._in_long_text(key, 'instr(value, ?) > 0', part)})"

    def _metadata_list(self, key: str, value: tuple[str, ...]) -> str:
        """The metadata index has the items of a list, but not their order."""
        kind, first = metadata_rows(value)[0]
        likely = self._in_metadata("key = ? AND type = ? AND value = ?", key, kind, first)
        same = "key = ? AND type = 'array' AND value = json_extract(?, '$.list')"
        return self.bind(
            f"({likely} AND EXISTS (SELECT 1 FROM json_each(d.metadata) WHERE {same}))",
            key,
            encode_metadata({"list": value}),
        )

    def _in_metadata(self, condition: str, *parameters: Any) -> str:
        """Documents with a row in the metadata index that matches a condition."""
        table = self.tables.metadata
        if self.each:
            return self.bind(
                f"EXISTS (SELECT 1 FROM {table} AS m WHERE m.position = d.position AND {condition})",
                *parameters,
            )
        return self.bind(f"d.position IN (SELECT position FROM {table} WHERE {condition})", *parameters)

    def _in_long_text(self, key: str, condition: str, *parameters: Any) -> str:
        """Documents whose text under a key is too long for the index and matches a condition."""
        long = self._in_metadata("key = ? AND type = 'digest'", key)
        text = f"EXISTS (SELECT 1 FROM json_each(d.metadata) WHERE key = ? AND type = 'text' AND {condition})"
        return self.bind(f"({long} AND {text})", key, *parameters)


def _is_of(kind: FieldType, value: MetadataValue) -> bool:
    match value:
        case bool():
            return kind is FieldType.BOOLEAN
        case int() | float():
            return kind is FieldType.NUMBER
        case _:
            return kind is FieldType.TIME and isinstance(value, datetime)


# ruff: noqa: S608 - table and column names are constants; all input is bound

BOUNDS = (2_000, 16_000, 128_000)
"""The number of documents up to which an index range is counted before the next ranges are."""

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
        condition = f"{condition} AND {_indexed_visibility(tables, None if hidden_too else where.hidden)}"
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


def _indexed_visibility(tables: Tables, hidden: bool | None) -> str:  # noqa: FBT001 - as in RecordFilter
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
        if value:
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
