"""The part of a watch that both clients share: its position, what it has handed out, and retries."""

import random
from collections.abc import Iterator

from mnemon._authorization import Credential
from mnemon._messages.changes import change_from_pb
from mnemon._status import StreamLostError, is_busy
from mnemon._values import feed as changes
from mnemon.shared.errors import (
    CallCancelledError,
    DeadlineExceededError,
    InternalError,
    ServerUnreachableError,
    UnavailableError,
)
from mnemon.v1 import changes_pb2 as pb

SILENT_INTERVALS = 2.5
"""After this many heartbeat intervals without a message, the server or the connection is lost."""
FIRST_ATTEMPTS_MAX = 4
PAUSE_FIRST_S, PAUSE_MAX_S = 0.1, 5.0

# Refusals that a retry can overcome.
_PASSING = ("SLOW_READER", "TOO_MANY_VAULTS")

# How a proxy or a broken connection ends a stream; a server would give a reason.
_BROKEN = (UnavailableError, CallCancelledError, DeadlineExceededError, InternalError)


class Progress:
    """The progress of a watch over all its streams.

    A watch that was never confirmed is tried four times, so that a wrong address is reported within a second. A
    confirmed one resumes behind the last message, however long that takes.
    """

    def __init__(
        self, request: pb.WatchChangesRequest, *, answer_within_s: float | None, credential: Credential | None = None
    ) -> None:
        self._credential, self._is_renewed = credential or Credential(), False
        self.request = request
        """The next stream's."""
        self.cursor = request.cursor
        """Everything up to here has been handed out."""
        self.caught_up = False
        """Whether the end of the log was reached at the last look."""
        self.silence_s = answer_within_s
        """The longest wait for the next message; None waits for ever."""
        self._answer_within_s = answer_within_s
        self._sequence = 0
        self._failures = 0
        self.confirmed = False
        """Whether a server has said that it watches."""

    def opened(self) -> None:
        """A new stream begins."""
        self.silence_s = self._answer_within_s

    def received(self, message: pb.WatchChangesResponse) -> Iterator[changes.Change]:
        """Takes a message, and yields each of its changes once. Read it to the end before the next message."""
        # The message is complete, so a stream that breaks now resumes behind it.
        self.request.cursor = message.cursor
        self._failures, self._is_renewed = 0, False
        match message.WhichOneof("payload"):
            case "started":
                self.confirmed = True
                self.silence_s = message.started.heartbeat_interval.ToTimedelta().total_seconds() * SILENT_INTERVALS
                self.cursor = message.cursor
            case "batch":
                return self._handed_out(message)
            case "progress":
                self.cursor, self.caught_up = message.cursor, message.progress.caught_up
        return iter(())

    def pause_after(self, lost: StreamLostError) -> float:
        """Seconds to wait before the next stream. Raises the error if there is no next stream."""
        error = lost.error
        if not self._is_renewed and self._credential.may_renew(error.reason):
            self._is_renewed = True
            return 0.0
        self._failures += 1
        broken = isinstance(error, _BROKEN) and (not error.reason or isinstance(error, UnavailableError))
        again = broken or is_busy(error) or error.reason in _PASSING
        if not again or (not self.confirmed and self._failures >= FIRST_ATTEMPTS_MAX):
            raise error from lost
        pause_s = min(PAUSE_FIRST_S * 2.0 ** min(self._failures - 1, 10), PAUSE_MAX_S)
        # Watchers that lost the same server must not reconnect all at once.
        return max(error.retry_after or 0.0, pause_s * random.uniform(0.75, 1.25))  # noqa: S311

    def _handed_out(self, message: pb.WatchChangesResponse) -> Iterator[changes.Change]:
        batch = message.batch
        last = len(batch.changes) - 1
        for index, change in enumerate(batch.changes):
            if change.sequence > self._sequence:
                self._sequence = change.sequence
                if index == last:
                    self.cursor, self.caught_up = message.cursor, batch.caught_up
                yield change_from_pb(change)
        self.cursor, self.caught_up = message.cursor, batch.caught_up


def silent(address: str, silence_s: float | None) -> StreamLostError:
    """The server has fallen silent."""
    return StreamLostError(ServerUnreachableError(f"{address} has said nothing for {silence_s or 0:g} s"))


def ended(address: str) -> StreamLostError:
    """A stream ended in order, although a watch has no end."""
    return StreamLostError(ServerUnreachableError(f"{address} ended the watch"))
