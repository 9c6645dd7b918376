"""Reads the one request of a call here rather than in the runtime, which would wait for it for ever."""

from grpc import aio

from mnemon_server.transport.errors import MalformedMessageError
from mnemon_server.transport.interceptors.base import Exchange, current_call
from mnemon_server.transport.interceptors.time_limit import TimeLimit
from mnemon_server.transport.interceptors.turns import Turns

LATE_MAX, LATE_S = 64, 1.0
"""How many requests at once may take longer than a second to arrive: each can take as much memory as a message may."""


class Receiver:
    """Receives the one request of a call, which to the runtime is a stream of requests.

    A request that does not arrive in time ends its call; until then, the call takes no slot of the limits.
    """

    def __init__(self, *, seconds: float) -> None:
        self._limit = TimeLimit(seconds, crowd=LATE_MAX, crowded_s=LATE_S)
        self._turns = Turns()
        self._late = f"the request did not arrive within {seconds:g} s"

    async def receive(self, context: Exchange) -> bytes:
        """Waits for the turn of the call, and for its request."""
        call = current_call.get()
        call.awaits_request = True
        if (turn := self._turns.take(call.connection)) is not None:
            await turn
        with self._limit.watch(self._late):
            request = await context.read()
        if request is aio.EOF:
            raise MalformedMessageError("the call has no request")
        call.awaits_request = False
        data: bytes = request
        return data
