"""Which websites may call from a browser."""

from collections.abc import Collection, Mapping

from mnemon_server.transport.http.request import Request

_ALLOWED_HEADERS = (
    "authorization, connect-protocol-version, connect-timeout-ms, connect-accept-encoding, connect-content-encoding, "
    "content-encoding, content-type, grpc-timeout, last-event-id, x-grpc-web, x-request-id, x-user-agent"
)
_EXPOSED_HEADERS = "grpc-message, grpc-status, grpc-status-details-bin, retry-after, x-request-id"
_MAX_AGE_S = "7200"
"""For which browsers remember an answer; none remembers it for longer."""


class CrossOrigin:
    """The headers by which a browser lets scripts of other origins call and read."""

    def __init__(self, origins: Collection[str]) -> None:
        """Allows these origins, such as "https://app.example"; `*` allows all."""
        self._origins = frozenset(origins)

    def headers(self, request: Request) -> Mapping[str, str]:
        """The headers of every answer."""
        if not self._origins:
            return {}
        origin = request.headers.get("origin", "")
        if "*" in self._origins:
            return {"access-control-allow-origin": "*", "access-control-expose-headers": _EXPOSED_HEADERS}
        if origin not in self._origins:
            return {"vary": "origin"}
        return {
            "access-control-allow-origin": origin,
            "access-control-expose-headers": _EXPOSED_HEADERS,
            "vary": "origin",
        }

    def preflight(self, request: Request, methods: str) -> Mapping[str, str]:
        """The headers of the answer to OPTIONS, by which a browser asks whether it may call.

        `methods` are the path's methods, such as "GET, POST".
        """
        allow = {"allow": f"{methods}, OPTIONS"}
        if "access-control-allow-origin" not in self.headers(request):
            return allow
        return {
            **allow,
            "access-control-allow-methods": methods,
            "access-control-allow-headers": _ALLOWED_HEADERS,
            "access-control-max-age": _MAX_AGE_S,
        }
