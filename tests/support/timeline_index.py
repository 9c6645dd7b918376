"""A timeline in plain Python lists that gets the same writes and queries as a TimelineIndex."""

import random
from collections import Counter
from dataclasses import dataclass

from mnemon_server.domain.records import Scope
from mnemon_server.engines.events.index.columns import decode_index, encode_index
from mnemon_server.engines.events.index.hashes import id_hash
from mnemon_server.engines.events.index.index import TimelineIndex
from mnemon_server.engines.events.index.rows import NO_OFFSET, Counts, EventKey, EventRef, EventRow, Summary
from mnemon_server.engines.events.index.sealed_block import SealedBlock
from mnemon_server.engines.events.index.selection import Selection

DAY_US = 86_400_000_000
TYPES = ("conversation", "emotion", "reminder", "tâche")
USERS = ("ada", "bob", "çelik", "dora", "emil", "fay")


@dataclass(frozen=True, slots=True)
class Told:
    """An event and its location."""

    row: EventRow
    segment_id: int
    event_id: str

    def ref(self, offset: int) -> EventRef:
        """What the index should return for it."""
        return EventRef(self.row.time_us, self.row.sequence, self.segment_id, offset)


def is_selected(row: EventRow, selection: Selection, *, anytime: bool = False) -> bool:
    """Whether a selection matches an event, field by field."""
    for name in Scope.__dataclass_fields__:
        wanted = getattr(selection.scope, name)
        if wanted and wanted != getattr(row.scope, name):
            return False
    if selection.event_types and row.event_type not in selection.event_types:
        return False
    if selection.min_importance is not None and (row.importance is None or row.importance < selection.min_importance):
        return False
    late_enough = selection.start_us is None or row.time_us >= selection.start_us
    return anytime or (late_enough and (selection.end_us is None or row.time_us <= selection.end_us))


class TimelineTrial:
    """An index, and the events that were written to it."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.index = TimelineIndex()
        self.told: list[Told] = []
        self.offsets: dict[int, int] = {}
        """By sequence, of what is sealed."""
        self.open_segments: list[int] = []
        self.sealed_segments: list[int] = []
        self._last_sequence = 0
        self._dead: set[int] = set()

    # Writes

    def step(self) -> None:
        """Makes a random write."""
        weights = {
            self.begin: 2,
            self.append: 6,
            self.seal: 2,
            self.kill: 3,
            self.rewrite: 1,
            self.merge: 1,
            self.drop: 1,
        }
        self.random.choices(list(weights), list(weights.values()))[0]()

    def begin(self) -> None:
        """Starts a segment."""
        segment_id = self._last_sequence + 1
        if segment_id not in self.open_segments:
            self.index.add_open(segment_id)
            self.open_segments.append(segment_id)

    def append(self, count: int | None = None) -> None:
        """Adds events of any time to the newest segment, and sometimes one with an existing id."""
        if not self.open_segments or self.open_segments[-1] <= max(self.sealed_segments, default=0):
            return
        segment_id = self.open_segments[-1]
        count = self.random.randrange(12) if count is None else count
        rows = [self._told(segment_id).row for _ in range(count)]
        self.index.append(segment_id, rows)

    def seal(self) -> None:
        """Seals the oldest open segment. Sometimes an event dies after its sealed block was made."""
        if not self.open_segments or not (told := self.of(self.open_segments[0])):
            return
        segment_id = self.open_segments.pop(0)
        self.offsets |= {each.row.sequence: 64 + 10 * place for place, each in enumerate(told)}
        block = SealedBlock.from_open(
            self.index.open_block(segment_id), [self.offsets[each.row.sequence] for each in told]
        )
        if self.random.random() < 0.5:
            block = decode_index(encode_index(block), self.index.interners)
        if self.random.random() < 0.3:
            self.kill()
        self.index.seal(block)
        self.sealed_segments.append(segment_id)
        if not self.open_segments:
            self.begin()

    def kill(self) -> None:
        """Marks some events dead."""
        if self.told:
            dying = {self.random.choice(self.told).row.sequence for _ in range(self.random.randrange(4))}
            alive = [each for each in self.told if each.row.sequence not in self._dead]
            marked = self.index.mark_dead([*dying, 10**9])
            assert marked == sum(each.row.sequence in dying for each in alive)
            self._dead |= dying

    def rewrite(self) -> None:
        """Replaces a sealed block by one without its dead events."""
        if self.sealed_segments:
            self._replace([self.random.choice(self.sealed_segments)])

    def merge(self) -> None:
        """Replaces two neighbouring blocks by one."""
        if len(self.sealed_segments) > 1:
            at = self.random.randrange(len(self.sealed_segments) - 1)
            self._replace(self.sealed_segments[at : at + 2])

    def drop(self) -> None:
        """Drops a sealed segment."""
        if len(self.sealed_segments) > 3:
            segment_id = self.sealed_segments.pop(0)
            self.index.drop(segment_id)
            self.told = [each for each in self.told if each.segment_id != segment_id]

    # Queries

    def selection(self) -> Selection:
        """A random selection."""
        pick = self.random
        fields = {
            "user": pick.choice(["", *USERS, "nobody"]),
            "persona": pick.choice(["", "", "p1", "p2"]),
            "project": pick.choice(["", "", "", "x", "unknown"]),
        }
        times = sorted(self._time() for _ in range(2))
        return Selection(
            scope=Scope(**fields),
            event_types=frozenset(pick.sample([*TYPES, "unheard"], pick.choice([0, 0, 1, 3]))),
            min_importance=pick.choice([None, None, 0.0, 0.3, 0.7]),
            start_us=pick.choice([None, times[0]]),
            end_us=pick.choice([None, times[1]]),
        )

    def of(self, segment_id: int) -> list[Told]:
        """The events of a segment, including dead ones."""
        return [each for each in self.told if each.segment_id == segment_id]

    @property
    def alive(self) -> list[Told]:
        """The events that are not dead."""
        return [each for each in self.told if each.row.sequence not in self._dead]

    def selected(self, selection: Selection, *, oldest_first: bool = False) -> list[EventRef]:
        """All events that match a selection, in order."""
        found = [self.ref(each) for each in self.alive if is_selected(each.row, selection)]
        return sorted(found, reverse=not oldest_first)

    def ref(self, told: Told) -> EventRef:
        """The expected location of an event."""
        return told.ref(self.offsets.get(told.row.sequence, NO_OFFSET))

    def counts(self, selection: Selection) -> Counts:
        """The numbers of matching events."""
        context = [each for each in self.alive if is_selected(each.row, selection, anytime=True)]
        return Counts(len(self.alive), len(context), len(self.selected(selection)))

    def summary(self, selection: Selection) -> Summary:
        """The summary of the events of a selection."""
        rows = [each.row for each in self.alive if is_selected(each.row, selection)]
        times = [row.time_us for row in rows]
        return Summary(
            count=len(rows),
            earliest_us=min(times, default=None),
            latest_us=max(times, default=None),
            per_type=dict(Counter(row.event_type for row in rows)),
            per_day=dict(Counter(time // DAY_US for time in times)),
        )

    def with_id(self, event_id: str) -> list[EventRef]:
        """The events with an id."""
        return sorted(self.ref(each) for each in self.alive if each.event_id == event_id)

    def with_key(self, key: EventKey) -> list[EventRef]:
        """The events with a key."""
        return sorted(
            self.ref(each) for each in self.alive if (each.row.scope.user, each.row.time_us, each.row.key_hash) == key
        )

    def _told(self, segment_id: int) -> Told:
        pick = self.random
        self._last_sequence += 1
        event_id = pick.choice(self.told).event_id if self.told and pick.random() < 0.05 else f"e{self._last_sequence}"
        row = EventRow(
            sequence=self._last_sequence,
            time_us=self._time(),
            id_hash=id_hash(event_id),
            key_hash=pick.choice([1 << 32, 2 << 32, 2**63 + 1, 2**64 - 1]),
            scope=Scope(
                user=pick.choice(USERS), persona=pick.choice(["", "p1", "p2"]), project=pick.choice(["", "x", "y"])
            ),
            event_type=pick.choice(TYPES),
            importance=pick.choice([None, 0.0, 0.25, 0.3, 0.7, 1.0]),
        )
        self.told.append(Told(row, segment_id, event_id))
        return self.told[-1]

    def _time(self) -> int:
        # Few distinct times, so that many events share one. Some are before 1970, some years away.
        return self.random.choice([-DAY_US - 1, -1, 0, 400 * DAY_US]) + self.random.randrange(8) * (DAY_US // 3)

    def _replace(self, segment_ids: list[int]) -> None:
        segment_id = segment_ids[0]
        kept = [each for each in self.alive if each.segment_id in segment_ids]
        self.told = [each for each in self.told if each.segment_id not in segment_ids]
        self.sealed_segments = [each for each in self.sealed_segments if each not in segment_ids[1:]]
        self.offsets |= {each.row.sequence: 7 + 100 * place for place, each in enumerate(kept)}
        rows = [each.row._replace(offset=self.offsets[each.row.sequence]) for each in kept]
        self.random.shuffle(rows)
        if rows:
            self.index.swap(segment_ids, SealedBlock.from_rows(segment_id, rows, self.index.interners))
            self.told += [Told(each.row, segment_id, each.event_id) for each in kept]
        else:
            self.index.swap(segment_ids, None)
            self.sealed_segments.remove(segment_id)
