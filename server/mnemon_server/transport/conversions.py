"""Reads and writes messages off the event loop, where that takes long."""

from collections.abc import Callable
from typing import ParamSpec, TypeVar

from mnemon_server.services.background.offload import Offload

AT_ONCE_BYTES, MEDIUM_BYTES_MAX = 16 << 10, 128 << 10
"""Up to these sizes a message is converted at once, and beside large ones."""

P = ParamSpec("P")
T = TypeVar("T")


class Conversions:
    """Converts messages between bytes, protobuf and JSON: small ones at once, others on a thread, one after another.

    Values take up to thirty times their text, and a thread that computes holds up calls. Large messages have a thread
    of their own, so that others need not wait for them.
    """

    def __init__(self) -> None:
        """Begins no thread yet."""
        self._medium, self._large = Offload(1, "convert"), Offload(1, "convert-large")

    async def __call__(self, size: int, convert: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        """The result of `convert`, or its error, for a message of so many bytes."""
        if size <= AT_ONCE_BYTES:
            return convert(*args, **kwargs)
        return await (self._medium if size <= MEDIUM_BYTES_MAX else self._large)(convert, *args, **kwargs)
