"""A method that does not exist is an error with a reason, like any other."""

from collections.abc import AsyncIterator, Collection
from difflib import get_close_matches
from typing import Any, NoReturn

import grpc

from mnemon_server.transport.errors import UnimplementedError
from mnemon_server.transport.interceptors.base import Exchange

_PATH_CHARACTERS_MAX = 120
"""A longer path is like no other, and takes long to compare."""
_LIKENESS_MIN = 0.8


class UnknownMethods(grpc.GenericRpcHandler):
    """Answers what no service answers; to be registered last."""

    def __init__(self, paths: Collection[str]) -> None:
        """`paths` are those of the methods that there are."""
        self._paths = paths

    def service(self, handler_call_details: grpc.HandlerCallDetails) -> Any:
        """A handler that takes any kind of call and refuses it."""
        path = handler_call_details.method

        async def refuse(requests: AsyncIterator[bytes], context: Exchange) -> NoReturn:
            raise UnimplementedError(f"this server has no such method{self._meant(path)}")

        return grpc.stream_unary_rpc_method_handler(refuse)

    def _meant(self, path: str) -> str:
        near = (
            get_close_matches(path, self._paths, n=1, cutoff=_LIKENESS_MIN) if len(path) <= _PATH_CHARACTERS_MAX else []
        )
        return "".join(f"; did you mean {each}?" for each in near)
