"""Checks of the shape of the filters that all services share."""

from mnemon.v1 import common_pb2

from mnemon_server.domain.errors import FieldViolation
from mnemon_server.transport.convert.shared.filters import read_filter
from mnemon_server.transport.convert.shared.reader import Reader


def shape_violations(field: str, message: common_pb2.Filter) -> list[FieldViolation]:
    """Why a filter is no expression; empty where it is one."""
    reader = Reader()
    read_filter(reader, field, message)
    return reader.violations
