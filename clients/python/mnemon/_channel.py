"""Opens channels: addresses, credentials, limits, keepalive and retries."""

import ipaddress
import json
import math
import os
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeAlias

import grpc

from mnemon._arguments import check_number
from mnemon._authorization import AsyncToken, AuthorizedChannel, Credential, resolve_credential

PathLike: TypeAlias = str | os.PathLike[str]

DEFAULT_ADDRESS = "127.0.0.1:50051"
ADDRESS_VARIABLE = "MNEMON_ADDRESS"
DEFAULT_PORT = 50051
_PORT_MAX = 65_535
DEFAULT_TIMEOUT_S = 30.0
MESSAGE_BYTES_MAX = 4 << 20
"""The default limit of a server, and gRPC's default limit for received messages."""


def _service_config() -> dict[str, Any]:
    """The published service config, which says what the channel retries; each call sets its own deadline."""
    config: dict[str, Any] = json.loads((Path(__file__).parent / "v1/service_config.json").read_text("utf-8"))
    for each in config["methodConfig"]:
        del each["timeout"]
    return config


SERVICE_CONFIG = _service_config()

CHANNEL_OPTIONS: list[tuple[str, str | int]] = [
    ("grpc.keepalive_time_ms", 60_000),
    ("grpc.keepalive_timeout_ms", 20_000),
    # The client finds a restarted server within seconds; gRPC's default grows to two minutes.
    ("grpc.initial_reconnect_backoff_ms", 250),
    ("grpc.max_reconnect_backoff_ms", 2_000),
    # A connection of its own, because the server limits the calls of each connection. By default, all channels of a
    # process to the same address share one.
    ("grpc.use_local_subchannel_pool", 1),
    ("grpc.enable_retries", 1),
    ("grpc.service_config", json.dumps(SERVICE_CONFIG)),
]


def resolve_address(given: str | None) -> str:
    """The address to dial: the given one, otherwise MNEMON_ADDRESS, otherwise 127.0.0.1:50051; adds a missing port."""
    address = given or os.environ.get(ADDRESS_VARIABLE) or DEFAULT_ADDRESS
    if "://" in address and not address.startswith(("dns://", "unix://")):
        raise ValueError(f"{address!r} is a URL; an address is host:port, such as {DEFAULT_ADDRESS}")
    if address.startswith(("unix:", "unix-abstract:", "dns:", "ipv4:", "ipv6:")):
        return address
    if address.count(":") > 1 and not address.startswith("["):
        raise ValueError(f"{address!r} is not host:port; write an IPv6 address as [{address}]:{DEFAULT_PORT}")
    _, colon, port = address.rpartition("]")[2].partition(":")
    if not colon:
        return f"{address}:{DEFAULT_PORT}"
    if not (port.isascii() and port.isdigit() and 1 <= int(port) <= _PORT_MAX):
        raise ValueError(
            f"{address!r} has no valid port: it is a number from 1 to {_PORT_MAX:,}, such as {DEFAULT_PORT}"
        )
    return address


def channel_credentials(
    address: str,
    *,
    tls: bool,
    ca_file: PathLike | None,
    certificate_file: PathLike | None,
    key_file: PathLike | None,
    credentials: grpc.ChannelCredentials | None,
    insecure: bool,
) -> grpc.ChannelCredentials | None:
    """The credentials of a channel, None for plaintext; to another machine, plaintext must be requested."""
    if (certificate_file is None) != (key_file is None):
        raise ValueError("certificate_file and key_file belong together; give both, or neither")
    secure = tls or credentials is not None or ca_file is not None or certificate_file is not None
    if secure and insecure:
        raise ValueError("insecure=True contradicts tls=True, ca_file, certificate_file and credentials; choose one")
    if credentials is not None:
        if ca_file is not None or certificate_file is not None:
            raise ValueError("credentials contradicts ca_file and certificate_file; choose one")
        return credentials
    if secure:
        roots, key, certificate = (
            None if path is None else Path(path).expanduser().read_bytes()
            for path in (ca_file, key_file, certificate_file)
        )
        return grpc.ssl_channel_credentials(roots, key, certificate)
    if not insecure and not is_local(address):
        raise ValueError(
            f"{address} is another machine: use tls=True (or ca_file, or credentials), or insecure=True for plaintext"
        )
    return None


def is_local(address: str) -> bool:
    """True if the address reaches only this machine: a Unix socket or a loopback address."""
    if address.startswith(("unix:", "unix-abstract:")):
        return True
    scheme_less = address
    for scheme in ("dns:///", "dns:", "ipv4:", "ipv6:"):
        scheme_less = scheme_less.removeprefix(scheme)
    return all(_is_loopback(each) for each in scheme_less.split(","))


def _is_loopback(endpoint: str) -> bool:
    host = endpoint[1:].partition("]")[0] if endpoint.startswith("[") else endpoint.rpartition(":")[0] or endpoint
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


@dataclass(frozen=True, slots=True)
class Target:
    """Where a client dials, and how."""

    address: str
    credentials: grpc.ChannelCredentials | None
    timeout_s: float
    credential: Credential = field(default_factory=Credential, repr=False)

    @classmethod
    def resolve(
        cls,
        address: str | None,
        *,
        timeout: float,
        api_key: str | None,
        token: AsyncToken | None,
        certificate_file: PathLike | None,
        **security: Any,
    ) -> "Target":
        """The target for the arguments of a client. Raises ValueError if they contradict each other.

        `security` are the other arguments of `channel_credentials`.
        """
        resolved = resolve_address(address)
        return cls(
            resolved,
            channel_credentials(resolved, certificate_file=certificate_file, **security),
            check_number("timeout", timeout),
            resolve_credential(api_key, token, has_certificate=certificate_file is not None),
        )

    def acting_as(self, credential: str) -> "Target":
        """The same target for another caller. Raises ValueError if the text cannot be a credential."""
        if not credential.strip():
            raise ValueError("credential must not be empty")
        return replace(self, credential=Credential(credential, name="credential"))

    def time_limit(self, timeout: float | None) -> float | None:
        """The deadline of a call in seconds: its own, otherwise the client's; None for an infinite one."""
        limit = self.timeout_s if timeout is None else check_number("timeout", timeout)
        return None if math.isinf(limit) else limit

    def open(self) -> grpc.Channel:
        """A blocking channel, which connects with the first call."""
        return self._open(grpc)  # type: ignore[no-any-return]

    def open_aio(self) -> grpc.aio.Channel:
        """A channel of the running event loop; otherwise as `open`."""
        return self._open(grpc.aio)  # type: ignore[no-any-return]

    def _open(self, kind: Any) -> Any:
        if self.credentials is None:
            channel = kind.insecure_channel(self.address, options=self._options())
        else:
            channel = kind.secure_channel(self.address, self.credentials, options=self._options())
        credential = self.credential
        return AuthorizedChannel(channel, credential) if credential.headers or credential.is_renewed else channel

    def _options(self) -> list[tuple[str, str | int]]:
        options = list(CHANNEL_OPTIONS)
        if is_local(self.address):
            # Otherwise a proxy from the environment would also serve loopback addresses.
            options.append(("grpc.enable_http_proxy", 0))
        return options
