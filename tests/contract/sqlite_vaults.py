"""How the contract tests open vaults on SQLite."""

from pathlib import Path

from mnemon_server.engines.base import Vault
from mnemon_server.engines.sqlite import SQLiteVault

from tests.contract.record_engine import DIMENSION, ManualClock


def open_sqlite(folder: Path, clock: ManualClock) -> Vault:
    return SQLiteVault(folder, model_identity="test/1", dimension=DIMENSION, clock=clock)


def open_scanning_the_file(folder: Path, clock: ManualClock) -> Vault:
    """Vectors beyond the bound of the memory are read from the file: here, all but the first."""
    return SQLiteVault(
        folder, model_identity="test/1", dimension=DIMENSION, clock=clock, vector_cache_bytes_max=4 * DIMENSION
    )
