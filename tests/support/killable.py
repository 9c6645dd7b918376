"""A server that is killed and restarted on one port and folder, and clients that retry until they get an answer."""

import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import grpc
from mnemon import Client, DeadlineExceededError, UnavailableError

from tests.support.forks import Process, start
from tests.support.ports import HeldPort

T = TypeVar("T")

PASSING = (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED)
"""What a call may end with while the server is away."""


class KillableServer:
    """A process of `mnemon-server serve` that keeps its port and folder over restarts."""

    def __init__(self, folder: Path, *flags: str) -> None:
        self._port = HeldPort()
        self.address = self._port.address
        self.data_dir = folder / "data"
        self._flags = flags
        self._log_path = folder / "server.log"
        self._process: Process | None = None

    def start(self) -> None:
        """Returns when the server answers."""
        words = ["serve", "--listen", self.address, "--data-dir", str(self.data_dir), "--embedding-model", "hashing"]
        with self._log_path.open("ab") as output:
            self._process = start(*words, *self._flags, environment=os.environ, out=output, err=output)
        with Client(self.address) as client:
            client.wait_until_ready(120)

    def use(self, *flags: str) -> None:
        """Uses other flags from the next start on."""
        self._flags = flags

    def kill(self) -> None:
        """Kills it with SIGKILL at whatever point it is."""
        self._end(signal.SIGKILL)

    def terminate(self) -> None:
        """Stops it cleanly."""
        self._end(signal.SIGTERM)

    def log(self) -> str:
        """Its output over all restarts."""
        return self._log_path.read_text(errors="replace")

    def _end(self, how: signal.Signals) -> None:
        if self._process:
            self._process.send_signal(how)
            self._process.wait(60)
            self._process = None


def insist(call: Callable[[], T]) -> T:
    """The result of the call, retried until the server answers."""
    deadline = time.monotonic() + 120
    while True:
        try:
            return call()
        except (UnavailableError, DeadlineExceededError):
            if time.monotonic() > deadline:
                raise
            # Clients that retry without a pause would slow down the start of the server.
            time.sleep(0.02)


def insist_on(call: Callable[[], T]) -> T:
    """The same for a call of a stub."""
    deadline = time.monotonic() + 120
    while True:
        try:
            return call()
        except grpc.RpcError as error:
            if error.code() not in PASSING or time.monotonic() > deadline:
                raise
            time.sleep(0.01)
