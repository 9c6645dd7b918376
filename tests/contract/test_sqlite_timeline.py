"""The timeline on SQLite and segments keeps the contract."""

from dataclasses import replace
from pathlib import Path

from mnemon_server.engines.events.settings import EventEngineSettings
from mnemon_server.engines.promises.events import SLICE_READS_MAX
from mnemon_server.engines.promises.vault import Vault
from mnemon_server.engines.sqlite_vault import SQLiteVault, VaultSettings

from tests.contract.timeline import DurableTimelineContract
from tests.contract.timeline_suite import SETTINGS
from tests.contract.vault_suite import DIMENSION, ManualClock


class TestSQLiteTimeline(DurableTimelineContract):
    def open_vault(
        self,
        folder: Path,
        clock: ManualClock,
        *,
        settings: EventEngineSettings = SETTINGS,
        reads_max: int = SLICE_READS_MAX,
    ) -> Vault:
        return SQLiteVault(
            folder,
            model_identity="test/1",
            dimension=DIMENSION,
            settings=VaultSettings(events=replace(settings, slice_reads_max=reads_max), erasure_delay_s=0.05),
            clock=clock,
        )
