"""Addresses on which the server listens, and which machines can reach them."""

import ipaddress
import re
from dataclasses import dataclass

from mnemon_server.domain.errors import ConfigurationError

_UNIX = "unix:"
_HOST_PORT = re.compile(r"(?:\[(?P<v6>[^\]]+)\]|(?P<host>[^:\[\]]+)):(?P<port>\d{1,5})")
_WILDCARDS = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # noqa: S104


@dataclass(frozen=True, slots=True)
class Address:
    """A TCP host and port, or the path of a Unix socket."""

    host: str = ""
    port: int = 0
    socket_path: str = ""

    @classmethod
    def parse(cls, text: str) -> "Address":
        """Reads HOST:PORT, [IPv6]:PORT or unix:PATH.

        Raises:
            ConfigurationError: the text has none of these forms.
        """
        if text.startswith(_UNIX) and len(text) > len(_UNIX):
            return cls(socket_path=text.removeprefix(_UNIX))
        match = _HOST_PORT.fullmatch(text)
        if match is None or int(match["port"]) > 65_535:
            raise ConfigurationError(f"{text!r} is not an address; it must be HOST:PORT, [IPv6]:PORT or unix:PATH")
        return cls(host=match["v6"] or match["host"], port=int(match["port"]))

    @property
    def is_local(self) -> bool:
        """Whether only this machine can reach it."""
        if self.socket_path or self.host == "localhost":
            return True
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return False

    @property
    def dialled(self) -> "Address":
        """The address to which a client on this machine connects."""
        return Address(_WILDCARDS.get(self.host, self.host), self.port, self.socket_path)

    def at_port(self, port: int) -> "Address":
        """The same host with the port that was assigned for port 0."""
        return self if self.socket_path else Address(self.host, port)

    def __str__(self) -> str:
        if self.socket_path:
            return f"{_UNIX}{self.socket_path}"
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"
