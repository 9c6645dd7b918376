"""A vault on SQLite and its collections keep the contract, with vectors in full, quantized, and on disk."""

from pathlib import Path

from mnemon_server.domain.collections import MEMORIES
from mnemon_server.engines.promises.vault import Vault

from tests.contract.record_changes import ChangedVectorsContract, RecordChangesContract
from tests.contract.record_engine import RecordEngineContract, StoredVectorsContract
from tests.contract.record_parts import RecordPartsContract
from tests.contract.sqlite_vaults import open_quantized, open_scanning_the_file, open_sqlite
from tests.contract.vault import DurableVaultContract
from tests.contract.vault_suite import ManualClock


class TestSQLiteDocuments(RecordEngineContract):
    def open_vault(self, folder: Path, clock: ManualClock) -> Vault:
        return open_sqlite(folder, clock)


class TestSQLiteMemories(TestSQLiteDocuments):
    collection = MEMORIES


class TestSQLiteVectorsScanningTheFile(StoredVectorsContract):
    def open_vault(self, folder: Path, clock: ManualClock) -> Vault:
        return open_scanning_the_file(folder, clock)


class TestSQLiteVectorsQuantized(StoredVectorsContract):
    def open_vault(self, folder: Path, clock: ManualClock) -> Vault:
        return open_quantized(folder, clock)


class TestSQLiteChanges(RecordChangesContract):
    def open_vault(self, folder: Path, clock: ManualClock) -> Vault:
        return open_sqlite(folder, clock)


class TestSQLiteParts(RecordPartsContract):
    def open_vault(self, folder: Path, clock: ManualClock) -> Vault:
        return open_sqlite(folder, clock)


class TestSQLiteChangedVectorsScanningTheFile(ChangedVectorsContract):
    def open_vault(self, folder: Path, clock: ManualClock) -> Vault:
        return open_scanning_the_file(folder, clock)


class TestSQLiteChangedVectorsQuantized(ChangedVectorsContract):
    def open_vault(self, folder: Path, clock: ManualClock) -> Vault:
        return open_quantized(folder, clock)


class TestSQLiteVault(DurableVaultContract):
    def open_vault(self, folder: Path, clock: ManualClock) -> Vault:
        return open_sqlite(folder, clock)
