"""Chroma's child process is killed, stopped and crashes: no acknowledged write is lost."""

import os
import random
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from mnemon_server.domain.errors import BackendConnectionError
from mnemon_server.domain.filters import RecordFilter
from mnemon_server.engines.chroma import ChromaIndex, process
from mnemon_server.engines.promises.values import Vector
from mnemon_server.engines.promises.vector_index import IndexEntry

from tests.contract.vector_index import as_dict, entries_of, found, one_each, unit_vectors
from tests.support.chroma_forks import as_program
from tests.support.chroma_index import embedded, kill_child, quarantined, stop_child, unread_bytes, wait_until

KILLS = int(os.environ.get("MNEMON_CHROMA_KILLS", "3"))


@pytest.fixture
def program(monkeypatch: pytest.MonkeyPatch) -> None:
    """Chroma's child starts as in the server."""
    monkeypatch.setattr(process, "_started", as_program)


@pytest.fixture
def index(tmp_path: Path) -> Iterator[ChromaIndex]:
    index = embedded(tmp_path)
    index.open()
    yield index
    index.close()


def test_the_parent_never_imports_chromadb(tmp_path: Path) -> None:
    script = """
import sys
from pathlib import Path
import numpy as np
from mnemon_server.domain.filters import RecordFilter
from mnemon_server.engines.chroma import ChromaIndex, ChromaSettings
settings = ChromaSettings(path=Path(sys.argv[1]))
index = ChromaIndex(settings, collection="documents", dimension=3, model_identity="m")
index.open()
index.search(np.array([1, 0, 0], np.float32), limit=1, equal=RecordFilter())
index.close()
print([name for name in sys.modules if name.startswith("chromadb")])
"""
    ran = subprocess.run(
        [sys.executable, "-c", script, str(tmp_path / "chroma")], check=False, capture_output=True, text=True
    )
    assert (ran.stdout.strip(), ran.returncode) == ("[]", 0), ran.stderr


@pytest.mark.usefixtures("program")
def test_a_child_killed_while_idle_is_replaced_by_the_next_call(index: ChromaIndex) -> None:
    vectors = unit_vectors(30, 1)
    index.apply(one_each(vectors), [])
    kill_child(index)
    assert next(iter(found(index, vectors[7], limit=1))) == 7
    kill_child(index)
    index.apply(one_each(vectors[:1], 100), [])
    assert index.open().entry_count == 31


def test_a_running_call_fails_at_once_when_the_child_is_killed(index: ChromaIndex) -> None:
    pid = stop_child(index)
    with ThreadPoolExecutor(1) as threads:
        searching = threads.submit(index.search, unit_vectors(1, 2)[0], limit=1, equal=RecordFilter())
        wait_until(lambda: unread_bytes(pid) > 0)
        kill_child(index)
        with pytest.raises(BackendConnectionError, match="ended"):
            searching.result(timeout=60)


def test_a_hanging_child_is_killed_at_the_deadline(tmp_path: Path) -> None:
    vectors = unit_vectors(5, 4)
    filling = embedded(tmp_path)
    filling.open()
    filling.apply(one_each(vectors), [])
    filling.close()
    # Opening has a limit of its own: the only call is to the child that hangs.
    index = embedded(tmp_path, limits={"call_timeout_s": 0.5})
    index.open()
    pid = stop_child(index)
    with pytest.raises(BackendConnectionError, match="in time"):
        index.search(vectors[0], limit=1, equal=RecordFilter())
    assert index.open().entry_count == 5
    assert index.child_pid not in (None, pid)
    index.close()


def test_an_index_whose_child_crashes_twice_is_rebuilt(tmp_path: Path, index: ChromaIndex) -> None:
    vectors = unit_vectors(5, 5)
    before = index.open()
    index.apply(one_each(vectors), [])
    kill_child(index, signal.SIGSEGV)
    assert len(found(index, vectors[0])) == 5
    kill_child(index, signal.SIGSEGV)
    with pytest.raises(BackendConnectionError, match="opened again"):
        index.search(vectors[0], limit=1, equal=RecordFilter())
    after = index.open()
    assert (after.entry_count, len(quarantined(tmp_path))) == (0, 1)
    assert after.generation != before.generation


def test_crashes_count_even_if_the_index_is_reopened_after_each(tmp_path: Path, index: ChromaIndex) -> None:
    vectors = unit_vectors(5, 10)
    index.apply(one_each(vectors), [])
    held = []
    for _ in range(3):
        kill_child(index, signal.SIGSEGV)
        held.append(index.open().entry_count)
    assert held == [5, 0, 0]
    assert len(quarantined(tmp_path)) == 1


def test_two_children_cannot_share_a_folder(tmp_path: Path, index: ChromaIndex) -> None:
    second = embedded(tmp_path, limits={"lock_wait_s": 0.3})
    with pytest.raises(BackendConnectionError, match="another process"):
        second.open()
    second.close()
    vectors = unit_vectors(3, 6)
    index.apply(one_each(vectors), [])
    assert len(found(index, vectors[0])) == 3


def test_a_new_child_waits_until_the_old_one_has_left_the_folder(tmp_path: Path) -> None:
    first, second = embedded(tmp_path), embedded(tmp_path, limits={"lock_wait_s": 60.0})
    before = first.open()
    with ThreadPoolExecutor(1) as threads:
        opening = threads.submit(second.open)
        wait_until(lambda: second.child_pid is not None)
        first.close()
        assert opening.result(timeout=60) == before
    second.close()


@pytest.mark.usefixtures("program")
def test_signals_meant_for_the_server_do_not_end_the_child(index: ChromaIndex) -> None:
    pid = index.child_pid
    assert pid is not None
    os.kill(pid, signal.SIGTERM)
    os.kill(pid, signal.SIGINT)
    vectors = unit_vectors(1, 7)
    index.apply(one_each(vectors), [])
    assert len(found(index, vectors[0])) == 1
    assert index.child_pid == pid


def test_the_child_of_a_killed_parent_finishes_its_work_and_exits(tmp_path: Path) -> None:
    script = """
import sys
from pathlib import Path
from tests.contract.vector_index import one_each, unit_vectors
from tests.support.chroma_index import embedded
index = embedded(Path(sys.argv[1]))
index.open()
index.apply(one_each(unit_vectors(50, 8)), [])
print(index.child_pid, flush=True)
index.apply(one_each(unit_vectors(20_000, 9), 50), [])
"""
    parent = subprocess.Popen(
        [sys.executable, "-c", script, str(tmp_path)], stdout=subprocess.PIPE, cwd=Path(__file__).parents[2]
    )
    assert parent.stdout is not None
    child = int(parent.stdout.readline())
    parent.kill()
    parent.wait()
    parent.stdout.close()
    index = embedded(tmp_path, limits={"lock_wait_s": 60.0})
    state = index.open()
    wait_until(lambda: not Path(f"/proc/{child}").exists())
    assert state.entry_count >= 50
    assert quarantined(tmp_path) == []
    assert found(index, unit_vectors(50, 8)[49], limit=1).keys() == {49}
    index.close()


class Writer:
    """Makes random changes to up to 1,500 documents, and notes what the index must hold of the acknowledged ones."""

    def __init__(self, index: ChromaIndex, seed: int) -> None:
        self.index, self.rng = index, random.Random(seed)
        self.generation = index.open().generation
        self.held: dict[str, list[IndexEntry]] = {}
        self.pending: tuple[dict[str, list[IndexEntry]], list[str]] = ({}, [])
        self._vectors = unit_vectors(60_000, seed)
        self._next_id = 0

    def write_until_killed(self, killer: threading.Thread) -> None:
        """A kill between two calls makes neither of them fail: the next call starts another child."""
        while killer.is_alive():
            self.pending = self._change()
            try:
                self.apply_pending()
            except BackendConnectionError:
                return

    def apply_pending(self) -> None:
        changed, deleted = self.pending
        self.index.apply([entry for entries in changed.values() for entry in entries], deleted)
        self.held = {doc_id: entries for doc_id, entries in self.held.items() if doc_id not in deleted} | changed

    def recover(self) -> None:
        """Does what an applier does: opens, feeds a recreated index again, and repeats what was not acknowledged."""
        generation = self.index.open().generation
        if generation != self.generation:
            self.generation = generation
            self.index.apply([entry for entries in self.held.values() for entry in entries], [])
        self.apply_pending()

    def check(self) -> None:
        truth: dict[int, Vector] = {e.passage_id: e.vector for entries in self.held.values() for e in entries}
        query = unit_vectors(1, len(truth))[0]
        scores = as_dict(self.index.search(query, limit=len(truth) + 100, equal=RecordFilter()))
        assert scores.keys() == truth.keys()
        assert all(abs(score - float(truth[passage_id] @ query)) < 1e-4 for passage_id, score in scores.items())

    def _change(self) -> tuple[dict[str, list[IndexEntry]], list[str]]:
        doc_ids = list({f"d{self.rng.randrange(1500)}": None for _ in range(self.rng.randrange(20, 250))})
        deleted = doc_ids[::7]
        return {doc_id: self._entries(doc_id) for doc_id in doc_ids if doc_id not in deleted}, deleted

    def _entries(self, doc_id: str) -> list[IndexEntry]:
        start = self._next_id
        self._next_id += self.rng.choice((1, 1, 1, 2, 3))
        return entries_of(doc_id, start, self._vectors[start : self._next_id], {"round": start % 5})


@pytest.mark.timeout(60 + 20 * KILLS)
def test_nothing_acknowledged_is_lost_when_the_child_is_killed_at_random_moments(index: ChromaIndex) -> None:
    writer = Writer(index, seed=20)
    for _ in range(KILLS):
        pid = index.child_pid
        assert pid is not None
        killer = threading.Timer(writer.rng.uniform(0.0, 1.0), os.kill, (pid, signal.SIGKILL))
        killer.start()
        writer.write_until_killed(killer)
        killer.join()
        writer.recover()
        writer.check()
