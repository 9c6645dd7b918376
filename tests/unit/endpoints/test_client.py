"""The client of OpenAI-compatible endpoints, against a real server."""

import json
import os
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from email.utils import formatdate
from http.server import BaseHTTPRequestHandler
from pathlib import Path

import pytest
from mnemon_server.domain.errors import ConfigurationError
from mnemon_server.endpoints.client import ATTEMPTS_MAX, EndpointClient, EndpointError, EndpointSettings

from tests.support.ports import HeldPort
from tests.support.tool_endpoints import Answer, ToolServer, saying, tool_server

KEY = "sk-test-0123456789"


def client(url: str, **settings: object) -> EndpointClient:
    return EndpointClient(EndpointSettings(**{"name": "the endpoint", "url": url, "timeout_s": 20.0, **settings}))


def key_file(folder: Path, content: str = f"{KEY}\n", mode: int = 0o600) -> Path:
    path = folder / "key"
    path.write_text(content)
    path.chmod(mode)
    return path


def in_turn(*answers: Answer) -> Answer:
    """Each answer once; the last one for all further requests."""
    left = list(answers)

    def answer(handler: BaseHTTPRequestHandler) -> None:
        (left.pop(0) if len(left) > 1 else left[0])(handler)

    return answer


def failure(served: ToolServer, **settings: object) -> str:
    endpoint = client(served.url, **settings)
    with pytest.raises(EndpointError) as caught:
        endpoint.post("x", {})
    endpoint.close()
    return str(caught.value)


def test_json_is_posted_below_the_url_with_the_key_of_the_file(tmp_path: Path) -> None:
    with tool_server(saying('{"ok": [1, 2]}')) as served:
        endpoint = client(f"{served.url}/", key_file=key_file(tmp_path))
        assert endpoint.post("embeddings", {"input": ["naïve \ud800"]}) == {"ok": [1, 2]}
        endpoint.close()
    [request] = served.received
    assert request.path == "/tool/embeddings"
    assert request.arguments == {"input": ["naïve ?"]}
    assert request.headers["authorization"] == f"Bearer {KEY}"


def test_a_replaced_key_is_used_at_once(tmp_path: Path) -> None:
    with tool_server(saying("{}")) as served:
        endpoint = client(served.url, key_file=key_file(tmp_path))
        endpoint.post("x", {})
        key_file(tmp_path, "sk-next")
        endpoint.post("x", {})
        endpoint.close()
    assert [request.headers["authorization"] for request in served.received] == [f"Bearer {KEY}", "Bearer sk-next"]


@pytest.mark.parametrize("status", [429, 500, 502, 503, 504])
def test_a_status_that_may_pass_is_tried_again(status: int) -> None:
    with tool_server(in_turn(saying("busy", status, retry_after="0"), saying("{}"))) as served:
        endpoint = client(served.url)
        assert endpoint.post("x", {}) == {}
        endpoint.close()
    assert len(served.received) == 2


def test_a_time_to_retry_is_kept_and_one_beyond_the_timeout_ends_the_call() -> None:
    moments: list[float] = []

    def answer(handler: BaseHTTPRequestHandler) -> None:
        moments.append(time.monotonic())
        soon = formatdate(time.time() + 2, usegmt=True)
        (saying("busy", 429, retry_after=soon) if len(moments) == 1 else saying("{}"))(handler)

    with tool_server(answer) as served:
        endpoint = client(served.url)
        endpoint.post("x", {})
        endpoint.close()
    assert moments[1] - moments[0] >= 0.9

    with tool_server(saying("busy", 429, retry_after="3600")) as served:
        assert failure(served) == "the endpoint answered with status 429"
    assert len(served.received) == 1


def test_attempts_end_and_say_what_was_answered() -> None:
    with tool_server(saying("{}", 503, retry_after="0")) as served:
        assert failure(served) == "the endpoint answered with status 503"
    assert len(served.received) == ATTEMPTS_MAX


@pytest.mark.parametrize(
    ("status", "words"),
    [
        (400, "status 400 (context_length_exceeded)"),
        (401, "the key is missing or wrong"),
        (404, "the URL or the name of the model is wrong"),
        (302, "status 302"),
    ],
)
def test_a_refusal_is_final_and_repeats_neither_key_nor_request(tmp_path: Path, status: int, words: str) -> None:
    error = {"message": f"{KEY} cannot embed 'a secret'", "code": "context_length_exceeded"}
    with tool_server(saying(json.dumps({"error": error}), status, location="/elsewhere")) as served:
        message = failure(served, key_file=key_file(tmp_path))
    assert words in message
    assert KEY not in message and "secret" not in message
    assert len(served.received) == 1


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (saying("<html>"), "is not JSON"),
        (saying("[" * 100_000), "is not JSON"),
        (saying(b"\xff\xfe"), "is not JSON"),
        (saying("1" * 2000), "answered more than 1,000 bytes"),
        (saying("{}", content_encoding="gzip"), "compressed"),
    ],
)
def test_nonsense_is_named(answer: Answer, words: str) -> None:
    limit = 1000 if words.startswith("answered") else 1 << 20
    with tool_server(answer) as served:
        assert words in failure(served, answer_bytes_max=limit)
    assert len(served.received) == 1


def drip(handler: BaseHTTPRequestHandler) -> None:
    """An endless answer, whose pieces come often enough for the timeout of each read."""
    handler.send_response(200)
    handler.end_headers()
    while True:
        handler.wfile.write(b" ")
        handler.wfile.flush()


def test_an_answer_in_tiny_pieces_ends_with_the_timeout() -> None:
    with tool_server(drip) as served:
        assert failure(served, timeout_s=0.3, answer_bytes_max=1 << 40) == "the endpoint did not answer within 0.3 s"


def test_while_an_endpoint_is_away_one_call_waits_and_the_others_fail_at_once() -> None:
    hanging, release = threading.Semaphore(0), threading.Event()

    def hang(handler: BaseHTTPRequestHandler) -> None:
        hanging.release()
        if len(served.received) > 1:
            release.wait()
            saying("{}")(handler)
        else:
            served.ended.wait()

    with tool_server(hang) as served, ThreadPoolExecutor() as threads:
        away = client(served.url, timeout_s=2)
        with pytest.raises(EndpointError, match="did not answer"):
            away.post("x", {})
        hanging.acquire()
        probe = threads.submit(away.post, "x", {})
        hanging.acquire()
        for _ in range(5):
            with pytest.raises(EndpointError, match="did not answer"):
                away.post("x", {})
        assert len(served.received) == 2
        release.set()
        assert probe.result() == {}
        assert away.post("x", {}) == {}
        away.close()


def test_an_endpoint_that_is_not_there_is_named() -> None:
    port = HeldPort()
    endpoint = client(f"http://{port.address}/v1")
    with pytest.raises(EndpointError, match="the endpoint cannot be reached"):
        endpoint.post("x", {})
    endpoint.close()


def test_closing_ends_the_wait_for_the_next_attempt() -> None:
    asked = threading.Event()

    def answer(handler: BaseHTTPRequestHandler) -> None:
        saying("{}", 503, retry_after="15")(handler)
        asked.set()

    with tool_server(answer) as served, ThreadPoolExecutor() as threads:
        endpoint = client(served.url)
        call = threads.submit(endpoint.post, "x", {})
        asked.wait()
        endpoint.close()
        assert isinstance(call.exception(timeout=10), EndpointError)


@pytest.mark.parametrize("mode", [0o644, 0o620, 0o604])
def test_a_key_that_others_may_read_or_change_is_refused(tmp_path: Path, mode: int) -> None:
    path = key_file(tmp_path, mode=mode)
    with pytest.raises(ConfigurationError, match=f"mode 0{mode:o}, .*run `chmod 600 {path}`"):
        client("http://localhost/v1", key_file=path)


@pytest.mark.parametrize("content", ["", "two words", "two\nlines", "schlüssel", "x" * 9000])
def test_a_file_that_holds_no_key_is_refused_without_its_content(tmp_path: Path, content: str) -> None:
    path = key_file(tmp_path, content)
    with pytest.raises(ConfigurationError) as caught:
        client("http://localhost/v1", key_file=path)
    assert str(caught.value) == f"the key file {path} must hold the key alone, in one line of ASCII without spaces"


def test_a_missing_key_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=f"{tmp_path / 'no'} cannot be read: {os.strerror(2)}"):
        client("http://localhost/v1", key_file=tmp_path / "no")


@pytest.mark.parametrize("url", ["", "localhost:11434", "ftp://host/v1", "http://", "http://h/v1?x=1", "http://h:x"])
def test_a_url_that_is_none_is_refused(url: str) -> None:
    with pytest.raises(ConfigurationError, match="is not the URL of an endpoint"):
        client(url)


def test_a_password_in_the_url_is_refused_and_not_repeated() -> None:
    with pytest.raises(ConfigurationError) as caught:
        client("http://user:hunter2@host/v1")
    assert "hunter2" not in str(caught.value)
