"""When a connection is read: those that send much take turns, so that no turn of the event loop reads all of them."""

import asyncio

from uvicorn.protocols.http.flow_control import FlowControl

from mnemon_server.transport.interceptors.low_priority import LowPriority

RUN_BYTES = 64 << 10
"""After so many, in one request or in several, a connection waits for its next turn."""


class Flow(FlowControl):
    """Pauses and resumes one connection, like uvicorn's own; but whoever reads on does so in turn."""

    def __init__(self, transport: asyncio.Transport, line: LowPriority) -> None:
        """Reads; `line` is that of all connections that wait."""
        super().__init__(transport)
        self._line = line
        self._turn: asyncio.Future[None] | None = None
        self._run_bytes = 0

    def count(self, size: int) -> None:
        """Counts bytes that were received; pauses after many of them."""
        self._run_bytes += size
        if self._run_bytes > RUN_BYTES and not self.read_paused:
            self.pause_reading()
            self.resume_reading()

    def pause_reading(self) -> None:
        """Reads no more until `resume_reading`."""
        if self._turn is not None:
            self._turn.cancel()
            self._turn = None
        super().pause_reading()

    def resume_reading(self) -> None:
        """Reads on once it is this connection's turn."""
        if self.read_paused and self._turn is None:
            self._turn = self._line.turn()
            self._turn.add_done_callback(self._read_on)

    def _read_on(self, turn: "asyncio.Future[None]") -> None:
        if turn is self._turn:
            self._turn, self._run_bytes = None, 0
            if not self._transport.is_closing():
                super().resume_reading()
