"""Passages that a program of format 14 indexed are re-indexed, and found as before meanwhile."""

import random
from collections.abc import Callable
from pathlib import Path

import pytest
from mnemon_server.domain.clock import EPOCH
from mnemon_server.domain.collections import DOCUMENTS, SEMANTIC
from mnemon_server.domain.semantic import SemanticMemory
from mnemon_server.engines.promises.records import RecordEngine
from mnemon_server.engines.promises.values import DocumentWrite, PassageInput
from mnemon_server.engines.sqlite.keywords import collection
from mnemon_server.engines.sqlite.tables import Tables
from mnemon_server.engines.sqlite.upkeep.packing import PackingThread
from mnemon_server.engines.sqlite_vault import SQLiteVault
from mnemon_server.services.semantic.stored_form import to_document

from tests.contract import test_sqlite_keyword_packing as packed
from tests.contract.former_keywords import oldest, wait_until_reindexed, write_format_14, write_format_15
from tests.contract.sqlite_vaults import shape
from tests.contract.vault_suite import found_by_word, unit_vector, write
from tests.support.databases import open_database

small_tables = packed.small_tables
KEYWORDS = Tables(DOCUMENTS).keywords
TEXTS = {"call": "See getUserName in app.py", "city": "Русские го-\nрода", "rain": "It was rai\u00adning again."}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    vault = packed.open_vault(tmp_path / "d")
    for doc_id, text in TEXTS.items():
        vault.collection(DOCUMENTS).put_document(write(doc_id, text)).result()
    vault.close()
    write_format_14(tmp_path / "d")
    return tmp_path / "d"


@pytest.fixture
def steps(monkeypatch: pytest.MonkeyPatch) -> Callable[[SQLiteVault], bool]:
    """Keeps the vault's own thread away, and does the next step of re-indexing."""
    monkeypatch.setattr(PackingThread, "start", lambda _: None)
    monkeypatch.setattr(collection, "STEP_PASSAGES", 7)
    return lambda vault: vault._connections.submit(KEYWORDS.step).result()


def test_parts_of_compounds_are_found_after_the_reindexing(folder: Path) -> None:
    vault = packed.open_vault(folder)
    wait_until_reindexed(folder)
    records = vault.collection(DOCUMENTS)
    assert found_by_word(records, "names").keys() == {"call"}
    assert found_by_word(records, "город").keys() == {"city"}
    assert found_by_word(records, "rains").keys() == {"rain"}
    vault.close()
    assert packed.problems(folder) == []


def test_searches_are_as_before_until_all_passages_are_reindexed(
    folder: Path, steps: Callable[[SQLiteVault], bool]
) -> None:
    vault = packed.open_vault(folder)
    records = vault.collection(DOCUMENTS)
    assert found_by_word(records, "user") == {}  # the former words
    assert found_by_word(records, "getUserName").keys() == {"call"}
    records.put_document(write("new", "setUserName")).result()
    assert found_by_word(records, "user") == {}
    assert packed.problems(folder) == []
    while steps(vault):
        pass
    assert found_by_word(records, "user").keys() == {"call", "new"}
    vault.close()
    assert packed.problems(folder) == []


@pytest.mark.parametrize("seed", range(4))
def test_changes_during_the_reindexing_are_neither_lost_nor_found_again(
    tmp_path: Path, seed: int, steps: Callable[[SQLiteVault], bool]
) -> None:
    folder, rng = tmp_path / "d", random.Random(seed)
    texts = _filled(folder, rng)
    vault = packed.open_vault(folder)
    records = vault.collection(DOCUMENTS)
    while steps(vault):
        packed.delete(records, texts, rng, rng.randrange(3))
        if rng.random() < 0.2:
            _put_one(records, texts, rng)
        packed.check_searches(records, texts)
        if rng.random() < 0.2:  # as after a kill: nothing is held in memory
            vault.close()
            vault = packed.open_vault(folder)
            records = vault.collection(DOCUMENTS)
    packed.check_searches(records, texts)
    vault.close()
    assert packed.problems(folder) == []


def test_a_reindexed_file_has_the_tables_of_a_new_one(folder: Path, tmp_path: Path) -> None:
    vault = packed.open_vault(folder)
    wait_until_reindexed(folder)
    vault.close()
    packed.open_vault(tmp_path / "new").close()
    assert shape(folder) == shape(tmp_path / "new")


@pytest.mark.parametrize("write_format", [write_format_14, write_format_15])
def test_statements_that_had_no_keyword_index_are_found_by_word(
    tmp_path: Path, write_format: Callable[[Path], None]
) -> None:
    vault = packed.open_vault(tmp_path / "d")
    for doc_id, text in TEXTS.items():
        vault.collection(SEMANTIC).put_document(_statement(doc_id, text)).result()
    vault.collection(SEMANTIC).put_document(_statement("old", "город", superseded_by="city")).result()
    vault.close()
    write_format(tmp_path / "d")
    vault = packed.open_vault(tmp_path / "d")
    records = vault.collection(SEMANTIC)
    assert found_by_word(records, "город").keys() == {"city"}
    records.put_document(_statement("new", "новый город")).result()
    records.delete_document("city").result()
    assert found_by_word(records, "город").keys() == {"new"}
    wait_until_reindexed(tmp_path / "d")
    vault.close()
    assert packed.problems(tmp_path / "d") == []
    packed.open_vault(tmp_path / "new").close()
    assert shape(tmp_path / "d") == shape(tmp_path / "new")


@pytest.mark.parametrize("following", [None, 2])
def test_an_older_program_need_not_have_finished_its_own_reindexing(
    folder: Path, tmp_path: Path, following: int | None
) -> None:
    connection = open_database(folder / "records.db")
    with connection:
        for statement in oldest(KEYWORDS).create_statements():
            connection.execute(statement)
        connection.execute("INSERT INTO keyword_reindexing VALUES ('document', ?)", (following,))
    connection.close()
    vault = packed.open_vault(folder)
    wait_until_reindexed(folder)
    assert found_by_word(vault.collection(DOCUMENTS), "user").keys() == {"call"}
    vault.close()
    assert packed.problems(folder) == []
    packed.open_vault(tmp_path / "new").close()
    assert shape(folder) == shape(tmp_path / "new")


def test_what_is_deleted_during_the_reindexing_leaves_the_file(
    folder: Path, steps: Callable[[SQLiteVault], bool]
) -> None:
    vault = packed.open_vault(folder)
    records = vault.collection(DOCUMENTS)
    steps(vault)
    records.delete_document("city").result()
    vault.close()
    connection = open_database(folder / "records.db")
    for name in ("document_stemmed_terms", "document_compound_terms"):
        terms = [str(term) for (term,) in connection.execute(f"SELECT term FROM {name}")]
        assert terms
        assert not any(term[0] > "\u0400" for term in terms)
    connection.close()


def _statement(memory_id: str, content: str, *, superseded_by: str = "") -> DocumentWrite:
    document = to_document(SemanticMemory(memory_id, content, create_time=EPOCH, superseded_by=superseded_by))
    return DocumentWrite(document=document, passages=[PassageInput(0, len(content), unit_vector(1))])


def _filled(folder: Path, rng: random.Random) -> dict[str, str]:
    texts: dict[str, str] = {}
    vault = packed.open_vault(folder)
    for _ in range(4):
        packed.put(vault.collection(DOCUMENTS), texts, rng)
    vault.close()
    write_format_14(folder)
    return texts


def _put_one(records: RecordEngine, texts: dict[str, str], rng: random.Random) -> None:
    doc_id = f"d{rng.randrange(200)}"
    texts[doc_id] = " ".join(rng.choices(packed.WORDS, k=5))
    records.put_document(write(doc_id, texts[doc_id])).result()
