"""A method that does not exist is an error with a reason, like any other."""

from collections.abc import AsyncIterator
from typing import Any, NoReturn

import grpc

from mnemon_server.transport.errors import UnimplementedError
from mnemon_server.transport.interceptors.base import Exchange


class UnknownMethods(grpc.GenericRpcHandler):
    """Answers what no service answers; to be registered last."""

    def service(self, handler_call_details: grpc.HandlerCallDetails) -> Any:
        """A handler that takes any kind of call and refuses it."""
        return grpc.stream_unary_rpc_method_handler(_refuse)


async def _refuse(requests: AsyncIterator[bytes], context: Exchange) -> NoReturn:
    raise UnimplementedError("this server has no such method")
