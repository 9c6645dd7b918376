"""Records of format 4, which had no facts, are opened without loss and take facts."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from mnemon_server.domain.changes import ChangeType
from mnemon_server.domain.collections import DOCUMENTS, FACTS, MEMORIES
from mnemon_server.domain.documents import Document, FieldValue
from mnemon_server.domain.filters import Condition, Operator, RecordFilter
from mnemon_server.engines.promises.values import DocumentWrite, PassageInput
from mnemon_server.engines.sqlite import migrations
from mnemon_server.engines.sqlite.schema import SCHEMA_VERSION
from mnemon_server.engines.sqlite_vault import SQLiteVault

from tests.contract.former_keywords import wait_until_reindexed
from tests.contract.sqlite_vaults import shape
from tests.contract.test_sqlite_format_3 import open_vault, write_format_3
from tests.contract.timeline_suite import ALL, append, happening, told
from tests.contract.vault_suite import found_by_word, key, listed, unit_vector, write
from tests.support.databases import open_database

END = datetime(2026, 1, 1, tzinfo=UTC)
TABLES = {"fact", "fact_deletion", "fact_metadata", "fact_passage"}
INDEXES = {
    "fact_agent",
    "fact_create_time",
    "fact_expire_time",
    "fact_hidden",
    "fact_household",
    "fact_metadata_position",
    "fact_namespace",
    "fact_passage_position",
    "fact_persona",
    "fact_project",
    "fact_sequence",
    "fact_user",
}


def write_format_4(folder: Path) -> None:
    """What a program of that format made of a file of format 3."""
    write_format_3(folder)
    connection = open_database(folder / "records.db")
    with connection:
        migrations.MIGRATIONS[2](connection)
        connection.pragma("user_version", 4)
    connection.close()


def fact(doc_id: str, *, ends: datetime) -> DocumentWrite:
    fields: dict[str, FieldValue] = {"namespace": "org.", "expire_time": ends, "fact_value": '{"content":"zebra"}'}
    document = Document(doc_id, "zebra", {"kind": "animal"}, fields=fields)
    return DocumentWrite(
        document=document, passages=[PassageInput(0, 5, unit_vector(1))], change=ChangeType.FACT_CREATED
    )


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write_format_4(tmp_path / "old")
    return tmp_path / "old"


@pytest.fixture
def vault(folder: Path) -> Iterator[SQLiteVault]:
    vault = open_vault(folder)
    yield vault
    vault.close()


def test_format_4_is_opened_without_loss(vault: SQLiteVault) -> None:
    assert listed(vault.collection(DOCUMENTS)) == ["d"]
    assert listed(vault.collection(MEMORIES)) == ["shown"]
    assert vault.value("v") == "kept"
    assert [event.sequence for event in told(vault, ChangeType.RULE_REGISTERED)] == [10]
    assert vault.collection(DOCUMENTS).put_document(write("d", request=key("r"))).result().replayed
    append(vault.events, happening("first"))
    assert [stored.position.event_id for stored in vault.events.window(ALL, limit=9).events] == ["first"]


def test_records_of_format_4_take_facts(vault: SQLiteVault, folder: Path) -> None:
    facts = vault.collection(FACTS)
    # The order of changes continues where it was.
    assert facts.put_document(fact("gone", ends=END)).result().sequence == 11
    facts.put_document(fact("there", ends=END + timedelta(hours=1))).result()
    vault.close()
    again = open_vault(folder)
    facts = again.collection(FACTS)
    ended = Condition("expire_time", Operator.LTE, (END,))
    assert listed(facts, RecordFilter(expression=ended)) == ["gone"]
    assert listed(facts, RecordFilter({"kind": "animal"})) == ["gone", "there"]
    assert facts.distinct_texts("namespace", limit=9) == ["org."]
    assert found_by_word(facts, "zebra").keys() == {"gone", "there"}
    assert listed(again.collection(DOCUMENTS)) == ["d"]
    again.close()


def test_a_file_of_format_4_gets_the_tables_of_a_new_one(tmp_path: Path, folder: Path) -> None:
    before = shape(folder)
    for name in ("old", "new"):
        vault = open_vault(tmp_path / name)
        wait_until_reindexed(tmp_path / name)
        vault.close()
    old, new = shape(tmp_path / "old"), shape(tmp_path / "new")
    assert (before["version"], new["version"]) == (4, SCHEMA_VERSION)
    assert old == new
    later = (
        "fact_fts",
        "fact_next",
        "fact_keyword",
        "document_keyword",
        "document_next",
        "memory_keyword",
        "memory_next",
        "memory_unusual",
        "document_compound",
        "memory_compound",
        "semantic_compound",
        "fact_compound",
        "keyword_reindexing",
        "tombstone",
    )
    added = {name for name in new.keys() - before.keys() if not name.startswith(later) and "vector_block" not in name}
    assert added == TABLES | INDEXES
