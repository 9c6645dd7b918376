"""A server that is killed at random moments under mixed load, and the check that no acknowledged write was lost.

python -m tests.support.crashing --rounds 100
"""

import argparse
import random
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from urllib.error import HTTPError

from mnemon import Client, HealthStatus, MnemonError, WriteOutcome

from tests.support.chroma_index import collection_id, request
from tests.support.chroma_server import ChromaServer
from tests.support.killable import KillableServer, insist

WORKERS = 8
COLLECTION = "knowledge"
DOCUMENTS_PER_WORKER = 12
ANSWER_WITHIN_S = 120.0
SETTLE_WITHIN_S = 120.0
STABLE = {f"stable-{i}": f"lighthouse{i} keeper writes about the sea in volume {i}" for i in range(40)}


@dataclass
class Expected:
    """The expected document: its newest content, and how often it changed since it was created."""

    content: str
    revision: int


@dataclass
class Trial:
    """One server, the workers that write to it, and what it acknowledged."""

    folder: Path
    chroma: ChromaServer
    seed: int
    expected: dict[str, Expected] = field(default_factory=dict)
    writes: int = 0
    errors: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.rng = random.Random(self.seed)
        address = ("--chroma-host", self.chroma.host, "--chroma-port", str(self.chroma.port))
        self.server = KillableServer(self.folder, *address, "--collection", COLLECTION)
        self._stop = threading.Event()

    def run(self, rounds: int, faults: "list[Callable[[Trial], None]]", report: Callable[[str], None]) -> None:
        """Makes `rounds` failures. Raises AssertionError if an acknowledged write is lost, duplicated or not found."""
        self.server.start()
        with Client(self.server.address) as client:
            for doc_id, content in STABLE.items():
                client.documents.put(doc_id, content)
        workers = [threading.Thread(target=self._work, args=(i,)) for i in range(WORKERS)]
        for worker in workers:
            worker.start()
        try:
            for number in range(rounds):
                # Lets the load run for a random time, so that a random operation is interrupted.
                self._stop.wait(self.rng.uniform(0.02, 0.6))
                self.rng.choice(faults)(self)
                self._check_searches()
                assert not self.errors, self.errors
                report(f"round {number + 1} of {rounds}: {self.writes} writes acknowledged, none lost")
        finally:
            self._stop.set()
            for worker in workers:
                worker.join()
        assert not self.errors, self.errors
        self._check_documents()
        self._check_index()

    def _check_searches(self) -> None:
        """Soon after the restart, searches cover all documents."""
        deadline = time.monotonic() + ANSWER_WITHIN_S
        with Client(self.server.address) as client:
            for doc_id in self.rng.sample(sorted(STABLE), 4):
                for mode in ("hybrid", "keyword", "vector"):
                    found = [hit.doc_id for hit in client.documents.search(STABLE[doc_id], limit=1, mode=mode)]
                    assert found == [doc_id], f"the {mode} search for {doc_id} found {found}"
        assert time.monotonic() < deadline, f"searches took longer than {ANSWER_WITHIN_S:g} s after the restart"

    def _check_documents(self) -> None:
        with Client(self.server.address) as client:
            stored = {d.doc_id: Expected(d.content, d.revision) for d in client.documents.list()}
            assert stored == self.expected | {doc_id: Expected(text, 1) for doc_id, text in STABLE.items()}
            assert client.documents.count() == len(stored)
            for doc_id, document in self.expected.items():
                word = document.content.split()[0]
                assert [hit.doc_id for hit in client.documents.search(word, mode="keyword")] == [doc_id]

    def _check_index(self) -> None:
        """The vector database eventually holds the same documents, whatever was done to it."""
        deadline = time.monotonic() + SETTLE_WITHIN_S
        with Client(self.server.address) as client:
            while (health := client.documents.status()).pending or health.status is not HealthStatus.HEALTHY:
                assert time.monotonic() < deadline, health
                self._stop.wait(0.1)
                time.sleep(0.1)
            stored = {d.doc_id: d.content for d in client.documents.list()}
        self.server.terminate()
        path = f"/{collection_id(self.chroma, COLLECTION)}/get"
        found = request(self.chroma, path, {"include": ["documents"]})
        assert dict(zip(found["ids"], found["documents"], strict=True)) == stored

    def _work(self, worker: int) -> None:
        rng = random.Random(self.seed * 1000 + worker)
        number = 0
        with Client(self.server.address) as client:
            while not self._stop.is_set():
                number += 1
                doc_id = f"w{worker}-{rng.randrange(DOCUMENTS_PER_WORKER)}"
                try:
                    self._write(client, rng, doc_id, f"worker{worker}number{number}")
                except (AssertionError, MnemonError) as error:
                    self.errors.append(f"{doc_id}: {error!r}")
                    return

    def _write(self, client: Client, rng: random.Random, doc_id: str, word: str) -> None:
        """One write, retried under its request id until acknowledged. The revision would show a second application."""
        known = self.expected.get(doc_id)
        if known and rng.random() < 0.25:
            receipt = insist(lambda: client.documents.delete(doc_id, request_id=word, allow_missing=True))
            assert (receipt.outcome, receipt.revision) == (WriteOutcome.DELETED, known.revision), (receipt, known)
            del self.expected[doc_id]
        elif known and rng.random() < 0.25:
            content = f"{word} " + known.content.partition(" ")[2]
            receipt = insist(
                lambda: client.documents.update(doc_id, content=content, set_metadata={"word": word}, request_id=word)
            )
            assert receipt.revision == known.revision + 1, (receipt, known)
            self.expected[doc_id] = Expected(content, receipt.revision)
        else:
            content = f"{word} " + "and some words " * rng.randrange(1, 30)
            receipt = insist(lambda: client.documents.put(doc_id, content, {"word": word}, request_id=word))
            assert receipt.revision == (known.revision + 1 if known else 1), (receipt, known)
            self.expected[doc_id] = Expected(content, receipt.revision)
        self.writes += 1


def kill_server(trial: Trial) -> None:
    """Kills the server. The next one must find everything."""
    trial.server.kill()
    trial.server.start()


def stop_chroma(trial: Trial) -> None:
    """Stops the server of the index and starts it again, while writes continue."""
    trial.chroma.stop()
    trial.chroma.start()


def drop_collection(trial: Trial) -> None:
    """Drops the collection under the running server."""
    with suppress(HTTPError):  # a killed server may not have created it yet
        request(trial.chroma, f"/{COLLECTION}", method="DELETE")


FAULTS = [kill_server, stop_chroma, drop_collection]


def main() -> None:
    """Runs a long trial and prints the result."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=100)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--faults", choices=["kill", "all"], default="all")
    arguments = parser.parse_args()
    faults = [kill_server] if arguments.faults == "kill" else FAULTS
    with tempfile.TemporaryDirectory() as folder:
        chroma = ChromaServer(Path(folder) / "chroma" / "data")
        trial = Trial(Path(folder), chroma, arguments.seed)
        try:
            chroma.start()
            trial.run(arguments.rounds, faults, lambda line: print(line, flush=True))  # noqa: T201
        except BaseException:
            trial.server.kill()
            sys.stderr.write(trial.server.log()[-8000:])
            raise
        finally:
            chroma.stop()


if __name__ == "__main__":
    main()
