"""Services added so that calls find their methods by name."""

from collections.abc import Sequence
from typing import Any

import grpc
from grpc import aio


class GenericServices:
    """Stands in for a server where generated code adds a service to it.

    That code adds each service twice: as a generic handler, which is enough, and method by method. The runtime waits
    with one task for each method that was added by itself, and looks at all of them again for every call: with thirty
    methods, a fifth of what a call costs.
    """

    def __init__(self, server: aio.Server) -> None:
        self._server = server

    def add_generic_rpc_handlers(self, handlers: Sequence[grpc.GenericRpcHandler]) -> None:
        """Adds a service."""
        self._server.add_generic_rpc_handlers(handlers)

    def add_registered_method_handlers(self, service: str, handlers: Any) -> None:
        """Leaves out what would add its methods again."""
