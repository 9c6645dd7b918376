"""The reference timeline keeps the contract."""

from pathlib import Path

from mnemon_server.engines.events.settings import EventEngineSettings
from mnemon_server.engines.in_memory import InMemoryVault
from mnemon_server.engines.promises.events import SLICE_READS_MAX
from mnemon_server.engines.promises.vault import Vault

from tests.contract.timeline import TimelineContract
from tests.contract.timeline_suite import SETTINGS
from tests.contract.vault_suite import ManualClock


class TestInMemoryTimeline(TimelineContract):
    def open_vault(
        self,
        folder: Path,
        clock: ManualClock,
        *,
        settings: EventEngineSettings = SETTINGS,
        reads_max: int = SLICE_READS_MAX,
    ) -> Vault:
        return InMemoryVault(clock=clock, segment_events_max=settings.segment_events_max, slice_reads_max=reads_max)
