"""The reference vault and its collections keep the contract."""

from pathlib import Path

from mnemon_server.domain.collections import MEMORIES
from mnemon_server.engines.in_memory import InMemoryVault
from mnemon_server.engines.promises.vault import Vault

from tests.contract.record_changes import RecordChangesContract
from tests.contract.record_engine import RecordEngineContract
from tests.contract.record_parts import RecordPartsContract
from tests.contract.vault import VaultContract
from tests.contract.vault_suite import ManualClock
from tests.contract.vault_transactions import VaultTransactionsContract


class TestInMemoryDocuments(RecordEngineContract):
    def open_vault(self, folder: Path, clock: ManualClock) -> Vault:
        return InMemoryVault(clock=clock)


class TestInMemoryMemories(TestInMemoryDocuments):
    collection = MEMORIES


class TestInMemoryChanges(RecordChangesContract):
    def open_vault(self, folder: Path, clock: ManualClock) -> Vault:
        return InMemoryVault(clock=clock)


class TestInMemoryParts(RecordPartsContract):
    def open_vault(self, folder: Path, clock: ManualClock) -> Vault:
        return InMemoryVault(clock=clock)


class TestInMemoryVault(VaultContract):
    def open_vault(self, folder: Path, clock: ManualClock) -> Vault:
        return InMemoryVault(clock=clock)


class TestInMemoryTransactions(VaultTransactionsContract):
    def open_vault(self, folder: Path, clock: ManualClock) -> Vault:
        return InMemoryVault(clock=clock)
