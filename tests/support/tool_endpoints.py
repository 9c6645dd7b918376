"""An operator's HTTP endpoint that records its requests and answers as a test says."""

import json
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

Answer = Callable[[BaseHTTPRequestHandler], None]


@dataclass(frozen=True)
class Received:
    """A request as it was received."""

    path: str
    body: bytes
    headers: Mapping[str, str]

    @property
    def arguments(self) -> Any:
        """The arguments in the body."""
        return json.loads(self.body)


class RecordingHandler(BaseHTTPRequestHandler):
    """Handles a request after it was recorded."""

    request_received: Received


@dataclass
class ToolServer:
    """The endpoint. `answer` writes the response. It may wait for `ended`, which is set when the test is over."""

    port: int
    answer: Answer
    received: list[Received] = field(default_factory=list)
    ended: threading.Event = field(default_factory=threading.Event)

    @property
    def url(self) -> str:
        """Its URL."""
        return f"http://127.0.0.1:{self.port}/tool"


def saying(
    content: str | bytes, status: int = 200, content_type: str = "text/plain; charset=utf-8", **headers: str
) -> Answer:
    """A response with this body. Underscores in the names of further headers become hyphens."""
    body = content.encode() if isinstance(content, str) else content

    def answer(handler: BaseHTTPRequestHandler) -> None:
        handler.send_response(status)
        if content_type:
            handler.send_header("Content-Type", content_type)
        for name, value in headers.items():
            handler.send_header(name.replace("_", "-"), value)
        handler.send_header("Content-Length", str(len(body)))
        handler.end_headers()
        handler.wfile.write(body)

    return answer


@contextmanager
def tool_server(answer: Answer, port: int = 0) -> Iterator[ToolServer]:
    """Serves on a port of loopback, a free one if it is 0, each request in its own thread."""

    class Handler(RecordingHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            headers = {name.lower(): text for name, text in self.headers.items()}
            self.request_received = Received(self.path, body, headers)
            served.received.append(self.request_received)
            try:
                served.answer(self)
            except (BrokenPipeError, ConnectionResetError):
                self.close_connection = True

        def log_message(self, *_: object) -> None:
            """Logs nothing."""

    with ThreadingHTTPServer(("127.0.0.1", port), Handler) as server:
        served = ToolServer(server.server_address[1], answer)
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield served
        finally:
            served.ended.set()
            server.shutdown()
            thread.join()
