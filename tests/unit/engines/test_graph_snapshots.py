"""Whatever happens to the files of a snapshot, the next start gives the same answers and no signal ends the process."""

import hashlib
import json
import random
import subprocess
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from mnemon_server.engines.encryption import Cipher
from mnemon_server.engines.hnsw import GraphSettings, SnapshotFolder, SnapshotIdentity
from mnemon_server.engines.hnsw.snapshots import SnapshotDamagedError

from tests.support.forks import python, run_python
from tests.support.local_vectors import EAGER, TIME, Model, clustered_vectors, has_graph_of, opened, recall
from tests.support.server import wait_until

DIMENSION = 8
COUNT = 240

_OPENING = """
import sys
from pathlib import Path
from tests.unit.engines.test_graph_snapshots import open_variants
open_variants(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4]))
"""
_SAVING = """
import sys
from dataclasses import replace
from pathlib import Path
from tests.support.local_vectors import EAGER, opened
from tests.unit.engines.test_graph_snapshots import more, saved_model
model = saved_model()
often = replace(EAGER, tail_max=1, snapshot_changes_min=1, snapshot_changes_share=0.0)
vectors = opened(Path(sys.argv[1]), model, settings=often)
print("open", flush=True)
while True:
    vectors.add(*more(model, 1, 1_000 + model.last))
    vectors.remove(model.remove([model.last]))
"""
_FULL_DISK = """
import resource, sys
from pathlib import Path
from tests.unit.engines.test_graph_snapshots import COUNT, DIMENSION, more, saved_model
from tests.support.local_vectors import clustered_vectors, has_graph_of, opened, recall
from tests.support.server import wait_until
folder, model = Path(sys.argv[1]), saved_model()
resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[2]), resource.RLIM_INFINITY))
vectors = opened(folder, model)
wait_until(has_graph_of(vectors, COUNT))
vectors.add(*more(model, 40, 5))
assert recall(vectors, model, clustered_vectors(10, DIMENSION, 2)) >= 0.98
vectors.close()
"""


def more(model: Model, count: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    matrix = clustered_vectors(count, model.dimension, seed)
    return model.add(matrix), matrix


def saved_model() -> Model:
    """The model from which the snapshot of these tests was made."""
    model = Model(DIMENSION)
    more(model, COUNT, 1)
    return model


def save(folder: Path, model: Model, generations: int = 1) -> list[Path]:
    """Saves snapshots of the model, oldest first. Each after the first has a few vectors more."""
    for number in range(generations):
        vectors = opened(folder, model)
        wait_until(has_graph_of(vectors, len(model.vectors)))
        if number:
            vectors.add(*more(model, EAGER.tail_max, 100 + number))
            wait_until(has_graph_of(vectors, len(model.vectors)))
        vectors.close()
    return sorted((folder / "index").glob("*.graph"))


def check_answers(folder: Path, model: Model) -> int:
    """Opens, and searches at once and with the graph. Returns the newest snapshot's graph size, or 0 if rebuilt."""
    vectors = opened(folder, model)
    queries = clustered_vectors(5, DIMENSION, 3)
    for query in queries:
        nearest = vectors.nearest(query, 10) or vectors.scan(query)
        assert set(nearest.passage_ids.tolist()) >= set(model.best(query, 3))
    wait_until(has_graph_of(vectors, COUNT))
    assert recall(vectors, model, queries) >= 0.98
    vectors.close()
    return len(list((folder / "index").glob("*.graph")))


def quarantined(folder: Path) -> list[str]:
    return sorted(path.name for path in (folder / "quarantine").glob("*"))


def open_variants(folder: Path, start: int, stop: int, step: int) -> None:
    """Opens the snapshot with one byte changed and the checksum corrected, for every position of a range.

    The links may then lead elsewhere, but must not lead out of the graph.
    """
    model, path = saved_model(), folder / "index/00000001.graph"
    good = path.read_bytes()
    for position in range(start, min(stop, len(good) - 32), step):
        body = bytearray(good[:-32])
        body[position] ^= 1 << position % 8
        for old in (folder / "index").glob("*"):
            old.unlink()
        path.write_bytes(body + hashlib.sha256(body).digest())
        vectors = opened(folder, model)
        wait_until(has_graph_of(vectors, 1))
        for query in clustered_vectors(5, DIMENSION, 3):
            found = vectors.nearest(query, 5)
            assert found is not None and set(found.passage_ids.tolist()) <= model.vectors.keys()
        vectors.add(*(np.array([model.last + 1]), clustered_vectors(1, DIMENSION, 4)))
        vectors.close(save=False)
    path.write_bytes(good)


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """A snapshot of `saved_model`."""
    [path] = save(tmp_path_factory.mktemp("saved"), saved_model())
    return path.read_bytes()


@pytest.fixture
def folder(tmp_path: Path, saved: bytes) -> Path:
    """A folder with that snapshot."""
    (tmp_path / "index").mkdir()
    (tmp_path / "index/00000001.graph").write_bytes(saved)
    return tmp_path


def test_a_start_loads_the_graph_from_the_snapshot_and_writes_none_without_a_change(folder: Path) -> None:
    model = saved_model()
    vectors = opened(folder, model)
    wait_until(has_graph_of(vectors, COUNT))
    assert vectors.usage().snapshot_time == TIME
    assert recall(vectors, model, clustered_vectors(20, DIMENSION, 3)) >= 0.98
    vectors.close()
    assert [path.name for path in (folder / "index").iterdir()] == ["00000001.graph"]


def test_changes_since_the_snapshot_are_applied(folder: Path) -> None:
    rng, model = random.Random(4), saved_model()
    gone = model.remove(rng.sample(sorted(model.vectors), k=50))
    more(model, 60, 2)
    vectors = opened(folder, model)
    wait_until(has_graph_of(vectors, COUNT + 60))
    assert vectors.usage().dead_count == 50
    for query in clustered_vectors(30, DIMENSION, 3):
        nearest = vectors.nearest(query, 40)
        assert nearest is not None and not set(gone) & set(nearest.passage_ids.tolist())
    assert recall(vectors, model, clustered_vectors(30, DIMENSION, 3)) >= 0.98
    vectors.close()


def test_recall_stays_when_many_vectors_linked_by_the_snapshot_are_gone(tmp_path: Path) -> None:
    # A narrow search, which must work with every row that it passes.
    narrow = replace(EAGER, ef_search=16, dead_share_max=0.9)
    rng, model = random.Random(8), Model(48)
    more(model, 1_500, 1)
    vectors = opened(tmp_path, model, settings=narrow)
    wait_until(has_graph_of(vectors, 1_500))
    vectors.close()
    model.remove(rng.sample(sorted(model.vectors), k=500))
    vectors = opened(tmp_path, model, settings=narrow)
    wait_until(has_graph_of(vectors, 1_500))
    assert vectors.usage().dead_count == 500
    assert recall(vectors, model, clustered_vectors(200, 48, 3)) >= 0.985
    vectors.close()


def test_vectors_missing_from_the_snapshot_are_added(tmp_path: Path) -> None:
    whole, partly = saved_model(), saved_model()
    partly.remove(list(range(10, 40)))
    save(tmp_path, partly)
    vectors = opened(tmp_path, whole)
    wait_until(has_graph_of(vectors, COUNT))
    assert recall(vectors, whole, clustered_vectors(30, DIMENSION, 3)) >= 0.98
    vectors.close()


def test_the_files_hold_no_vector(folder: Path, saved: bytes) -> None:
    for vector in saved_model().vectors.values():
        assert vector[:2].tobytes() not in saved


def test_two_generations_are_kept(tmp_path: Path) -> None:
    names = [path.name for path in save(tmp_path, saved_model(), generations=4)]
    assert names == ["00000003.graph", "00000004.graph"]
    assert len(list((tmp_path / "index").iterdir())) == 2


def test_a_flipped_byte_is_detected_and_the_file_quarantined(folder: Path, saved: bytes) -> None:
    model, path = saved_model(), folder / "index/00000001.graph"
    header_end = 12 + int.from_bytes(saved[8:12], "little")
    positions = [*range(0, header_end, 13), *range(header_end, len(saved), len(saved) // 10)]
    for number, position in enumerate(positions, 1):
        (folder / "index/00000002.graph").unlink(missing_ok=True)
        path.write_bytes(saved[:position] + bytes([saved[position] ^ 1 << position % 8]) + saved[position + 1 :])
        _open_damaged(folder, model)
        # The clock stands still, so later files replace earlier ones.
        assert len(quarantined(folder)) == 1, f"byte {position}, file {number}"
        (folder / "quarantine" / quarantined(folder)[0]).unlink()


def test_a_flip_or_a_cut_anywhere_is_damage(folder: Path, saved: bytes) -> None:
    snapshots, path = _snapshots(folder), folder / "index/00000001.graph"
    header_end = 12 + int.from_bytes(saved[8:12], "little")
    for position in [*range(header_end), *range(header_end, len(saved) - 40, 61), *range(len(saved) - 40, len(saved))]:
        for content in (saved[:position], saved[:position] + bytes([saved[position] ^ 0x40]) + saved[position + 1 :]):
            path.write_bytes(content)
            with pytest.raises(SnapshotDamagedError):
                snapshots.read(path)


@pytest.mark.parametrize("share", [0, 0.001, 0.3, 0.999])
def test_after_a_truncated_file_the_previous_generation_is_loaded(tmp_path: Path, share: float) -> None:
    model = saved_model()
    older, newest = save(tmp_path, model, generations=2)
    newest.write_bytes(newest.read_bytes()[: int(newest.stat().st_size * share)])
    vectors = opened(tmp_path, model)
    wait_until(has_graph_of(vectors, len(model.vectors)))
    vectors.close()
    assert len(quarantined(tmp_path)) == 1
    # It continued from the older one instead of starting again.
    assert older.exists()
    check_answers(tmp_path, model)


@pytest.mark.parametrize("removed", ["newest", "older", "both", "folder"])
def test_missing_files_lose_nothing(tmp_path: Path, removed: str) -> None:
    model = saved_model()
    older, newest = save(tmp_path, model, generations=2)
    for path, when in ((older, ("older", "both", "folder")), (newest, ("newest", "both", "folder"))):
        if removed in when:
            path.unlink()
    if removed == "folder":
        (tmp_path / "index").rmdir()
    check_answers(tmp_path, model)
    assert quarantined(tmp_path) == []


def test_a_snapshot_of_another_store_model_or_kind_of_graph_is_not_used_and_stays(folder: Path) -> None:
    other_kind = GraphSettings(graph_min=200, tail_max=16, m=8)
    for options in ({"store": "another"}, {"settings": other_kind}):
        vectors = opened(folder, saved_model(), **options)  # type: ignore[arg-type]
        wait_until(has_graph_of(vectors, COUNT))
        assert recall(vectors, saved_model(), clustered_vectors(10, DIMENSION, 3)) >= 0.98
        vectors.close()
    assert (folder / "index/00000001.graph").exists() or len(list((folder / "index").iterdir())) == 2
    assert quarantined(folder) == []


def test_a_snapshot_of_other_vectors_under_the_same_name_is_ignored(folder: Path) -> None:
    model = Model(DIMENSION)
    more(model, COUNT, 77)
    check_answers(folder, model)
    assert quarantined(folder) == []
    assert sorted(path.name for path in (folder / "index").iterdir()) == ["00000001.graph", "00000002.graph"]


def test_a_snapshot_of_a_newer_format_is_left_alone(folder: Path, saved: bytes) -> None:
    length = int.from_bytes(saved[8:12], "little")
    header = json.dumps(json.loads(saved[12 : 12 + length]) | {"format": 4}).encode()
    body = saved[:8] + len(header).to_bytes(4, "little") + header + b"arrays of another kind"
    newer = body + hashlib.sha256(body).digest()
    (folder / "index/00000001.graph").write_bytes(newer)
    check_answers(folder, saved_model())
    assert (folder / "index/00000001.graph").read_bytes() == newer
    assert quarantined(folder) == []


def test_wrong_links_under_a_valid_checksum_do_not_end_the_process(folder: Path, saved: bytes) -> None:
    header_end = 12 + int.from_bytes(saved[8:12], "little")
    _in_child(_OPENING, str(folder), "0", str(header_end), "17")
    _in_child(_OPENING, str(folder), str(header_end), str(len(saved)), str(len(saved) // 40))


@pytest.mark.slow
@pytest.mark.timeout(1_800)
def test_wrong_links_do_not_end_the_process_for_thousands_of_bytes(folder: Path, saved: bytes) -> None:
    _in_child(_OPENING, str(folder), "0", str(len(saved)), "11", timeout_s=1_700)


@pytest.mark.parametrize("bytes_max", [0, 4_096])
def test_a_full_disk_costs_only_the_snapshot(tmp_path: Path, bytes_max: int) -> None:
    model = saved_model()
    [older] = save(tmp_path, model)
    content = older.read_bytes()
    _in_child(_FULL_DISK, str(tmp_path), str(bytes_max))
    assert [path.name for path in (tmp_path / "index").iterdir()] == [older.name]
    assert older.read_bytes() == content


def test_kill_9_while_snapshots_are_written_loses_nothing(tmp_path: Path) -> None:
    _kill_while_saving(tmp_path, rounds=2)


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_kill_9_at_many_moments_while_snapshots_are_written_loses_nothing(tmp_path: Path) -> None:
    _kill_while_saving(tmp_path, rounds=200)


def _kill_while_saving(folder: Path, *, rounds: int) -> None:
    rng = random.Random(6)
    for _ in range(rounds):
        with python(_SAVING, folder) as (process, printed):
            assert printed.readline() == "open\n", printed.read()
            before = [path.name for path in (folder / "index").glob("*.graph")]
            wait_until(lambda before=before: [path.name for path in (folder / "index").glob("*.graph")] != before)
            # Any moment of the next writes: what is interrupted is random.
            with pytest.raises(subprocess.TimeoutExpired):
                process.wait(rng.uniform(0, 0.05))
        check_answers(folder, saved_model())
        assert quarantined(folder) == []


def test_the_rest_of_an_interrupted_write_is_not_a_snapshot(folder: Path, saved: bytes) -> None:
    (folder / "index/00000002.tmp").write_bytes(saved[:1000])
    model = saved_model()
    vectors = opened(folder, model)
    wait_until(has_graph_of(vectors, COUNT))
    vectors.add(*more(model, EAGER.tail_max, 5))
    wait_until(has_graph_of(vectors, len(model.vectors)))
    vectors.close()
    assert sorted(path.name for path in (folder / "index").iterdir()) == ["00000001.graph", "00000002.graph"]


def test_an_encrypted_snapshot_is_read_with_its_key_alone(folder: Path, saved: bytes) -> None:
    plain, encrypting = _snapshots(folder), _snapshots(folder, Cipher(bytes(32)))
    [path] = plain.generations()
    # One that is not encrypted yet is used, and the next one is.
    links, _ = encrypting.read(path)
    encrypting.save(links)
    newest = encrypting.generations()[0]
    content = newest.read_bytes()
    assert b"store" in saved
    assert b"store" not in content
    assert (encrypting.read(newest)[0].ground == links.ground).all()
    for reader in (plain, _snapshots(folder, Cipher(bytes(31) + b"x"))):
        with pytest.raises(SnapshotDamagedError):
            reader.read(newest)
    for changed in (content[:-1], content[:20] + bytes([content[20] ^ 1]) + content[21:]):
        newest.write_bytes(changed)
        with pytest.raises(SnapshotDamagedError):
            encrypting.read(newest)


def _open_damaged(folder: Path, model: Model) -> None:
    vectors = opened(folder, model)
    wait_until(has_graph_of(vectors, COUNT))
    assert recall(vectors, model, clustered_vectors(3, DIMENSION, 3)) >= 0.9
    vectors.close()


def _snapshots(folder: Path, cipher: Cipher | None = None) -> SnapshotFolder:
    identity = SnapshotIdentity.of("store", "model/1", DIMENSION, EAGER)
    return SnapshotFolder(folder / "index", folder / "quarantine", identity, lambda: TIME, cipher)


def _in_child(script: str, *arguments: str, timeout_s: float = 60) -> None:
    result = run_python(script, *arguments, timeout_s=timeout_s)
    assert result.returncode == 0, result.stderr[-3_000:]
