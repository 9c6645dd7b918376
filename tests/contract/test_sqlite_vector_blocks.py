"""Rounded vectors in records.db: a start that reads them finds what was found before, and nothing that was deleted."""

import random
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import apsw
import numpy as np
import pytest
from mnemon_server.domain.collections import DOCUMENTS
from mnemon_server.domain.documents import Document
from mnemon_server.domain.filters import RecordFilter
from mnemon_server.engines.promises.records import RecordEngine
from mnemon_server.engines.promises.values import DocumentUpdate, DocumentWrite, PassageInput
from mnemon_server.engines.quantized import round_vectors
from mnemon_server.engines.sqlite import mutations, vector_blocks
from mnemon_server.engines.sqlite.scanners import VectorSettings
from mnemon_server.engines.sqlite.tables import Tables
from mnemon_server.engines.sqlite.upkeep import packing
from mnemon_server.engines.sqlite.upkeep.verification import RecordsVerifier
from mnemon_server.engines.sqlite.vector_blocks import BLOCK_IDS, VectorBlock, read_parts
from mnemon_server.engines.sqlite_vault import SQLiteVault, VaultSettings
from mnemon_server.engines.vault_key import VaultKeyFile

from tests.support.databases import content_of, contents_of, open_database
from tests.support.local_vectors import clustered_vectors
from tests.support.server import wait_until

DIMENSION = 16
COUNT = 5 * BLOCK_IDS
VECTORS = clustered_vectors(2 * COUNT, DIMENSION, 1)
TABLES = Tables(DOCUMENTS)


@pytest.fixture(autouse=True)
def packed_early(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packing, "CHECK_ROWS", 1)
    monkeypatch.setattr(vector_blocks, "PACKED_MIN", 1)
    monkeypatch.setattr(vector_blocks, "BLOCKS_AT_ONCE", 2)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "d"


@pytest.fixture
def vault(folder: Path) -> Iterator[SQLiteVault]:
    opened = open_vault(folder)
    yield opened
    opened.close()


def open_vault(folder: Path) -> SQLiteVault:
    """A vault that holds no vector in full."""
    settings = VaultSettings(VectorSettings(full_max=0), erasure_delay_s=0.05)
    return SQLiteVault(folder, model_identity=f"test/{DIMENSION}", dimension=DIMENSION, settings=settings)


def put(records: RecordEngine, numbers: range) -> None:
    writes = [
        DocumentWrite(document=Document(f"d{number}", "x"), passages=[PassageInput(0, 1, VECTORS[number])])
        for number in numbers
    ]
    # The first one decides how vectors are held.
    records.put_documents(writes[:1]).result()
    wait_until(lambda: records.vector_usage().bytes < 4 * DIMENSION * 1_024)
    records.put_documents(writes[1:]).result()


def hide(records: RecordEngine, doc_id: str, *, hidden: bool) -> None:
    update = DocumentUpdate(doc_id=doc_id, update=lambda old: replace(old, hidden=hidden), change=None)
    records.update_document(update).result()


def numbers(folder: Path) -> list[int]:
    """The numbers of the stored blocks."""
    connection = open_database(folder / "records.db", flags=apsw.SQLITE_OPEN_READONLY)
    rows = connection.execute(f"SELECT number FROM {TABLES.vector_blocks} ORDER BY number").fetchall()
    connection.close()
    return [int(number) for (number,) in rows]


def read(folder: Path) -> tuple[list[int], int]:
    """The ids that a start reads, and how many of them from blocks."""
    connection = open_database(folder / "records.db", flags=apsw.SQLITE_OPEN_READONLY)
    origin = vector_blocks.read_origin(connection, TABLES, DIMENSION)
    assert origin is not None
    ids, packed = list[int](), 0
    for part in read_parts(connection, TABLES, DIMENSION, origin):
        if isinstance(part, VectorBlock):
            packed += len(part.passage_ids)
            ids += part.passage_ids.tolist()
        else:
            ids += [row[0] for row in part]
    connection.close()
    return ids, packed


def answers(vault: SQLiteVault) -> list[tuple[list[int], list[float]]]:
    """The nearest of some queries, and the rounded scores of all."""
    records, found = vault.collection(DOCUMENTS), []
    for query in VECTORS[::97]:
        nearest, scores = records.nearest_vectors(query, limit=5), records.scan_vectors(query, exact=0)
        assert nearest is not None
        order = np.argsort(scores.passage_ids)
        found.append((nearest.passage_ids.tolist(), nearest.scores.tolist()))
        found.append((scores.passage_ids[order].tolist(), scores.scores[order].tolist()))
    return found


def problems(folder: Path) -> list[str]:
    with RecordsVerifier(folder / "records.db", VaultKeyFile(folder)) as verifier:
        return [str(damage) for step in verifier.run() for damage in step.damages]


def test_a_start_that_loads_vectors_and_passages_at_the_same_time_finds_the_same(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mutations, "LOADED_TOGETHER_MIN", 1)
    with closing(open_vault(folder)) as vault:
        records = vault.collection(DOCUMENTS)
        put(records, range(COUNT))
        records.delete_document("d3").result()
        hide(records, "d5", hidden=True)
        passages, found = records.match_passages(RecordFilter()).tolist(), answers(vault)
    assert len(passages) == COUNT - 2
    with closing(open_vault(folder)) as vault:
        records = vault.collection(DOCUMENTS)
        assert records.match_passages(RecordFilter()).tolist() == passages
        assert answers(vault) == found
        hide(records, "d5", hidden=False)
        assert len(records.match_passages(RecordFilter())) == COUNT - 1


@pytest.mark.parametrize("seed", range(3))
def test_a_start_with_blocks_finds_what_was_found_before(folder: Path, vault: SQLiteVault, seed: int) -> None:
    rng, records = random.Random(seed), vault.collection(DOCUMENTS)
    put(records, range(COUNT))
    wait_until(lambda: numbers(folder) == [0, 1, 2, 3, 4])
    for number in rng.sample(range(COUNT), 3):
        records.delete_document(f"d{number}").result()
    shown = rng.choice([doc_id for doc_id in range(COUNT) if records.get_documents([f"d{doc_id}"])[0]])
    hide(records, f"d{shown}", hidden=True)
    put(records, range(COUNT, COUNT + rng.randrange(2 * BLOCK_IDS)))
    hide(records, f"d{shown}", hidden=False)
    expected, stored = answers(vault), records.match_passages(RecordFilter()).tolist()
    vault.close()
    ids, packed = read(folder)
    assert ids == stored
    assert packed > 0
    assert problems(folder) == []
    reopened = open_vault(folder)
    assert answers(reopened) == expected
    reopened.close()


def test_a_removal_deletes_the_block_and_its_bytes_until_it_is_written_without_it(
    folder: Path, vault: SQLiteVault
) -> None:
    records = vault.collection(DOCUMENTS)
    put(records, range(COUNT))
    wait_until(lambda: numbers(folder) == [0, 1, 2, 3, 4])
    codes = round_vectors(VECTORS[:COUNT], np.zeros(DIMENSION, np.float32)).codes
    held = codes[200].tobytes()
    wait_until(lambda: held in content_of(folder / "records.db"))
    records.delete_document("d200").result()
    wait_until(lambda: numbers(folder) == [0, 1, 2, 3, 4])
    # Apart from that: the log is not emptied while somebody reads the file.
    wait_until(lambda: records.removals_pending() == 0)
    stored = contents_of(folder)
    assert held not in stored
    assert codes[201].tobytes() in stored


@pytest.mark.parametrize("place", [0, 40, 32 + 4 * DIMENSION, 300, 900, -1])
def test_a_damaged_block_is_reported_and_not_believed_but_written_again(
    folder: Path, vault: SQLiteVault, place: int
) -> None:
    put(vault.collection(DOCUMENTS), range(COUNT))
    wait_until(lambda: numbers(folder) == [0, 1, 2, 3, 4])
    expected = answers(vault)
    vault.close()
    connection = open_database(folder / "records.db")
    for number in (0, 2):
        with connection.blob_open("main", TABLES.vector_blocks, "content", number, True) as blob:
            place = place % blob.length()
            blob.seek(place)
            byte = blob.read(1)[0]
            blob.seek(place)
            blob.write(bytes([byte ^ 1]))
    connection.close()
    assert [problem.split(":")[0] for problem in problems(folder)] == [f"{TABLES.vector_blocks} {n}" for n in (0, 2)]
    reopened = open_vault(folder)
    assert answers(reopened) == expected
    wait_until(lambda: numbers(folder) == [0, 1, 2, 3, 4])
    reopened.close()
    assert problems(folder) == []


def test_the_block_of_another_place_is_not_believed(folder: Path, vault: SQLiteVault) -> None:
    """Nor one that was cut off."""
    put(vault.collection(DOCUMENTS), range(COUNT))
    wait_until(lambda: numbers(folder) == [0, 1, 2, 3, 4])
    expected = answers(vault)
    vault.close()
    connection = open_database(folder / "records.db")
    copied = (
        f"UPDATE {TABLES.vector_blocks} SET content = (SELECT content FROM {TABLES.vector_blocks} WHERE number = 1)"
    )
    connection.execute(f"{copied} WHERE number = 3")
    connection.execute(f"UPDATE {TABLES.vector_blocks} SET content = substr(content, 1, 500) WHERE number = 4")
    connection.execute(f"UPDATE {TABLES.vector_blocks} SET content = x'' WHERE number = 0")
    connection.close()
    reopened = open_vault(folder)
    assert answers(reopened) == expected
    reopened.close()


def test_packing_that_was_interrupted_goes_on_with_the_next_start(
    folder: Path, vault: SQLiteVault, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(packing, "CHECK_ROWS", 1 << 40)  # the vault's own thread stays away
    put(vault.collection(DOCUMENTS), range(COUNT))
    left = iter([False])
    work = vault.collection(DOCUMENTS)._mutations.vector_packing(DIMENSION)
    work.pack(vault._connections, lambda: next(left, True))
    assert numbers(folder) == [0, 1]
    expected = answers(vault)
    vault.close()
    reopened = open_vault(folder)
    assert answers(reopened) == expected
    wait_until(lambda: numbers(folder) == [0, 1, 2, 3, 4])
    reopened.close()
    assert problems(folder) == []
