"""What the change feed promises over any vault. Subclass it and open a vault."""

import asyncio
import random
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Iterator, Sequence
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest
from mnemon_server.domain.changes import Change, ChangeFilter, ChangeType
from mnemon_server.domain.collections import DOCUMENTS, FACTS, MEMORIES, SEMANTIC
from mnemon_server.domain.documents import Document
from mnemon_server.domain.errors import CursorExpiredError, InvalidArgumentError, InvalidCursorError, NotServingError
from mnemon_server.domain.events import Event, PruneReason
from mnemon_server.domain.facts import Fact
from mnemon_server.domain.feed import (
    Batch,
    Cursor,
    Edge,
    ListQuery,
    Start,
    Started,
    WatchQuery,
)
from mnemon_server.domain.filters import RecordFilter
from mnemon_server.domain.kinds import RecordKind
from mnemon_server.domain.memories import Memory
from mnemon_server.domain.records import Scope
from mnemon_server.domain.semantic import SemanticMemory
from mnemon_server.engines.promises.events import EventWrite
from mnemon_server.engines.promises.values import Fits
from mnemon_server.engines.promises.vault import Vault
from mnemon_server.services.background.offload import Offload
from mnemon_server.services.facts.stored_form import to_fact
from mnemon_server.services.feed import tail as event_tail
from mnemon_server.services.feed.cursors import Cursors
from mnemon_server.services.feed.feed import ChangeFeed

from tests.contract.vault_suite import START, ManualClock, write
from tests.support.watching import messages_of, watching

WAIT_S = 60.0


def ids(changes: list[Change] | tuple[Change, ...]) -> list[str]:
    return [change.record_id for change in changes]


def trim(vault: Vault, keep_max: int) -> None:
    while vault.changes.trim(before=START, keep_max=keep_max).result():
        pass


class ChangeFeedContract(ABC):
    """Events come in order, once, without gaps and in whole commits. A watch can resume and reports lost events."""

    @abstractmethod
    def open_vault(self, folder: Path, clock: ManualClock) -> Vault:
        """A new vault."""

    @pytest.fixture
    def clock(self) -> ManualClock:
        return ManualClock()

    @pytest.fixture
    def vault(self, tmp_path: Path, clock: ManualClock) -> Iterator[Vault]:
        vault = self.open_vault(tmp_path / "records", clock)
        yield vault
        vault.close()

    @pytest.fixture
    async def feed(self, vault: Vault, clock: ManualClock) -> AsyncIterator[ChangeFeed]:
        offload = Offload(4, "feed")
        feed = make_feed(vault, offload, clock)
        yield feed
        feed.close()
        offload.close()

    # Where a watch begins

    async def test_from_now_only_later_commits_are_sent(self, vault: Vault, feed: ChangeFeed) -> None:
        put(vault, "before")

        async with watching(feed) as watch:
            put(vault, "after")

            assert ids(await watch.changes(1)) == ["after"]

    async def test_from_the_earliest_all_kept_events_are_sent(self, vault: Vault, feed: ChangeFeed) -> None:
        put(vault, *"abc")

        async with watching(feed, Edge.EARLIEST) as watch:
            assert ids(await watch.changes(3)) == ["a", "b", "c"]

    async def test_from_a_time_the_first_event_is_the_one_at_that_time(
        self, vault: Vault, feed: ChangeFeed, clock: ManualClock
    ) -> None:
        for name in "abc":
            put(vault, name)
            clock.now += timedelta(seconds=10)

        for seconds, expected in ((-60, "abc"), (0, "abc"), (1, "bc"), (10, "bc"), (11, "c"), (20, "c"), (21, "")):
            page = await feed.list(ListQuery(start=START + timedelta(seconds=seconds)))
            assert "".join(ids(page.changes)) == expected

    async def test_a_time_in_the_future_is_refused(self, vault: Vault, feed: ChangeFeed, clock: ManualClock) -> None:
        with pytest.raises(InvalidArgumentError, match="start_time: must not be in the future"):
            await feed.list(ListQuery(start=clock.now + timedelta(hours=1)))

    async def test_started_says_from_when_on_events_are_kept(
        self, vault: Vault, feed: ChangeFeed, clock: ManualClock
    ) -> None:
        async with watching(feed) as watch:
            assert watch.started.retained_since is None

        put(vault, *"ab")
        clock.now += timedelta(hours=1)
        put(vault, "c")
        trim(vault, 1)

        async with watching(feed) as watch:
            assert watch.started.retained_since == START + timedelta(hours=1)

    # Cursors

    async def test_a_watch_resumes_after_the_cursor_of_any_message(self, vault: Vault, feed: ChangeFeed) -> None:
        names = [f"d{i}" for i in range(10)]
        put(vault, *names)
        async with watching(feed, Edge.EARLIEST, batch_max=1) as watch:
            seen = 0
            messages: list[Started | Batch] = [watch.started, *await watch.batches(10)]
            for message in messages:
                seen += isinstance(message, Batch)
                page = await feed.list(ListQuery(start=Cursor(message.cursor)))
                assert ids(page.changes) == names[seen:]

    async def test_a_cursor_changed_anywhere_is_refused(self, vault: Vault, feed: ChangeFeed) -> None:
        put(vault, *"abc")
        cursor = (await feed.list(ListQuery(limit=1))).cursor
        changed = [cursor[:i] + ("A" if cursor[i] != "A" else "B") + cursor[i + 1 :] for i in range(len(cursor))]

        for text in [*changed, "", cursor[:-1], cursor[:-4], cursor + "AAAA", "é", "=" * 32, " " + cursor]:
            with pytest.raises(InvalidCursorError, match="cursor: must be an unchanged cursor from an earlier answer"):
                await feed.list(ListQuery(start=Cursor(text)))

    async def test_a_cursor_of_another_vault_is_refused(
        self, tmp_path: Path, vault: Vault, feed: ChangeFeed, clock: ManualClock
    ) -> None:
        put(vault, *"abc")
        cursor = (await feed.list(ListQuery(limit=1))).cursor
        other = self.open_vault(tmp_path / "other", clock)
        put(other, *"abc")
        offload = Offload(1, "other")
        try:
            with pytest.raises(InvalidCursorError):
                await make_feed(other, offload, clock).list(ListQuery(start=Cursor(cursor)))
        finally:
            offload.close()
            other.close()

    async def test_a_cursor_expires_with_the_first_event_after_it_and_not_before(
        self, vault: Vault, feed: ChangeFeed
    ) -> None:
        put(vault, *(f"d{i}" for i in range(10)))
        pages = [await feed.list(ListQuery(limit=count)) for count in range(1, 11)]

        trim(vault, 5)

        for page in pages[:4]:
            with pytest.raises(CursorExpiredError):
                await feed.list(ListQuery(start=Cursor(page.cursor)))
            with pytest.raises(CursorExpiredError):
                await anext(messages_of(feed, WatchQuery(start=Cursor(page.cursor))))
        for page in pages[4:]:
            following = await feed.list(ListQuery(start=Cursor(page.cursor)))
            assert ids(following.changes) == [f"d{i}" for i in range(len(page.changes), 10)]

    async def test_a_cursor_stays_valid_when_all_events_before_it_are_gone(
        self, vault: Vault, feed: ChangeFeed
    ) -> None:
        put(vault, *"abc")
        cursor = (await feed.list(ListQuery())).cursor
        trim(vault, 0)

        page = await feed.list(ListQuery(start=Cursor(cursor)))
        assert (page.changes, page.caught_up) == ((), True)
        async with watching(feed, Cursor(cursor)) as watch:
            put(vault, "d")
            assert ids(await watch.changes(1)) == ["d"]

    async def test_a_cursor_ahead_of_the_log_counts_as_expired(self, vault: Vault, feed: ChangeFeed) -> None:
        put(vault, *"abc")
        ahead = Cursors(vault.changes.epoch).write(vault.changes.state().head + 1)

        with pytest.raises(CursorExpiredError, match="ahead of the newest change"):
            await feed.list(ListQuery(start=Cursor(ahead)))

    # What is sent

    async def test_filters_combine_with_and_and_their_values_with_or(self, vault: Vault, feed: ChangeFeed) -> None:
        ada, bob = Scope(user="ada"), Scope(user="bob", project="p")
        put(vault, "a", "b", scope=ada)
        put(vault, "c", scope=bob)
        put(vault, "m", collection=MEMORIES, change=ChangeType.MEMORY_CREATED, scope=bob)
        vault.collection(DOCUMENTS).delete_document("a").result()
        indexed, deleted = ChangeType.KNOWLEDGE_INDEXED, ChangeType.KNOWLEDGE_DELETED

        for where, expected in (
            (ChangeFilter(), "abcma"),
            (ChangeFilter(types=frozenset({indexed})), "abc"),
            (ChangeFilter(types=frozenset({deleted, ChangeType.MEMORY_CREATED})), "ma"),
            (ChangeFilter(scope=ada), "aba"),
            (ChangeFilter(scope=Scope(project="p")), "cm"),
            (ChangeFilter(scope=Scope(user="ada", project="p")), ""),
            (ChangeFilter(record_ids=frozenset("ac")), "aca"),
            (ChangeFilter(types=frozenset({indexed}), scope=bob, record_ids=frozenset("cm")), "c"),
        ):
            page = await feed.list(ListQuery(where=where))
            assert "".join(ids(page.changes)) == expected
            async with watching(feed, Edge.EARLIEST, where=where) as watch:
                assert "".join(ids(await watch.changes(len(expected)))) == expected

    async def test_live_events_are_filtered_like_stored_ones(self, vault: Vault, feed: ChangeFeed) -> None:
        where = ChangeFilter(scope=Scope(user="ada"), types=frozenset({ChangeType.KNOWLEDGE_INDEXED}))
        async with watching(feed, where=where) as watch, watching(feed) as everything:
            put(vault, "a", scope=Scope(user="bob"))
            put(vault, "b", scope=Scope(user="ada", project="p"))
            vault.collection(DOCUMENTS).delete_document("b").result()
            put(vault, "c", scope=Scope(user="ada"))

            assert ids(await watch.changes(2)) == ["b", "c"]
            assert ids(await everything.changes(4)) == ["a", "b", "b", "c"]

    async def test_the_events_of_one_commit_come_in_one_message_if_they_fit(
        self, vault: Vault, feed: ChangeFeed
    ) -> None:
        for name in ("x", "y", "z"):
            put(vault, *(f"{name}{i}" for i in range(4)), scope=Scope(user=name))
        for name in ("x", "y", "z"):
            vault.collection(DOCUMENTS).delete_documents(RecordFilter(scope=Scope(user=name))).result()
        deleted = ChangeFilter(types=frozenset({ChangeType.KNOWLEDGE_DELETED}))

        async with watching(feed, Edge.EARLIEST, where=deleted, batch_max=6) as watch:
            whole = await watch.batches(12)
        async with watching(feed, Edge.EARLIEST, where=deleted, batch_max=3) as watch:
            parts = await watch.batches(12)

        assert [len(batch.changes) for batch in whole] == [4, 4, 4]
        assert [len({change.commit for change in batch.changes}) for batch in whole] == [1, 1, 1]
        assert [len(batch.changes) for batch in parts] == [3, 1, 3, 1, 3, 1]
        assert len({change.commit for batch in parts for change in batch.changes}) == 3

    async def test_only_the_last_batch_says_caught_up(self, vault: Vault, feed: ChangeFeed) -> None:
        put(vault, *"abcde")

        async with watching(feed, Edge.EARLIEST, batch_max=2) as watch:
            batches = await watch.batches(5)
        first = await feed.list(ListQuery(limit=2))
        rest = await feed.list(ListQuery(start=Cursor(first.cursor)))

        assert [batch.caught_up for batch in batches] == [False, False, True]
        assert (first.caught_up, rest.caught_up) == (False, True)

    async def test_a_backlog_without_matches_ends_with_progress(self, vault: Vault, feed: ChangeFeed) -> None:
        put(vault, *"abc")
        where = ChangeFilter(record_ids=frozenset({"z"}))

        async with watching(feed, Edge.EARLIEST, where=where) as watch:
            progress = await watch.progress()

        assert progress.caught_up
        assert progress.head_time == START
        assert (await feed.list(ListQuery(start=Cursor(progress.cursor)))).changes == ()

    async def test_an_empty_backlog_is_reported_at_once(self, feed: ChangeFeed) -> None:
        async with watching(feed, Edge.EARLIEST, heartbeat_s=60) as watch:
            assert (await watch.progress()).caught_up

    async def test_the_cursor_moves_even_if_nothing_matches(self, vault: Vault, feed: ChangeFeed) -> None:
        where = ChangeFilter(record_ids=frozenset({"z"}))
        async with watching(feed, where=where, heartbeat_s=60) as watch:
            put(vault, *"abc")
            progress = await watch.progress()
        trim(vault, 0)

        assert progress.cursor != watch.started.cursor
        assert (await feed.list(ListQuery(start=Cursor(progress.cursor)))).caught_up
        with pytest.raises(CursorExpiredError):
            await feed.list(ListQuery(start=Cursor(watch.started.cursor)))

    async def test_a_silent_watch_sends_heartbeats(self, vault: Vault, feed: ChangeFeed) -> None:
        put(vault, "a")
        clock = asyncio.get_running_loop().time
        began = clock()
        async with watching(feed, heartbeat_s=0.2) as watch:
            for _ in range(3):
                progress = await watch.progress()
                assert (progress.cursor, progress.caught_up) == (watch.started.cursor, True)

        assert watch.started.heartbeat_s == 0.2
        assert clock() - began > 0.55

    # The full view

    async def test_the_full_view_carries_the_current_records(self, vault: Vault, feed: ChangeFeed) -> None:
        put(vault, "a", "gone", content="first")
        put(vault, "a", content="second")
        put(vault, "m", collection=MEMORIES, change=ChangeType.MEMORY_CREATED, content="a fact")
        vault.collection(DOCUMENTS).delete_document("gone").result()

        page = await feed.list(ListQuery(full=True))
        async with watching(feed, Edge.EARLIEST, full=True) as watch:
            [batch] = await watch.batches(5)
        basic = await feed.list(ListQuery())

        contents = [record.content if record else None for record in page.records]
        assert ids(page.changes) == ["a", "gone", "a", "m", "gone"]
        assert contents == ["second", None, "second", "a fact", None]
        assert isinstance(page.records[3], Memory)
        assert isinstance(page.records[0], Document)
        assert batch.records == page.records
        assert basic.records == ()

    async def test_the_full_view_does_not_show_a_reused_id_for_a_pruned_event(
        self, vault: Vault, feed: ChangeFeed
    ) -> None:
        timeline = vault.events
        assert await asyncio.to_thread(timeline.wait_until_warm, WAIT_S)
        for user in ("ada", "bob"):
            change = Event("e", "task", START, content="what happened", scope=Scope(user=user), record_time=START)
            timeline.append([EventWrite(change, id_is_new=False)]).result()
            if user == "ada":
                [stored] = timeline.get(["e"])
                assert stored is not None
                timeline.prune([stored], PruneReason.REQUESTED).result()

        page = await feed.list(ListQuery(full=True))
        assert [change.scope.user for change in page.changes] == ["ada", "ada", "bob"]
        assert [record is not None for record in page.records] == [False, False, True]

    async def test_a_message_of_the_full_view_stays_within_the_size_limit(self, vault: Vault, feed: ChangeFeed) -> None:
        put(vault, *"abcdefgh", content="x" * 900_000)

        async with watching(feed, Edge.EARLIEST, full=True) as watch:
            batches = await watch.batches(8)

        assert "".join(ids([change for batch in batches for change in batch.changes])) == "abcdefgh"
        assert all(sum(len(record.content) for record in batch.records if record) < 5_000_000 for batch in batches)
        assert all(len(batch.records) == len(batch.changes) for batch in batches)

    # During a watch

    async def test_a_watch_overtaken_by_a_trim_ends_instead_of_skipping(self, vault: Vault, feed: ChangeFeed) -> None:
        put(vault, *(f"d{i}" for i in range(20)))
        async with (
            watching(feed, Edge.EARLIEST, batch_max=4) as slow,
            watching(feed, Edge.EARLIEST, batch_max=10) as quick,
        ):
            assert len(await slow.changes(4)) == 4
            assert len(await quick.changes(10)) == 10

            trim(vault, 10)

            received = await slow.changes_until(CursorExpiredError)
            # One step may have been read before the trim.
            assert ids(received) in ([], ["d4", "d5", "d6", "d7"])
            assert ids(await quick.changes(10)) == [f"d{i}" for i in range(10, 20)]

    async def test_more_events_at_once_than_fit_in_memory_are_all_sent(
        self, vault: Vault, feed: ChangeFeed, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(event_tail, "CHANGES_MAX", 16)
        put(vault, *(f"d{i}" for i in range(100)))
        async with watching(feed, batch_max=10) as watch:
            put(vault, "live")
            assert ids(await watch.changes(1)) == ["live"]
            vault.collection(DOCUMENTS).delete_documents(RecordFilter()).result()
            put(vault, "last")

            changes = await watch.changes(102)

        assert ids(changes)[-1] == "last"
        assert sorted(ids(changes)[:-1]) == sorted([*(f"d{i}" for i in range(100)), "live"])

    async def test_a_paused_watcher_finds_everything_after_the_newest_events_left_memory(
        self, vault: Vault, feed: ChangeFeed, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(event_tail, "CHANGES_MAX", 16)
        names = [f"d{i}" for i in range(60)]
        async with watching(feed) as paused, watching(feed) as live:
            for name in names:
                put(vault, name)
                assert ids(await live.changes(1)) == [name]

            assert ids(await paused.changes(60)) == names

    @pytest.mark.parametrize("seed", range(3))
    async def test_watchers_that_come_and_go_see_every_event_once_and_in_order(
        self, vault: Vault, feed: ChangeFeed, seed: int
    ) -> None:
        rng = random.Random(seed)
        total = 240
        put(vault, *(f"s{i}" for i in range(total // 3)))

        async def write_the_rest() -> None:
            for i in range(total // 3, total):
                await asyncio.to_thread(put, vault, f"s{i}")

        async def follow(batch_max: int) -> list[Change]:
            """Stops after a random number of messages and resumes from the last cursor."""
            seen: list[Change] = []
            start: Start = Edge.EARLIEST
            while len(seen) < total:
                async with watching(feed, start, batch_max=batch_max, heartbeat_s=0.05) as watch:
                    for _ in range(rng.randrange(1, 8)):
                        message = await watch.message()
                        start = Cursor(message.cursor)
                        if isinstance(message, Batch):
                            seen += message.changes
                        if len(seen) == total:
                            break
            return seen

        writing = asyncio.create_task(write_the_rest())
        histories = await asyncio.gather(*(follow(rng.choice([1, 3, 50])) for _ in range(12)))
        await writing

        for history in histories:
            assert ids(history) == [f"s{i}" for i in range(total)]

    async def test_closing_the_feed_ends_its_watches(self, vault: Vault, feed: ChangeFeed) -> None:
        async with watching(feed) as watch:
            waiting = asyncio.create_task(watch.message())
            await asyncio.sleep(0)
            feed.close()

            with pytest.raises(NotServingError):
                await waiting
        with pytest.raises(NotServingError):
            await anext(messages_of(feed, WatchQuery()))


def put(
    vault: Vault,
    *names: str,
    collection: object = DOCUMENTS,
    change: ChangeType = ChangeType.KNOWLEDGE_INDEXED,
    content: str = "",
    scope: Scope | None = None,
) -> None:
    """Writes each document in its own commit. All are acknowledged when this returns."""
    engine = vault.collection(MEMORIES if collection is MEMORIES else DOCUMENTS)
    writes = [write(name, content or f"text of {name}", scope=scope or Scope()) for name in names]
    for receipt in [engine.put_document(replace(each, change=change)) for each in writes]:
        receipt.result(WAIT_S)


def make_feed(vault: Vault, offload: Offload, clock: ManualClock) -> ChangeFeed:
    def read_memories(memory_ids: Sequence[str], *, fits: Fits) -> list[Memory | None]:
        found = vault.collection(MEMORIES).get_documents(memory_ids, fits=fits)
        return [Memory(document.doc_id, document.content) if document else None for document in found]

    def read_semantic(memory_ids: Sequence[str], *, fits: Fits) -> list[SemanticMemory | None]:
        found = vault.collection(SEMANTIC).get_documents(memory_ids, fits=fits)
        return [SemanticMemory(document.doc_id, document.content) if document else None for document in found]

    def read_facts(record_ids: Sequence[str], *, fits: Fits) -> list[Fact | None]:
        found = vault.collection(FACTS).get_documents(record_ids, fits=fits)
        return [to_fact(document) if document else None for document in found]

    return ChangeFeed(
        vault.changes,
        vault.subscribe,
        readers={
            RecordKind.DOCUMENT: vault.collection(DOCUMENTS).get_documents,
            RecordKind.MEMORY: read_memories,
            RecordKind.SEMANTIC: read_semantic,
            RecordKind.EVENT: vault.events.get,
            RecordKind.FACT: read_facts,
        },
        offload=offload,
        clock=clock,
    )
