"""Binds the address of the server, so that it serves nobody before it is protected."""

import errno
import os
import socket
import stat
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import grpc
from grpc import aio

from mnemon_server.config.address import Address
from mnemon_server.domain.errors import ConfigurationError
from mnemon_server.engines.private import refused

SOCKET_BYTES_MAX = 107 if sys.platform == "linux" else 103
"""The longest path of a socket, which ends with a zero in the structures of the operating systems."""


def listen(
    servers: Sequence[aio.Server], address: Address, credentials: Callable[[], grpc.ServerCredentials | None]
) -> Address:
    """Binds the address; returns it with the port that was free, if it asks for one. Only this user may open a socket.

    All but the first share the port that the first has got.

    Raises:
        ConfigurationError: the address is taken, or is not of this machine.
    """
    require_free(address)
    try:
        with private_files():
            for server in servers:
                target, secure = str(address), credentials()
                port = server.add_secure_port(target, secure) if secure else server.add_insecure_port(target)
                address = address.at_port(port)
    except RuntimeError as error:
        raise cannot_listen(address, error) from error
    return address


def require_private_folder(folder: Path) -> None:
    """Checks that no other user can put a socket of their own into a folder, or reach one in it.

    Raises:
        ConfigurationError: the folder is missing, belongs to another user, or lets others in.
    """
    try:
        found = folder.stat()
    except OSError as error:
        raise ConfigurationError(f"the socket's folder {folder} cannot be read: {error.strerror}") from error
    if found.st_uid != os.getuid() or stat.S_IMODE(found.st_mode) & 0o077:
        raise ConfigurationError(
            f"with authentication unix, the socket's folder {folder} must belong to you, and to you alone: "
            f"run `chmod 700 {folder}`, or make another one with `mkdir -m 700`"
        )


@contextmanager
def private_files() -> Iterator[None]:
    """Only this user may open what is created meanwhile: a socket has its mode before anybody can connect."""
    before = os.umask(0o077)
    try:
        yield
    finally:
        os.umask(before)


def require_free(address: Address) -> None:
    """Raises ConfigurationError if the address is taken.

    The runtime would silently take over the path of a socket, and only writes to its own log that a port is taken.
    """
    if address.socket_path:
        _require_free_path(address)
        return
    try:
        for family, _, _, _, where in socket.getaddrinfo(address.host, address.port, type=socket.SOCK_STREAM):
            with socket.socket(family, socket.SOCK_STREAM) as probe:
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # as the runtime does
                probe.bind(where)
    except OSError as error:
        raise cannot_listen(address, error) from error


def cannot_listen(address: Address, error: Exception) -> ConfigurationError:
    """The error of an address that cannot be bound."""
    if isinstance(error, OSError) and error.errno not in (errno.EADDRINUSE, errno.EADDRNOTAVAIL):
        return ConfigurationError(f"cannot listen on {address}: {error.strerror or error}")
    return ConfigurationError(
        f"cannot listen on {address}: another program uses the address, or it is not an address of this machine"
    )


def _require_free_path(address: Address) -> None:
    path = Path(address.socket_path)
    if len(os.fsencode(path)) > SOCKET_BYTES_MAX:
        raise ConfigurationError(
            f"cannot listen on {address}: the path of a socket may have {SOCKET_BYTES_MAX} bytes, and this has "
            f"{len(os.fsencode(path))}; choose a shorter one"
        )
    with socket.socket(socket.AF_UNIX) as probe:
        try:
            probe.connect(str(path))
        except FileNotFoundError:
            _require_writable(path, address)
            return
        except OSError:
            return
    raise ConfigurationError(f"cannot listen on {address}: another server answers there")


def _require_writable(path: Path, address: Address) -> None:
    """Checks that a socket can be made here, which the runtime would not explain."""
    try:
        with socket.socket(socket.AF_UNIX) as probe:
            probe.bind(str(path))
        path.unlink()
    except OSError as error:
        # A socket's error names no file.
        error.filename = str(path)
        raise refused(error, f"cannot listen on {address}: the path", remedy="listen on another path") from error
