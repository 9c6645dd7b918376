"""An HTTP/2 client that does what no gRPC client would do."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import h2.config
import h2.connection
import h2.events
from h2.errors import ErrorCodes

HEADERS = (
    (":method", "POST"),
    (":scheme", "http"),
    (":authority", "x"),
    ("te", "trailers"),
    ("content-type", "application/grpc"),
)


class RawConnection:
    """One connection, and its calls by the number of their stream."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer
        self._http = h2.connection.H2Connection(h2.config.H2Configuration(client_side=True))
        self._http.initiate_connection()
        self.trailers: dict[int, dict[str, str]] = {}
        """What calls that have ended were told; nothing if their stream was refused."""
        self._pings = 0

    async def begin(self, path: str, *, announced: int, sent: int) -> int:
        """Begins a call with this announced request length, sends this much of it, and returns the stream's number."""
        call: int = self._http.get_next_available_stream_id()
        self._http.send_headers(call, [(":path", path), *HEADERS])
        self._http.send_data(call, b"\0" + announced.to_bytes(4, "big"))
        await self._flush()
        while sent:
            size = min(sent, self._http.local_flow_control_window(call), self._http.max_outbound_frame_size)
            if size:
                self._http.send_data(call, bytes(size))
                sent -= size
                await self._flush()
            else:
                await self._take()
        return call

    async def call(self, path: str, request: bytes) -> int:
        """Begins a call with this whole request; returns the stream's number. Takes up to 64 KiB of all answers."""
        number: int = self._http.get_next_available_stream_id()
        self._http.send_headers(number, [(":path", path), *HEADERS])
        self._http.send_data(number, b"\0" + len(request).to_bytes(4, "big") + request, end_stream=True)
        await self._flush()
        return number

    async def calls(self, path: str, count: int) -> None:
        """Begins calls with empty requests, all at once; returns once the server has read them."""
        for _ in range(count):
            number = self._http.get_next_available_stream_id()
            self._http.send_headers(number, [(":path", path), *HEADERS])
            self._http.send_data(number, bytes(5), end_stream=True)
        await self._answered_ping()

    async def open(self, path: str, count: int, *, reset: bool = False) -> None:
        """Opens streams whose requests do not come, all at once; may reset each of them."""
        for _ in range(count):
            call = self._http.get_next_available_stream_id()
            self._http.send_headers(call, [(":path", path), *HEADERS])
            if reset:
                self._http.reset_stream(call)
        await self._flush()

    async def refused(self) -> int:
        """How many open streams the server has refused, of all that were begun before."""
        await self._answered_ping()
        return sum(not each for each in self.trailers.values())

    async def greeted(self) -> None:
        """Waits until the server has sent something."""
        await self._flush()
        await self._take()

    async def end_of(self, call: int) -> dict[str, str]:
        """The trailers of a call, once it has ended."""
        while call not in self.trailers:
            await self._take()
        return self.trailers[call]

    async def ends(self, count: int) -> list[dict[str, str]]:
        """The trailers of all calls that have ended, once there are this many."""
        while len(self.trailers) < count:
            await self._take()
        return list(self.trailers.values())

    async def _answered_ping(self) -> None:
        pings, self._pings = self._pings, self._pings + 1
        self._http.ping(bytes(8))
        await self._flush()
        while self._pings > pings:
            await self._take()

    async def _take(self) -> None:
        data = await self._reader.read(1 << 16)
        assert data, "the server closed the connection"
        for event in self._http.receive_data(data):
            if isinstance(event, h2.events.ResponseReceived | h2.events.TrailersReceived):
                self._note(event)
            elif isinstance(event, h2.events.StreamReset) and event.error_code == ErrorCodes.REFUSED_STREAM:
                self.trailers[event.stream_id] = {}
            elif isinstance(event, h2.events.PingAckReceived):
                self._pings -= 1
        await self._flush()

    def _note(self, event: Any) -> None:
        headers = {key.decode(): value.decode() for key, value in event.headers}
        if "grpc-status" in headers:
            self.trailers[event.stream_id] = headers

    async def _flush(self) -> None:
        self._writer.write(self._http.data_to_send())
        await self._writer.drain()


@asynccontextmanager
async def raw_connection(address: str) -> AsyncIterator[RawConnection]:
    """A connection to an address that is a host and a port."""
    host, _, port = address.rpartition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    try:
        yield RawConnection(reader, writer)
    finally:
        writer.close()
