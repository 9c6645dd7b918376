"""A server that is killed at random moments under mixed load, and the check that no acknowledged write was lost.

python -m tests.support.crashing --rounds 100
"""

import argparse
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from mnemon import Client, HealthStatus, MnemonError, WriteOutcome

from tests.support.killable import KillableServer, insist

WORKERS = 8
DOCUMENTS_PER_WORKER = 12
ANSWER_WITHIN_S = 120.0
SETTLE_WITHIN_S = 120.0
STABLE = {f"stable-{i}": f"lighthouse{i} keeper writes about the sea in volume {i}" for i in range(40)}

_CHROMA_IDS = """
import json, sys, chromadb
from chromadb.config import Settings
client = chromadb.PersistentClient(sys.argv[1], Settings(anonymized_telemetry=False))
found = client.get_collection("knowledge", embedding_function=None).get(include=["documents"])
print(json.dumps(dict(zip(found["ids"], found["documents"]))))
"""


@dataclass
class Expected:
    """The expected document: its newest content, and how often it changed since it was created."""

    content: str
    revision: int


@dataclass
class Trial:
    """One server, the workers that write to it, and what it acknowledged."""

    folder: Path
    seed: int
    expected: dict[str, Expected] = field(default_factory=dict)
    writes: int = 0
    errors: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.rng = random.Random(self.seed)
        self.server = KillableServer(self.folder)
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
        [folder] = self.server.data_dir.glob("tenants/default/chroma")
        done = subprocess.run(
            [sys.executable, "-c", _CHROMA_IDS, str(folder)], capture_output=True, text=True, check=True, timeout=120
        )
        assert json.loads(done.stdout.splitlines()[-1]) == stored

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
    """Kills the server. Its child must end with it, and the next server must find everything."""
    trial.server.kill()
    trial.server.start()


def kill_index_child(trial: Trial) -> None:
    """Kills the process of the vector index while the server keeps running."""
    if child := trial.server.index_child():
        os.kill(child, signal.SIGKILL)


def damage_index_files(trial: Trial) -> None:
    """While the server is down, damages files of the vector index: a changed byte, a truncation, or an empty file."""
    trial.server.kill()
    files = [path for path in trial.server.data_dir.glob("tenants/default/chroma/**/*") if path.is_file()]
    for path in trial.rng.sample(files, min(2, len(files))):
        content = bytearray(path.read_bytes())
        match trial.rng.randrange(3):
            case 0 if content:
                content[trial.rng.randrange(len(content))] ^= 0xFF
                path.write_bytes(content)
            case 1:
                path.write_bytes(content[: len(content) // 2])
            case _:
                path.unlink()
    trial.server.start()


def remove_index_folder(trial: Trial) -> None:
    """While the server is down, removes the vector index."""
    trial.server.kill()
    shutil.rmtree(trial.server.data_dir / "tenants" / "default" / "chroma", ignore_errors=True)
    trial.server.start()


FAULTS = [kill_server, kill_index_child, damage_index_files, remove_index_folder]


def main() -> None:
    """Runs a long trial and prints the result."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=100)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--faults", choices=["kill", "all"], default="all")
    arguments = parser.parse_args()
    faults = [kill_server] if arguments.faults == "kill" else FAULTS
    with tempfile.TemporaryDirectory() as folder:
        trial = Trial(Path(folder), arguments.seed)
        try:
            trial.run(arguments.rounds, faults, lambda line: print(line, flush=True))  # noqa: T201
        except BaseException:
            trial.server.kill()
            sys.stderr.write(trial.server.log()[-8000:])
            raise


if __name__ == "__main__":
    main()
