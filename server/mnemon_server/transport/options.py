"""Every channel option of the server, under the runtime's own names.

The runtime ignores a misspelt name without a word, so that the effect of each one has a test.
"""

from typing import Any

from mnemon_server.config.settings import Settings

METADATA_BYTES_MAX = 16 << 10
MIN_PING_INTERVAL_MS = 10_000
KEEPALIVE_TIME_MS, KEEPALIVE_TIMEOUT_MS = 60_000, 20_000
STREAMS_PER_CONNECTION_MAX = 1000
HANDSHAKE_TIMEOUT_MS = 10_000
CONNECTION_AGE_GRACE_MS = 30_000


def server_options(settings: Settings) -> list[tuple[str, Any]]:
    """The options of a server with these settings."""
    message_bytes_max = settings.max_message_mib << 20
    options: list[tuple[str, Any]] = [
        # On by default, it lets two servers share a port, each with its own half of the calls.
        ("grpc.so_reuseport", 0),
        # Somewhat above our own limit, whose error says more than the runtime's.
        ("grpc.max_receive_message_length", 2 * message_bytes_max),
        ("grpc.max_send_message_length", 2 * message_bytes_max),
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
    if settings.max_connection_age_s:
        options += [
            ("grpc.max_connection_age_ms", settings.max_connection_age_s * 1000),
            ("grpc.max_connection_age_grace_ms", CONNECTION_AGE_GRACE_MS),
        ]
    return options
