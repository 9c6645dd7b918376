"""Checks whether a Chroma server answers, over a new connection each time."""

import httpx

from mnemon_server.domain.errors import BackendConnectionError

_TIMEOUT_S = 2.5


class Heartbeat:
    """The heartbeat of one server. A kept connection would hide that the server accepts no new ones."""

    def __init__(self, url: str, place: str) -> None:
        """`place` is the server's address in messages."""
        timeout = {"timeout": httpx.Timeout(_TIMEOUT_S).as_dict()}
        self._request = httpx.Request("GET", f"{url}/api/v2/heartbeat", extensions=timeout)
        # A full client would log each request and honour proxy variables of the environment.
        self._transport = httpx.HTTPTransport(limits=httpx.Limits(max_keepalive_connections=0))
        self._place = place

    def ask(self) -> None:
        """Returns once the server has answered. Raises BackendConnectionError."""
        try:
            answer = self._transport.handle_request(self._request)
            answer.close()
        except httpx.TimeoutException:
            raise BackendConnectionError(f"Chroma at {self._place} does not answer") from None
        except httpx.TransportError:
            raise BackendConnectionError(
                f"Chroma at {self._place} cannot be reached: check that it is running"
            ) from None
        if not answer.is_success:
            raise BackendConnectionError(
                f"Chroma at {self._place} answers its heartbeat with HTTP status {answer.status_code}"
            )
