"""Calls over HTTP: who calls, what a body may be, deadlines, cancellation, streams, and the shutdown."""

import asyncio
import gzip
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from mnemon.v1 import memory_pb2

from tests.support.access import guarded_server, make_key
from tests.support.handlers import Misbehaving, path
from tests.support.http_calls import JSON, call_http, http_client
from tests.support.memory_messages import create
from tests.support.rpcs import rpcs
from tests.support.server import WAIT_S, Connection, bare_server, until, whole_server

HTTP = {"http_listen": "127.0.0.1:0"}
CREATE, LIST = "/mnemon.v1.MemoryService/CreateMemory", "/mnemon.v1.MemoryService/ListMemories"
WATCH, INFO = "/mnemon.v1.ChangeService/WatchChanges", "/mnemon.v1.ServerService/GetServerInfo"
PROTO = {"content-type": "application/proto"}
WATCH_RPC = next(rpc for rpc in rpcs() if rpc.method.name == "WatchChanges")


@asynccontextmanager
async def serving(folder: Path, **settings: Any) -> AsyncIterator[tuple[Connection, httpx.AsyncClient]]:
    async with whole_server(folder, **HTTP, **settings) as server, http_client(server) as client:
        yield server, client


@asynccontextmanager
async def misbehaving(**settings: Any) -> AsyncIterator[tuple[Misbehaving, Connection, httpx.AsyncClient]]:
    handlers = Misbehaving()
    async with bare_server(handlers, **HTTP, **settings) as server, http_client(server) as client:
        yield handlers, server, client


def reason(response: httpx.Response) -> str:
    """The reason of an error in JSON."""
    found: str = response.json()["details"][0]["debug"]["reason"]
    return found


async def test_a_caller_is_known_by_its_headers_before_the_body_is_read(tmp_path: Path) -> None:
    reader, writer = make_key(tmp_path, "reader"), make_key(tmp_path, "writer")
    async with guarded_server(tmp_path, **HTTP) as server, http_client(server) as client:
        for credential, status in (("mn_no_such_key", b" 401 "), ("", b" 401 "), (reader, b" 403 ")):
            incoming, outgoing = await asyncio.open_connection(*host_and_port(server))
            outgoing.write(f"POST {CREATE} HTTP/1.1\r\nhost: localhost\r\ncontent-type: {JSON}\r\n".encode())
            outgoing.write(f"authorization: Bearer {credential}\r\ncontent-length: 1000\r\n\r\nhalf".encode())
            assert status in await asyncio.wait_for(incoming.readline(), WAIT_S)
            outgoing.close()
        sent = {"memory": {"content": "Ada likes tea.", "scope": {"user": "ada"}}}
        allowed = await client.post(CREATE, json=sent, headers={"authorization": f"Bearer {writer}"})
        assert allowed.json()["memory"]["content"] == "Ada likes tea."
        missing = await client.post(INFO, json={})
        assert missing.headers["www-authenticate"] == "Bearer"


async def test_quotas_count_calls_over_both_transports_together(tmp_path: Path) -> None:
    limits = {"quotas_per_tenant": ("calls_per_second=0.001", "calls_burst=2")}
    async with serving(tmp_path, **limits) as (server, client):
        await server.memories.CreateMemory(create("one"))
        assert (await client.post(LIST, json={})).status_code == 200
        refused = await client.post(LIST, json={})
        assert (refused.status_code, reason(refused)) == (429, "QUOTA_EXCEEDED")
        assert int(refused.headers["retry-after"]) > 0


async def test_every_call_has_the_request_id_of_its_client_or_a_new_one(tmp_path: Path) -> None:
    async with serving(tmp_path) as (_, client):
        given = await client.post(INFO, json={}, headers={"x-request-id": "mine-1"})
        made = await client.post(CREATE, json={})
        assert given.headers["x-request-id"] == "mine-1"
        assert len(made.headers["x-request-id"]) == 32


async def test_a_body_that_is_too_large_is_refused_and_as_soon_as_its_length_is_known(tmp_path: Path) -> None:
    async with serving(tmp_path) as (server, client):
        text = {"memory": {"content": "x" * (2 << 20)}}
        refused = await client.post(CREATE, json=text)
        assert (refused.status_code, reason(refused)) == (429, "MESSAGE_TOO_LARGE")
        assert "2,097,152 bytes" in refused.json()["message"]

        async def parts() -> AsyncIterator[bytes]:
            for _ in range(3):
                yield b" " * (1 << 20)

        streamed = await client.post(CREATE, content=parts(), headers={"content-type": JSON})
        assert reason(streamed) == "MESSAGE_TOO_LARGE"
        reader, writer = await asyncio.open_connection(*host_and_port(server))
        writer.write(f"POST {CREATE} HTTP/1.1\r\ncontent-type: {JSON}\r\nhost: localhost\r\n".encode())
        writer.write(b"content-length: 3000000\r\n\r\n")
        assert b" 429 " in await asyncio.wait_for(reader.readline(), WAIT_S)
        writer.close()


async def test_a_body_that_does_not_end_ends_its_call_and_its_connection() -> None:
    async with misbehaving(request_timeout_s=0.2) as (_, server, _client):
        reader, writer = await asyncio.open_connection(*host_and_port(server))
        writer.write(f"POST {path('echo')} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/proto\r\n".encode())
        writer.write(b"content-length: 10\r\n\r\nhalf")
        answer = await asyncio.wait_for(reader.read(), WAIT_S)
        assert b" 504 " in answer.partition(b"\r\n")[0]
        assert b"the request did not arrive within 0.2 s" in answer
        writer.close()


async def test_compressed_requests_are_read_and_none_unpacks_to_more_than_a_request_may_be(tmp_path: Path) -> None:
    async with serving(tmp_path) as (_, client):
        packed = {"content-type": JSON, "content-encoding": "gzip"}
        sent = gzip.compress(json.dumps({"memory": {"content": "Ada likes tea."}}).encode())
        assert (await client.post(CREATE, content=sent, headers=packed)).status_code == 200
        bomb = gzip.compress(b" " * (64 << 20))
        assert reason(await client.post(CREATE, content=bomb, headers=packed)) == "MESSAGE_TOO_LARGE"
        for wrong in (sent[:-9], b"no gzip"):
            assert reason(await client.post(CREATE, content=wrong, headers=packed)) == "MALFORMED_MESSAGE"
        brotli = await client.post(CREATE, content=sent, headers={**packed, "content-encoding": "br"})
        assert "must be gzip or identity" in brotli.json()["message"]


async def test_the_deadline_of_the_client_ends_a_call() -> None:
    async with misbehaving() as (handlers, _, client):
        for deadline in ({"connect-timeout-ms": "50"}, {"grpc-timeout": "50m"}):
            late = await client.post(path("wait"), headers={**PROTO, **deadline})
            assert (late.status_code, late.json()["code"]) == (504, "deadline_exceeded")
            assert reason(late) == "DEADLINE_EXCEEDED"
        assert handlers.waiting == 0


async def test_a_deadline_that_is_none_is_refused_instead_of_dropped() -> None:
    deadlines = [("connect-timeout-ms", text) for text in ("5s", "-1", "1.5", "", "12345678901", "٣")]
    deadlines += [("grpc-timeout", text) for text in ("500", "1d", "m", "")]
    async with misbehaving() as (handlers, _, client):
        for name, text in deadlines:
            refused = await client.post(path("wait"), headers={**PROTO, name: text.encode()})
            assert (refused.status_code, refused.json()["code"]) == (400, "invalid_argument"), text
            assert name in refused.json()["message"].lower()
            assert handlers.waiting == 0


@pytest.mark.parametrize("name", ["wait", "idle"])
async def test_a_client_that_leaves_cancels_its_call(name: str) -> None:
    async with misbehaving() as (handlers, _, client):
        kind = PROTO if name == "wait" else {"content-type": "application/grpc-web"}
        body = b"" if name == "wait" else bytes(5)
        call = asyncio.create_task(client.post(path(name), content=body, headers=kind))
        await until(lambda: handlers.waiting or handlers.opened)
        assert not handlers.cleaned_up
        call.cancel()
        await until(lambda: not handlers.waiting and handlers.opened == handlers.cleaned_up)


async def test_what_only_a_bug_causes_is_said_without_its_text() -> None:
    async with misbehaving() as (_, _server, client):
        single = await client.post(path("raise_error"), headers=PROTO)
        assert (single.status_code, reason(single)) == (500, "INTERNAL")
        web = {"content-type": "application/grpc-web"}
        midway = await client.post(path("raise_midway"), content=bytes(5), headers=web)
        assert (midway.status_code, midway.content[:10]) == (200, b"\0\0\0\0\x05first")
        assert b"grpc-status: 13" in midway.content
        assert b"path/of/a/file" not in single.content + midway.content


@pytest.mark.parametrize(("name", "size"), [("flood", b"100000"), ("large", b"60000000")])
async def test_a_client_that_does_not_read_is_let_go(name: str, size: bytes) -> None:
    async with misbehaving(stream_write_timeout_s=0.2, max_message_mib=64) as (_, server, _client):
        kind, head = ("grpc-web", b"\0\0\0\0" + bytes([len(size)])) if name == "flood" else ("proto", b"")
        _, writer = await asyncio.open_connection(*host_and_port(server), limit=1024)
        writer.write(f"POST {path(name)} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/{kind}\r\n".encode())
        writer.write(f"content-length: {len(head + size)}\r\n\r\n".encode() + head + size)
        await until(lambda: server.server.http_connections)
        await until(lambda: not server.server.http_connections)
        assert not server.server.open_streams
        writer.transport.abort()


async def test_server_sent_events_resume_where_the_browser_says_it_was(tmp_path: Path) -> None:
    async with serving(tmp_path) as (server, client):
        for text in ("one", "two"):
            await server.memories.CreateMemory(create(text))
        request = WATCH_RPC.request(earliest=True, max_batch_size=1)
        headers = {"accept": "text/event-stream"}
        async with client.stream("GET", WATCH, params=get(request), headers=headers) as events:
            assert events.headers["content-type"] == "text/event-stream"
            first = [await anext(lines) for lines in [events.aiter_lines()] for _ in range(6)]
        assert first[1].startswith("data: ")
        cursor = first[3].removeprefix("id: ")
        assert json.loads(first[4].removeprefix("data: "))["cursor"] == cursor
        resumed = {**headers, "last-event-id": cursor}
        async with client.stream("GET", WATCH, params=get(request), headers=resumed) as events:
            lines = [await anext(lines) for lines in [events.aiter_lines()] for _ in range(6)]
        [change] = json.loads(lines[4].removeprefix("data: "))["batch"]["changes"]
        listed = await client.post(LIST, json={})
        assert change["recordId"] == max(listed.json()["memories"], key=lambda each: each["createTime"])["memoryId"]
        damaged = await client.get(WATCH, params=get(request), headers={**headers, "last-event-id": "no cursor"})
        assert (damaged.status_code, reason(damaged)) == (400, "INVALID_CURSOR")


def get(request: Any) -> dict[str, str]:
    """The query of a GET."""
    from google.protobuf import json_format

    return {"encoding": "json", "message": json_format.MessageToJson(request)}


async def test_what_changes_nothing_may_be_a_get_and_nothing_else(tmp_path: Path) -> None:
    async with serving(tmp_path) as (_, client):
        assert (await client.get(INFO)).json() == (await client.post(INFO, json={})).json()
        named = memory_pb2.ListMemoriesRequest(page_size=1)
        assert (await client.get(LIST, params=get(named))).json() == {}
        misplaced = await client.get(LIST, params={"pageSize": "1"})
        assert misplaced.status_code == 400
        assert "'pageSize' is not one of the parameters message, encoding" in misplaced.json()["message"]
        dropped = await client.post(LIST, params={"pageSize": "1"}, json={})
        assert dropped.status_code == 400
        assert "'pageSize'" in dropped.json()["message"] and "body" in dropped.json()["message"]
        refused = await client.get(CREATE)
        assert (refused.status_code, refused.headers["allow"]) == (405, "POST")
        assert (await client.delete(LIST)).headers["allow"] == "GET, POST"
        assert (await client.get("/nothing")).status_code == 404
        unknown = await client.post("/mnemon.v1.MemoryService/Nothing", json={})
        assert (unknown.status_code, reason(unknown)) == (501, "UNIMPLEMENTED")


async def test_a_request_must_say_which_form_it_has(tmp_path: Path) -> None:
    """A page of another origin may send any other type without asking."""
    async with serving(tmp_path) as (_, client):
        for kind in ("text/plain", "application/x-www-form-urlencoded", "", "application/grpc", "application/connect"):
            refused = await client.post(CREATE, content=b"{}", headers={"content-type": kind})
            assert refused.status_code == 415
            assert "application/json" in refused.headers["accept-post"]


async def test_probes_say_whether_the_server_serves(tmp_path: Path) -> None:
    async with bare_server(**HTTP) as server, http_client(server) as client:
        assert (await client.get("/healthz")).status_code == 200
        assert (await client.get("/readyz")).status_code == 503
        assert (await client.head("/healthz")).content == b""
    async with serving(tmp_path) as (server, client):
        await until(lambda: server.server.health.readiness.warm)
        assert (await client.get("/readyz")).status_code == 200
        assert (await client.post("/healthz")).status_code == 405


async def test_options_names_the_methods_that_a_path_takes(tmp_path: Path) -> None:
    paths = {
        "/": "GET, HEAD, OPTIONS",
        "/docs": "GET, HEAD, OPTIONS",
        "/mnemon.v1.MemoryService/CreateMemory": "POST, OPTIONS",
        "/mnemon.v1.MemoryService/GetMemory": "GET, POST, OPTIONS",
    }
    async with serving(tmp_path) as (_, client):
        for path, allowed in paths.items():
            told = await client.options(path)
            assert (told.status_code, told.headers["allow"]) == (204, allowed)
            for method in allowed.split(", "):
                assert (await client.request(method, path)).status_code != 405, path
        for path in ("/mnemon.v1.MemoryService/Forget", "/nothing"):
            told = await client.options(path)
            assert (told.status_code, told.headers.get("allow")) == (404, None)


async def test_a_shutdown_finishes_calls_ends_streams_and_refuses_what_is_new() -> None:
    async with misbehaving() as (handlers, server, client):
        call = asyncio.create_task(client.post(path("wait"), headers=PROTO))
        web = {"content-type": "application/grpc-web"}
        stream = asyncio.create_task(client.post(path("idle"), content=bytes(5), headers=web))
        await until(lambda: handlers.waiting and handlers.opened)
        ending = asyncio.create_task(server.server.shut_down())
        assert b"grpc-status: 14" in (await asyncio.wait_for(stream, WAIT_S)).content
        assert not ending.done()
        async with httpx.AsyncClient() as later:
            with pytest.raises(httpx.ConnectError):
                await later.get(f"http://{server.server.http_address}/healthz")
        handlers.release.set()
        assert (await asyncio.wait_for(call, WAIT_S)).content == b"released"
        await asyncio.wait_for(ending, WAIT_S)


async def test_a_shutdown_does_not_wait_for_calls_longer_than_its_grace() -> None:
    async with misbehaving(shutdown_grace_s=0.1) as (handlers, server, client):
        call = asyncio.create_task(client.post(path("wait"), headers=PROTO))
        await until(lambda: handlers.waiting)
        await asyncio.wait_for(server.server.shut_down(), WAIT_S)
        ended = await asyncio.wait_for(call, WAIT_S)
        assert (ended.status_code, reason(ended)) == (503, "NOT_SERVING")


async def test_the_log_has_a_line_for_calls_over_http_as_for_others(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    from tests.support.access import every_event_logged

    with every_event_logged():
        async with serving(tmp_path) as (_, client):
            done = await client.post(CREATE, json={}, headers={"x-request-id": "look-for-me"})
            assert done.status_code == 400
    [line] = [json.loads(line) for line in capfd.readouterr().err.splitlines() if "look-for-me" in line]
    assert (line["method"], line["code"], line["reason"]) == (CREATE, "INVALID_ARGUMENT", "INVALID_ARGUMENT")
    assert line["peer"].startswith("ipv4:127.0.0.1:")


def host_and_port(server: Connection) -> tuple[str, int]:
    """Where it serves HTTP."""
    address = server.server.http_address
    assert address is not None
    return address.host, address.port


async def test_a_stream_over_http_sends_what_another_transport_changes(tmp_path: Path) -> None:
    async with serving(tmp_path) as (server, client):
        request = WATCH_RPC.request()
        async with client.stream("POST", WATCH, json={}) as lines:
            received = lines.aiter_lines()
            assert "started" in json.loads(await anext(received))
            await server.memories.CreateMemory(create("seen at once"))
            assert "batch" in json.loads(await anext(received))
        outcome = await call_http(client, WATCH_RPC, request, "application/connect+json", first=True)
        assert outcome.messages[0].HasField("started")
