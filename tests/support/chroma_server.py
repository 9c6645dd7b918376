"""A real Chroma server in its own process, for tests that talk to one, stop it and start it again."""

import os
import signal
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

from tests.support.forks import Fork
from tests.support.ports import HeldPort

_START_S = 60.0


class ChromaServer:
    """`chroma run` on a free port of loopback; `stop` and `start` keep port and data."""

    def __init__(self, data: Path) -> None:
        self.host = "127.0.0.1"
        self._held = HeldPort()
        self.port = self._held.number
        self.data = data
        self._process: Fork | None = None

    def start(self) -> None:
        """Starts the server and waits until it answers."""
        self.data.mkdir(parents=True, exist_ok=True)
        words = ["chroma", "run", "--path", str(self.data), "--host", self.host, "--port", str(self.port)]
        with (self.data.parent / "chroma-server.log").open("ab") as log:
            self._process = Fork(_run, words, environment=os.environ, out=log, err=log)
        deadline = time.monotonic() + _START_S
        while not self._answers():
            if self._process.poll() is not None or time.monotonic() > deadline:
                self.stop()
                raise RuntimeError(f"no Chroma server came up on {self.host}:{self.port}; see {self.data.parent}")
            time.sleep(0.05)

    def stop(self) -> None:
        """Stops the server. It may be started again."""
        if self._process is not None:
            self._process.send_signal(signal.SIGCONT)
            self._process.send_signal(signal.SIGTERM)
            try:
                self._process.wait(10)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
            self._process = None

    def hang(self) -> None:
        """Stops it without ending it: the system takes connections, and nothing answers."""
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)

    def go_on(self) -> None:
        """Lets it answer again."""
        assert self._process is not None
        self._process.send_signal(signal.SIGCONT)

    def __enter__(self) -> "ChromaServer":
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def _answers(self) -> bool:
        try:
            with urllib.request.urlopen(f"http://{self.host}:{self.port}/api/v2/heartbeat", timeout=1) as answer:
                return bool(answer.status == 200)
        except OSError:
            return False


def _run(words: list[str]) -> None:
    from chromadb.cli.cli import app

    os.setsid()
    sys.argv = words
    app()
