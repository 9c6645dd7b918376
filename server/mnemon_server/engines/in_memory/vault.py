"""A vault in dictionaries, behind one lock."""

from collections.abc import Callable

from mnemon_server.domain.clock import Clock, system_clock
from mnemon_server.domain.collections import COLLECTIONS, Collection
from mnemon_server.engines.in_memory.collection import InMemoryCollection
from mnemon_server.engines.in_memory.events import InMemoryEventLog
from mnemon_server.engines.in_memory.lane import Lane


class InMemoryVault:
    """See Vault."""

    def __init__(self, *, clock: Clock = system_clock) -> None:
        self._lane = Lane(clock)
        self._events = InMemoryEventLog(self._lane)
        self._collections = {collection: InMemoryCollection(self._lane, self._events) for collection in COLLECTIONS}

    @property
    def events(self) -> InMemoryEventLog:
        """See Vault."""
        return self._events

    def collection(self, collection: Collection) -> InMemoryCollection:
        """See Vault."""
        return self._collections[collection]

    def subscribe(self, on_commit: Callable[[], None]) -> Callable[[], None]:
        """See Vault."""
        return self._lane.subscribe(on_commit)

    def failure(self) -> str | None:
        """See Vault."""
        return None

    def recover(self) -> None:
        """See Vault."""

    def close(self) -> None:
        """See Vault."""
        self._lane.closed = True
