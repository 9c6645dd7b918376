"""Slows down connections that keep cancelling calls, so that these do not take the time of others."""

import asyncio

PER_SECOND = 500
"""How many cancelled calls of a connection end in a second: a tenth of what a processor can do."""
AT_ONCE = 64
"""How many may end at once without a delay. An ordinary client rarely cancels more."""
OTHERS_S = 1.0
"""A connection is alone if no call of another one was answered for that long, in seconds."""
_CONNECTIONS_MAX = 1000


class Cancellations:
    """Keeps a cancelled call for a while if its connection has cancelled many, and is not alone.

    The runtime counts a stream until its call has ended in Python, and refuses further ones of the connection at little
    cost, before they reach Python. So a client that opens and resets streams runs out of them.

    Belongs to one event loop.
    """

    def __init__(self) -> None:
        self._due: dict[str, float] = {}
        """When each connection has made up for its cancelled calls, in seconds of the event loop."""
        self._answered = self._answered_before = ("", 0.0)
        """The last connection that got an answer, and the last other one; and when."""

    def note_answer(self, connection: str) -> None:
        """A call of the connection has been answered."""
        if connection != self._answered[0]:
            self._answered_before = self._answered
        self._answered = connection, asyncio.get_running_loop().time()

    async def wait(self, connection: str) -> None:
        """Returns when a cancelled call of the connection may end."""
        now = asyncio.get_running_loop().time()
        other, answered = self._answered if self._answered[0] != connection else self._answered_before
        if not other or now - answered > OTHERS_S:
            return
        if len(self._due) > _CONNECTIONS_MAX:
            self._due = {each: due for each, due in self._due.items() if due > now}
        due = self._due[connection] = max(now, self._due.get(connection, now)) + 1 / PER_SECOND
        if (delay_s := due - now - AT_ONCE / PER_SECOND) > 0:
            await asyncio.sleep(delay_s)
