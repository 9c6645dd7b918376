"""Processes that a measurement starts, queries for their memory, and stops."""

import os
import re
import signal
import socket
import subprocess
import sys
from pathlib import Path
from time import clock_gettime, monotonic, sleep

import grpc
from mnemon import Client

START_TIMEOUT_S = 180.0
STOP_TIMEOUT_S = 120.0
IDLE_TIMEOUT_S = 300.0
IDLE_SHARE_MAX = 0.05
CHECKOUT_VARIABLE = "BENCH_CHECKOUT"


class Process:
    """A Python program on a free port of loopback."""

    def __init__(self, log: Path, *arguments: str, checkout: Path | None = None, python: str = sys.executable) -> None:
        """Starts it, with the code of another checkout if one is given, and with the packages of its interpreter."""
        environment = clean_environment(checkout)
        with log.open("ab") as output:
            self._process = subprocess.Popen(
                [python, "-m", *arguments], stdout=output, stderr=output, env=environment, cwd=checkout
            )

    @property
    def pid(self) -> int:
        """Its process id."""
        return self._process.pid

    def resident_bytes(self) -> int:
        """Its resident memory, without files of the page cache."""
        status = Path(f"/proc/{self._process.pid}/status").read_text(encoding="ascii")
        found = re.search(r"RssAnon:\s+(\d+) kB", status)
        assert found is not None, status
        return int(found[1]) << 10

    def wait_until_idle(self) -> None:
        """Waits until background work is done: two seconds in which the process hardly used a processor."""
        deadline = monotonic() + IDLE_TIMEOUT_S
        used = self.processor_s()
        while monotonic() < deadline:
            sleep(2.0)
            before, used = used, self.processor_s()
            if used - before < 2.0 * IDLE_SHARE_MAX:
                return
        raise TimeoutError("the program did not come to rest")

    def processor_s(self) -> float:
        """The processor time that it has used so far, in seconds."""
        # Linux's clock of another process, as clock_getcpuclockid(3) makes it. /proc counts in ticks of 10 ms.
        return clock_gettime(~self._process.pid << 3 | 2)

    def stop(self) -> None:
        """Stops it cleanly."""
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGTERM)
        self._process.wait(STOP_TIMEOUT_S)

    def kill(self) -> None:
        """Kills it at once, whatever it is doing."""
        self._process.kill()
        self._process.wait()


class MnemonServer(Process):
    """Our server, on a folder that outlives it."""

    def __init__(self, folder: Path, *flags: str, checkout: Path | None = None, python: str = sys.executable) -> None:
        checkout = checkout or other_checkout()
        self.address = free_address()
        data = ["--data-dir", str(folder / "data"), "--knowledge-store-backend", "local"]
        super().__init__(
            folder / "server.log",
            "mnemon_server",
            "serve",
            "--listen",
            self.address,
            *data,
            "--log-level",
            "warning",
            *flags,
            checkout=checkout,
            python=python,
        )
        with Client(self.address) as client:
            client.wait_until_ready(START_TIMEOUT_S)


class EchoServer(Process):
    """The bare server that echoes requests."""

    def __init__(self, folder: Path) -> None:
        self.address = free_address()
        super().__init__(folder / "echo.log", "tests.bench.echo", self.address)
        with grpc.insecure_channel(self.address) as channel:
            grpc.channel_ready_future(channel).result(START_TIMEOUT_S)


class TraceCollector(Process):
    """A collector of OpenTelemetry traces."""

    def __init__(self, folder: Path) -> None:
        self.address = free_address()
        super().__init__(folder / "collector.log", "tests.bench.collector", self.address)


class OpenAIEndpoint(Process):
    """The endpoint with a model and a judge."""

    def __init__(self, folder: Path) -> None:
        address = free_address()
        super().__init__(folder / "endpoint.log", "tests.bench.openai_endpoint", address)
        self.url = f"http://{address}/v1"
        host, _, port = address.rpartition(":")
        deadline = monotonic() + START_TIMEOUT_S
        while not _is_reachable(host, int(port)):
            if monotonic() > deadline:
                raise TimeoutError("the endpoint did not start")
            sleep(0.05)


def _is_reachable(host: str, port: int) -> bool:
    try:
        socket.create_connection((host, port)).close()
    except OSError:
        return False
    return True


def other_checkout() -> Path | None:
    """The checkout whose server is measured, if it is not this one; see `tests.bench.compare`."""
    named = os.environ.get(CHECKOUT_VARIABLE)
    return Path(named) if named else None


def clean_environment(checkout: Path | None) -> dict[str, str]:
    """The environment of a program: without settings of a server, and with the code of a checkout if one is given."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("MNEMON_")}
    if checkout is not None:
        environment["PYTHONPATH"] = os.pathsep.join(map(str, (checkout / "server", checkout / "clients/python")))
    return environment


def free_address() -> str:
    """A loopback address without a listener."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return f"127.0.0.1:{probe.getsockname()[1]}"
