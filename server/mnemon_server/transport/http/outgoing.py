"""Outgoing data of a connection: the head of an answer leaves together with its body, in one call of the system."""

import asyncio
from typing import Any


class Outgoing:
    """The transport of a connection, which can hold back what is written. A client then wakes up once, not twice."""

    def __init__(self, transport: asyncio.Transport) -> None:
        self._transport = transport
        self._held: list[bytes] | None = None

    def __getattr__(self, name: str) -> Any:
        """Everything else is that of the transport itself."""
        return getattr(self._transport, name)

    def hold(self) -> None:
        """From now on, holds back what is written."""
        if self._held is None:
            self._held = []

    def release(self) -> None:
        """Sends what was held back."""
        held, self._held = self._held, None
        if held:
            self._transport.writelines(held)

    def write(self, data: bytes) -> None:
        """Sends it, or holds it back."""
        if self._held is None:
            self._transport.write(data)
        else:
            self._held.append(data)

    def close(self) -> None:
        """Sends what was held back, then closes."""
        self.release()
        self._transport.close()
