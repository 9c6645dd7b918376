"""Filters that hold for documents with the usual text of their collection."""

from collections.abc import Iterable

from mnemon_server.domain.collections import UsualText
from mnemon_server.domain.filters import AllOf, AnyOf, Condition, Expression, NoneOf, matches


def holds_usually(expression: Expression, usual: UsualText) -> bool:
    """Whether a filter compares only the fields of the index, and holds for every document with the usual text."""
    return _fields(expression) <= {usual.field, *usual.compared} and _truth(expression, usual) is True


def _fields(expression: Expression) -> set[str]:
    if isinstance(expression, Condition):
        return {expression.field}
    return {field for part in expression.parts for field in _fields(part)}


def _truth(expression: Expression, usual: UsualText) -> bool | None:
    """What a filter says of documents with the usual text; None if that depends on other fields."""
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
