"""A method that does not exist is an error with a reason, like any other."""

from collections.abc import AsyncIterator, Collection
from typing import Any, NoReturn

import grpc
from rapidfuzz import fuzz, process

from mnemon_server.transport.errors import UnimplementedError
from mnemon_server.transport.interceptors.base import Exchange

_PATH_CHARACTERS_MAX = 120
"""Longer paths are not compared: they resemble no method."""
_LIKENESS_MIN = 80


class UnknownMethods(grpc.GenericRpcHandler):
    """Answers what no service answers; to be registered last."""

    def __init__(self, paths: Collection[str]) -> None:
        """`paths` are the paths of all methods."""
        self._paths = paths

    def service(self, handler_call_details: grpc.HandlerCallDetails) -> Any:
        """A handler that takes any kind of call and refuses it."""
        path = handler_call_details.method

        async def refuse(requests: AsyncIterator[bytes], context: Exchange) -> NoReturn:
            raise UnimplementedError(f"this server has no such method{self._meant(path)}")

        return grpc.stream_unary_rpc_method_handler(refuse)

    def _meant(self, path: str) -> str:
        if len(path) > _PATH_CHARACTERS_MAX:
            return ""
        near = process.extractOne(path, self._paths, scorer=fuzz.ratio, score_cutoff=_LIKENESS_MIN)
        return f"; did you mean {near[0]}?" if near else ""
