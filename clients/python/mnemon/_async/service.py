"""The base of the asyncio client's objects."""

import inspect
from collections.abc import AsyncIterator, Callable
from dataclasses import fields
from typing import Any

from mnemon._arguments import checked
from mnemon._connection import AsyncConnection


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
