"""What the asyncio client's objects have in common."""

import inspect

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
