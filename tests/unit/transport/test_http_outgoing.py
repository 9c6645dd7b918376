"""An answer leaves in one call of the system, head and body together."""

import asyncio

import pytest
from mnemon_server.transport.http.application import Application, Page
from mnemon_server.transport.http.connection import Connection
from mnemon_server.transport.http.cross_origin import CrossOrigin
from uvicorn import Config
from uvicorn.server import ServerState


class Wire(asyncio.Transport):
    """A transport that keeps what is sent, call by call."""

    def __init__(self) -> None:
        super().__init__()
        self.sent: list[bytes] = []
        self.is_closed = False

    def write(self, data: bytes | bytearray | memoryview) -> None:
        if data:
            self.sent.append(bytes(data))

    def writelines(self, list_of_data: list[bytes]) -> None:  # type: ignore[override] # of what is used here
        self.write(b"".join(list_of_data))

    def close(self) -> None:
        self.is_closed = True

    def is_closing(self) -> bool:
        return self.is_closed

    def resume_reading(self) -> None:
        """Is always read."""


async def shown() -> Page:
    return Page(b"shown\n")


@pytest.mark.parametrize(
    ("request_line", "status", "end", "closes"),
    [
        ("GET /page HTTP/1.1", b"HTTP/1.1 200 OK", b"\r\n\r\nshown\n", False),
        ("HEAD /page HTTP/1.1", b"HTTP/1.1 200 OK", b"\r\n\r\n", False),
        ("GET /nothing HTTP/1.1", b"HTTP/1.1 404 Not Found", b'<service>/<method>"}', False),
        ("OPTIONS /page HTTP/1.1", b"HTTP/1.1 204 No Content", b"\r\n\r\n", False),
        ("GET /page HTTP/1.0", b"HTTP/1.1 200 OK", b"\r\n\r\nshown\n", True),
    ],
)
async def test_an_answer_leaves_at_once(request_line: str, status: bytes, end: bytes, closes: bool) -> None:  # noqa: FBT001
    application = Application(None, {"/page": shown}, CrossOrigin(()), local_hosts_only=False)
    config = Config(application, http=Connection, ws="none", lifespan="off", log_config=None)
    config.load()
    wire = Wire()
    connection = Connection(config, ServerState(), connections_max=8)
    connection.connection_made(wire)
    connection.data_received(f"{request_line}\r\nhost: localhost\r\n\r\n".encode())
    await asyncio.gather(*asyncio.all_tasks() - {asyncio.current_task()})
    [answer] = wire.sent
    assert answer.startswith(status)
    assert answer.endswith(end)
    assert wire.is_closed is closes
