"""Every channel option of the server, under the runtime's own names.

The runtime silently ignores a misspelt name, so the effect of each one has a test.
"""

from typing import Any

from mnemon_server.config.address import Address
from mnemon_server.config.settings import Settings

METADATA_BYTES_MAX = 16 << 10
MIN_PING_INTERVAL_MS = 10_000
KEEPALIVE_TIME_MS, KEEPALIVE_TIMEOUT_MS = 60_000, 20_000
MARGIN_BYTES = 1 << 20
"""How far a request may exceed our own limit, whose error says more than the runtime's. The runtime refuses a larger
one once it has read its length, before any of its bytes."""
STREAMS_PER_CONNECTION_MAX = 512
"""The default limit of concurrent single calls. Beyond it, the runtime refuses streams without a reason. Our own
limits give one and say when to try again, and should be reached first."""
REQUESTS_PER_READ_MAX = 4
WINDOW_BYTES = 64 << 10
"""The bytes that a connection may send into an unread stream. A message that is being read may be sent as a whole."""
HANDSHAKE_TIMEOUT_MS = 10_000
CONNECTION_AGE_S, CONNECTION_AGE_GRACE_MS = 3_600, 1_800_000
"""Our clients resume a bulk stream or a watch that is cut, but it need not be cut often."""


def listener_options(*, connections: int, is_alone: bool) -> list[tuple[str, Any]]:
    """The options of one of the servers of an address, and of how many connections it takes."""
    # On by default, it lets servers share a port, each with its own part of the connections.
    return [("grpc.so_reuseport", int(not is_alone)), ("grpc.max_allowed_incoming_connections", connections)]


def server_options(settings: Settings) -> list[tuple[str, Any]]:
    """The options of each server with these settings."""
    message_bytes_max = settings.max_message_mib << 20
    options: list[tuple[str, Any]] = [
        ("grpc.max_receive_message_length", message_bytes_max + MARGIN_BYTES),
        ("grpc.max_send_message_length", message_bytes_max + MARGIN_BYTES),
        # Left to itself, the runtime opens the window of every stream to megabytes on a fast connection.
        ("grpc.http2.lookahead_bytes", WINDOW_BYTES),
        ("grpc.http2.bdp_probe", 0),
        # By default 32 are taken from one connection before the next has its turn.
        ("grpc.http2.max_requests_per_read", REQUESTS_PER_READ_MAX),
        ("grpc.max_metadata_size", METADATA_BYTES_MAX),
        ("grpc.absolute_max_metadata_size", METADATA_BYTES_MAX),
        ("grpc.max_concurrent_streams", STREAMS_PER_CONNECTION_MAX),
        ("grpc.server_handshake_timeout_ms", HANDSHAKE_TIMEOUT_MS),
        # Finds connections whose other end is gone.
        ("grpc.keepalive_time_ms", KEEPALIVE_TIME_MS),
        ("grpc.keepalive_timeout_ms", KEEPALIVE_TIMEOUT_MS),
        ("grpc.keepalive_permit_without_calls", 1),
        # By default a client that pings more often than every five minutes is cut off; ordinary ones do.
        ("grpc.http2.min_ping_interval_without_data_ms", MIN_PING_INTERVAL_MS),
    ]
    if age_s := _connection_age_s(settings):
        options += [
            ("grpc.max_connection_age_ms", age_s * 1000),
            ("grpc.max_connection_age_grace_ms", CONNECTION_AGE_GRACE_MS),
        ]
    return options


def _connection_age_s(settings: Settings) -> int:
    if settings.max_connection_age_s is not None:
        return settings.max_connection_age_s
    # A certificate is verified when a connection begins, so that one with a certificate must end.
    is_endless = Address.parse(settings.listen).is_local and "mtls" not in settings.authentication
    return 0 if is_endless else CONNECTION_AGE_S
