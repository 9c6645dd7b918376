"""Compiles filters to SQL conditions with the semantics of `domain/filters.py`. Keys and values are always bound."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any

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
    RefersTo,
    fields_of,
    matches,
)
from mnemon_server.domain.records import MetadataValue
from mnemon_server.engines.sqlite.filters.metadata_index import (
    ORDERINGS,
    comparison,
    item_row,
    metadata_ranges,
    metadata_row,
    metadata_rows,
)
from mnemon_server.engines.sqlite.tables import Tables, encode_texts, unusual

# Filters that hold for documents with the usual text of their collection.


def holds_usually(expression: Expression, usual: UsualText) -> bool:
    """Whether a filter compares only the fields of the index, and holds for every document with the usual text."""
    return {*fields_of(expression)} <= {usual.field, *usual.compared} and _truth(expression, usual) is True


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
        case RefersTo():
            return None


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
            case RefersTo():
                return self._refers(expression)

    def _refers(self, expression: RefersTo) -> str:
        own = {field.name: field.type for field in self.tables.collection.fields}
        columns = [f'{self.row}."{name}"' for name in expression.fields]
        others = Tables(expression.collection)
        compiler = replace(self, tables=others, each=True, chosen="", row="r", parameters=[])
        matching = compiler.expression(expression.where)
        named, some = f"VALUES {', '.join(f'({column})' for column in columns)}", _ALWAYS
        if own[expression.fields[0]] is FieldType.TEXTS:
            [column] = columns
            # Most lists are empty.
            named, some = f"SELECT value FROM json_each({column})", f"{column} <> '[]'"
        further = (
            f"SELECT j.value FROM named JOIN {others.documents} AS n ON n.id = named.id,"
            f' json_each(n."{expression.via}") AS j'
        )
        found = f"SELECT 1 FROM named CROSS JOIN {others.documents} AS r ON r.id = named.id WHERE {matching}"
        every = f"WITH RECURSIVE named(id) AS ({named} UNION {further}) {found}"
        return self.bind(f"({some} AND EXISTS ({every}))", *compiler.parameters)

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
        """Matches by a set of positions: few have expired, and another index serves the rest of the filter."""
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
