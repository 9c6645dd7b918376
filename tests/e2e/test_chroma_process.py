"""Chroma's child process and server are killed, stopped, damaged and removed: nothing that was acknowledged is lost."""

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from mnemon_server.domain.errors import BackendConnectionError, ConfigurationError, EmbeddingModelMismatchError
from mnemon_server.domain.records import RecordFilter
from mnemon_server.engines.base import IndexEntry, Vector
from mnemon_server.engines.chroma import ChromaIndex
from mnemon_server.engines.chroma.supervisor import Surroundings

from tests.contract.vector_index import DIMENSION, MODEL, as_dict, entries_of, found, one_each, unit_vectors
from tests.support.chroma_server import ChromaServer

KILLS = int(os.environ.get("MNEMON_CHROMA_KILLS", "12"))
API = "/api/v2/tenants/default_tenant/databases/default_database/collections"
DATA_FILES = [
    "chroma.sqlite3",
    "header.bin",
    "data_level0.bin",
    "length.bin",
    "link_lists.bin",
    "index_metadata.pickle",
]


def embedded(folder: Path, **options: Any) -> ChromaIndex:
    terms: dict[str, Any] = {"collection": "documents", "dimension": DIMENSION, "model_identity": MODEL} | options
    return ChromaIndex(path=folder / "chroma", **terms)


def served(server: ChromaServer, **options: Any) -> ChromaIndex:
    terms: dict[str, Any] = {"collection": "documents", "dimension": DIMENSION, "model_identity": MODEL} | options
    return ChromaIndex(host=server.host, port=server.port, **terms)


def wait_until(condition: Callable[[], bool], timeout_s: float = 20.0) -> None:
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, "the condition did not come true in time"
        time.sleep(0.02)


def kill_child(index: ChromaIndex, number: int = signal.SIGKILL) -> None:
    pid = index.child_pid
    assert pid is not None
    os.kill(pid, number)
    wait_until(lambda: index.child_pid is None)


def quarantined(folder: Path) -> list[str]:
    return sorted(place.name for place in (folder / "quarantine").glob("*"))


def files_with(folder: Path, needle: bytes) -> list[str]:
    return sorted(file.name for file in folder.rglob("*") if file.is_file() and needle in file.read_bytes())


def files_with_vector(folder: Path, vector: Vector) -> list[str]:
    """Files that hold the vector's first numbers as float32, at any offset and up to rounding."""
    start, needle = vector[0], vector[:8]

    def holds(data: bytes) -> bool:
        numbers = np.frombuffer(data[: len(data) // 4 * 4], "<f4")
        with np.errstate(invalid="ignore"):
            places = np.flatnonzero(np.abs(numbers - start) < 1e-6)
        return any(np.allclose(numbers[i : i + 8], needle, atol=1e-6) for i in places if i + 8 <= len(numbers))

    files = [file for file in folder.rglob("*") if file.is_file()]
    return sorted(file.name for file in files if any(holds(file.read_bytes()[offset:]) for offset in range(4)))


def request(server: ChromaServer, path: str, body: dict[str, Any]) -> Any:
    """What the server says to any client of its HTTP interface."""
    call = urllib.request.Request(
        f"http://{server.host}:{server.port}{API}{path}",
        json.dumps(body).encode(),
        {"Content-Type": "application/json"},
    )
    with urllib.request.urlopen(call, timeout=10) as answer:
        return json.load(answer)


@pytest.fixture
def index(tmp_path: Path) -> Iterator[ChromaIndex]:
    index = embedded(tmp_path)
    index.open()
    yield index
    index.close()


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ChromaServer]:
    with ChromaServer(tmp_path_factory.mktemp("chroma") / "data") as server:
        yield server


# --- the child -----------------------------------------------------------------------------------------------------


def test_the_parent_never_imports_chromadb(tmp_path: Path) -> None:
    script = """
import sys
from pathlib import Path
import numpy as np
from mnemon_server.domain.records import RecordFilter
from mnemon_server.engines.chroma import ChromaIndex
index = ChromaIndex(collection="documents", dimension=3, model_identity="m", path=Path(sys.argv[1]))
index.open()
index.search(np.array([1, 0, 0], np.float32), limit=1, equal=RecordFilter())
index.close()
print([name for name in sys.modules if name.startswith("chromadb")])
"""
    ran = subprocess.run(
        [sys.executable, "-c", script, str(tmp_path / "chroma")], check=False, capture_output=True, text=True
    )
    assert (ran.stdout.strip(), ran.returncode) == ("[]", 0), ran.stderr


def test_a_child_killed_while_idle_is_replaced_by_the_next_call(index: ChromaIndex) -> None:
    vectors = unit_vectors(30, 1)
    index.apply(one_each(vectors), [])
    kill_child(index)
    assert next(iter(found(index, vectors[7], limit=1))) == 7
    kill_child(index)
    index.apply(one_each(vectors[:1], 100), [])
    assert index.open().entry_count == 31


def test_a_call_under_way_fails_at_once_when_the_child_is_killed(index: ChromaIndex) -> None:
    vectors = unit_vectors(20_000, 2)
    with ThreadPoolExecutor(1) as threads:
        applying = threads.submit(index.apply, one_each(vectors), [])
        wait_until(lambda: index.search(vectors[0], limit=1, equal=RecordFilter()).passage_ids.size == 1)
        kill_child(index)
        with pytest.raises(BackendConnectionError, match="ended"):
            applying.result(timeout=10)


def test_searches_are_answered_while_a_long_apply_runs(index: ChromaIndex) -> None:
    vectors = unit_vectors(6_000, 3)
    index.apply(one_each(vectors[:500]), [])
    with ThreadPoolExecutor(1) as threads:
        applying = threads.submit(index.apply, one_each(vectors[500:], 500), [])
        answered = 0
        while not applying.done():
            assert next(iter(found(index, vectors[answered % 500], limit=1))) == answered % 500
            answered += 1
        applying.result()
    assert answered > 5


def test_a_child_that_hangs_is_killed_when_the_time_is_up(tmp_path: Path) -> None:
    index = embedded(tmp_path, call_timeout_s=1.0)
    vectors = unit_vectors(400, 4)
    index.open()
    index.apply(one_each(vectors[:5]), [])
    pid = index.child_pid
    assert pid is not None
    os.kill(pid, signal.SIGSTOP)
    with pytest.raises(BackendConnectionError, match="in time"):
        index.search(vectors[0], limit=1, equal=RecordFilter())
    index.open()
    assert index.child_pid not in (None, pid)
    assert len(found(index, vectors[0])) == 5
    index.close()


def test_an_index_whose_child_crashes_twice_is_built_anew(tmp_path: Path, index: ChromaIndex) -> None:
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


def test_two_children_cannot_share_a_folder(tmp_path: Path, index: ChromaIndex) -> None:
    second = embedded(tmp_path, lock_wait_s=0.3)
    with pytest.raises(BackendConnectionError, match="another process"):
        second.open()
    second.close()
    vectors = unit_vectors(3, 6)
    index.apply(one_each(vectors), [])
    assert len(found(index, vectors[0])) == 3


def test_a_new_child_waits_until_the_old_one_has_left_the_folder(tmp_path: Path) -> None:
    first, second = embedded(tmp_path), embedded(tmp_path)
    before = first.open()
    with ThreadPoolExecutor(1) as threads:
        opening = threads.submit(second.open)
        wait_until(lambda: second.child_pid is not None)
        first.close()
        assert opening.result(timeout=30) == before
    second.close()


def test_signals_meant_for_the_server_do_not_end_the_child(index: ChromaIndex) -> None:
    pid = index.child_pid
    assert pid is not None
    os.kill(pid, signal.SIGTERM)
    os.kill(pid, signal.SIGINT)
    vectors = unit_vectors(1, 7)
    index.apply(one_each(vectors), [])
    assert len(found(index, vectors[0])) == 1
    assert index.child_pid == pid


def test_the_child_of_a_killed_parent_finishes_and_goes_away(tmp_path: Path) -> None:
    script = """
import sys
from tests.e2e.test_chroma_process import embedded, one_each, unit_vectors, Path
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
    index = embedded(tmp_path)
    state = index.open()
    assert not Path(f"/proc/{child}").exists()
    assert state.entry_count >= 50
    assert quarantined(tmp_path) == []
    assert found(index, unit_vectors(50, 8)[49], limit=1).keys() == {49}
    index.close()


# --- kills at random moments ---------------------------------------------------------------------------------------


class Writer:
    """Random changes to up to 1,500 documents, and what the index must hold of those that were acknowledged."""

    def __init__(self, index: ChromaIndex, seed: int) -> None:
        self.index, self.rng = index, random.Random(seed)
        self.generation = index.open().generation
        self.held: dict[str, list[IndexEntry]] = {}
        self.pending: tuple[dict[str, list[IndexEntry]], list[str]] = ({}, [])
        self._vectors = unit_vectors(60_000, seed)
        self._next_id = 0

    def write_until_killed(self) -> None:
        while True:
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
        """What an applier does: open, feed anew what was created anew, and repeat what was not acknowledged."""
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
        killer = threading.Timer(writer.rng.uniform(0.0, 2.0), os.kill, (pid, signal.SIGKILL))
        killer.start()
        writer.write_until_killed()
        killer.join()
        writer.recover()
        writer.check()


# --- damaged files -------------------------------------------------------------------------------------------------


def truncate(file: Path) -> None:
    os.truncate(file, file.stat().st_size // 2)


def zero_a_page(file: Path) -> None:
    content = bytearray(file.read_bytes())
    start = min(len(content) // 2, max(0, len(content) - 4096))
    content[start : start + 4096] = bytes(len(content[start : start + 4096]))
    file.write_bytes(content)


def flip_a_bit(file: Path) -> None:
    content = bytearray(file.read_bytes())
    if content:
        content[len(content) // 3] ^= 0x10
    file.write_bytes(content)


def remove(file: Path) -> None:
    file.unlink()


DAMAGES = [truncate, zero_a_page, flip_a_bit, remove]


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder whose graph was written to its files and closed in good order, with 1,300 entries."""
    folder = tmp_path_factory.mktemp("filled")
    index = embedded(folder)
    index.apply(one_each(unit_vectors(1300, 30)), [])
    index.close()
    assert {file.name for file in folder.rglob("*")} >= set(DATA_FILES)
    return folder


def damaged_copy(filled: Path, target: Path, name: str, damage: Callable[[Path], None], *, sealed: bool) -> None:
    shutil.copytree(filled / "chroma", target / "chroma")
    if not sealed:  # as after a kill, when nothing but the files themselves can tell
        (target / "chroma" / "mnemon-seal.json").unlink()
    [file] = (target / "chroma").rglob(name)
    damage(file)


@pytest.mark.parametrize("name", [name for name in DATA_FILES if name != "link_lists.bin"])
def test_one_flipped_bit_in_closed_files_is_noticed_before_chroma_reads_them(
    filled: Path, tmp_path: Path, name: str
) -> None:
    damaged_copy(filled, tmp_path, name, flip_a_bit, sealed=True)
    index = embedded(tmp_path)
    assert index.open().entry_count == 0
    assert len(quarantined(tmp_path)) == 1
    vectors = unit_vectors(3, 31)
    index.apply(one_each(vectors), [])
    assert found(index, vectors[2], limit=1).keys() == {2}
    index.close()


@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize("name", DATA_FILES)
def test_damage_after_a_kill_never_harms_the_parent_and_the_index_serves_again(
    filled: Path, tmp_path: Path, name: str, damage: Callable[[Path], None]
) -> None:
    damaged_copy(filled, tmp_path, name, damage, sealed=False)
    index = embedded(tmp_path, open_timeout_s=30.0)
    state = index.open()
    assert state.entry_count in (0, 1300)
    assert len(quarantined(tmp_path)) == (1 if state.entry_count == 0 else 0)
    vectors = unit_vectors(3, 32)
    index.apply(one_each(vectors, 5000), [])
    assert found(index, vectors[2], limit=1).keys() == {5002}
    index.close()


def test_a_folder_removed_under_a_running_child_is_created_anew(tmp_path: Path, index: ChromaIndex) -> None:
    vectors = unit_vectors(3, 33)
    before = index.open()
    index.apply(one_each(vectors), [])
    shutil.rmtree(tmp_path / "chroma")
    after = index.open()
    assert after.entry_count == 0
    assert after.generation != before.generation
    index.apply(one_each(vectors), [])
    assert len(found(index, vectors[0])) == 3


def test_an_index_found_anew_by_a_restarted_child_is_not_believed_to_hold_what_was_applied(
    tmp_path: Path, index: ChromaIndex
) -> None:
    vectors = unit_vectors(3, 34)
    index.apply(one_each(vectors), [])
    kill_child(index)
    shutil.rmtree(tmp_path / "chroma")
    with pytest.raises(BackendConnectionError):
        index.apply(one_each(vectors[:1], 10), [])
    with pytest.raises(BackendConnectionError, match="opened again"):
        index.search(vectors[0], limit=1, equal=RecordFilter())
    assert index.open().entry_count == 0


def test_reset_leaves_neither_text_nor_vector_in_any_file(tmp_path: Path, index: ChromaIndex) -> None:
    vectors = unit_vectors(1300, 35)
    index.apply(one_each(vectors), [])
    text, vector = b"passage 0 of doc-17", vectors[17]
    assert "chroma.sqlite3" in files_with(tmp_path, text)
    assert "data_level0.bin" in files_with_vector(tmp_path, vector)
    index.reset()
    index.close()
    assert files_with(tmp_path, text) + files_with_vector(tmp_path, vector) == []


def test_calls_after_close_are_refused(index: ChromaIndex) -> None:
    index.close()
    with pytest.raises(BackendConnectionError, match="closed"):
        index.search(unit_vectors(1, 0)[0], limit=1, equal=RecordFilter())
    with pytest.raises(BackendConnectionError, match="closed"):
        index.open()
    assert index.child_pid is None


def test_files_are_for_their_owner_only(tmp_path: Path, index: ChromaIndex) -> None:
    index.apply(one_each(unit_vectors(3, 36)), [])
    index.close()
    assert [str(file) for file in tmp_path.glob("chroma/**/*") if file.stat().st_mode & 0o077] == []


# --- another model, another owner ----------------------------------------------------------------------------------


@pytest.mark.parametrize("other", [{"model_identity": "another@2"}, {"dimension": DIMENSION + 1}])
def test_a_collection_of_another_model_is_refused_and_left_as_it_is(
    tmp_path: Path, index: ChromaIndex, other: dict[str, Any]
) -> None:
    index.apply(one_each(unit_vectors(3, 40)), [])
    index.close()
    stranger = embedded(tmp_path, **other)
    with pytest.raises(EmbeddingModelMismatchError, match="mnemon-server reembed"):
        stranger.open()
    stranger.close()
    owner = embedded(tmp_path)
    assert owner.open().entry_count == 3
    owner.close()


def test_exactly_one_place_must_be_given(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="either a path"):
        ChromaIndex(collection="documents", dimension=3, model_identity="m")
    with pytest.raises(ConfigurationError, match="either a path"):
        ChromaIndex(collection="documents", dimension=3, model_identity="m", path=tmp_path, host="localhost")


# --- a server ------------------------------------------------------------------------------------------------------


def test_a_server_stopped_in_the_middle_is_missed_and_used_again_once_it_is_back(tmp_path: Path) -> None:
    slept: list[float] = []
    with ChromaServer(tmp_path / "data") as server:
        index = served(server, world=Surroundings(sleep=slept.append, rng=random.Random(1)))
        vectors = unit_vectors(10, 50)
        index.apply(one_each(vectors), [])
        server.stop()
        with pytest.raises(BackendConnectionError, match=rf"127\.0\.0\.1:{server.port}"):
            index.search(vectors[0], limit=1, equal=RecordFilter())
        assert [round(delay / base, 1) for delay, base in zip(slept, (0.1, 0.2, 0.4), strict=True)] == pytest.approx(
            [1, 1, 1], abs=0.3
        )
        with pytest.raises(BackendConnectionError):
            index.apply(one_each(vectors, 10), [])
        with pytest.raises(BackendConnectionError):
            index.open()
        server.start()
        assert len(found(index, vectors[0])) == 10
        assert index.open().entry_count == 10
        index.close()


def test_a_server_that_is_not_there_fails_the_calls_and_not_the_constructor(tmp_path: Path) -> None:
    server = ChromaServer(tmp_path / "data")
    index = served(server)
    with pytest.raises(BackendConnectionError, match="cannot be reached") as caught:
        index.open()
    assert "Errno" not in str(caught.value)
    index.close()


def test_a_collection_lost_on_the_server_is_created_anew_only_by_open(server: ChromaServer) -> None:
    index = served(server, collection="lost")
    vectors = unit_vectors(3, 51)
    before = index.open()
    index.apply(one_each(vectors), [])
    drop = urllib.request.Request(f"http://{server.host}:{server.port}{API}/lost", method="DELETE")
    urllib.request.urlopen(drop, timeout=10).close()
    with pytest.raises(BackendConnectionError, match="opened again"):
        index.apply(one_each(vectors, 10), [])
    after = index.open()
    assert (after.entry_count, after.generation != before.generation) == (0, True)
    index.close()


@pytest.mark.parametrize("space", ["l2", "ip", "cosine"])
def test_scores_are_cosines_whatever_space_the_collection_was_prepared_with(server: ChromaServer, space: str) -> None:
    request(server, "", {"name": f"prepared-{space}", "configuration": {"hnsw": {"space": space}}})
    index = served(server, collection=f"prepared-{space}")
    vectors = unit_vectors(30, 52)
    index.apply(one_each(vectors), [])
    scores = found(index, vectors[0], limit=30)
    assert len(scores) == 30
    assert all(score == pytest.approx(float(vectors[i] @ vectors[0]), abs=1e-5) for i, score in scores.items())
    index.close()


def test_a_collection_with_records_of_another_program_is_refused(server: ChromaServer) -> None:
    collection = request(server, "", {"name": "foreign"})
    request(server, f"/{collection['id']}/add", {"ids": ["theirs"], "embeddings": [[0.0] * DIMENSION]})
    index = served(server, collection="foreign")
    with pytest.raises(ConfigurationError, match="another program"):
        index.open()
    index.close()


def test_any_client_of_chroma_can_read_the_records(server: ChromaServer) -> None:
    index = served(server, collection="readable")
    vectors = unit_vectors(2, 53)
    index.apply(entries_of("doc", 7, vectors, {"pages": 3, "ratio": 0.5, "draft": True, "tags": ("a", "b")}), [])
    with urllib.request.urlopen(f"http://{server.host}:{server.port}{API}/readable", timeout=10) as answer:
        collection = json.load(answer)
    held = request(server, f"/{collection['id']}/get", {"include": ["documents", "metadatas", "embeddings"]})
    assert held["ids"] == ["doc", "doc\x1f1"]
    assert held["documents"] == ["passage 0 of doc", "passage 1 of doc"]
    own = {"pages": 3, "ratio": 0.5, "draft": True, "tags": ["a", "b"]}
    assert held["metadatas"][1] == own | {"mnemon:doc_id": "doc", "mnemon:passage": 1, "mnemon:passage_id": 8}
    assert held["embeddings"][0] == pytest.approx(vectors[0].tolist(), abs=1e-6)
    assert collection["metadata"]["mnemon:model"] == MODEL
    index.close()
