"""What the asyncio client's objects have in common."""

from mnemon._connection import AsyncConnection


class AsyncService:
    """One service of the server, over the connection of a client."""

    def __init__(self, connection: AsyncConnection) -> None:
        self._connection = connection
        self._call = connection.call

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {self._connection.name!r}>"
