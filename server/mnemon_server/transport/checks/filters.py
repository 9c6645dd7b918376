"""Checks of the shape of the filters that all services share, so that none is walked deeper than is allowed.

What the parts of a filter may say depends on the service, which checks it itself.
"""

from collections.abc import Iterator

from mnemon.v1 import common_pb2

from mnemon_server.domain.errors import FieldViolation
from mnemon_server.domain.filters import DEPTH_MAX, PARTS_MAX, VALUES_MAX
from mnemon_server.transport.convert.shared.filters import OPERATORS, negated
from mnemon_server.transport.convert.shared.reading import unknown, value_violations


def shape_violations(field: str, message: common_pb2.Filter) -> list[FieldViolation]:
    """Why a filter is no expression; empty where it is one."""
    walk = _Walk()
    found = [*walk.part(field, message, levels=DEPTH_MAX)]
    return [FieldViolation(field, walk.exceeded)] if walk.exceeded else found


class _Walk:
    """Goes through a filter part by part, and no further than its limits."""

    def __init__(self) -> None:
        self.exceeded = ""
        """The limit that the filter as a whole exceeds; empty where it exceeds none."""
        self._parts_left = PARTS_MAX

    def part(self, path: str, message: common_pb2.Filter, *, levels: int) -> Iterator[FieldViolation]:
        """What is wrong with the part at `path`, which may have so many levels."""
        self._parts_left -= 1
        if levels == 0:
            self.exceeded = f"must be at most {DEPTH_MAX} levels deep"
        elif self._parts_left < 0:
            self.exceeded = f"must have at most {PARTS_MAX} parts"
        if self.exceeded:
            return
        match message.WhichOneof("kind"):
            case "condition":
                yield from _condition_violations(f"{path}.condition", message.condition)
            case "all_of":
                yield from self._parts(f"{path}.all_of.filters", message.all_of, levels=levels - 1)
            case "any_of":
                yield from self._parts(f"{path}.any_of.filters", message.any_of, levels=levels - 1)
            case "not":
                yield from self.part(f"{path}.not", negated(message), levels=levels - 1)
            case _:
                yield FieldViolation(path, "must be set: all_of, any_of, not or condition")

    def _parts(self, path: str, message: common_pb2.FilterList, *, levels: int) -> Iterator[FieldViolation]:
        if not message.filters:
            yield FieldViolation(path, "must have at least one part")
        for index, part in enumerate(message.filters):
            if self.exceeded:
                return
            yield from self.part(f"{path}[{index}]", part, levels=levels)


def _condition_violations(path: str, message: common_pb2.Condition) -> Iterator[FieldViolation]:
    yield from unknown(f"{path}.operator", message.operator, OPERATORS)
    if len(message.values) > VALUES_MAX:
        yield FieldViolation(f"{path}.values", f"must be at most {VALUES_MAX}")
        return
    for index, value in enumerate(message.values):
        yield from value_violations(f"{path}.values[{index}]", value)
