"""A TCP proxy on loopback that cuts its connections or drops their data on request."""

import socket
import threading
from types import TracebackType
from typing import Self

_READ_BYTES = 65_536


class CuttingProxy:
    """Forwards to one address from its own port, which it keeps while the server behind it comes and goes."""

    def __init__(self, target: str) -> None:
        host, _, port = target.rpartition(":")
        self._target = (host, int(port))
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._listener.getsockname()[1]}"
        self.connections = 0
        """How many there were."""
        self._open: set[socket.socket] = set()
        self._lock = threading.Lock()
        self._swallowing: set[socket.socket] = set()
        threading.Thread(target=self._accept, daemon=True).start()

    def cut(self) -> None:
        """Breaks every open connection at once, as a network would, without a message of either protocol."""
        with self._lock:
            for end in self._open:
                end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
                _shut(end)
            self._open.clear()

    def swallow(self) -> None:
        """From now on, open connections stay open but carry no data. New ones work."""
        with self._lock:
            self._swallowing |= self._open

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        _shut(self._listener)
        self._listener.close()
        self.cut()

    def _accept(self) -> None:
        while True:
            try:
                near, _ = self._listener.accept()
            except OSError:
                return
            try:
                far = socket.create_connection(self._target, timeout=5)
                far.settimeout(None)
            except OSError:
                near.close()
                continue
            with self._lock:
                self.connections += 1
                self._open |= {near, far}
            for source, sink in ((near, far), (far, near)):
                threading.Thread(target=self._forward, args=(source, sink), daemon=True).start()

    def _forward(self, source: socket.socket, sink: socket.socket) -> None:
        try:
            while data := source.recv(_READ_BYTES):
                if source not in self._swallowing:
                    sink.sendall(data)
        except OSError:
            pass
        finally:
            with self._lock:
                self._open.discard(source)
            _shut(sink)
            source.close()


def _shut(end: socket.socket) -> None:
    try:
        end.shutdown(socket.SHUT_RDWR)
    except OSError:
        return
