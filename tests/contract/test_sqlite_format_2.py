"""Records of format 2, which held only knowledge and memories, are opened without loss."""

import json
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import apsw
import pytest
from mnemon_server.domain.changes import Change, ChangeFilter, ChangeType
from mnemon_server.domain.clock import to_microseconds
from mnemon_server.domain.collections import DECISIONS, DOCUMENTS, MEMORIES, RULES, SEMANTIC
from mnemon_server.domain.documents import Document
from mnemon_server.domain.encoding import document_digest, encode_metadata, scope_values
from mnemon_server.domain.filters import Condition, Operator, RecordFilter
from mnemon_server.domain.records import Scope, WriteOutcome
from mnemon_server.engines.promises.values import DocumentWrite, IndexPosition, PassageInput
from mnemon_server.engines.promises.vault import VaultTransaction
from mnemon_server.engines.sqlite.keywords import fts
from mnemon_server.engines.sqlite.schema import APPLICATION_ID, SCHEMA_VERSION
from mnemon_server.engines.sqlite_vault import SQLiteVault
from mnemon_server.ranking.analysis import FORMER_WORDS

from tests.contract.former_keywords import wait_until_reindexed
from tests.contract.record_changes import FIELDS, apply
from tests.contract.sqlite_vaults import shape
from tests.contract.vault_suite import DIMENSION, found_by_word, key, listed, unit_vector, write
from tests.contract.vault_transactions import near, rule, statement
from tests.support.databases import open_database

SHARED = """
CREATE TABLE meta (key TEXT PRIMARY KEY, value ANY NOT NULL) STRICT, WITHOUT ROWID;
CREATE TABLE request (
  id TEXT PRIMARY KEY,
  digest BLOB NOT NULL,
  answer TEXT NOT NULL,
  expire_time INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
CREATE INDEX request_expire_time ON request (expire_time);
CREATE TABLE index_position (
  collection TEXT NOT NULL,
  name TEXT NOT NULL,
  sequence INTEGER NOT NULL,
  generation TEXT NOT NULL,
  PRIMARY KEY (collection, name)
) STRICT, WITHOUT ROWID;
CREATE TABLE event (
  sequence INTEGER PRIMARY KEY,
  commit_sequence INTEGER NOT NULL,
  time INTEGER NOT NULL,
  type TEXT NOT NULL,
  record_id TEXT NOT NULL,
  revision INTEGER NOT NULL,
  user TEXT NOT NULL,
  household TEXT NOT NULL,
  persona TEXT NOT NULL,
  agent TEXT NOT NULL,
  project TEXT NOT NULL,
  request_id TEXT NOT NULL,
  changed TEXT NOT NULL
) STRICT;
"""
COLLECTION = """
CREATE TABLE {name} (
  position INTEGER PRIMARY KEY AUTOINCREMENT,
  id TEXT NOT NULL UNIQUE,
  content TEXT NOT NULL,
  metadata TEXT NOT NULL,
  digest BLOB NOT NULL,
  user TEXT NOT NULL,
  household TEXT NOT NULL,
  persona TEXT NOT NULL,
  agent TEXT NOT NULL,
  project TEXT NOT NULL,
  revision INTEGER NOT NULL,
  sequence INTEGER NOT NULL,
  create_time INTEGER NOT NULL,
  update_time INTEGER NOT NULL,
  hidden INTEGER NOT NULL DEFAULT 0{fields}
) STRICT;
CREATE UNIQUE INDEX {name}_sequence ON {name} (sequence);
CREATE INDEX {name}_user ON {name} ("user", hidden) WHERE "user" <> '';
CREATE INDEX {name}_household ON {name} ("household", hidden) WHERE "household" <> '';
CREATE INDEX {name}_persona ON {name} ("persona", hidden) WHERE "persona" <> '';
CREATE INDEX {name}_agent ON {name} ("agent", hidden) WHERE "agent" <> '';
CREATE INDEX {name}_project ON {name} ("project", hidden) WHERE "project" <> '';
CREATE INDEX {name}_create_time ON {name} (create_time) WHERE hidden = 0;
CREATE INDEX {name}_hidden ON {name} (hidden) WHERE hidden = 1;
CREATE TABLE {name}_metadata (
  key TEXT NOT NULL,
  type TEXT NOT NULL,
  value ANY NOT NULL,
  position INTEGER NOT NULL REFERENCES {name} (position) ON DELETE CASCADE,
  PRIMARY KEY (key, type, value, position)
) STRICT, WITHOUT ROWID;
CREATE INDEX {name}_metadata_position ON {name}_metadata (position);
CREATE TABLE {name}_passage (
  id INTEGER PRIMARY KEY AUTOINCREMENT,
  position INTEGER NOT NULL REFERENCES {name} (position) ON DELETE CASCADE,
  ordinal INTEGER NOT NULL,
  start INTEGER NOT NULL,
  stop INTEGER NOT NULL,
  vector BLOB NOT NULL
) STRICT;
CREATE UNIQUE INDEX {name}_passage_position ON {name}_passage (position, ordinal);
CREATE TABLE {name}_deletion (sequence INTEGER PRIMARY KEY, id TEXT NOT NULL UNIQUE) STRICT;
CREATE VIRTUAL TABLE {name}_fts USING fts5(text, content='', tokenize='porter unicode61 remove_diacritics 2');
INSERT INTO {name}_fts({name}_fts, rank) VALUES('secure-delete', 1);
CREATE VIRTUAL TABLE {name}_terms USING fts5vocab('{name}_fts', 'instance');
"""
MEMORY_FIELDS = """,
  "personality" TEXT NOT NULL DEFAULT '',
  "type" TEXT NOT NULL DEFAULT '',
  "global" INTEGER,
  "decay_policy" TEXT NOT NULL DEFAULT '',
  "reinforce_time" INTEGER,
  "delete_time" INTEGER"""
MEMORY_INDEXES = """
CREATE INDEX memory_personality ON memory ("personality", hidden) WHERE "personality" <> '';
CREATE INDEX memory_type ON memory ("type", hidden) WHERE "type" <> '';
"""
TIME = datetime(2026, 1, 1, 12, tzinfo=UTC)
ANSWER = {"id": "d", "outcome": "created", "revision": 1, "commit_time": to_microseconds(TIME), "sequence": 5}
MEMORY = FIELDS | {"global": True, "reinforce_time": TIME}
DOCUMENT = Document("d", "zebra crossing", {"n": 1}, scope=Scope(user="u"))
SHOWN = Document("shown", "lion", scope=Scope(user="u"), fields=MEMORY)
HIDDEN = Document("hidden", "lion cub", fields=MEMORY | {"type": "task"}, hidden=True)


def write_format_2(folder: Path) -> None:
    """A document, two memories of which one is hidden, a deletion, a follower, an answer, and the log."""
    folder.mkdir()
    connection = open_database(folder / "records.db")
    connection.pragma("journal_mode", "wal")
    time = to_microseconds(TIME)
    with connection:
        connection.execute(SHARED + COLLECTION.format(name="document", fields=""))
        connection.execute(COLLECTION.format(name="memory", fields=MEMORY_FIELDS) + MEMORY_INDEXES)
        connection.pragma("application_id", APPLICATION_ID)
        connection.pragma("user_version", 2)
        connection.executemany(
            "INSERT INTO meta VALUES (?, ?)",
            [("embedding_model", "test/1"), ("epoch", b"e" * 16), ("document.sequence", 9), ("memory.sequence", 7)],
        )
        insert(connection, "document", 5, DOCUMENT, ())
        own = (MEMORY["personality"], MEMORY["type"], 1, MEMORY["decay_policy"], time, None)
        insert(connection, "memory", 6, SHOWN, own)
        insert(connection, "memory", 7, HIDDEN, (own[0], "task", *own[2:]))
        connection.execute("INSERT INTO document_metadata VALUES ('n', 'int', 1, 5)")
        connection.execute("INSERT INTO document_deletion VALUES (9, 'gone')")
        connection.execute("INSERT INTO index_position VALUES ('document', 'index', 5, 'g')")
        expire_time = to_microseconds(datetime.now(UTC) + timedelta(hours=1))
        answer = json.dumps(ANSWER)
        connection.execute("INSERT INTO request VALUES ('r', ?, ?, ?)", (b"same", answer, expire_time))
        connection.executemany(
            "INSERT INTO event VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)", list(old_events(time))
        )
    connection.close()


def old_events(time: int) -> Iterator[tuple[Any, ...]]:
    """The rows of the log."""
    for sequence, kind, record_id, changed in (
        (5, "knowledge:indexed", "d", ""),
        (6, "memory:created", "shown", ""),
        (7, "memory:updated", "hidden", '["type"]'),
        (9, "knowledge:deleted", "gone", ""),
    ):
        yield sequence, min(sequence, 6), time, kind, record_id, 1, "u", "", "", "", "", "r", changed


def insert(connection: apsw.Connection, name: str, sequence: int, document: Document, own: tuple[Any, ...]) -> None:
    """A document of one passage. Its position, passage id and seed equal its sequence."""
    time = to_microseconds(TIME)
    values = (
        sequence,
        document.doc_id,
        document.content,
        encode_metadata(document.metadata),
        document_digest(document),
        *scope_values(document.scope),
        1,
        sequence,
        time,
        time,
        int(document.hidden),
        *own,
    )
    connection.execute(f"INSERT INTO {name} VALUES ({', '.join('?' * len(values))})", values)
    passage = (sequence, sequence, 0, 0, len(document.content), unit_vector(sequence).tobytes())
    connection.execute(f"INSERT INTO {name}_passage VALUES (?, ?, ?, ?, ?, ?)", passage)
    if not document.hidden:
        fts.insert(connection, fts.KeywordTables(name, FORMER_WORDS), {sequence: document.content})


@pytest.fixture
def vault(tmp_path: Path) -> Iterator[SQLiteVault]:
    write_format_2(tmp_path / "d")
    vault = SQLiteVault(tmp_path / "d", model_identity="test/1", dimension=DIMENSION)
    yield vault
    vault.close()


def test_format_2_is_opened_without_loss(vault: SQLiteVault) -> None:
    documents, memories = vault.collection(DOCUMENTS), vault.collection(MEMORIES)
    everything = RecordFilter(hidden=None)
    for records, expected in ((documents, [DOCUMENT]), (memories, [SHOWN, HIDDEN])):
        stored = [document for _, document in records.list_documents(everything, limit=9)]
        assert [(d.doc_id, d.content, d.metadata, d.scope, d.fields, d.hidden, d.create_time) for d in stored] == [
            (d.doc_id, d.content, d.metadata, d.scope, d.fields, d.hidden, TIME) for d in expected
        ]
    assert found_by_word(memories, "lion cub").keys() == {"shown"}
    assert memories.scan_vectors(unit_vector(6)).scores.tolist() == pytest.approx([1.0], abs=1e-6)
    assert listed(documents, RecordFilter({"n": 1})) == ["d"]
    assert [(change.sequence, change.doc_id) for change in documents.changes_after(0, limit=9)] == [
        (5, "d"),
        (9, "gone"),
    ]
    assert documents.index_position("index") == IndexPosition(5, "g")
    # Format 2 did not count what was removed.
    assert documents.index_removals("index") == 1
    assert documents.put_document(write("d", request=key("r"))).result().replayed
    assert vault.changes.epoch == b"e" * 16
    noted = vault.changes.read(0, limit=9, where=ChangeFilter()).changes
    scope = Scope(user="u")
    assert noted[2] == Change(7, 6, TIME, ChangeType.MEMORY_UPDATED, "hidden", 1, scope, "r", ("type",), "")
    assert [event.sequence for event in noted] == [5, 6, 7, 9]


def test_migrated_records_of_format_2_behave_like_new_ones(vault: SQLiteVault) -> None:
    memories = vault.collection(MEMORIES)
    same = DocumentWrite(document=SHOWN, passages=[PassageInput(0, 4, unit_vector(6))])
    assert memories.put_document(same).result().outcome is WriteOutcome.UNCHANGED
    apply(memories, "hidden", hidden=False)
    assert found_by_word(memories, "cub").keys() == {"hidden"}
    wanted = Condition("type", Operator.EQ, ("task",))
    assert listed(memories, RecordFilter(expression=wanted)) == ["hidden"]

    def program(tx: VaultTransaction) -> str:
        tx.collection(SEMANTIC).put_document(
            replace(statement("s", scope=Scope(user="u"), importance=0.5, terms=("a",)), details="{}")
        )
        tx.collection(DECISIONS).put_document(rule("c"))
        tx.collection(RULES).put_document(rule("r"))
        tx.set_value("v", "kept")
        return ""

    assert vault.transact(program).result().sequence == 13
    assert [other.doc_id for other in vault.collection(SEMANTIC).related_documents(near(0))] == ["s"]
    assert vault.value("v") == "kept"
    noted = vault.changes.read(9, limit=9, where=ChangeFilter()).changes
    assert [(event.record_id, event.details) for event in noted] == [("hidden", ""), ("s", "{}"), ("c", ""), ("r", "")]


def test_a_file_of_format_2_gets_the_tables_of_a_new_one(tmp_path: Path) -> None:
    write_format_2(tmp_path / "old")
    before = shape(tmp_path / "old")
    for name in ("old", "new"):
        vault = SQLiteVault(tmp_path / name, model_identity="test/1", dimension=DIMENSION)
        wait_until_reindexed(tmp_path / name)
        vault.close()
    old, new = shape(tmp_path / "old"), shape(tmp_path / "new")
    assert (before["version"], new["version"]) == (2, SCHEMA_VERSION)
    assert old == new
    assert "semantic_related" in new.keys() - before.keys()
