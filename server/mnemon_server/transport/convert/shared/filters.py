"""Conversion of filters that clients send."""

from collections.abc import Mapping

from mnemon.v1 import common_pb2 as pb

from mnemon_server.domain.filters import DEPTH_MAX, AllOf, AnyOf, Condition, Expression, Negation, Operator
from mnemon_server.wire.values import value_from_pb

OPERATORS: Mapping[int, Operator] = {
    pb.FilterOperator.Value(f"FILTER_OPERATOR_{operator.name}"): operator for operator in Operator
}


def expression_from_pb(message: pb.Filter, *, levels: int = DEPTH_MAX) -> Expression:
    """The filter as an expression; `checks.filters` has found nothing wrong with it.

    Raises:
        ValueError: it is deeper than `levels`, or a part of it is unset.
    """
    if levels == 0:
        raise ValueError("the filter was not checked")
    match message.WhichOneof("kind"):
        case "condition":
            return _condition_from_pb(message.condition)
        case "all_of":
            return AllOf(tuple(expression_from_pb(part, levels=levels - 1) for part in message.all_of.filters))
        case "any_of":
            return AnyOf(tuple(expression_from_pb(part, levels=levels - 1) for part in message.any_of.filters))
        case "not":
            return Negation(expression_from_pb(negated(message), levels=levels - 1))
        case _:
            raise ValueError("the filter was not checked")


def negated(message: pb.Filter) -> pb.Filter:
    """What a negation is about; its field has the name of a Python keyword."""
    part: pb.Filter = getattr(message, "not")
    return part


def _condition_from_pb(message: pb.Condition) -> Condition:
    values = (value_from_pb(value) for value in message.values)
    return Condition(message.field, OPERATORS[message.operator], tuple(value for value in values if value is not None))
