"""The base of the asyncio client's objects."""

import inspect
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from dataclasses import fields
from typing import Any, Generic, TypeVar

import grpc
from google.protobuf.message import Message

from mnemon._arguments import checked
from mnemon._connection import AsyncConnection
from mnemon._status import error_from_call

_Stub = TypeVar("_Stub")
_Request = TypeVar("_Request", bound=Message)
_Response = TypeVar("_Response", bound=Message)


class Stub(Generic[_Stub]):
    """A stub as an attribute of the object that calls it."""

    def __init__(self, kind: Callable[[grpc.aio.Channel], _Stub]) -> None:
        self._kind = kind

    def __get__(self, service: "AsyncService", owner: type) -> _Stub:
        return service._connection.stub(self._kind)


class AsyncService:
    """One service of the server, over the connection of a client. Public methods check the types of arguments."""

    def __init_subclass__(cls) -> None:
        for name, member in list(vars(cls).items()):
            if inspect.isfunction(member) and not name.startswith("_"):
                setattr(cls, name, checked(member))

    def __init__(self, connection: AsyncConnection) -> None:
        self._connection = connection
        self._call = connection.call

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {self._connection.name!r}>"

    async def _items(self, list_page: Callable[..., Any], *args: Any, **chosen: Any) -> AsyncIterator[Any]:
        """The items of all pages, in order: the first field of each."""
        token = ""
        while True:
            page = await list_page(*args, page_token=token, **chosen)
            for item in getattr(page, fields(page)[0].name):
                yield item
            if not (token := page.next_page_token):
                return

    async def _stream(
        self, method: "grpc.aio.UnaryStreamMultiCallable[_Request, _Response]", request: _Request, timeout: float | None
    ) -> AsyncGenerator[_Response, None]:
        """The messages of one call; closing the generator cancels it. Without `timeout`, it has no deadline."""
        await self._connection.authorize()
        stream = method(request, timeout=timeout)
        try:
            async for message in stream:
                yield message
        except grpc.aio.AioRpcError as error:
            raise error_from_call(error, address=self._connection.target.address, timeout=timeout) from error
        finally:
            stream.cancel()
