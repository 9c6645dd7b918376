"""Detects events that are already stored."""

from collections.abc import Callable, Container, Sequence

import apsw

from mnemon_server.domain.events import Event
from mnemon_server.engines.events.index.index import TimelineIndex
from mnemon_server.engines.events.index.rows import EventKey, EventRef
from mnemon_server.engines.events.named_tuples import maker
from mnemon_server.engines.events.rows.bodies import BodyReader
from mnemon_server.engines.events.rows.incoming import KnownEvent, PreparedEvent, key_texts
from mnemon_server.wire.events import decode

_new_key = maker(EventKey)


class Duplicates:
    """Finds stored events that are the same as new ones. For use on the writer's thread."""

    def __init__(self, index: TimelineIndex, bodies: BodyReader, on_damage: Callable[[int], None]) -> None:
        """Does no work yet.

        Args:
            index: proposes candidates, by hashes.
            bodies: reads candidates for comparison.
            on_damage: called with a segment that has a candidate that cannot be read, which is then not treated as a
                duplicate; must not block.
        """
        self._index = index
        self._bodies = bodies
        self._on_damage = on_damage

    def find(
        self, connection: apsw.Connection, events: Sequence[PreparedEvent], removed: Container[int]
    ) -> dict[int, KnownEvent]:
        """The committed duplicates, by position in `events`. A match by id takes precedence over a match by key.

        Args:
            connection: the writer's connection.
            events: the new events.
            removed: sequences of events that the running transaction removes.
        """
        candidates = [
            (position, ref)
            for position, ref in (*self._with_id(events), *self._with_key(events))
            if ref.sequence not in removed
        ]
        if not candidates:
            return {}
        bodies, damaged = self._bodies.read_if_sound(connection, [ref for _, ref in candidates])
        for segment_id in damaged:
            self._on_damage(segment_id)
        found: dict[int, KnownEvent] = {}
        for position, ref in candidates:
            body = bodies.get(ref.sequence)
            if position not in found and body is not None and (stored := _if_same(events[position], body)):
                found[position] = KnownEvent(stored.event_id, ref.sequence, ref.segment_id, stored.scope.user)
        return found

    def _with_id(self, events: Sequence[PreparedEvent]) -> list[tuple[int, EventRef]]:
        asked = [position for position, event in enumerate(events) if not event.id_is_new]
        if not asked:
            return []
        found = self._index.find_ids([events[position].event_id for position in asked])
        return [(position, ref) for position, refs in zip(asked, found, strict=True) for ref in refs]

    def _with_key(self, events: Sequence[PreparedEvent]) -> list[tuple[int, EventRef]]:
        found = self._index.find_keys([_new_key((event.key[0], event.key[4], event.key_hash)) for event in events])
        return [(position, ref) for position, refs in enumerate(found) for ref in refs]


def _if_same(event: PreparedEvent, body: bytes) -> Event | None:
    """The stored event if it has the same id or key; None if only the hashes are equal."""
    stored = decode(body)
    return stored if stored.event_id == event.event_id or key_texts(stored) == event.key else None
