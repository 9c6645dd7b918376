"""The common parts of trials that kill a server at random moments while clients write to it."""

import argparse
import random
import sys
import tempfile
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Protocol

import grpc
from mnemon.v1 import changes_pb2, changes_pb2_grpc

from tests.support.killable import KillableServer
from tests.support.server import wait_until

LEAST = 30
"""So much is acknowledged between two kills at the least, however slow the machine is."""
CHANNEL_OPTIONS = [("grpc.initial_reconnect_backoff_ms", 20), ("grpc.max_reconnect_backoff_ms", 200)]


class TrialWorker(Protocol):
    """One client with its own records. It retries each write unchanged until it is acknowledged."""

    name: str

    def write(self, stubs: Any) -> None:
        """One random change. Raises AssertionError if the answer is impossible."""


class KillTrial(ABC):
    """One server, the workers that write to it, and what it acknowledged."""

    def __init__(self, folder: Path, seed: int, workers: Sequence[TrialWorker], *flags: str) -> None:
        self.server = KillableServer(folder, *flags)
        self.errors: list[str] = []
        self._workers = workers
        self._rng = random.Random(seed)
        self._stop = threading.Event()

    @abstractmethod
    def stubs(self, channel: grpc.Channel) -> Any:
        """The stubs that workers and checks use."""

    @abstractmethod
    def check(self, stubs: Any) -> str:
        """Raises AssertionError if the stored records are not the acknowledged ones. Otherwise returns a summary."""

    @property
    @abstractmethod
    def acknowledged(self) -> int:
        """How many writes were acknowledged."""

    def prepare(self, stubs: Any) -> None:  # noqa: B027 - most trials need nothing
        """Prepares the server before the first write."""

    def run(self, rounds: int, report: Callable[[str], None]) -> None:
        """Kills the server `rounds` times, and checks after each."""
        self.server.start()
        with grpc.insecure_channel(self.server.address) as channel:
            self.prepare(self.stubs(channel))
        threads = [threading.Thread(target=self._work, args=(worker,)) for worker in self._workers]
        for thread in threads:
            thread.start()
        try:
            for number in range(rounds):
                # Lets the load run for a random time, so that a random operation is interrupted.
                self._stop.wait(self._rng.uniform(0.02, 0.6))
                wait_until(lambda least=LEAST * (number + 1): self.errors or self.acknowledged >= least)  # type: ignore[misc]
                self.server.kill()
                self.server.start()
                assert not self.errors, self.errors
                report(f"round {number + 1} of {rounds}: {self.acknowledged} acknowledged")
        finally:
            self._stop.set()
            for thread in threads:
                thread.join()
        assert not self.errors, self.errors
        self.server.kill()
        self.server.start()
        with grpc.insecure_channel(self.server.address) as channel:
            report(self.check(self.stubs(channel)))

    def _work(self, worker: TrialWorker) -> None:
        with grpc.insecure_channel(self.server.address, CHANNEL_OPTIONS) as channel:
            stubs = self.stubs(channel)
            while not self._stop.is_set():
                try:
                    worker.write(stubs)
                except (AssertionError, LookupError, ValueError, grpc.RpcError) as error:
                    self.errors.append(f"{worker.name}: {error!r}")
                    return


def pages(call: Callable[..., Any], request: Any, items: str) -> Iterator[Any]:
    """All items on all pages of a list."""
    while True:
        page = call(request, timeout=60)
        yield from getattr(page, items)
        if not page.next_page_token:
            return
        request.page_token = page.next_page_token


def all_changes(stub: changes_pb2_grpc.ChangeServiceStub) -> Iterator[Any]:
    """The whole log."""
    request = changes_pb2.ListChangesRequest(page_size=1000)
    while True:
        page = stub.ListChanges(request, timeout=60)
        yield from page.changes
        if page.caught_up:
            return
        request.cursor = page.cursor


def run_trial(description: str | None, new_trial: Callable[[Path, int], KillTrial]) -> None:
    """A command that runs a long trial and prints the result."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--rounds", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        trial = new_trial(Path(folder), arguments.seed)
        try:
            trial.run(arguments.rounds, lambda line: print(line, flush=True))  # noqa: T201
        except BaseException:
            trial.server.kill()
            sys.stderr.write(trial.server.log()[-8000:])
            raise
        trial.server.terminate()
