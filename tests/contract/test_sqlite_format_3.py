"""Records of format 3, which had no timeline, are opened without loss and get one."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from mnemon_server.domain.changes import ChangeType
from mnemon_server.domain.collections import DECISIONS, DOCUMENTS, MEMORIES, RULES, SEMANTIC
from mnemon_server.domain.records import Scope
from mnemon_server.engines.promises.vault import VaultTransaction
from mnemon_server.engines.sqlite import migrations
from mnemon_server.engines.sqlite.schema import SCHEMA_VERSION
from mnemon_server.engines.sqlite_vault import SQLiteVault

from tests.contract.former_keywords import wait_until_reindexed
from tests.contract.sqlite_vaults import shape
from tests.contract.test_sqlite_format_2 import write_format_2
from tests.contract.timeline_suite import ALL, append, happening, told
from tests.contract.vault_suite import DIMENSION, key, listed, write
from tests.contract.vault_transactions import near, rule, statement
from tests.support.databases import open_database

TABLES = {"timeline_event", "timeline_segment", "timeline_dead", "timeline_lost"}


def open_vault(folder: Path) -> SQLiteVault:
    vault = SQLiteVault(folder, model_identity="test/1", dimension=DIMENSION)
    assert vault.events.wait_until_warm(60)
    return vault


def write_format_3(folder: Path) -> None:
    """What a program of that format made of a file of format 2, and then wrote."""
    write_format_2(folder)
    connection = open_database(folder / "records.db")
    with connection:
        migrations.MIGRATIONS[1](connection)
        connection.execute(
            "INSERT INTO event VALUES (10, 10, 1, 'rule:registered', 'r', 1, '', '', '', '', '', '', '', '{\"a\": 1}')"
        )
        connection.execute("INSERT INTO value VALUES ('v', 'kept')")
        connection.pragma("user_version", 3)
    connection.close()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write_format_3(tmp_path / "old")
    return tmp_path / "old"


@pytest.fixture
def vault(folder: Path) -> Iterator[SQLiteVault]:
    vault = open_vault(folder)
    yield vault
    vault.close()


def test_format_3_is_opened_without_loss(vault: SQLiteVault) -> None:
    assert listed(vault.collection(DOCUMENTS)) == ["d"]
    assert listed(vault.collection(MEMORIES)) == ["shown"]
    assert vault.value("v") == "kept"
    assert [(event.sequence, event.details) for event in told(vault, ChangeType.RULE_REGISTERED)] == [(10, '{"a": 1}')]
    assert vault.collection(DOCUMENTS).put_document(write("d", request=key("r"))).result().replayed


def test_records_of_format_3_get_a_timeline(vault: SQLiteVault, folder: Path) -> None:
    [receipt] = append(vault.events, happening("first"))
    assert (receipt.sequence, receipt.segment_id) == (1, 1)
    # The feed continues where it was.
    assert [event.sequence for event in told(vault, ChangeType.EPISODIC_SAVED)] == [11]
    vault.close()
    again = open_vault(folder)
    assert [stored.position.event_id for stored in again.events.window(ALL, limit=9).events] == ["first"]
    again.close()


def test_facts_and_decisions_work_beside_the_timeline(vault: SQLiteVault) -> None:
    def program(tx: VaultTransaction) -> str:
        tx.collection(SEMANTIC).put_document(statement("s", scope=Scope(user="u"), importance=0.5, terms=("a",)))
        tx.collection(DECISIONS).put_document(rule("c"))
        tx.collection(RULES).put_document(rule("r"))
        return ""

    append(vault.events, happening("before"))
    assert vault.transact(program).result().sequence == 14
    assert [other.doc_id for other in vault.collection(SEMANTIC).related_documents(near(0))] == ["s"]


def test_a_file_of_format_3_gets_the_tables_of_a_new_one(tmp_path: Path, folder: Path) -> None:
    before = shape(folder)
    for name in ("old", "new"):
        vault = open_vault(tmp_path / name)
        wait_until_reindexed(tmp_path / name)
        vault.close()
    old, new = shape(tmp_path / "old"), shape(tmp_path / "new")
    assert (before["version"], new["version"]) == (3, SCHEMA_VERSION)
    assert old == new
    later = ("fact", "document_keyword", "document_next", "memory_keyword", "memory_next", "memory_unusual")
    later += ("document_compound", "memory_compound", "semantic_compound", "keyword_reindexing", "tombstone")
    added = {name for name in new.keys() - before.keys() if not name.startswith(later) and "vector_block" not in name}
    assert added == TABLES
