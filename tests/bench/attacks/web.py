"""Attacks over HTTP: slow and endless requests, bodies that are larger or other than they say, and unread answers."""

import gzip
import json
import selectors
import socket
import struct
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from time import monotonic, sleep
from urllib.parse import urlencode

from tests.bench.attacks.calls import CALL_TIMEOUT_S, Outcomes, Target

JSON = "application/json"
CREATE, PUT = "/mnemon.v1.MemoryService/CreateMemory", "/mnemon.v1.FactService/PutFact"
WATCH = "/mnemon.v1.ChangeService/WatchChanges"
BODY_BYTES = 2 << 20
"""The limit of a JSON body."""
READ_BYTES = 1 << 16
TOGETHER = 4


def _connect(target: Target) -> socket.socket:
    host, port = target.http.rsplit(":", 1)
    return socket.create_connection((host, int(port)), timeout=CALL_TIMEOUT_S)


def _head(target: Target, method: str, path: str, *lines: str) -> bytes:
    headers = [f"{key}: {value}" for key, value in target.headers]
    return "\r\n".join([f"{method} {path} HTTP/1.1", "host: localhost", *headers, *lines]).encode() + b"\r\n"


def _request(target: Target, path: str, body: bytes, *lines: str, kind: str = JSON) -> bytes:
    length = f"content-length: {len(body)}"
    return _head(target, "POST", path, f"content-type: {kind}", length, *lines) + b"\r\n" + body


def _status(connection: socket.socket) -> str:
    """The status of the answer, or how the connection ended."""
    try:
        line = connection.recv(READ_BYTES).partition(b"\r\n")[0]
    except TimeoutError:
        return "no answer"
    except OSError:
        return "closed"
    return line.split(b" ")[1].decode() if line.count(b" ") > 1 else "closed"


def _ending(target: Target, sent: bytes) -> str:
    """The status of a request on a connection of its own."""
    try:
        with _connect(target) as connection:
            with suppress(OSError):
                connection.sendall(sent)
            return _status(connection)
    except OSError:
        return "not connected"


def _together(target: Target, requests: Sequence[bytes]) -> Outcomes:
    with ThreadPoolExecutor(TOGETHER) as threads:
        return Counter(threads.map(lambda sent: _ending(target, sent), requests))


@contextmanager
def _many(target: Target, count: int) -> Iterator[list[socket.socket]]:
    """As many connections as the server lets through."""
    connections = []
    try:
        for _ in range(count):
            with suppress(OSError):
                connections.append(_connect(target))
        yield connections
    finally:
        for each in connections:
            each.close()


def _ended(connections: Sequence[socket.socket], outcomes: Outcomes) -> list[socket.socket]:
    """Takes what came without waiting; those that are still open, and do not read."""
    with selectors.DefaultSelector() as selector:
        for each in connections:
            selector.register(each, selectors.EVENT_READ)
        answered = {key.fileobj for key, _ in selector.select(0)}
    for each in answered:
        outcomes[_status(each)] += 1  # type: ignore[arg-type]
    return [each for each in connections if each not in answered]


def _trickle(
    target: Target, count: int, begin: Callable[[], bytes], more: bytes, *, seconds: float, pause_s: float
) -> Outcomes:
    """Begins requests on `count` connections, then keeps sending a little more of each."""
    outcomes: Outcomes = Counter()
    with _many(target, count) as connections:
        left = connections
        for each in left:
            with suppress(OSError):
                each.sendall(begin())
        deadline = monotonic() + seconds
        while left and monotonic() < deadline:
            for each in left:
                with suppress(OSError):
                    each.sendall(more)
            sleep(pause_s)
            left = _ended(left, outcomes)
        outcomes["still open"] += len(left)
    return outcomes


def send_headers_slowly(target: Target, count: int = 500, seconds: float = 4.0) -> Outcomes:
    """Headers that never end, sent at ten lines a second (slowloris)."""
    head = _head(target, "POST", CREATE)
    return _trickle(target, count, lambda: head, b"x: y\r\n", seconds=seconds, pause_s=0.1)


def leave_bodies_unfinished(target: Target, count: int = 200, seconds: float = 4.0) -> Outcomes:
    """Bodies of 2 MiB: all but 10 kB at once, then ten bytes a second."""
    head = _head(target, "POST", CREATE, f"content-type: {JSON}", f"content-length: {BODY_BYTES}") + b"\r\n"
    body = b" " * (BODY_BYTES - 10_000)
    return _trickle(target, count, lambda: head + body, b" ", seconds=seconds, pause_s=0.1)


def hold_connections(target: Target, count: int = 3000, seconds: float = 3.0) -> Outcomes:
    """Thousands of connections that say nothing."""
    return _trickle(target, count, lambda: b"", b"", seconds=seconds, pause_s=0.5)


def send_huge_headers(target: Target, count: int = 200) -> Outcomes:
    """A megabyte of headers, in one line or in many."""
    lines = "".join(f"x{number}: y\r\n" for number in range(100_000)).encode()
    sent = [_head(target, "GET", "/healthz") + headers for headers in (b"x: " + b"y" * 1_000_000, lines)]
    return _together(target, sent * (count // 2))


def send_oversized_json(target: Target, count: int = 20) -> Outcomes:
    """Bodies of 8 MiB, with and without a Content-Length."""
    body = b'{"memory":{"content":"' + b"x" * (8 << 20) + b'"}}'
    chunked = _head(target, "POST", CREATE, f"content-type: {JSON}", "transfer-encoding: chunked") + b"\r\n"
    chunked += b"%x\r\n" % len(body) + body + b"\r\n0\r\n\r\n"
    return _together(target, [_request(target, CREATE, body), chunked] * (count // 2))


def send_deep_and_wide_json(target: Target) -> Outcomes:
    """Bodies of 2 MiB of brackets, members, lists and labels: as many as may be, and more."""
    members = ",".join(f'"k{number}":1' for number in range(130_000))
    more = ",".join(f'"k{number}":1' for number in range(180_000))
    texts = [
        "[" * BODY_BYTES,
        "{" + members + "}",
        '{"fact":{"namespace":["a"],"key":"k","value":{' + members + "}}}",
        '{"fact":{"namespace":["a"],"key":"k","value":{' + more + "}}}",
        '{"fact":{"namespace":["a"],"key":"k","value":{"a":[' + "[]," * 120_000 + "[]]}}}",
        '{"fact":{"namespace":[' + "1," * 120_000 + "1]}}",
    ]
    return _together(target, [_request(target, PUT, text.encode()) for text in texts])


def send_tiny_chunks(target: Target, count: int = 40) -> Outcomes:
    """Bodies of a mebibyte in chunks of a byte."""
    head = _head(target, "POST", CREATE, f"content-type: {JSON}", "transfer-encoding: chunked") + b"\r\n"
    return _together(target, [head + b"1\r\n \r\n" * (1 << 20)] * count)


def send_bombs(target: Target, count: int = 200) -> Outcomes:
    """A few kilobytes of gzip that hold 64 MiB, or nearly what may be."""
    packed = "content-encoding: gzip"
    nearly = json.dumps({"memory": {"content": " " * (BODY_BYTES - 100)}}).encode()
    bodies = [gzip.compress(bytes(64 << 20)), gzip.compress(nearly)]
    return _together(target, [_request(target, CREATE, body, packed) for body in bodies * (count // 2)])


def lie_about_frames(target: Target, count: int = 2000) -> Outcomes:
    """Frames of gRPC-Web that say they are longer, or shorter, than they are."""
    bodies = [struct.pack(">BI", flags, size) + b"x" * 1000 for flags in (0, 1, 128) for size in (0, 1, 0xFFFFFFFF)]
    sent = [_request(target, CREATE, body, kind="application/grpc-web") for body in bodies]
    return _together(target, sent * (count // len(sent)))


def pipeline_requests(target: Target, count: int = 100) -> Outcomes:
    """Ten thousand requests at once on a connection, without reading an answer."""
    return _together(target, [(_head(target, "GET", "/healthz") + b"\r\n") * 10_000] * count)


def leave_events_unread(target: Target, count: int = 200, seconds: float = 8.0) -> Outcomes:
    """Readers of server-sent events, with whole records, that read nothing."""
    message = json.dumps({"earliest": True, "view": "CHANGE_VIEW_FULL", "maxBatchSize": 1000})
    path = f"{WATCH}?{urlencode({'encoding': 'json', 'message': message})}"
    sent = _head(target, "GET", path, "accept: text/event-stream") + b"\r\n"
    with _many(target, count) as connections:
        for each in connections:
            with suppress(OSError):
                each.sendall(sent)
        sleep(seconds)
        outcomes: Outcomes = Counter()
        left = _ended(connections, outcomes)
    return outcomes + Counter({"unread": len(left)})
