"""The graph of a vault's collection follows its commits, is reloaded with the vault, and is never required."""

import shutil
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from mnemon_server.domain.changes import ChangeType
from mnemon_server.domain.collections import COLLECTIONS, DOCUMENTS, MEMORIES, SEMANTIC
from mnemon_server.domain.documents import Document
from mnemon_server.domain.errors import StorageFailedError
from mnemon_server.engines.hnsw import GraphSettings
from mnemon_server.engines.promises.records import RecordEngine
from mnemon_server.engines.promises.values import DocumentUpdate, DocumentWrite, PassageInput, Vector
from mnemon_server.engines.promises.vault import Vault
from mnemon_server.engines.quantized import QuantizedVectors
from mnemon_server.engines.sqlite import vectors
from mnemon_server.engines.sqlite.pages.mark import MARK_FILE
from mnemon_server.engines.sqlite.scanners import VectorSettings
from mnemon_server.engines.sqlite_vault import SQLiteVault, VaultSettings

from tests.contract.record_engine import StoredVectorsContract
from tests.contract.vault_suite import ManualClock
from tests.support.databases import content_of, open_database
from tests.support.faulty_vfs import FaultyVFS
from tests.support.local_vectors import clustered_vectors
from tests.support.server import wait_until

DIMENSION = 16
COUNT = 300
GRAPH = GraphSettings(graph_min=COUNT, tail_max=8)
VECTORS = clustered_vectors(COUNT, DIMENSION, 1)


class TestSQLiteVectorsWithAGraph(StoredVectorsContract):
    """A graph from the second vector on."""

    def open_vault(self, folder: Path, clock: ManualClock) -> Vault:
        settings = VaultSettings(VectorSettings(graph=GraphSettings(graph_min=2, tail_max=1)))
        return SQLiteVault(folder, model_identity="test/1", dimension=8, settings=settings, clock=clock)


class TestSQLiteVectorsWithoutHnswlib(StoredVectorsContract):
    """Quantized from the second vector on."""

    def open_vault(self, folder: Path, clock: ManualClock) -> Vault:
        settings = VaultSettings(VectorSettings(graph=GraphSettings(graph_min=2), with_graphs=False))
        return SQLiteVault(folder, model_identity="test/1", dimension=8, settings=settings, clock=clock)


def open_vault(folder: Path, *, vfs: str | None = None, **options: Any) -> SQLiteVault:
    settings = VaultSettings(VectorSettings(**{"graph": GRAPH} | options))
    return SQLiteVault(folder, model_identity="test/1", dimension=DIMENSION, settings=settings, vfs=vfs)


def a_write(doc_id: str, vector: Vector) -> DocumentWrite:
    text = f"{doc_id} at {vector[0]}"
    return DocumentWrite(document=Document(doc_id, text), passages=[PassageInput(0, len(text), vector)])


def put(records: RecordEngine, doc_id: str, vector: Vector) -> None:
    records.put_document(a_write(doc_id, vector)).result()


def found(records: RecordEngine, query: Vector, limit: int = 1) -> list[str]:
    """The ids of the documents that the graph finds."""
    scores = records.nearest_vectors(query, limit=limit)
    assert scores is not None
    return [place.doc_id for place in records.locate_passages(scores.passage_ids.tolist())]


def has_graph(records: RecordEngine) -> bool:
    return records.vector_usage().graph_count >= COUNT


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A vault with a graph of 300 documents, closed."""
    vault = open_vault(tmp_path)
    records = vault.collection(DOCUMENTS)
    wait([records.put_document(a_write(f"d{i}", vector)) for i, vector in enumerate(VECTORS)])
    wait_until(lambda: has_graph(records))
    vault.close()
    return tmp_path


@pytest.fixture
def vault(folder: Path) -> Iterator[SQLiteVault]:
    vault = open_vault(folder)
    wait_until(lambda: has_graph(vault.collection(DOCUMENTS)))
    yield vault
    vault.close()


def test_the_graph_finds_the_nearest_with_their_exact_scores_best_first(vault: SQLiteVault) -> None:
    records = vault.collection(DOCUMENTS)
    exact = records.scan_vectors(VECTORS[7])
    best = dict(zip(exact.passage_ids.tolist(), exact.scores.tolist(), strict=True))
    nearest = records.nearest_vectors(VECTORS[7], limit=10)
    assert nearest is not None
    assert nearest.scores.tolist() == pytest.approx(sorted(best.values(), reverse=True)[:10])
    assert nearest.scores.tolist() == pytest.approx([best[i] for i in nearest.passage_ids.tolist()])
    assert found(records, VECTORS[7]) == ["d7"]


def test_every_write_is_seen_by_the_next_search(vault: SQLiteVault) -> None:
    records = vault.collection(DOCUMENTS)
    new = clustered_vectors(1, DIMENSION, 99)[0]
    put(records, "d7", new)
    assert found(records, new) == ["d7"]
    assert found(records, VECTORS[7]) != ["d7"]
    records.delete_document("d7").result()
    assert "d7" not in found(records, new, 20)


def test_a_hidden_document_leaves_the_graph_at_once_and_comes_back_when_shown(vault: SQLiteVault) -> None:
    records = vault.collection(DOCUMENTS)
    for hidden in (True, False):
        update = DocumentUpdate(
            doc_id="d7",
            update=lambda old, hidden=hidden: replace(old, hidden=hidden),
            change=ChangeType.KNOWLEDGE_INDEXED,
            passages=[PassageInput(0, 4, VECTORS[7])],
        )
        records.update_document(update).result()
        assert ("d7" in found(records, VECTORS[7], 5)) is not hidden


def test_the_graph_is_reloaded_and_catches_up_with_the_vault(folder: Path) -> None:
    vault = open_vault(folder)
    put(vault.collection(DOCUMENTS), "late", clustered_vectors(1, DIMENSION, 99)[0])
    vault.collection(DOCUMENTS).delete_document("d3").result()
    vault.close()

    vault = open_vault(folder)
    records = vault.collection(DOCUMENTS)
    wait_until(lambda: has_graph(records))
    assert records.vector_usage().snapshot_time is not None
    assert found(records, clustered_vectors(1, DIMENSION, 99)[0]) == ["late"]
    assert "d3" not in found(records, VECTORS[3], 20)
    # It still holds the row of the deleted document, so it was not rebuilt.
    assert (records.vector_usage().graph_count, records.vector_usage().dead_count) == (COUNT, 1)
    vault.close()


def test_damaged_snapshots_are_quarantined(folder: Path) -> None:
    [snapshot] = (folder / "index/document").iterdir()
    snapshot.write_bytes(snapshot.read_bytes()[:-1])
    vault = open_vault(folder)
    wait_until(lambda: has_graph(vault.collection(DOCUMENTS)))
    assert found(vault.collection(DOCUMENTS), VECTORS[7]) == ["d7"]
    vault.close()
    assert [path.name.split("-")[:2] for path in (folder / "quarantine").iterdir()] == [["document", "00000001"]]


def test_the_snapshot_of_another_vault_is_ignored(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    other = tmp_path_factory.mktemp("other")
    vault = open_vault(other)
    vectors = clustered_vectors(COUNT, DIMENSION, 50)
    for i, vector in enumerate(vectors):
        put(vault.collection(DOCUMENTS), f"o{i}", vector)
    vault.close()
    for file in (other / "index/document").iterdir():
        file.unlink()
    [snapshot] = (folder / "index/document").iterdir()
    (other / "index/document" / snapshot.name).write_bytes(snapshot.read_bytes())
    vault = open_vault(other)
    wait_until(lambda: has_graph(vault.collection(DOCUMENTS)))
    assert [found(vault.collection(DOCUMENTS), vectors[i]) for i in range(0, COUNT, 30)] == [
        [f"o{i}"] for i in range(0, COUNT, 30)
    ]
    vault.close()
    assert (other / "index/document" / snapshot.name).read_bytes() == snapshot.read_bytes()


def test_restored_records_are_not_searched_with_the_graph_of_later_ones(folder: Path) -> None:
    backup = (folder / "records.db").read_bytes()
    first, second = clustered_vectors(40, DIMENSION, 60), clustered_vectors(40, DIMENSION, 61)
    vault = open_vault(folder)
    for i, vector in enumerate(first):
        put(vault.collection(DOCUMENTS), f"n{i}", vector)
    wait_until(lambda: vault.collection(DOCUMENTS).vector_usage().graph_count >= COUNT + 40 - GRAPH.tail_max)
    vault.close()
    # The same passage ids are assigned again, to other vectors.
    (folder / "records.db").write_bytes(backup)
    (folder / MARK_FILE).unlink()
    vault = open_vault(folder, graph=replace(GRAPH, graph_min=10_000))
    for i, vector in enumerate(second):
        put(vault.collection(DOCUMENTS), f"n{i}", vector)
    vault.close()
    vault = open_vault(folder)
    wait_until(lambda: vault.collection(DOCUMENTS).vector_usage().graph_count >= COUNT + 40 - GRAPH.tail_max)
    assert [found(vault.collection(DOCUMENTS), vector) for vector in second] == [[f"n{i}"] for i in range(40)]
    vault.close()


def test_a_collection_that_is_searched_elsewhere_has_no_graph(folder: Path) -> None:
    vault = open_vault(folder, graphs_of=(MEMORIES,))
    records = vault.collection(DOCUMENTS)
    assert records.nearest_vectors(VECTORS[7], limit=1) is None
    assert records.vector_usage().flat_count == COUNT
    vault.close()


def test_a_vault_says_from_the_start_which_graphs_are_still_missing(folder: Path) -> None:
    shutil.rmtree(folder / "index")
    vault = open_vault(folder)
    told = [vault.collection(DOCUMENTS).vector_usage()]
    assert all(vault.collection(other).vector_usage().warm for other in COLLECTIONS if other is not DOCUMENTS)
    while not told[-1].warm:
        told.append(vault.collection(DOCUMENTS).vector_usage())
    vault.close()
    # Loading may be quick, but the vault is never warm without the graph.
    assert {(usage.warm, usage.graph_count) for usage in told} <= {(False, 0), (False, COUNT), (True, COUNT)}


def test_a_vault_that_recovered_from_a_failure_stays_warm(folder: Path) -> None:
    vfs = FaultyVFS("failing-with-a-graph")
    vault = open_vault(folder, vfs=vfs.name)
    records = vault.collection(DOCUMENTS)
    wait_until(lambda: records.vector_usage().warm)
    vfs.fail_sync_at = vfs.syncs + 1
    with pytest.raises(StorageFailedError):
        put(records, "during", VECTORS[0])
    records.recover()
    while not has_graph(records):
        assert records.vector_usage().warm
    vault.close()
    vfs.unregister()


def test_statements_have_their_own_snapshot_folder(tmp_path: Path) -> None:
    vault = open_vault(tmp_path)
    records = vault.collection(SEMANTIC)
    wait([records.put_document(a_write(f"s{i}", vector)) for i, vector in enumerate(VECTORS)])
    wait_until(lambda: has_graph(records))
    assert records.save_snapshot() is not None
    assert vault.collection(DOCUMENTS).save_snapshot() is None
    vault.close()
    assert {path.suffix for path in (tmp_path / "semantic-index").iterdir()} == {".graph"}
    assert not (tmp_path / "index").exists()
    vault = open_vault(tmp_path, graph=replace(GRAPH, graph_min=COUNT + 1))
    records = vault.collection(SEMANTIC)
    # There are too few to start a new graph, so it was loaded.
    wait_until(lambda: has_graph(records))
    assert found(records, VECTORS[7]) == ["s7"]
    vault.close()


def test_collections_without_vectors_cost_neither_threads_nor_folders(tmp_path: Path) -> None:
    before = set(threading.enumerate())
    vault = open_vault(tmp_path, graph=GraphSettings(graph_min=1))
    begun = {thread.name for thread in threading.enumerate() if thread not in before}
    vault.close()
    assert begun and "vector-graph" not in begun
    # A timeline thread may already have made the folder of its texts, or not.
    assert {path.name for path in tmp_path.iterdir() if path.is_dir()} <= {"timeline-index"}


def test_vectors_that_outgrow_the_memory_for_a_graph_are_quantized(folder: Path) -> None:
    vault = open_vault(folder, full_max=COUNT)
    records = vault.collection(DOCUMENTS)
    wait_until(lambda: has_graph(records))
    new = clustered_vectors(3, DIMENSION, 100)
    for i, vector in enumerate(new):
        put(records, f"more{i}", vector)
        assert found(records, vector) == [f"more{i}"]
    wait_until(lambda: records.vector_usage().graph_count == 0)
    check_quantized(records, COUNT + 3)
    assert found(records, VECTORS[7]) == ["d7"]
    records.delete_document("d7").result()
    assert "d7" not in found(records, VECTORS[7], 20)
    vault.close()
    vault = open_vault(folder, full_max=COUNT)
    check_quantized(vault.collection(DOCUMENTS), COUNT + 2)
    assert found(vault.collection(DOCUMENTS), new[1]) == ["more1"]
    vault.close()


def test_writes_and_searches_are_served_while_vectors_are_quantized(folder: Path) -> None:
    allowed, rounder = threading.Event(), ThreadPoolExecutor(1)
    rounder.submit(allowed.wait)
    vault = open_vault(folder, full_max=COUNT, new_rounder=lambda: rounder)
    records = vault.collection(DOCUMENTS)
    wait_until(lambda: has_graph(records))
    new = clustered_vectors(20, DIMENSION, 100)
    for i, vector in enumerate(new):
        put(records, f"more{i}", vector)
        assert found(records, vector) == [f"more{i}"]
    for doc_id in ("d7", "more3"):
        records.delete_document(doc_id).result()
    assert has_graph(records)
    assert "d7" not in found(records, VECTORS[7], 20)
    allowed.set()
    wait_until(lambda: records.vector_usage().graph_count == 0)
    check_quantized(records, COUNT + 18)
    assert "d7" not in found(records, VECTORS[7], 20)
    assert "more3" not in found(records, new[3], 20)
    assert found(records, new[19]) == ["more19"]
    vault.close()


def test_what_is_removed_while_vectors_are_quantized_is_not_found(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(vectors, "ROWS_AT_ONCE", 1)
    vault = open_vault(folder, full_max=COUNT)
    records = vault.collection(DOCUMENTS)
    put(records, "more", VECTORS[7])
    removed = [f"d{i}" for i in range(0, COUNT, 7)]
    for doc_id in removed:
        records.delete_document(doc_id).result()
    wait_until(lambda: records.vector_usage().graph_count == 0)
    check_quantized(records, COUNT + 1 - len(removed))
    assert not set(removed) & set(found(records, VECTORS[7], COUNT))
    vault.close()


def test_a_folder_opens_with_and_without_hnswlib_in_turn(folder: Path) -> None:
    for turn, with_graphs in enumerate((False, True, False)):
        vault = open_vault(folder, with_graphs=with_graphs)
        records = vault.collection(DOCUMENTS)
        if with_graphs:
            wait_until(lambda records=records: has_graph(records))
            assert records.save_snapshot() is not None
        else:
            check_quantized(records, COUNT)
        new = clustered_vectors(1, DIMENSION, 100 + turn)[0]
        put(records, f"more{turn}", new)
        records.delete_document(f"d{turn}").result()
        assert found(records, new) == [f"more{turn}"]
        assert found(records, VECTORS[7]) == ["d7"]
        left = {f"more{i}" for i in range(turn + 1)} | {f"d{i}" for i in range(turn + 1, COUNT)}
        assert set(found(records, VECTORS[7], COUNT)) == left
        vault.close()


def test_an_erasure_without_hnswlib_leaves_no_snapshot_of_what_was_erased(folder: Path) -> None:
    vault = open_vault(folder, with_graphs=False)
    records = vault.collection(DOCUMENTS)
    records.delete_document("d7").result()
    assert [*folder.rglob("*.graph")]
    assert records.save_snapshot() is None
    assert [*folder.rglob("*.graph")] == []
    vault.close()


def test_vectors_are_quantized_without_hnswlib_where_they_would_get_a_graph(tmp_path: Path) -> None:
    vault = open_vault(tmp_path, with_graphs=False, graphs_of=(DOCUMENTS,))
    for collection in (DOCUMENTS, MEMORIES):
        records = vault.collection(collection)
        wait([records.put_document(a_write(f"d{i}", vector)) for i, vector in enumerate(VECTORS[:-1])])
        assert records.vector_usage().bytes > 4 * DIMENSION * (COUNT - 1)
        put(records, "last", VECTORS[-1])
    wait_until(lambda: vault.collection(DOCUMENTS).vector_usage().bytes < 4 * DIMENSION * COUNT)
    check_quantized(vault.collection(DOCUMENTS), COUNT)
    assert vault.collection(MEMORIES).vector_usage().bytes > 4 * DIMENSION * COUNT
    vault.close()


def check_quantized(records: RecordEngine, count: int) -> None:
    usage = records.vector_usage()
    assert (usage.warm, usage.flat_count, usage.graph_count) == (True, count, 0)
    assert 0 < usage.bytes < 4 * DIMENSION * count
    assert records.save_snapshot() is None


def test_vectors_that_outgrow_the_memory_are_held_as_signs_and_then_read_from_the_file(folder: Path) -> None:
    bytes_max = QuantizedVectors.bytes_per_vector(DIMENSION) * (COUNT + 1)
    vault = open_vault(folder, cache_bytes_max=bytes_max)
    records = vault.collection(DOCUMENTS)
    assert found(records, VECTORS[7]) == ["d7"]
    held = records.vector_usage().bytes
    assert 0 < held <= bytes_max
    for i in range(3):
        put(records, f"more{i}", clustered_vectors(1, DIMENSION, 100 + i)[0])
    assert 0 < records.vector_usage().bytes < held
    check_scores(records, COUNT + 3)
    assert found(records, VECTORS[7]) == ["d7"]
    vault.close()
    signs_bytes = QuantizedVectors.bytes_per_vector(DIMENSION, with_codes=False) * (COUNT + 3)
    vault = open_vault(folder, cache_bytes_max=signs_bytes)
    records = vault.collection(DOCUMENTS)
    assert 0 < records.vector_usage().bytes <= signs_bytes
    check_scores(records, COUNT + 3)
    put(records, "more3", clustered_vectors(1, DIMENSION, 103)[0])
    assert records.vector_usage().bytes == 0
    assert records.nearest_vectors(VECTORS[7], limit=1) is None
    check_scores(records, COUNT + 4)
    vault.close()


def check_scores(records: RecordEngine, count: int) -> None:
    """Every passage is scanned, with its exact score if it is the best."""
    scores = records.scan_vectors(clustered_vectors(1, DIMENSION, 102)[0])
    assert len(scores.passage_ids) == count and max(scores.scores) == pytest.approx(1.0)


def test_no_deleted_vector_is_left_in_any_file(vault: SQLiteVault, folder: Path) -> None:
    records = vault.collection(DOCUMENTS)
    for i in range(100):
        records.delete_document(f"d{i}").result()
    wait_until(lambda: records.vector_usage().dead_count < 75)
    vault.close()
    files = [content_of(path) for path in folder.rglob("*") if path.is_file()]
    assert any(VECTORS[200].tobytes() in content for content in files)
    for i in range(100):
        assert not any(VECTORS[i][:4].tobytes() in content for content in files)


def test_the_snapshot_names_its_database_without_revealing_the_cursor_secret(folder: Path) -> None:
    epoch = open_database(folder / "records.db").execute("SELECT value FROM meta WHERE key = 'epoch'").get
    [snapshot] = (folder / "index/document").iterdir()
    assert epoch not in snapshot.read_bytes() and epoch.hex().encode() not in snapshot.read_bytes()
