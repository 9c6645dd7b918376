"""Adds services so that a call finds its method by name."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import grpc


@dataclass(frozen=True, slots=True)
class _Details:
    """The details with which a service is asked for its handler of a method."""

    method: str
    invocation_metadata: tuple[()] = ()


class GenericServices:
    """Stands in for a server where generated code adds a service to it, and finds what was added.

    That code adds each service twice: as a generic handler, which is enough, and method by method. For each method that
    is added by itself, the runtime keeps a waiting task, and goes through all of them for every call. With thirty
    methods, that is a fifth of what a call costs.
    """

    def __init__(self) -> None:
        """Has no service yet."""
        self._handlers: list[grpc.GenericRpcHandler] = []

    def add_generic_rpc_handlers(self, handlers: Sequence[grpc.GenericRpcHandler]) -> None:
        """Adds a service."""
        self._handlers += handlers

    def add_registered_method_handlers(self, service: str, handlers: Any) -> None:
        """Leaves out what would add its methods again."""

    def find(self, path: str) -> Any:
        """The handler of a method, as gRPC would find it; None if no service has it."""
        asked: Any = _Details(path)
        return next((found for each in self._handlers if (found := each.service(asked)) is not None), None)
