"""Embedding everything again with another model: it succeeds as a whole, or changes nothing."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from mnemon_server.domain.collections import COLLECTIONS, DOCUMENTS, MEMORIES, RULES, SEMANTIC, Collection
from mnemon_server.domain.documents import Document
from mnemon_server.domain.errors import ConfigurationError, EmbeddingModelMismatchError
from mnemon_server.domain.filters import RecordFilter
from mnemon_server.domain.records import Scope
from mnemon_server.engines.promises.related import RelatedQuery
from mnemon_server.engines.promises.values import PassageInput
from mnemon_server.engines.sqlite.upkeep.reembed import reembed
from mnemon_server.engines.sqlite_vault import SQLiteVault
from mnemon_server.engines.vault_key import VaultKeyFile

from tests.contract.vault_suite import DIMENSION, found_by_word, write
from tests.contract.vault_transactions import rule, statement

OTHER_DIMENSION = 4


def other_model(_: Collection, documents: Sequence[Document]) -> list[list[PassageInput]]:
    vector = np.array([1, 0, 0, 0], np.float32)
    return [[PassageInput(0, len(document.content), vector)] for document in documents]


def filled(folder: Path) -> None:
    vault = SQLiteVault(folder, model_identity="old", dimension=DIMENSION)
    records = vault.collection(DOCUMENTS)
    for i in range(150):
        records.put_document(write(f"d{i}", f"number{i} and text", seed=i, parts=2, metadata={"n": i})).result()
    vault.close()


def test_documents_stay_and_get_the_new_vectors(tmp_path: Path) -> None:
    filled(tmp_path)
    progress = list(reembed(VaultKeyFile(tmp_path), "new", other_model))
    assert progress[-1] == (150, 150)
    assert [done for done, _ in progress] == sorted({done for done, _ in progress})

    vault = SQLiteVault(tmp_path, model_identity="new", dimension=OTHER_DIMENSION)
    records = vault.collection(DOCUMENTS)
    documents = [document for _, document in records.list_documents(RecordFilter(), limit=1000)]
    assert [(d.doc_id, d.revision, d.metadata) for d in documents] == [(f"d{i}", 1, {"n": i}) for i in range(150)]
    scores = records.scan_vectors(np.array([1, 0, 0, 0], np.float32)).scores
    assert scores.tolist() == [1.0] * 150
    assert found_by_word(records, "number7").keys() == {"d7"}
    assert len(records.changes_after(150, limit=1000)) == 150
    assert records.stats().passage_count == 150
    vault.close()


def test_every_collection_gets_the_new_vectors_and_hidden_documents_stay_hidden(tmp_path: Path) -> None:
    vault = SQLiteVault(tmp_path, model_identity="old", dimension=DIMENSION)
    vault.collection(DOCUMENTS).put_document(write("d", "giraffe")).result()
    memories = vault.collection(MEMORIES)
    memories.put_document(write("shown", "zebra")).result()
    memories.put_document(write("hidden", "zebra", seed=1, hidden=True)).result()
    head = vault.changes.state().head
    vault.close()
    assert list(reembed(VaultKeyFile(tmp_path), "new", other_model))[-1] == (3, 3)

    vault = SQLiteVault(tmp_path, model_identity="new", dimension=OTHER_DIMENSION)
    memories = vault.collection(MEMORIES)
    query = np.array([1, 0, 0, 0], np.float32)
    assert memories.scan_vectors(query).scores.tolist() == [1.0]
    assert vault.collection(DOCUMENTS).scan_vectors(query).scores.tolist() == [1.0]
    assert found_by_word(memories, "zebra").keys() == {"shown"}
    [hidden] = memories.get_documents(["hidden"], vectors=True)
    assert hidden is not None
    assert hidden.embedding == (1.0, 0.0, 0.0, 0.0)
    assert vault.changes.state().head == head
    # Positions of changes continue after those of the new vectors.
    newest = max(vault.collection(collection).stats().sequence for collection in COLLECTIONS)
    assert memories.delete_document("shown").result().sequence == newest + 1
    vault.close()


def test_documents_without_vectors_get_none_and_related_ones_are_found_by_the_new_vectors(tmp_path: Path) -> None:
    vault = SQLiteVault(tmp_path, model_identity="old", dimension=DIMENSION)
    vault.collection(RULES).put_document(rule("r")).result()
    vault.collection(SEMANTIC).put_document(statement("s", scope=Scope(user="u"), terms=("a",))).result()
    vault.close()
    asked: list[Collection] = []

    def embed(collection: Collection, documents: Sequence[Document]) -> list[list[PassageInput]]:
        asked.append(collection)
        return other_model(collection, documents)

    assert list(reembed(VaultKeyFile(tmp_path), "new", embed))[-1] == (2, 2)
    assert asked == [SEMANTIC]

    vault = SQLiteVault(tmp_path, model_identity="new", dimension=OTHER_DIMENSION)
    [kept] = vault.collection(RULES).get_documents(["r"])
    assert kept is not None
    assert kept.passages == ()
    query = RelatedQuery(user="u", vector=np.array([1, 0, 0, 0], np.float32), similarity_above=0.9)
    assert [other.doc_id for other in vault.collection(SEMANTIC).related_documents(query)] == ["s"]
    vault.close()


def test_stopping_in_the_middle_changes_nothing(tmp_path: Path) -> None:
    filled(tmp_path)
    for done, _ in reembed(VaultKeyFile(tmp_path), "new", other_model):
        assert done < 150
        if done:
            break
    with pytest.raises(EmbeddingModelMismatchError):
        SQLiteVault(tmp_path, model_identity="new", dimension=OTHER_DIMENSION)
    vault = SQLiteVault(tmp_path, model_identity="old", dimension=DIMENSION)
    records = vault.collection(DOCUMENTS)
    assert records.stats().passage_count == 300
    vault.close()


def test_a_folder_without_records_or_in_use_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="no records"):
        next(reembed(VaultKeyFile(tmp_path), "new", other_model))
    filled(tmp_path)
    vault = SQLiteVault(tmp_path, model_identity="old", dimension=DIMENSION)
    with pytest.raises(ConfigurationError, match="in use"):
        next(reembed(VaultKeyFile(tmp_path), "new", other_model))
    vault.close()
