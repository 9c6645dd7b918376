"""How the contract tests open vaults on SQLite and look into their files."""

from pathlib import Path
from typing import Any

from mnemon_server.engines.promises.vault import Vault
from mnemon_server.engines.sqlite.scanners import VectorSettings

from tests.contract.vault_suite import DIMENSION, ManualClock
from tests.support.databases import open_database
from tests.support.vaults import open_vault


def open_sqlite(folder: Path, clock: ManualClock) -> Vault:
    return open_vault(folder, clock, dimension=DIMENSION)


def open_scanning_the_file(folder: Path, clock: ManualClock) -> Vault:
    """A vault that reads all vectors but the first from the file, because they exceed the memory limit."""
    return open_vault(folder, clock, dimension=DIMENSION, vectors=VectorSettings(4 * DIMENSION))


def open_quantized(folder: Path, clock: ManualClock) -> Vault:
    """A vault that holds no vector in full."""
    return open_vault(folder, clock, dimension=DIMENSION, vectors=VectorSettings(full_max=0))


def shape(folder: Path) -> dict[str, Any]:
    """Every table and index with its columns, and the format version."""
    connection = open_database(folder / "records.db")
    names = connection.execute("SELECT type, name FROM sqlite_schema WHERE name NOT LIKE 'sqlite_%'").fetchall()
    found: dict[str, Any] = {
        str(name): connection.execute(
            f"PRAGMA {'table_xinfo' if kind == 'table' else 'index_xinfo'}({name})"
        ).fetchall()
        for kind, name in names
    }
    found["version"] = connection.pragma("user_version")
    partial = "SELECT name, substr(sql, instr(sql, 'WHERE')) FROM sqlite_schema WHERE sql LIKE '%WHERE%' ORDER BY name"
    found["partial"] = [(name, str(condition).replace('"', "")) for name, condition in connection.execute(partial)]
    connection.close()
    return found
