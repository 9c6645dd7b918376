"""A vault on SQLite and its collections keep the contract, with their vectors in memory and on disk."""

from pathlib import Path

from mnemon_server.domain.collections import MEMORIES
from mnemon_server.engines.base import Vault
from mnemon_server.engines.sqlite import SQLiteVault

from tests.contract.record_changes import RecordChangesContract
from tests.contract.record_engine import DIMENSION, DurableRecordEngineContract, ManualClock
from tests.contract.vault import DurableVaultContract


def open_sqlite(folder: Path, clock: ManualClock) -> Vault:
    return SQLiteVault(folder, model_identity="test/1", dimension=DIMENSION, clock=clock)


def open_scanning_the_file(folder: Path, clock: ManualClock) -> Vault:
    """Vectors beyond the bound of the memory are read from the file: here, all but the first."""
    return SQLiteVault(
        folder, model_identity="test/1", dimension=DIMENSION, clock=clock, vector_cache_bytes_max=4 * DIMENSION
    )


class TestSQLiteDocuments(DurableRecordEngineContract):
    def open_vault(self, folder: Path, clock: ManualClock) -> Vault:
        return open_sqlite(folder, clock)


class TestSQLiteMemories(TestSQLiteDocuments):
    collection = MEMORIES


class TestSQLiteDocumentsScanningTheFile(DurableRecordEngineContract):
    def open_vault(self, folder: Path, clock: ManualClock) -> Vault:
        return open_scanning_the_file(folder, clock)


class TestSQLiteChanges(RecordChangesContract):
    def open_vault(self, folder: Path, clock: ManualClock) -> Vault:
        return open_sqlite(folder, clock)


class TestSQLiteChangesScanningTheFile(RecordChangesContract):
    def open_vault(self, folder: Path, clock: ManualClock) -> Vault:
        return open_scanning_the_file(folder, clock)


class TestSQLiteVault(DurableVaultContract):
    def open_vault(self, folder: Path, clock: ManualClock) -> Vault:
        return open_sqlite(folder, clock)
