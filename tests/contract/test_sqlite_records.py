"""The collections of a vault on SQLite keep the contract, with their vectors in memory and on disk."""

from pathlib import Path

from mnemon_server.domain.collections import MEMORIES
from mnemon_server.engines.base import Vault
from mnemon_server.engines.sqlite import SQLiteVault

from tests.contract.record_engine import DIMENSION, DurableRecordEngineContract, ManualClock


class TestSQLiteDocuments(DurableRecordEngineContract):
    def open_vault(self, folder: Path, clock: ManualClock) -> Vault:
        return SQLiteVault(folder, model_identity="test/1", dimension=DIMENSION, clock=clock)


class TestSQLiteMemories(TestSQLiteDocuments):
    collection = MEMORIES


class TestSQLiteDocumentsScanningTheFile(DurableRecordEngineContract):
    """Vectors beyond the bound of the memory are read from the file: here, all but the first."""

    def open_vault(self, folder: Path, clock: ManualClock) -> Vault:
        return SQLiteVault(
            folder, model_identity="test/1", dimension=DIMENSION, clock=clock, vector_cache_bytes_max=4 * DIMENSION
        )
