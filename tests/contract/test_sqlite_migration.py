"""Records of an older format are opened without loss, and get the tables of a new file."""

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import apsw
import numpy as np
import pytest
from mnemon_server.domain.changes import ChangeFilter
from mnemon_server.domain.clock import to_microseconds
from mnemon_server.domain.collections import DOCUMENTS, MEMORIES
from mnemon_server.domain.documents import Document
from mnemon_server.domain.encoding import document_digest, encode_metadata, scope_values
from mnemon_server.domain.errors import StorageFailedError
from mnemon_server.domain.filters import Condition, Operator, RecordFilter
from mnemon_server.domain.records import Scope, WriteOutcome
from mnemon_server.engines.promises.records import RecordEngine
from mnemon_server.engines.promises.values import DocumentWrite, IndexPosition, PassageInput
from mnemon_server.engines.sqlite import migrations
from mnemon_server.engines.sqlite.keywords import fts
from mnemon_server.engines.sqlite.schema import APPLICATION_ID, SCHEMA_VERSION
from mnemon_server.engines.sqlite_vault import SQLiteVault
from mnemon_server.ranking.analysis import FORMER_WORDS

from tests.contract.former_keywords import wait_until_reindexed
from tests.contract.sqlite_vaults import shape
from tests.contract.vault_suite import DIMENSION, found_by_word, key, listed, unit_vector, write
from tests.support.databases import open_database
from tests.support.faulty_vfs import FaultyVFS

FORMAT_1 = """
CREATE TABLE meta (key TEXT PRIMARY KEY, value ANY NOT NULL) STRICT, WITHOUT ROWID;
CREATE TABLE document (
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
  update_time INTEGER NOT NULL
) STRICT;
CREATE UNIQUE INDEX document_sequence ON document (sequence);
CREATE INDEX document_user ON document (user) WHERE user <> '';
CREATE INDEX document_household ON document (household) WHERE household <> '';
CREATE INDEX document_persona ON document (persona) WHERE persona <> '';
CREATE INDEX document_agent ON document (agent) WHERE agent <> '';
CREATE INDEX document_project ON document (project) WHERE project <> '';
CREATE TABLE document_metadata (
  key TEXT NOT NULL,
  type TEXT NOT NULL,
  value ANY NOT NULL,
  position INTEGER NOT NULL REFERENCES document (position) ON DELETE CASCADE,
  PRIMARY KEY (key, type, value, position)
) STRICT, WITHOUT ROWID;
CREATE INDEX document_metadata_position ON document_metadata (position);
CREATE TABLE passage (
  id INTEGER PRIMARY KEY AUTOINCREMENT,
  position INTEGER NOT NULL REFERENCES document (position) ON DELETE CASCADE,
  ordinal INTEGER NOT NULL,
  start INTEGER NOT NULL,
  stop INTEGER NOT NULL,
  vector BLOB NOT NULL
) STRICT;
CREATE UNIQUE INDEX passage_document ON passage (position, ordinal);
CREATE TABLE deletion (sequence INTEGER PRIMARY KEY, id TEXT NOT NULL UNIQUE) STRICT;
CREATE TABLE index_position (
  name TEXT PRIMARY KEY,
  sequence INTEGER NOT NULL,
  generation TEXT NOT NULL
) STRICT, WITHOUT ROWID;
CREATE TABLE request (
  id TEXT PRIMARY KEY,
  digest BLOB NOT NULL,
  answer TEXT NOT NULL,
  expire_time INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
CREATE INDEX request_expire_time ON request (expire_time);
CREATE VIRTUAL TABLE passage_fts USING fts5(text, content='', tokenize='porter unicode61 remove_diacritics 2');
INSERT INTO passage_fts(passage_fts, rank) VALUES('secure-delete', 1);
CREATE VIRTUAL TABLE passage_terms USING fts5vocab('passage_fts', 'instance');
"""
ANSWER = '{"id": "a", "outcome": "created", "revision": 1, "commit_time": 1767268800000000, "sequence": 1}'
TIME = datetime(2026, 1, 1, 12, tzinfo=UTC)
OLD_DOCUMENTS = [
    Document("a", "zebra crossing", {"n": 1, "text": "x", "when": TIME, "none": ()}, scope=Scope(user="u")),
    Document("b", "giraffe", {"list": ("p", "q"), "yes": True}),
]


def write_format_1(folder: Path) -> None:
    """What the first version kept: two documents of two passages, a deletion, a follower and an answer."""
    folder.mkdir()
    connection = open_database(folder / "records.db")
    connection.pragma("journal_mode", "wal")
    with connection:
        connection.execute(FORMAT_1)
        connection.pragma("application_id", APPLICATION_ID)
        connection.pragma("user_version", 1)
        connection.executemany("INSERT INTO meta VALUES (?, ?)", [("embedding_model", "test/1"), ("sequence", 9)])
        for position, document in enumerate(OLD_DOCUMENTS, 1):
            insert_format_1(connection, position, document)
        connection.execute("INSERT INTO deletion VALUES (9, 'gone')")
        connection.execute("INSERT INTO index_position VALUES ('index', 5, 'g')")
        expire_time = to_microseconds(datetime.now(UTC)) + 3_600_000_000
        connection.execute("INSERT INTO request VALUES ('r', ?, ?, ?)", (b"same", ANSWER, expire_time))
    connection.close()


def insert_format_1(connection: apsw.Connection, position: int, document: Document) -> None:
    time = to_microseconds(TIME)
    connection.execute(
        "INSERT INTO document VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, 3, ?, ?, ?)",
        (
            position,
            document.doc_id,
            document.content,
            encode_metadata(document.metadata),
            document_digest(document),
            *scope_values(document.scope),
            position + 5,
            time,
            time,
        ),
    )
    rows: dict[str, list[tuple[str, str, Any]]] = {
        "a": [("n", "int", 1), ("text", "text", "x"), ("when", "time", time)],
        "b": [("list", "item-text", "p"), ("list", "item-text", "q"), ("yes", "bool", 1)],
    }
    connection.executemany(
        "INSERT INTO document_metadata VALUES (?, ?, ?, ?)", [(*row, position) for row in rows[document.doc_id]]
    )
    for ordinal, (start, end) in enumerate([(0, 3), (3, len(document.content))]):
        vector = unit_vector(10 * position + ordinal).tobytes()
        passage_id = 10 * position + ordinal
        connection.execute(
            "INSERT INTO passage VALUES (?, ?, ?, ?, ?, ?)", (passage_id, position, ordinal, start, end, vector)
        )
        tables = fts.KeywordTables("passage", FORMER_WORDS)
        fts.insert(connection, tables, {passage_id: document.content[start:end]})


def open_vault(folder: Path, vfs: str | None = None) -> SQLiteVault:
    return SQLiteVault(folder, model_identity="test/1", dimension=DIMENSION, vfs=vfs)


def check_old_documents(records: RecordEngine) -> None:
    documents = [document for _, document in records.list_documents(RecordFilter(), limit=10)]
    assert [(d.doc_id, d.content, d.metadata, d.scope, d.revision, d.hidden) for d in documents] == [
        (old.doc_id, old.content, old.metadata, old.scope, 3, False) for old in OLD_DOCUMENTS
    ]
    assert {document.create_time for document in documents} == {TIME}
    assert found_by_word(records, "crossing giraffe").keys() <= {"a", "b"}
    assert records.match_passages(RecordFilter()).tolist() == [10, 11, 20, 21]
    scores = records.scan_vectors(unit_vector(21), np.array([21]))
    assert scores.scores.tolist() == pytest.approx([1.0], abs=1e-6)
    assert listed(records, RecordFilter({"n": 1})) == ["a"]
    assert listed(records, RecordFilter(scope=Scope(user="u"))) == ["a"]


def test_format_1_is_opened_without_loss(tmp_path: Path) -> None:
    write_format_1(tmp_path / "d")
    vault = open_vault(tmp_path / "d")
    records = vault.collection(DOCUMENTS)
    check_old_documents(records)
    stats = records.stats()
    assert (stats.document_count, stats.passage_count, stats.sequence) == (2, 4, 9)
    assert records.index_position("index") == IndexPosition(5, "g")
    assert [(change.sequence, change.doc_id) for change in records.changes_after(5, limit=9)] == [
        (6, "a"),
        (7, "b"),
        (9, "gone"),
    ]
    assert records.put_document(write("a", request=key("r"))).result().replayed
    assert len(vault.changes.epoch) == migrations.EPOCH_BYTES
    assert vault.changes.state().head == 0
    vault.close()


def test_migrated_records_behave_like_new_ones(tmp_path: Path) -> None:
    write_format_1(tmp_path / "d")
    vault = open_vault(tmp_path / "d")
    records, memories = vault.collection(DOCUMENTS), vault.collection(MEMORIES)
    same = DocumentWrite(document=OLD_DOCUMENTS[0], passages=[PassageInput(0, 3, unit_vector(1))])
    assert records.put_document(same).result().outcome is WriteOutcome.UNCHANGED
    empty = Condition("metadata.none", Operator.EQ, ((),))
    assert listed(records, RecordFilter(expression=empty)) == ["a"]
    assert records.has_metadata_key("none")
    replaced = records.put_document(write("b", "lion", seed=3)).result()
    memories.put_document(write("m", "tiger", seed=4)).result()
    records.delete_document("a").result()
    assert found_by_word(records, "zebra giraffe") == {}
    assert found_by_word(records, "lion").keys() == {"b"}
    assert replaced.sequence == 10
    recorded = vault.changes.read(0, limit=9, where=ChangeFilter()).changes
    assert [change.record_id for change in recorded] == ["b", "m", "a"]
    epoch = vault.changes.epoch
    vault.close()
    vault = open_vault(tmp_path / "d")
    assert vault.changes.epoch == epoch
    assert (listed(vault.collection(DOCUMENTS)), listed(vault.collection(MEMORIES))) == (["b"], ["m"])
    vault.close()


def test_a_migrated_file_has_the_tables_of_a_new_one(tmp_path: Path) -> None:
    write_format_1(tmp_path / "old")
    vault = open_vault(tmp_path / "old")
    wait_until_reindexed(tmp_path / "old")
    vault.close()
    open_vault(tmp_path / "new").close()
    old, new = shape(tmp_path / "old"), shape(tmp_path / "new")
    assert old == new
    assert len(new) > 20


def test_a_migration_interrupted_by_a_disk_error_starts_again_later(tmp_path: Path) -> None:
    interrupted = 0
    for call in range(1, 1_000, 25):
        write_format_1(tmp_path / str(call))
        disk = FaultyVFS(f"migration-{call}")
        disk.fail_write_at = call
        try:
            open_vault(tmp_path / str(call), vfs=disk.name).close()
        except StorageFailedError:
            interrupted += 1
            assert shape(tmp_path / str(call))["version"] in (1, SCHEMA_VERSION)
        finished = disk.writes < call
        disk.unregister()
        vault = open_vault(tmp_path / str(call))
        check_old_documents(vault.collection(DOCUMENTS))
        vault.close()
        if finished:
            break
    assert finished
    assert interrupted


def test_a_new_file_has_the_newest_format(tmp_path: Path) -> None:
    open_vault(tmp_path / "d").close()
    assert shape(tmp_path / "d")["version"] == SCHEMA_VERSION == 1 + len(migrations.MIGRATIONS)
