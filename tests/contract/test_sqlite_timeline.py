"""The timeline on SQLite and segments keeps the contract."""

from contextlib import closing
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

from mnemon_server.domain.events import EventSelection, PruneReason
from mnemon_server.domain.filters import Condition, Operator
from mnemon_server.engines.events.settings import EventEngineSettings
from mnemon_server.engines.promises.events import SLICE_READS_MAX
from mnemon_server.engines.promises.vault import Vault
from mnemon_server.engines.sqlite_vault import SQLiteVault, VaultSettings

from tests.contract.timeline import DurableTimelineContract
from tests.contract.timeline_suite import ALL, SETTINGS, append, get, happening, selection
from tests.contract.vault_suite import DIMENSION, START, ManualClock


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
            settings=VaultSettings(events=replace(settings, slice_reads_max=reads_max)),
            clock=clock,
        )

    def test_events_that_were_recorded_a_moment_ago_are_answered_at_once(self, tmp_path: Path) -> None:
        clock = ManualClock()
        with closing(self.open(tmp_path, clock)) as vault:
            append(vault.events, *(happening(f"e{number}") for number in range(5)))
            found = vault.events.window_at_once(ALL, limit=3)
            assert found == vault.events.window(ALL, limit=3)
            assert found is not None
            rest = vault.events.window_at_once(ALL, after=found.next_position, limit=3)
            assert rest is not None
            assert [event.position.event_id for event in rest.events] == ["e1", "e0"]
            assert rest.next_position is None
            assert vault.events.window_at_once(selection(user="none"), limit=3) is not None
            where = EventSelection(expression=Condition("event_id", Operator.EQ, ("e1",)))
            assert vault.events.window_at_once(where, limit=3) is None
        with closing(self.open(tmp_path, clock)) as vault:
            assert vault.events.window_at_once(ALL, limit=3) is None
            assert vault.events.window(ALL, limit=3) == found

    def test_an_event_that_was_removed_is_not_answered_at_once(self, vault: Vault) -> None:
        append(vault.events, *(happening(f"e{number}") for number in range(5)))
        gone = get(vault.events, "e3")
        vault.events.prune(gone, PruneReason.REQUESTED).result()
        assert vault.events.window_at_once(ALL, limit=3) in (None, vault.events.window(ALL, limit=3))
        append(vault.events, happening("later", START + timedelta(days=1)))
        found = vault.events.window_at_once(EventSelection(start=START + timedelta(hours=1)), limit=3)
        assert found is not None
        assert [event.position.event_id for event in found.events] == ["later"]
