# Generated from _async/service.py by `make generate`: change that file instead.
"""What the asyncio client's objects have in common."""

from mnemon._connection import Connection


class Service:
    """One service of the server, over the connection of a client."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._call = connection.call

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {self._connection.name!r}>"
