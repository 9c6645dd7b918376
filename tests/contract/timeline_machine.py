"""Random programs over a timeline and a plain list: both must agree at every step."""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta, tzinfo
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import cast
from zoneinfo import ZoneInfo

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test
from mnemon_server.domain.changes import ChangeType
from mnemon_server.domain.clock import EPOCH, to_microseconds
from mnemon_server.domain.conversations import Conversation
from mnemon_server.domain.errors import EventExistsError
from mnemon_server.domain.events import Event, EventPosition, EventReceipt, EventSelection, PruneReason
from mnemon_server.domain.filters import AllOf, AnyOf, Condition, Expression, NoneOf, Operator, matches
from mnemon_server.domain.records import Scope
from mnemon_server.engines.events.event_fields import field_reader
from mnemon_server.engines.promises.vault import Vault
from mnemon_server.wire.events import decode

from tests.contract.timeline_suite import ALL, pages, told, try_append
from tests.contract.vault_suite import START, ManualClock, key

DAY = timedelta(days=1)
TIMES = [
    START,
    START - timedelta(microseconds=1),
    START + timedelta(microseconds=1),
    START - DAY,
    START + DAY,
    EPOCH,
    EPOCH - timedelta(microseconds=1),
    datetime(1066, 10, 14, tzinfo=UTC),
]
ZONES = [UTC, UTC, *map(ZoneInfo, ("Europe/Berlin", "Pacific/Kiritimati", "Pacific/Niue", "Asia/Kathmandu"))]
IDS = ["a", "b", "B", "é", "\uffff", "\U0001f44b", *(f"e{i}" for i in range(20))]
TYPES = ["conversation", "task", "émotion"]
IMPORTANCES = [None, 0.0, 0.3, 0.6, 1.0]

scopes = st.builds(Scope, st.sampled_from(["u", "v"]), st.sampled_from(["", "h"]), st.sampled_from(["", "p", "q"]))
events = st.builds(
    Event,
    event_id=st.sampled_from(IDS),
    event_type=st.sampled_from(TYPES),
    event_time=st.sampled_from(TIMES),
    content=st.sampled_from(["", "one", "two", "three"]),
    scope=scopes,
    importance=st.sampled_from(IMPORTANCES),
    metadata=st.dictionaries(st.sampled_from(["k", "n"]), st.sampled_from([1, 1.0, "1", True, ("1",), START])),
    record_time=st.just(START),
    conversation=st.sampled_from(["", "", "c", "d"]),
)
conditions = st.one_of(
    st.builds(Condition, st.just("metadata.n"), st.sampled_from([Operator.EQ, Operator.NE]), st.just((1,))),
    st.builds(Condition, st.just("content"), st.just(Operator.CONTAINS), st.sampled_from([("o",), ("three",)])),
    st.builds(
        Condition, st.just("importance"), st.sampled_from([Operator.EXISTS]), st.sampled_from([(True,), (False,)])
    ),
    st.builds(Condition, st.just("event_time"), st.just(Operator.GT), st.sampled_from([(time,) for time in TIMES])),
)
expressions: st.SearchStrategy[Expression] = st.recursive(
    conditions,
    lambda parts: st.one_of(
        st.lists(parts, max_size=2).map(tuple).map(AllOf),
        st.lists(parts, max_size=2).map(tuple).map(AnyOf),
        st.lists(parts, max_size=2).map(tuple).map(NoneOf),
    ),
    max_leaves=3,
)
selections = st.builds(
    EventSelection,
    scope=st.builds(Scope, st.sampled_from(["", "u", "v"]), st.sampled_from(["", "h"]), st.sampled_from(["", "p"])),
    event_types=st.frozensets(st.sampled_from(TYPES), max_size=2),
    min_importance=st.sampled_from([None, None, 0.0, 0.3, 0.7]),
    conversation=st.sampled_from(["", "", "c", "d"]),
    start=st.sampled_from([None, None, *TIMES]),
    end=st.sampled_from([None, None, *TIMES]),
    expression=st.none() | expressions,
)


@dataclass(frozen=True)
class Known:
    """An event that the timeline must hold."""

    sequence: int
    event: Event

    @property
    def position(self) -> EventPosition:
        return EventPosition(to_microseconds(self.event.event_time), self.event.event_id)

    def is_same(self, other: Event) -> bool:
        mine, theirs = (
            (one.scope.user, one.scope.household, one.scope.persona, one.event_type, one.event_time, one.content)
            for one in (self.event, other)
        )
        return mine == theirs and not self.event.conversation and not other.conversation

    def matches(self, where: EventSelection) -> bool:
        event = self.event
        wanted = where.scope
        return (
            wanted.user in ("", event.scope.user)
            and wanted.household in ("", event.scope.household)
            and wanted.persona in ("", event.scope.persona)
            and (event.event_type in where.event_types or not where.event_types)
            and (
                where.min_importance is None
                or (event.importance is not None and event.importance >= where.min_importance)
            )
            and where.conversation in ("", event.conversation)
            and (where.start or event.event_time) <= event.event_time <= (where.end or event.event_time)
            and (where.expression is None or matches(where.expression, field_reader(event)))
        )


class TimelineMachine(RuleBasedStateMachine):
    """Appends, prunes, reads and reopens at random."""

    def __init__(self, open_vault: Callable[[Path, ManualClock], Vault], *, durable: bool) -> None:
        super().__init__()
        self.open_vault, self.durable = open_vault, durable
        self.folder = TemporaryDirectory()
        self.clock = ManualClock()
        self.known: list[Known] = []
        self.answers: dict[str, tuple[str, int]] = {}
        self.sequence = 0
        self.saved: list[str] = []
        self.vault = self.opened()

    def opened(self) -> Vault:
        vault = self.open_vault(Path(self.folder.name) / "vault", self.clock)
        assert vault.events.wait_until_warm(60)
        return vault

    def teardown(self) -> None:
        self.vault.close()
        self.folder.cleanup()

    @rule(given=st.lists(st.tuples(events, st.sampled_from([None, None, None, "r", "q", "s"])), min_size=1, max_size=6))
    def append(self, given: list[tuple[Event, str | None]]) -> None:
        self.clock.now += timedelta(seconds=1)
        keys = [None if request is None else key(request) for _, request in given]
        receipts = try_append(self.vault.events, [event for event, _ in given], keys)
        for (event, request), receipt in zip(given, receipts, strict=True):
            if isinstance(receipt, EventReceipt):
                assert receipt[:2] == self.expected(event, request)
            else:
                assert self.is_taken(event, request) and isinstance(receipt, EventExistsError)

    def is_taken(self, event: Event, request: str | None) -> bool:
        """Whether an event of another user has the id."""
        users = (one.event.scope.user for one in self.known if one.event.event_id == event.event_id)
        return request not in self.answers and any(user != event.scope.user for user in users)

    def expected(self, event: Event, request: str | None) -> tuple[str, int]:
        """The id and sequence that the receipt must have."""
        if request and request in self.answers:
            return self.answers[request]
        assert not self.is_taken(event, request)
        same_id = [one for one in self.known if one.event.event_id == event.event_id]
        found = same_id or [one for one in self.known if one.is_same(event)]
        if not found:
            self.sequence += 1
            found = [Known(self.sequence, event)]
            self.known += found
            self.saved.append(event.event_id)
        answer = found[0].event.event_id, found[0].sequence
        if request:
            self.answers[request] = answer
        return answer

    @rule(where=selections, reason=st.sampled_from(PruneReason), share=st.integers(1, 3))
    def prune(self, where: EventSelection, reason: PruneReason, share: int) -> None:
        stored = self.vault.events.window(where, limit=1_000).events[::share]
        gone = {one.sequence for one in stored}
        head = self.vault.changes.state().head
        assert self.vault.events.prune(stored, reason).result() == len(gone)
        self.known = [one for one in self.known if one.sequence not in gone]
        named = sum(event.details.count("[") - 1 for event in told(self.vault, ChangeType.EPISODIC_PRUNED, after=head))
        assert named == len(gone)

    @rule(where=selections, limit=st.integers(1, 8), zone=st.sampled_from(ZONES))
    def read(self, where: EventSelection, limit: int, zone: tzinfo) -> None:
        timeline = self.vault.events
        wanted = sorted((one for one in self.known if one.matches(where)), key=lambda one: one.position)
        found = [one for page in pages(timeline, where, limit) for one in page]
        assert [(one.sequence, one.position) for one in found] == [(one.sequence, one.position) for one in wanted[::-1]]
        assert [decode(one.body) for one in found] == [one.event for one in wanted[::-1]]
        assert timeline.count(where) == len(wanted)
        assert timeline.sequences(where).tolist() == sorted(one.sequence for one in wanted)
        self.check_conversations(where)
        summary = timeline.summarize(where, zone)
        times = [one.event.event_time for one in wanted]
        assert (summary.event_count, dict(summary.types)) == (
            len(wanted),
            Counter(one.event.event_type for one in wanted),
        )
        assert (summary.earliest, summary.latest) == (min(times, default=None), max(times, default=None))
        assert dict(summary.days) == Counter((time.astimezone(zone).date() - EPOCH.date()).days for time in times)

    def check_conversations(self, where: EventSelection) -> None:
        where = replace(where, expression=None)
        wanted: dict[tuple[Scope, str], list[Known]] = {}
        for one in self.known:
            if one.event.conversation and one.matches(where):
                wanted.setdefault((one.event.scope, one.event.conversation), []).append(one)
        assert sorted(self.vault.events.conversations(where)) == sorted(
            Conversation(
                conversation,
                scope,
                len(known),
                min(one.event.event_time for one in known),
                max(one.event.event_time for one in known),
                min(one.sequence for one in known),
                max(one.sequence for one in known),
            )
            for (scope, conversation), known in wanted.items()
        )

    @rule(before=st.sampled_from(TIMES), limit=st.integers(1, 9))
    def expire(self, before: datetime, limit: int) -> None:
        found = self.vault.events.expired(before, limit=limit)
        wanted = [one.sequence for one in self.known if one.event.event_time < before]
        assert (found.count, [one.sequence for one in found.oldest]) == (len(wanted), wanted[:limit])

    @rule()
    def compact(self) -> None:
        assert self.vault.events.compact(lambda _: None).done

    @rule()
    def reopen(self) -> None:
        if self.durable:
            self.vault.close()
            self.vault = self.opened()

    @invariant()
    def everything_is_there_once(self) -> None:
        by_id = {one.event.event_id: one.sequence for one in self.known}
        found = self.vault.events.get(IDS)
        assert [one and one.sequence for one in found] == [by_id.get(event_id) for event_id in IDS]
        assert self.vault.events.window(ALL, limit=1).total == len(self.known)
        saved = told(self.vault, ChangeType.EPISODIC_SAVED)
        assert [event.record_id for event in saved] == self.saved


def run_machine(open_vault: Callable[[Path, ManualClock], Vault], *, durable: bool, examples: int) -> None:
    """Runs this many programs."""
    run_state_machine_as_test(  # the annotation asks for a class, but any callable that makes machines works
        cast("type[TimelineMachine]", lambda: TimelineMachine(open_vault, durable=durable)),
        settings=settings(max_examples=examples, stateful_step_count=25, derandomize=True, deadline=None),
    )
