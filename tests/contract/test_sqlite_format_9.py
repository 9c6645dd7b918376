"""Words that a program of format 9 packed are found, and can be removed."""

import random
from pathlib import Path

import pytest
from mnemon_server.domain.collections import DOCUMENTS

from tests.contract import test_sqlite_keyword_packing as packed
from tests.contract.former_keywords import wait_until_reindexed, write_format_11
from tests.contract.sqlite_vaults import shape
from tests.support.databases import open_database

small_tables = packed.small_tables

VECTOR_BLOCKS = "type = 'table' AND name LIKE '%!_vector!_block' ESCAPE '!'"
PACKED_WORDS = "type = 'table' AND name LIKE '%!_keyword' ESCAPE '!'"


def write_format_9(folder: Path, rng: random.Random) -> dict[str, str]:
    """A vault with packed words in the tables of that format; returns its texts."""
    texts: dict[str, str] = {}
    vault = packed.open_vault(folder)
    for _ in range(5):
        packed.put(vault.collection(DOCUMENTS), texts, rng)
    vault.close()
    write_format_11(folder)
    connection = open_database(folder / "records.db")
    with connection:
        for [name] in connection.execute(f"SELECT name FROM sqlite_schema WHERE {PACKED_WORDS}").fetchall():
            connection.execute(f"ALTER TABLE {name} RENAME TO new")
            connection.execute(
                f"CREATE TABLE {name} (block INTEGER NOT NULL, word TEXT NOT NULL, passages BLOB NOT NULL,"
                " PRIMARY KEY (block, word)) STRICT, WITHOUT ROWID"
            )
            connection.execute(f"INSERT INTO {name} SELECT * FROM new")
            connection.execute("DROP TABLE new")
        for [name] in connection.execute(f"SELECT name FROM sqlite_schema WHERE {VECTOR_BLOCKS}").fetchall():
            connection.execute(f"DROP TABLE {name}")
        connection.pragma("user_version", 9)
    connection.close()
    return texts


@pytest.mark.parametrize("seed", range(2))
def test_words_that_format_9_packed_are_found_and_removed(tmp_path: Path, seed: int) -> None:
    folder, rng = tmp_path / "old", random.Random(seed)
    texts = write_format_9(folder, rng)
    vault = packed.open_vault(folder)
    records = vault.collection(DOCUMENTS)
    packed.check_searches(records, texts)
    packed.delete(records, texts, rng, 20)
    wait_until_reindexed(folder)
    packed.check_searches(records, texts)
    vault.close()
    assert packed.problems(folder) == []


def test_a_file_of_format_9_gets_the_tables_of_a_new_one(tmp_path: Path) -> None:
    write_format_9(tmp_path / "old", random.Random(1))
    before = statements(tmp_path / "old")
    for name in ("old", "new"):
        vault = packed.open_vault(tmp_path / name)
        wait_until_reindexed(tmp_path / name)
        vault.close()
    assert statements(tmp_path / "old") == statements(tmp_path / "new")
    assert all("WITHOUT ROWID" in statement for statement in before.values())
    assert shape(tmp_path / "old") == shape(tmp_path / "new")


def statements(folder: Path) -> dict[str, str]:
    """How each table of packed words was created."""
    connection = open_database(folder / "records.db")
    found = connection.execute(f"SELECT name, sql FROM sqlite_schema WHERE {PACKED_WORDS}").fetchall()
    connection.close()
    return {str(name): str(sql) for name, sql in found}
