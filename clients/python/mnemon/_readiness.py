"""Waits for the server with the standard health service, without its package of messages."""

import time

import grpc

from mnemon._arguments import check_number
from mnemon.shared.errors import DeadlineExceededError

METHOD = "/grpc.health.v1.Health/Check"

# HealthCheckRequest(service="") and HealthCheckResponse(status=SERVING) as they are on the wire.
REQUEST = b""
_SERVING = b"\x08\x01"

_PAUSE_S_MAX = 0.5


def as_bytes(message: bytes) -> bytes:
    """The (de)serializer of messages that are bytes already."""
    return message


class Readiness:
    """One wait: the time left, and the last observation."""

    def __init__(self, address: str, timeout: float) -> None:
        check_number("timeout", timeout)
        self._address, self._timeout = address, timeout
        self._end = time.monotonic() + timeout
        self._pause = 0.02
        self._seen = "nothing answered"

    def time_left(self) -> float:
        """Seconds for the next check. Raises DeadlineExceededError if no time is left."""
        left = self._end - time.monotonic()
        if left <= 0:
            raise DeadlineExceededError(f"{self._address} was not ready within {self._timeout:g} s: {self._seen}")
        return left

    def is_ready(self, response: bytes) -> bool:
        """Whether a check says that the server serves."""
        self._seen = "it is up and does not serve yet"
        return response == _SERVING

    def failed(self, error: grpc.RpcError) -> None:
        """Records a check without an answer."""
        if error.code() is not grpc.StatusCode.DEADLINE_EXCEEDED:
            self._seen = error.details() or error.code().name

    def pause(self) -> float:
        """Seconds to wait before the next check."""
        self._pause = min(self._pause * 1.5, _PAUSE_S_MAX)
        return max(0.0, min(self._pause, self._end - time.monotonic()))
