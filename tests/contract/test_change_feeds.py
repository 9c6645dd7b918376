"""The change feed keeps its promises over a vault, across its restarts, and for callers with bounds."""

from pathlib import Path

import pytest
from mnemon_server.domain.access.bounds import Bounds
from mnemon_server.domain.changes import ChangeFilter, ChangeLogState, ChangeType
from mnemon_server.domain.clock import system_clock
from mnemon_server.domain.collections import DOCUMENTS
from mnemon_server.domain.feed import Batch, Cursor, Edge, ListQuery, Start
from mnemon_server.domain.filters import RecordFilter
from mnemon_server.domain.kinds import RecordKind
from mnemon_server.domain.records import Scope
from mnemon_server.engines.bound import BoundVault
from mnemon_server.engines.promises.vault import Vault
from mnemon_server.engines.sqlite import change_log as sqlite_events
from mnemon_server.engines.sqlite_vault import SQLiteVault
from mnemon_server.services.background.offload import Offload
from mnemon_server.services.feed.feed import ChangeFeed

from tests.contract.change_feed import ChangeFeedContract, ids, make_feed, put, trim
from tests.contract.vault_suite import DIMENSION, START, ManualClock
from tests.support.vaults import temporary_vault
from tests.support.watching import watching


async def test_a_caller_with_bounds_is_told_neither_that_others_write_nor_when() -> None:
    offload = Offload(4, "feed")
    with temporary_vault(dimension=DIMENSION) as vault:
        put(vault, "before", scope=Scope(user="bob"))
        whole = make_feed(vault, offload, system_clock)
        hers_alone = Bounds.of(["ada"], [])
        read = BoundVault(vault, hers_alone).collection(DOCUMENTS).get_documents
        part = whole.within(hers_alone, dict.fromkeys(RecordKind, read))
        async with watching(whole, Edge.EARLIEST) as everybody, watching(part, Edge.EARLIEST) as hers:
            assert (await everybody.changes(1))[0].record_id == "before"
            assert hers.started.retained_since is None
            progress = await hers.progress()
            assert (progress.head_time, progress.caught_up) == (None, True)
            async with watching(whole, where=ChangeFilter(record_ids=frozenset({"hers"}))) as later:
                put(vault, "his", scope=Scope(user="bob"))
                # Told at once, to a watcher without bounds, that the cursor moves.
                assert (await later.progress()).cursor != later.started.cursor
            put(vault, "hers", scope=Scope(user="ada"))
            message = await hers.message()
            assert isinstance(message, Batch)
            assert ids(message.changes) == ["hers"]
        whole.close()
    offload.close()


class TestSQLiteFeed(ChangeFeedContract):
    def open_vault(self, folder: Path, clock: ManualClock) -> Vault:
        return SQLiteVault(folder, model_identity="test/1", dimension=DIMENSION, clock=clock)

    async def test_a_cursor_is_valid_after_a_restart(self, tmp_path: Path, clock: ManualClock) -> None:
        offload = Offload(2, "feed")
        cursor = ""
        for name in "abc":
            vault = self.open_vault(tmp_path / "lasting", clock)
            feed = make_feed(vault, offload, clock)
            if cursor:
                assert (await feed.list(ListQuery(start=Cursor(cursor)))).changes == ()
            put(vault, name)
            page = await feed.list(ListQuery(start=Cursor(cursor) if cursor else Edge.EARLIEST))
            assert ids(page.changes) == [name]
            cursor = page.cursor
            vault.close()
        offload.close()

    @pytest.mark.parametrize("start", [Edge.EARLIEST, START])
    async def test_a_list_without_a_cursor_never_expires(
        self, vault: Vault, feed: ChangeFeed, start: Start, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        put(vault, *"abcdef")
        state, keep = vault.changes.state, [5, 3]

        def state_before_a_trim() -> ChangeLogState:
            found = state()
            if keep:
                trim(vault, keep.pop(0))
            return found

        monkeypatch.setattr(vault.changes, "state", state_before_a_trim)
        page = await feed.list(ListQuery(start=start))

        assert (ids(page.changes), page.caught_up) == (["d", "e", "f"], True)

    async def test_a_commit_stays_whole_when_a_read_of_the_log_is_limited(
        self, vault: Vault, feed: ChangeFeed, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(sqlite_events, "SCAN_MAX", 7)
        put(vault, *(f"d{i}" for i in range(30)), scope=Scope(user="ada"))
        vault.collection(DOCUMENTS).delete_documents(RecordFilter(scope=Scope(user="ada"))).result()
        put(vault, "last")
        deleted = ChangeFilter(types=frozenset({ChangeType.KNOWLEDGE_DELETED}))

        async with watching(feed, Edge.EARLIEST, where=deleted) as watch:
            [batch] = await watch.batches(30)

        assert len(batch.changes) == 30
