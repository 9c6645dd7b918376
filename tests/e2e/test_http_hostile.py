"""Hostile requests over HTTP: each is refused with a reason or dropped, while others are served."""

import asyncio
import base64
import gzip
import json
import struct
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from itertools import product
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import httpx
import pytest
from mnemon.v1 import facts_pb2, knowledge_store_pb2
from mnemon_server.transport.http import intake

from tests.support.http_calls import JSON, http_client
from tests.support.server import WAIT_S, Connection, eventually, until, whole_server

HTTP = {"http_listen": "127.0.0.1:0"}
CREATE, PUT = "/mnemon.v1.MemoryService/CreateMemory", "/mnemon.v1.FactService/PutFact"
WATCH = "/mnemon.v1.ChangeService/WatchChanges"
WHOLE = {"earliest": True, "view": "CHANGE_VIEW_FULL", "maxBatchSize": 1000}
SENT = {"memory": {"content": "Ada likes tea."}}


@asynccontextmanager
async def serving(folder: Path, **settings: Any) -> AsyncIterator[tuple[Connection, httpx.AsyncClient]]:
    async with whole_server(folder, **HTTP, **settings) as server, http_client(server) as client:
        yield server, client


@asynccontextmanager
async def posting(server: Connection, path: str, kind: str, *headers: str) -> AsyncIterator[Any]:
    """A request whose body is up to the test."""
    address = server.server.http_address
    reader, writer = await asyncio.open_connection(address.host, address.port, limit=1024)
    lines = [f"POST {path} HTTP/1.1", "host: localhost", f"content-type: {kind}", *headers, "", ""]
    writer.write("\r\n".join(lines).encode())
    try:
        yield reader, writer
    finally:
        writer.transport.abort()


def error(response: httpx.Response) -> tuple[int, str]:
    """The status and the reason of an error in JSON."""
    return response.status_code, response.json()["details"][0]["debug"]["reason"]


WIDE_AND_DEEP = {
    "[" * 1_000_000: "MALFORMED_MESSAGE",
    '{"fact": {"value": {"a": ' + "[" * 1_000_000: "MALFORMED_MESSAGE",
    '{"fact": {"value": {"a": ' + "[" * 90 + "]" * 90 + "}}}": "INVALID_ARGUMENT",
    "{" + ",".join(f'"k{n}":1' for n in range(140_000)) + "}": "MALFORMED_MESSAGE",
    "{" + ",".join(f'"k{n}":1' for n in range(100_000)) + "}": "INVALID_ARGUMENT",
    '{"fact":{"key":"k","value":{' + ",".join(f'"k{n}":1' for n in range(120_000)) + "}}}": "INVALID_ARGUMENT",
    '{"fact":{"namespace":[' + ",".join(["1"] * 130_000) + "]}}": "INVALID_ARGUMENT",
}


async def test_deep_and_wide_json_is_refused_while_others_are_served(tmp_path: Path) -> None:
    async with serving(tmp_path) as (_, client):
        for body, reason in WIDE_AND_DEEP.items():
            attack = asyncio.ensure_future(client.post(PUT, content=body.encode(), headers={"content-type": JSON}))
            assert (await client.post(CREATE, json=SENT)).status_code == 200
            assert error(await attack) == (400, reason), body[:40]


async def test_a_body_in_very_many_small_parts_is_refused(tmp_path: Path) -> None:
    async with (
        serving(tmp_path) as (server, _client),
        posting(server, CREATE, JSON, "transfer-encoding: chunked") as io,
    ):
        reader, writer = io
        writer.write(b"1\r\n \r\n" * 300)
        assert b" 400 " in (await asyncio.wait_for(reader.read(), WAIT_S)).partition(b"\r\n")[0]
        await until(lambda: not server.server.http_connections)


async def test_a_body_in_parts_of_ordinary_size_is_read_however_many_there_are(tmp_path: Path) -> None:
    async with serving(tmp_path) as (_, client):
        text = json.dumps({"memory": {"content": "x" * 100_000}}).encode()

        async def parts() -> AsyncIterator[bytes]:
            for start in range(0, len(text), 32):
                yield text[start : start + 32]

        assert (await client.post(CREATE, content=parts(), headers={"content-type": JSON})).status_code == 200


async def test_frames_that_lie_about_their_length_are_refused(tmp_path: Path) -> None:
    async with serving(tmp_path) as (_, client):
        for kind, size in product(("grpc-web+proto", "grpc-web-text", "connect+proto"), (0, 1, 1000, 0xFFFFFFFF)):
            framed = struct.pack(">BI", 0, size) + b"\x0a\x03abc"
            body = base64.b64encode(framed) if kind.endswith("text") else framed
            path = WATCH if kind.startswith("connect") else CREATE
            answer = await client.post(path, content=body, headers={"content-type": f"application/{kind}"})
            text = base64.b64decode(answer.content) if kind.endswith("text") else answer.content
            assert answer.status_code == 200 and b"the body must be one message" in text
            assert (b"grpc-status: 3" if "web" in kind else b'"invalid_argument"') in text


async def test_compressed_json_counts_by_what_it_holds(tmp_path: Path) -> None:
    async with serving(tmp_path) as (_, client):
        packed = {"content-type": JSON, "content-encoding": "gzip"}
        full = gzip.compress(json.dumps({"memory": {"content": "x" * 1_000_000}}).encode())
        assert len(full) < 2_000
        assert (await client.post(CREATE, content=full, headers=packed)).status_code == 200
        keys = gzip.compress(b'{"embedding":[' + b"0," * 500_000 + b"0]}")
        assert error(await client.post(CREATE, content=keys, headers=packed)) == (400, "MALFORMED_MESSAGE")
        several = full + gzip.compress(b" ")
        assert error(await client.post(CREATE, content=several, headers=packed)) == (400, "MALFORMED_MESSAGE")
        twice = gzip.compress(gzip.compress(b" " * (64 << 20)))
        assert error(await client.post(CREATE, content=twice, headers=packed)) == (400, "MALFORMED_MESSAGE")


async def test_an_event_that_is_not_read_ends_its_stream_though_the_kernel_could_hold_it(tmp_path: Path) -> None:
    async with serving(tmp_path, stream_write_timeout_s=0.2) as (server, client):
        document = {"doc_id": "large", "content": "z" * 900_000}
        await server.store.IndexDocument(knowledge_store_pb2.IndexDocumentRequest(document=document))
        path = f"{WATCH}?{urlencode({'encoding': 'json', 'message': json.dumps(WHOLE)})}"
        address = server.server.http_address
        _, writer = await asyncio.open_connection(address.host, address.port, limit=1024)
        writer.write(f"GET {path} HTTP/1.1\r\nhost: localhost\r\naccept: text/event-stream\r\n\r\n".encode())
        await until(lambda: server.server.open_streams)
        await until(lambda: not server.server.open_streams)
        await until(lambda: not server.server.accounts.usage_of("default").bytes_in_flight)
        assert (await client.post(CREATE, json=SENT)).status_code == 200
        writer.transport.abort()


async def test_an_answer_that_is_not_read_is_cut_off_at_the_deadline_of_its_client(tmp_path: Path) -> None:
    async with serving(tmp_path, stream_write_timeout_s=300.0) as (server, client):
        for key in "abc":
            fact = {"namespace": ["a"], "key": key, "value": {"text": key * 900_000}}
            assert (await client.post(PUT, json={"fact": fact})).status_code == 200
        names = [facts_pb2.FactName(namespace=["a"], key=key) for key in "abc"]
        message = facts_pb2.BatchGetFactsRequest(names=names).SerializeToString()
        request = struct.pack(">BI", 0, len(message)) + message
        kind, path = "application/grpc-web+proto", "/mnemon.v1.FactService/BatchGetFacts"
        whole = await client.post(path, content=request, headers={"content-type": kind})
        limits = "connect-timeout-ms: 2000", f"content-length: {len(request)}"
        async with posting(server, path, kind, *limits) as (reader, writer):
            writer.write(request)
            await until(lambda: server.server.accounts.usage_of("default").bytes_in_flight)
            await until(lambda: not server.server.accounts.usage_of("default").bytes_in_flight)
            _, _, body = (await asyncio.wait_for(reader.read(), WAIT_S)).partition(b"\r\n\r\n")
        assert body and len(body) < len(whole.content)
        assert whole.content.startswith(body)


UNFINISHED_BYTES = 2_090_000
"""Twelve leave too little for half a megabyte more."""


async def test_bodies_that_do_not_end_share_their_memory_and_give_way_to_those_that_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # None is late at first, though a busy machine may take long to send them all.
    monkeypatch.setattr(intake, "LATE_S", 600.0)
    length = f"content-length: {UNFINISHED_BYTES + 1}"
    async with serving(tmp_path) as (server, client), AsyncExitStack() as stack:
        answers = []
        for _ in range(30):
            reader, writer = await stack.enter_async_context(posting(server, CREATE, JSON, length))
            writer.write(b" " * UNFINISHED_BYTES)
            answers.append(asyncio.create_task(reader.readline()))

        def have(code: bytes) -> int:
            return sum(answer.done() and code in answer.result() for answer in answers)

        await until(lambda: have(b" 429 ") >= 18)
        assert have(b" 504 ") == 0
        monkeypatch.setattr(intake, "LATE_S", 0.0)
        text = json.dumps({"memory": {"content": "x" * 500_000}})

        async def is_stored() -> bool:
            return (await client.post(CREATE, content=text, headers={"content-type": JSON})).status_code == 200

        await eventually(is_stored)
        await until(lambda: have(b" 504 "))
        for answer in answers:
            answer.cancel()
