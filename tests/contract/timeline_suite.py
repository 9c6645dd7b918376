"""What the timeline suites share: how vaults are opened, events made and answers read."""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from datetime import datetime
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
from mnemon_server.domain.changes import Change, ChangeFilter, ChangeType
from mnemon_server.domain.errors import MnemonError
from mnemon_server.domain.events import (
    Event,
    EventReceipt,
    EventSelection,
    StoredEvent,
)
from mnemon_server.domain.records import RequestKey, Scope
from mnemon_server.engines.events.settings import EventEngineSettings
from mnemon_server.engines.promises.events import (
    SLICE_READS_MAX,
    EventEngine,
    EventWrite,
)
from mnemon_server.engines.promises.vault import Vault

from tests.contract.vault_suite import START, ManualClock

SEGMENT_EVENTS_MAX = 5
SETTINGS = EventEngineSettings(segment_events_max=SEGMENT_EVENTS_MAX, joined_min=10**6, erase_delay_s=0.05)
"""Segments that are full soon, and keep their names; what is done later is done soon."""
ALL = EventSelection()
SCOPE_NAMES = ("user", "household", "persona", "agent", "project")


def happening(event_id: str, at: datetime = START, *, user: str = "u", **fields: Any) -> Event:
    """An event whose text distinguishes it from the others."""
    usual = {"event_type": "conversation", "content": f"content of {event_id}", "scope": Scope(user=user)}
    given: dict[str, Any] = usual | fields
    return Event(event_id=event_id, event_time=at, record_time=START, **given)


def try_append(
    timeline: EventEngine, events: Iterable[Event], requests: Iterable[RequestKey | None] | None = None
) -> list[EventReceipt | MnemonError]:
    """Appends events in one call."""
    events = list(events)
    keys = [None] * len(events) if requests is None else list(requests)
    writes = [EventWrite(event, id_is_new=False, request=one) for event, one in zip(events, keys, strict=True)]
    return timeline.append(writes).result()


def append(timeline: EventEngine, *events: Event, request: RequestKey | None = None) -> list[EventReceipt]:
    """Appends events, all of which must be accepted."""
    receipts = try_append(timeline, events, [request] * len(events))
    assert all(isinstance(receipt, EventReceipt) for receipt in receipts)
    return receipts  # type: ignore[return-value]


def append_at(timeline: EventEngine, times: Iterable[datetime], **fields: Any) -> None:
    """Appends an event for each time, named by its number."""
    append(timeline, *(happening(f"e{number}", time, **fields) for number, time in enumerate(times)))


def window(timeline: EventEngine, where: EventSelection = ALL, limit: int = 1_000) -> list[str]:
    """The ids of a window, in order."""
    return [stored.position.event_id for stored in timeline.window(where, limit=limit).events]


def pages(timeline: EventEngine, where: EventSelection, limit: int) -> list[list[StoredEvent]]:
    """All pages of a window."""
    found = [timeline.window(where, limit=limit)]
    while found[-1].next_position is not None:
        found.append(timeline.window(where, after=found[-1].next_position, limit=limit))
    return [list(page.events) for page in found]


def get(timeline: EventEngine, *event_ids: str) -> list[StoredEvent]:
    """The events with these ids, all of which must be stored."""
    found = timeline.get(event_ids)
    assert None not in found
    return found  # type: ignore[return-value]


def told(vault: Vault, *types: ChangeType, after: int = 0) -> list[Change]:
    """What the feed reports about the timeline."""
    found = vault.changes.read(after, limit=10_000, where=ChangeFilter(types=frozenset(types)))
    return list(found.changes)


def content_hash(content: str) -> str:
    return sha256(content.encode()).hexdigest()


def selection(**scope: str) -> EventSelection:
    return EventSelection(scope=Scope(**scope))


class TimelineSuite(ABC):
    """A suite that runs over timelines. A subclass says how they are opened."""

    @abstractmethod
    def open_vault(
        self,
        folder: Path,
        clock: ManualClock,
        *,
        settings: EventEngineSettings = SETTINGS,
        reads_max: int = SLICE_READS_MAX,
    ) -> Vault:
        """A new vault, or the kept one when called again with the same folder.

        `reads_max`: see SLICE_READS_MAX, which is too large for a test.
        """

    def open(self, folder: Path, clock: ManualClock, **options: Any) -> Vault:
        """The same, warm."""
        vault = self.open_vault(folder, clock, **options)
        assert vault.events.wait_until_warm(60)
        return vault

    @pytest.fixture
    def clock(self) -> ManualClock:
        return ManualClock()

    @pytest.fixture
    def vault(self, tmp_path: Path, clock: ManualClock) -> Iterator[Vault]:
        vault = self.open(tmp_path / "vault", clock)
        yield vault
        vault.close()

    @pytest.fixture
    def timeline(self, vault: Vault) -> EventEngine:
        return vault.events
