"""Connections over HTTP: slow, hostile and many ones, which websites may call, TLS and Unix sockets."""

import asyncio
import ssl
import stat
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import httpx
import pytest
from mnemon_server.domain.errors import ConfigurationError

from tests.e2e.test_certificates import tls_server
from tests.support.certificates import Authority
from tests.support.http_calls import http_client
from tests.support.server import WAIT_S, Connection, bare_server, eventually, until, whole_server

HTTP = {"http_listen": "127.0.0.1:0"}
GET = b"GET /healthz HTTP/1.1\r\nhost: localhost\r\n\r\n"
INFO, WHO = "/mnemon.v1.ServerService/GetServerInfo", "/mnemon.v1.AccessService/WhoAmI"
POST = b"POST /healthz HTTP/1.1\r\nhost: localhost\r\n"


@asynccontextmanager
async def raw(server: Connection) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    """A connection whose bytes are those of the test."""
    address = server.server.http_address
    assert address is not None
    reader, writer = await asyncio.open_connection(address.host, address.port)
    try:
        yield reader, writer
    finally:
        writer.transport.abort()


async def everything(reader: asyncio.StreamReader) -> bytes:
    """What comes until the server closes."""
    try:
        return await asyncio.wait_for(reader.read(), WAIT_S)
    except ConnectionResetError:
        return b""


async def still_serves(server: Connection) -> bool:
    """Whether a client that does nothing wrong is served."""
    async with http_client(server) as client:
        return (await client.get("/healthz")).status_code == 200


@pytest.mark.parametrize("sent", [b"", b"GET /healthz HTTP/1.1\r\nhost: loc", b"GET /hea"])
async def test_headers_that_do_not_end_are_closed(sent: bytes) -> None:
    async with bare_server(**HTTP, request_timeout_s=0.1) as server, raw(server) as (reader, writer):
        writer.write(sent)
        assert (await everything(reader)).startswith(b"HTTP/1.1 408 ")


async def test_one_byte_after_the_other_is_no_way_around_it() -> None:
    async with bare_server(**HTTP, request_timeout_s=0.1) as server, raw(server) as (reader, writer):
        ended = asyncio.create_task(everything(reader))
        while not ended.done():
            writer.write(b"G" if writer.transport.get_write_buffer_size() else b"\r\n")
            await asyncio.sleep(0)
        assert b"408" in await ended or await ended == b""


@pytest.mark.parametrize(
    ("sent", "status"),
    [
        (b"GET / HTTP/1.1\r\nx: " + b"y" * 20_000, b"431"),
        (b"GET / HTTP/1.1\r\nx: " + b"y" * 20_000 + b"\r\n\r\n", b"431"),
        (b"GET /" + b"y" * 20_000 + b" HTTP/1.1\r\n\r\n", b"431"),
        (b"GET / HTTP/1.1\r\n" + b"".join(b"x%d: y\r\n" % i for i in range(3000)), b"431"),
        (b"GET / HTTP/1.1\r\n" + b"x: y\r\n" * 101 + b"\r\n", b"431"),
        (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", b"400"),
        (b"\x16\x03\x01\x02\x00", b"400"),
        (POST + b"content-length: -1\r\n\r\n", b"400"),
        (POST + b"content-length: 1\r\ntransfer-encoding: chunked\r\n\r\n", b"400"),
        (POST + b"content-length: 1\r\ncontent-length: 2\r\n\r\n", b"400"),
        (b"GET / HTTP/1.1\r\nhost : x\r\n\r\n", b"400"),
        (GET * 1000, b"200"),
    ],
)
async def test_what_is_no_http_or_too_much_of_it_is_refused_and_closed(sent: bytes, status: bytes) -> None:
    async with bare_server(**HTTP) as server, raw(server) as (reader, writer):
        writer.write(sent)
        answer = await everything(reader)
        assert answer == b"" or answer.split(b" ")[1] == status
        assert await still_serves(server)


@pytest.mark.parametrize("part", [b"zz\r\nx", b"-1\r\n", b"ffffffffffffffffff\r\n", b"1\r\nabc\r\n"])
async def test_bad_chunks_end_their_call(part: bytes, tmp_path: Path) -> None:
    async with whole_server(tmp_path, **HTTP) as server, raw(server) as (reader, writer):
        head = f"POST {INFO} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"
        writer.write(head.encode() + b"transfer-encoding: chunked\r\n\r\n2\r\n{}\r\n")
        writer.write(part)
        await everything(reader)
        await until(lambda: not server.server.http_connections)
        assert await still_serves(server)


async def test_requests_that_follow_each_other_without_waiting_are_answered_in_order() -> None:
    async with bare_server(**HTTP) as server, raw(server) as (reader, writer):
        writer.write(GET * 10 + GET.replace(b"\r\n\r\n", b"\r\nconnection: close\r\n\r\n"))
        assert (await everything(reader)).count(b"HTTP/1.1 200 OK") == 11


async def test_a_refused_body_without_end_is_not_taken_for_ever() -> None:
    async with bare_server(**HTTP) as server, raw(server) as (reader, writer):
        writer.write(POST + b"content-type: text/plain\r\ntransfer-encoding: chunked\r\n\r\n")
        assert b" 405 " in await asyncio.wait_for(reader.readline(), WAIT_S)
        part = b"10000\r\n" + b"x" * 65_536 + b"\r\n"
        with suppress(ConnectionError):
            for _ in range(1 << 14):
                writer.write(part)
                await writer.drain()
        assert writer.transport.is_closing()


async def test_more_connections_than_allowed_are_closed_and_those_before_them_stay() -> None:
    async with bare_server(**HTTP, connections_max=3) as server:
        async with raw(server) as first, raw(server), raw(server):
            await until(lambda: server.server.http_connections == 3)
            async with raw(server) as (reader, _):
                assert await everything(reader) == b""
            first[1].write(GET)
            assert b" 200 " in await asyncio.wait_for(first[0].readline(), WAIT_S)
        await eventually(lambda: still_serves(server))


async def test_only_the_named_websites_may_call(tmp_path: Path) -> None:
    asks = {"origin": "https://app.example", "access-control-request-method": "POST"}
    settings = {**HTTP, "http_origins": ("https://app.example",)}
    async with whole_server(tmp_path, **settings) as server, http_client(server) as client:
        allowed = await client.options(INFO, headers=asks)
        assert allowed.status_code == 204
        assert allowed.headers["access-control-allow-origin"] == "https://app.example"
        assert "connect-protocol-version" in allowed.headers["access-control-allow-headers"]
        assert allowed.headers["access-control-allow-methods"] == "GET, POST"
        other = await client.options(INFO, headers={**asks, "origin": "https://evil.example"})
        assert not [name for name in other.headers if name.startswith("access-control")]
        answer = await client.post(INFO, json={}, headers={"origin": "https://app.example"})
        assert "grpc-status-details-bin" in answer.headers["access-control-expose-headers"]
        failed = await client.post("/mnemon.v1.MemoryService/CreateMemory", json={}, headers=asks)
        assert (failed.status_code, failed.headers["vary"]) == (400, "origin")
        assert failed.headers["access-control-allow-origin"] == "https://app.example"


async def test_without_authentication_no_website_reaches_the_server_by_a_name_of_its_own(tmp_path: Path) -> None:
    async with whole_server(tmp_path / "open", **HTTP) as server, http_client(server) as client:
        for host in ("localhost:1", "127.0.0.1", "[::1]:80"):
            assert (await client.post(INFO, json={}, headers={"host": host})).status_code == 200
        for host in ("evil.example", "evil.example:8080", "127.0.0.1.evil.example", ""):
            refused = await client.post(INFO, json={}, headers={"host": host})
            assert refused.status_code == 421
    guarded = {"authentication": ("api_key",)}
    async with whole_server(tmp_path / "guarded", **HTTP, **guarded) as server, http_client(server) as client:
        assert (await client.post(WHO, json={}, headers={"host": "memory.example"})).status_code == 401


async def test_a_client_is_known_by_its_certificate_and_a_renewed_one_is_shown(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    async with tls_server(tmp_path, authority, **HTTP) as connection:
        trusted = ssl.create_default_context(cafile=str(authority.path))
        trusted.load_cert_chain(*authority.issue("robot", "uri:spiffe://acme/robot"))
        url = f"https://localhost:{connection.server.http_address.port}"
        async with httpx.AsyncClient(base_url=url, verify=trusted) as client:
            assert (await client.post(WHO, json={})).json()["tenant"] == "acme"
        without = ssl.create_default_context(cafile=str(authority.path))
        async with httpx.AsyncClient(base_url=url, verify=without) as client:
            with pytest.raises((httpx.ReadError, httpx.ConnectError, httpx.RemoteProtocolError)):
                await client.post(WHO, json={})
        renewed = Authority(tmp_path, "renewed")
        pem, key = (tmp_path / name for name in ("server.pem", "server.key"))
        for target, made in zip((pem, key), renewed.issue("newer", "dns:localhost"), strict=True):
            target.write_bytes(made.read_bytes())
        trusting_the_new = ssl.create_default_context(cafile=str(renewed.path))
        trusting_the_new.load_cert_chain(*authority.issue("robot2", "uri:spiffe://acme/robot"))
        async with httpx.AsyncClient(base_url=url, verify=trusting_the_new) as client:
            assert (await client.post(WHO, json={})).status_code == 200


async def test_http_can_be_served_on_a_socket_that_only_its_owner_may_open(tmp_path: Path) -> None:
    where = tmp_path / "sockets"
    where.mkdir(mode=0o700)
    settings = {"listen": f"unix:{where}/grpc", "http_listen": f"unix:{where}/http", "authentication": ("unix",)}
    for _ in range(2):  # The second one finds the path of the first.
        async with whole_server(tmp_path / "data", **settings):
            assert stat.S_IMODE((where / "http").stat().st_mode) & 0o077 == 0
            transport = httpx.AsyncHTTPTransport(uds=str(where / "http"))
            async with httpx.AsyncClient(transport=transport, base_url="http://anything") as client:
                who = (await client.post(WHO, json={})).json()
                assert who["tenant"] == "default"
    where.chmod(0o755)
    with pytest.raises(ConfigurationError, match="must belong to you"):
        async with whole_server(tmp_path / "data", **settings):
            pass


async def test_an_address_that_is_taken_is_an_error_and_leaves_nothing_open(tmp_path: Path) -> None:
    async with bare_server(**HTTP) as server:
        taken = {"http_listen": str(server.server.http_address)}
        with pytest.raises(ConfigurationError, match="cannot listen"):
            async with bare_server(**taken):
                pass
