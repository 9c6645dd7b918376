"""The attempts of one call: the time left for them, and when a refused one is repeated."""

import random
import time

import grpc

from mnemon._channel import Target
from mnemon._status import error_from_call, is_busy, late
from mnemon.shared.errors import DeadlineExceededError

CALLS_IN_FLIGHT_MAX = 64
"""Single calls of a client in flight at the same time; the others wait.

By default, the server refuses more than 448 from one connection, fewer when other connections have many, and resets
more than 512 with streams included. Streams are not counted here, because they would hold their places for as long as
they are read. The server limits them separately.
"""
# As for calls that the channel repeats, in service_config.json.
_BACKOFF_S, _BACKOFF_S_MAX = 0.1, 1.0


class Attempts:
    """One call: its deadline includes waiting for its place, and every attempt."""

    def __init__(self, target: Target, timeout: float | None) -> None:
        self._address = target.address
        self._limit_s = target.time_limit(timeout)
        self._end = None if self._limit_s is None else time.monotonic() + self._limit_s
        self._backoff_s = _BACKOFF_S
        self._credential, self._is_renewed = target.credential, False

    def time_left(self) -> float | None:
        """Seconds until the deadline, 0 once it has passed; None for an infinite one."""
        return None if self._end is None else max(0.0, self._end - time.monotonic())

    def late(self) -> DeadlineExceededError:
        """The error of a call whose deadline ends before it is sent."""
        return late(self._address, self._limit_s)

    def pause_after(self, raised: grpc.RpcError, *, repeatable: bool) -> float:
        """Seconds until the next attempt. Raises the MnemonError if the call must not be repeated, or has no time."""
        error = error_from_call(raised, address=self._address, timeout=self._limit_s)
        # A call that was refused for its token has not begun, so it may be repeated whatever it does.
        if not self._is_renewed and self._credential.may_renew(error.reason):
            self._is_renewed = True
            return 0.0
        pause_s = max(error.retry_after or 0.0, self._backoff_s) * random.uniform(1.0, 1.2)  # noqa: S311 -- no secret
        left = self.time_left()
        # Waiting does not help after other refusals, such as STORAGE_FULL.
        if not repeatable or not is_busy(error) or (left is not None and pause_s >= left):
            raise error from raised
        self._backoff_s = min(2 * self._backoff_s, _BACKOFF_S_MAX)
        return pause_s
