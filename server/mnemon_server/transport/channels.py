"""Channels to other servers, as a client."""

from pathlib import Path

import grpc
from grpc import aio

_FRAMING_BYTES = 16
RECONNECT_MS_MAX = 5_000
"""A service that is back is called again no later than that."""


def operator_channel(address: str, *, tls: bool, answer_bytes_max: int) -> aio.Channel:
    """A channel to a service of the operator, at HOST:PORT; it connects on the first call."""
    options = (
        ("grpc.enable_http_proxy", 0),
        ("grpc.enable_retries", 0),
        # The settings name a service; what a name server says about it must not change how it is called.
        ("grpc.service_config_disable_resolution", 1),
        ("grpc.max_receive_message_length", answer_bytes_max + _FRAMING_BYTES),
        ("grpc.max_reconnect_backoff_ms", RECONNECT_MS_MAX),
    )
    # With its scheme, since a host called "unix" would be taken for one.
    target = f"dns:///{address}"
    if tls:
        return aio.secure_channel(target, grpc.ssl_channel_credentials(), options)
    return aio.insecure_channel(target, options)


def channel_to(target: str, *, ca: Path | None, server_name: str | None) -> grpc.Channel:
    """A blocking channel to a Mnemon server; with TLS if a certificate authority is named."""
    options = [("grpc.ssl_target_name_override", server_name)] if server_name else []
    if ca is None:
        return grpc.insecure_channel(target, options)
    return grpc.secure_channel(target, grpc.ssl_channel_credentials(ca.read_bytes()), options)
