"""A server for a measurement: a real process on a free port of loopback, with default settings."""

import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from mnemon import Client

from tests.bench.processes import clean_environment, other_checkout

START_TIMEOUT_S = 120.0
STOP_TIMEOUT_S = 30.0


@contextmanager
def serving(
    address: str | None = None, *, folder: Path | None = None, settings: Mapping[str, str] | None = None
) -> Iterator[Client]:
    """A client of the server at `address`, or of a new one that runs until the context ends.

    Args:
        address: of a running server.
        folder: where the server stores its data. None: in a temporary folder.
        settings: environment variables of the server. All other settings have their defaults.
    """
    if address is not None:
        with Client(address, timeout=300.0) as client:
            client.wait_until_ready(START_TIMEOUT_S)
            yield client
        return
    with (
        tempfile.TemporaryDirectory(prefix="mnemon-bench-") as empty,
        _process(folder or Path(empty), settings or {}) as own_address,
        Client(own_address, timeout=300.0) as client,
    ):
        client.wait_until_ready(START_TIMEOUT_S)
        yield client


@contextmanager
def _process(folder: Path, settings: Mapping[str, str]) -> Iterator[str]:
    address = f"127.0.0.1:{_free_port()}"
    folder.mkdir(parents=True, exist_ok=True)
    command = [sys.executable, "-m", "mnemon_server", "serve", "--listen", address, "--data-dir", str(folder / "data")]
    environment = clean_environment(other_checkout()) | settings
    with (folder / "server.log").open("w+b") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log, env=environment)
        try:
            yield address
        except BaseException:
            log.seek(0)
            sys.stderr.write(log.read().decode(errors="replace")[-4_000:])
            raise
        finally:
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(STOP_TIMEOUT_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
