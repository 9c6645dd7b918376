"""A vault keeps the promises that facts rely on, with its vectors in memory and on disk."""

from pathlib import Path

import pytest
from mnemon_server.engines.promises.vault import Vault
from mnemon_server.engines.sqlite.filters import plan

from tests.contract.fact_records import FactRecordsContract
from tests.contract.sqlite_vaults import open_scanning_the_file, open_sqlite
from tests.contract.vault_suite import ManualClock


class TestFactsInSQLite(FactRecordsContract):
    def open_vault(self, folder: Path, clock: ManualClock) -> Vault:
        return open_sqlite(folder, clock)


class TestFactsInSQLiteScanningTheFile(FactRecordsContract):
    def open_vault(self, folder: Path, clock: ManualClock) -> Vault:
        return open_scanning_the_file(folder, clock)


class TestFactsInSQLiteWhereManyMatch(FactRecordsContract):
    """As if no condition narrowed the search to few documents."""

    @pytest.fixture(autouse=True)
    def many(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(plan, "BOUNDS", (0, 0, 0))

    def open_vault(self, folder: Path, clock: ManualClock) -> Vault:
        return open_sqlite(folder, clock)
