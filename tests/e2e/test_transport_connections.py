"""Traps 7 and 8 of a server on grpc.aio: ports, pings, metadata, sockets and TLS."""

import asyncio
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import grpc
import pytest
from grpc import aio
from mnemon_server.config.settings import Settings
from mnemon_server.domain.errors import ConfigurationError
from mnemon_server.transport import options
from mnemon_server.transport.server import GrpcServer

from tests.support.handlers import Misbehaving, method
from tests.support.server import Connection, bare_server, failure_of, health_of, stream_end, until

EAGER_CLIENT = (
    ("grpc.keepalive_time_ms", 1000),
    ("grpc.keepalive_timeout_ms", 5000),
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.http2.max_pings_without_data", 0),
)


async def test_trap_7_a_second_server_on_the_same_port_is_refused() -> None:
    async with bare_server() as connection:
        address = str(connection.server.address)
        with pytest.raises(ConfigurationError, match=f"cannot listen on {address}: another program uses the address"):
            async with GrpcServer(Settings(listen=address)):
                pass
        assert await health_of(connection, "liveness") == "SERVING"


async def test_trap_7_a_second_server_on_the_same_socket_is_refused_and_a_dead_socket_is_not(tmp_path: Path) -> None:
    listen = f"unix:{tmp_path}/mnemon.sock"
    async with bare_server(listen=listen) as connection:
        assert (tmp_path / "mnemon.sock").stat().st_mode & 0o077 == 0
        with pytest.raises(ConfigurationError, match="another server answers there"):
            async with GrpcServer(Settings(listen=listen)):
                pass
        assert await health_of(connection, "liveness") == "SERVING"
    async with bare_server(listen=listen) as connection:
        assert await health_of(connection, "liveness") == "SERVING"


async def test_trap_8_clients_that_ping_as_often_as_allowed_stay_and_others_are_cut(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # The same pings with two values of the option. The different results show that its name is right.
    monkeypatch.setattr(options, "MIN_PING_INTERVAL_MS", 500)
    async with _pinged_server() as tolerant:
        monkeypatch.setattr(options, "MIN_PING_INTERVAL_MS", 300_000)
        async with _pinged_server() as strict:
            async with asyncio.timeout(60):
                _, error = await strict
        assert (error.code(), "Too many pings" in (error.details() or "")) == (grpc.StatusCode.UNAVAILABLE, True)
        assert not tolerant.done()


def test_trap_8_ordinary_clients_ping_less_often_than_is_allowed() -> None:
    assert ("grpc.http2.min_ping_interval_without_data_ms", 10_000) in options.server_options(Settings())


async def test_trap_8_metadata_is_limited() -> None:
    async with bare_server(Misbehaving()) as connection:
        echo = method(connection.channel, "echo")
        assert await echo(b"x", metadata=(("x-note", "n" * 8000),)) == b"x"
        error = await failure_of(echo(b"x", metadata=(("x-note", "n" * 40_000),)))
        assert error.code() is grpc.StatusCode.RESOURCE_EXHAUSTED


async def test_trap_8_a_connection_that_is_too_old_is_closed_politely() -> None:
    async with bare_server(Misbehaving(), max_connection_age_s=1) as connection:
        echo = method(connection.channel, "echo")
        assert await echo(b"first") == b"first"
        async with asyncio.timeout(60):
            await connection.channel.wait_for_state_change(grpc.ChannelConnectivity.READY)
        assert await echo(b"again") == b"again"


async def test_tls_is_spoken_and_a_renewed_certificate_is_used_without_a_restart(tmp_path: Path) -> None:
    first = _certificate(tmp_path, "first.test")
    settings = {"tls_certificate": tmp_path / "server.pem", "tls_key": tmp_path / "server.key"}
    async with bare_server(**settings) as connection:
        assert await _tls_health(connection, first, "first.test") == "SERVING"
        assert (await failure_of(connection.channel.unary_unary("/a/b")(b""))).code() is grpc.StatusCode.UNAVAILABLE
        second = _certificate(tmp_path, "second.test")
        # Each connection may come to another listener.
        for _ in range(40):
            assert await _tls_health(connection, second, "second.test") == "SERVING"
        (tmp_path / "server.pem").unlink()
        assert await _tls_health(connection, second, "second.test") == "SERVING"


async def test_a_client_without_a_certificate_is_refused_if_one_is_required(tmp_path: Path) -> None:
    authority = _certificate(tmp_path, "first.test")
    pem, key = tmp_path / "server.pem", tmp_path / "server.key"
    async with bare_server(tls_certificate=pem, tls_key=key, tls_client_ca=pem) as connection:
        with pytest.raises(aio.AioRpcError) as refused:
            await _tls_health(connection, authority, "first.test")
        assert refused.value.code() is grpc.StatusCode.UNAVAILABLE
        client = (key.read_bytes(), pem.read_bytes())
        assert await _tls_health(connection, authority, "first.test", *client) == "SERVING"


@asynccontextmanager
async def _pinged_server() -> AsyncIterator[asyncio.Task[tuple[list[bytes], aio.AioRpcError]]]:
    """A server whose client pings it every second. Returns how the stream between them ends."""
    handlers = Misbehaving()
    async with bare_server(handlers, channel_options=EAGER_CLIENT) as connection:
        ending = asyncio.create_task(stream_end(method(connection.channel, "idle")(b"")))
        await until(lambda: handlers.opened == 1)
        yield ending
        ending.cancel()


def _certificate(folder: Path, name: str) -> bytes:
    """Makes a certificate for the server. Returns what clients must trust."""
    subprocess.run(
        [
            *("openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"),
            *("-days", "2", "-subj", f"/CN={name}", "-addext", f"subjectAltName=DNS:{name}"),
            *("-keyout", str(folder / "server.key"), "-out", str(folder / "server.pem")),
        ],
        check=True,
        capture_output=True,
    )
    return (folder / "server.pem").read_bytes()


async def _tls_health(connection: Connection, authority: bytes, name: str, *client: bytes) -> str:
    credentials = grpc.ssl_channel_credentials(authority, *client)
    # A channel of its own: channels of one target share connections, and so the old certificate.
    private = (("grpc.ssl_target_name_override", name), ("grpc.use_local_subchannel_pool", 1))
    async with aio.secure_channel(str(connection.server.address), credentials, private) as channel:
        return await health_of(Connection(connection.server, channel), "liveness")
