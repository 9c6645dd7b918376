"""Watchers that are disconnected at random from a server that is killed and restarted: no change may be missing.

python -m tests.support.watch_trial --disconnects 200 --restarts 20
"""

import argparse
import random
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from mnemon import Change, ChangeType, Client

from tests.support.cutting_proxy import CuttingProxy
from tests.support.killable import KillableServer, insist

WRITERS = 3
CATCH_UP_S = 60.0


class Watcher(threading.Thread):
    """Follows the log through the proxy from its beginning and records every change.

    If it `reopens`, it is closed and resumed from its cursor at random, like a program that restarts: the
    changes of one message may then come a second time, but nothing else may.
    """

    def __init__(self, address: str, *, reopens: bool, seed: int) -> None:
        super().__init__(daemon=True)
        self.changes: list[Change] = []
        self.repeated = 0
        self.failure: Exception | None = None
        self._client = Client(address)
        self._reopens = reopens
        self._rng = random.Random(seed)

    def run(self) -> None:
        """Follows until it is closed."""
        try:
            for change in self._all_events():
                if self.changes and change.sequence <= self.changes[-1].sequence:
                    self.repeated += 1
                else:
                    self.changes.append(change)
        except Exception as error:
            self.failure = error

    def close(self) -> None:
        """Ends the watch."""
        self._client.close()
        self.join(60)

    def _all_events(self) -> Iterator[Change]:
        since = "earliest"
        while True:
            # A watch that could not be opened has ended, so each try is a new one.
            with insist(lambda since=since: self._client.watch(since, batch_size=50).__enter__()) as watch:  # type: ignore[misc]
                left = self._rng.randrange(1, 200) if self._reopens else -1
                while left:
                    change = next(watch, None)
                    if change is None:
                        return
                    yield change
                    left -= 1
                since = watch.cursor


class WatchTrial:
    """One server, writers that record what was acknowledged, and watchers behind a proxy that cuts."""

    def __init__(self, folder: Path, seed: int) -> None:
        self._rng = random.Random(seed)
        self._server = KillableServer(folder, "--knowledge-store-backend", "local")
        self._stop = threading.Event()
        self._acknowledged: list[tuple[ChangeType, str]] = []
        self._seed = seed

    def run(self, *, disconnects: int, restarts: int, report: Callable[[str], None]) -> None:
        """Raises AssertionError if a watcher missed a change, or saw one twice or out of order."""
        self._server.start()
        try:
            with CuttingProxy(self._server.address) as proxy:
                watchers = [Watcher(proxy.address, reopens=i % 2 == 1, seed=self._seed + i) for i in range(4)]
                writers = [threading.Thread(target=self._write, args=(i,)) for i in range(WRITERS)]
                for thread in (*watchers, *writers):
                    thread.start()
                self._disturb(proxy, disconnects, restarts, report)
                self._stop.set()
                for writer in writers:
                    writer.join()
                self._check(watchers, report)
                for watcher in watchers:
                    watcher.close()
        finally:
            self._stop.set()
            self._server.kill()

    def _disturb(self, proxy: CuttingProxy, disconnects: int, restarts: int, report: Callable[[str], None]) -> None:
        restarting = set(self._rng.sample(range(disconnects), restarts))
        for number in range(disconnects):
            # Lets the load run for a random time, so that a random operation is interrupted.
            self._stop.wait(self._rng.uniform(0.0, 0.25))
            if number in restarting:
                self._rng.choice([self._server.kill, self._server.terminate])()
                self._server.start()
            proxy.cut()
            report(f"disconnect {number + 1} of {disconnects}: {len(self._acknowledged)} writes acknowledged")

    def _write(self, writer: int) -> None:
        rng = random.Random(self._seed * 1000 + writer)
        number = 0
        with Client(self._server.address) as client:
            while not self._stop.is_set():
                number += 1
                name = f"w{writer}-{number}"
                insist(lambda name=name: client.documents.put(name, f"text {name}", request_id=name))  # type: ignore[misc]
                self._acknowledged.append((ChangeType.KNOWLEDGE_INDEXED, name))
                if rng.random() < 0.3:
                    insist(
                        lambda name=name: client.documents.delete(name, request_id=f"{name}-gone", allow_missing=True)  # type: ignore[misc]
                    )
                    self._acknowledged.append((ChangeType.KNOWLEDGE_DELETED, name))

    def _check(self, watchers: list[Watcher], report: Callable[[str], None]) -> None:
        with Client(self._server.address) as client:
            log = list(client.changes.list())
        assert sorted((change.type, change.record_id) for change in log) == sorted(self._acknowledged)
        deadline = time.monotonic() + CATCH_UP_S
        for watcher in watchers:
            while len(watcher.changes) < len(log) and watcher.failure is None:
                assert time.monotonic() < deadline, f"{len(watcher.changes)} of {len(log)} changes"
                time.sleep(0.02)
            assert watcher.failure is None, watcher.failure
            assert watcher.changes == log
        assert watchers[0].repeated == watchers[2].repeated == 0
        report(f"{len(log)} changes, each one seen once and in order by {len(watchers)} watchers")


def main() -> None:
    """Runs one trial."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--disconnects", type=int, default=200)
    parser.add_argument("--restarts", type=int, default=20)
    parser.add_argument("--seed", type=int, default=None)
    arguments = parser.parse_args()
    seed = arguments.seed if arguments.seed is not None else random.randrange(1 << 32)
    print(f"seed {seed}")  # noqa: T201
    with tempfile.TemporaryDirectory() as folder:
        WatchTrial(Path(folder), seed).run(
            disconnects=arguments.disconnects,
            restarts=arguments.restarts,
            report=print,
        )


if __name__ == "__main__":
    main()
