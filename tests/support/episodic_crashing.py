"""A server that is killed at random moments while events are recorded and pruned, and the check of timeline and feed.

python -m tests.support.episodic_crashing --rounds 200
"""

import random
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

import grpc
from mnemon.v1 import (
    bridge_pb2,
    bridge_pb2_grpc,
    changes_pb2,
    changes_pb2_grpc,
    common_pb2,
    episodic_pb2,
    episodic_pb2_grpc,
    semantic_pb2,
    semantic_pb2_grpc,
)

from tests.support.kill_trials import KillTrial, all_changes, pages, run_trial
from tests.support.killable import PASSING, insist_on
from tests.support.timeline_messages import bulk

WORKERS = 6
RETENTION_DAYS = 90
FLAGS = (
    "--knowledge-store-backend",
    "local",
    "--semantic-write-latency-target-ms",
    "60000",
    "--timeline-segment-max-events",
    "40",
    "--timeline-retention-days",
    str(RETENTION_DAYS),
)
ROUTED_TYPES = ("task", "reminder", "conversation")
DAY_S = 86_400
SETTLE_S = 120.0


REQUESTED, RETENTION = episodic_pb2.PRUNE_REASON_REQUESTED, episodic_pb2.PRUNE_REASON_RETENTION


class Stubs:
    """The services that a client calls."""

    def __init__(self, channel: grpc.Channel) -> None:
        self.episodic = episodic_pb2_grpc.EpisodicMemoryServiceStub(channel)
        self.bridge = bridge_pb2_grpc.BridgeServiceStub(channel)
        self.semantic = semantic_pb2_grpc.SemanticMemoryServiceStub(channel)
        self.changes = changes_pb2_grpc.ChangeServiceStub(channel)


@dataclass
class Worker:
    """One client with its own user. It retries each call unchanged until it is answered."""

    name: str
    rng: random.Random
    start_s: int
    kept: dict[str, episodic_pb2.EpisodicEvent] = field(default_factory=dict)
    expired: dict[str, episodic_pb2.EpisodicEvent] = field(default_factory=dict)
    pruned: dict[str, episodic_pb2.EpisodicEvent] = field(default_factory=dict)
    writes: int = 0

    @property
    def recorded(self) -> set[str]:
        """The ids of all acknowledged events."""
        return {*self.kept, *self.expired, *self.pruned}

    def write(self, stubs: Stubs) -> None:
        """One call, chosen at random."""
        chance = self.rng.random()
        if chance < 0.55 or not self.kept:
            self._record(stubs)
        elif chance < 0.75:
            self._record_many(stubs)
        elif chance < 0.85:
            self._repeat(stubs)
        elif chance < 0.97:
            self._prune(stubs)
        else:
            self._compact(stubs)

    def _record(self, stubs: Stubs) -> None:
        event = self._new_event()
        request = episodic_pb2.RecordEventRequest(event=event, request_id=f"{event.event_id}-request")
        receipt = insist_on(lambda: stubs.episodic.RecordEvent(request, timeout=5)).receipt
        assert receipt.event_id == event.event_id, receipt
        assert not receipt.duplicate or receipt.replayed, receipt
        self._note(event)

    def _record_many(self, stubs: Stubs) -> None:
        events = [self._new_event() for _ in range(self.rng.randint(2, 30))]
        [answer] = insist_on(lambda: list(stubs.episodic.BulkRecordEvents(iter([bulk(events)]), timeout=5)))
        assert [result.receipt.event_id for result in answer.results] == [event.event_id for event in events], answer
        for event in events:
            self._note(event)

    def _repeat(self, stubs: Stubs) -> None:
        """A recorded event is a duplicate when recorded again, by id or by content."""
        event = episodic_pb2.EpisodicEvent()
        event.CopyFrom(self.rng.choice(list(self.kept.values())))
        known = event.event_id
        if self.rng.random() < 0.5:
            event.event_id = f"{known}-again"
        request = episodic_pb2.RecordEventRequest(event=event)
        receipt = insist_on(lambda: stubs.episodic.RecordEvent(request, timeout=5)).receipt
        assert (receipt.event_id, receipt.duplicate) == (known, True), receipt

    def _prune(self, stubs: Stubs) -> None:
        chosen = self.rng.sample(sorted(self.kept), min(len(self.kept), self.rng.randint(1, 12)))
        request_id = f"{self.name}-prune-{self.writes}"
        self.writes += 1
        request = episodic_pb2.PruneEventsRequest(event_ids=chosen, request_id=request_id)
        answer = insist_on(lambda: stubs.episodic.PruneEvents(request, timeout=5))
        assert answer.pruned_count == len(chosen), answer
        for event_id in chosen:
            self.pruned[event_id] = self.kept.pop(event_id)

    def _compact(self, stubs: Stubs) -> None:
        """May be interrupted, because it can take longer than the server runs."""
        try:
            steps = list(stubs.episodic.CompactTimeline(episodic_pb2.CompactTimelineRequest(), timeout=5))
        except grpc.RpcError as error:
            if error.code() not in PASSING:
                raise
        else:
            assert steps[-1].done, steps

    def _new_event(self) -> episodic_pb2.EpisodicEvent:
        """An event with its own content. It seldom has already expired."""
        self.writes += 1
        event = episodic_pb2.EpisodicEvent(
            event_id=f"{self.name}-{self.writes}",
            event_type=self.rng.choice([*ROUTED_TYPES, "emotion"]),
            content=f"{self.name}n{self.writes} happened",
            importance=self.rng.choice([0.2, 0.7, 0.9]),
        )
        event.scope.user, event.scope.persona = self.name, "p"
        days = 2 * RETENTION_DAYS if self.rng.random() < 0.1 else 0
        # Out of order, and sometimes with equal times.
        event.event_time.FromSeconds(self.start_s - days * DAY_S - self.rng.randrange(5_000))
        return event

    def _note(self, event: episodic_pb2.EpisodicEvent) -> None:
        is_expired = event.event_time.seconds < self.start_s - RETENTION_DAYS * DAY_S
        (self.expired if is_expired else self.kept)[event.event_id] = event


class EpisodicTrial(KillTrial):
    """One server, the workers that write to it, and what it acknowledged."""

    def __init__(self, folder: Path, seed: int) -> None:
        now = int(time.time())
        self.workers = [Worker(f"w{number}", random.Random(seed * 1000 + number), now) for number in range(WORKERS)]
        super().__init__(folder, seed, self.workers, *FLAGS)

    @property
    def acknowledged(self) -> int:
        """How many events were acknowledged."""
        return sum(len(worker.recorded) for worker in self.workers)

    def stubs(self, channel: grpc.Channel) -> Stubs:
        return Stubs(channel)

    def check(self, stubs: Stubs) -> str:
        """Expired events were searched for when the server started."""
        self._settle(stubs)
        self.check_timeline(stubs)
        self.check_feed(stubs)
        self.check_statements(stubs)
        return (
            f"{self.acknowledged} events: each there once, in order, or pruned once; statements agree with the timeline"
        )

    def _settle(self, stubs: Stubs) -> None:
        """Waits until retention, removals and the bridge have finished."""
        kept = sum(len(worker.kept) for worker in self.workers)
        deadline = time.monotonic() + SETTLE_S
        while True:
            status = stubs.episodic.GetTimelineStatus(episodic_pb2.GetTimelineStatusRequest(), timeout=60)
            bridge = stubs.bridge.GetBridgeStatus(bridge_pb2.GetBridgeStatusRequest(), timeout=60)
            if (status.event_count, status.removal_pending_count, bridge.queue_depth) == (kept, 0, 0):
                return
            assert time.monotonic() < deadline, f"expected {kept} events to be kept: {status} {bridge}"
            time.sleep(0.05)

    def check_timeline(self, stubs: Stubs) -> None:
        """Every expected event is stored once, as it was sent, newest first. No event was lost or damaged."""
        for worker in self.workers:
            request = episodic_pb2.ListRecentEventsRequest(page_size=37)
            request.filter.scope.user = worker.name
            listed = list(pages(stubs.episodic.ListRecentEvents, request, "events"))
            for event in listed:
                event.ClearField("record_time")
            expected = sorted(
                worker.kept.values(), key=lambda event: (event.event_time.seconds, event.event_id), reverse=True
            )
            assert listed == expected, (len(listed), len(expected))
        status = stubs.episodic.GetTimelineStatus(episodic_pb2.GetTimelineStatusRequest(), timeout=60)
        assert not status.lost, status
        assert status.state == common_pb2.STATE_READY, status

    def check_feed(self, stubs: Stubs) -> None:
        """The feed has each recorded event once, each removal once with its reason, and no warning."""
        saved: Counter[str] = Counter()
        removed: dict[int, Counter[str]] = {REQUESTED: Counter(), RETENTION: Counter()}
        for event in all_changes(stubs.changes):
            kind = changes_pb2.ChangeType.Name(event.type).removeprefix("CHANGE_TYPE_")
            assert kind not in ("EPISODIC_WARNING", "BRIDGE_SUSPENDED"), event
            if kind == "EPISODIC_SAVED":
                saved[event.record_id] += 1
            elif kind == "EPISODIC_PRUNED":
                removed[event.episodic_pruned.reason].update(one.event_id for one in event.episodic_pruned.events)
        lasting = Counter(event_id for worker in self.workers for event_id in (*worker.kept, *worker.pruned))
        expired = {event_id for worker in self.workers for event_id in worker.expired}
        assert Counter({key: saved[key] for key in saved if key not in expired}) == lasting
        assert removed[REQUESTED] == Counter(event_id for worker in self.workers for event_id in worker.pruned)
        # An event that was pruned before its answer arrived was sent, stored and pruned again.
        assert removed[RETENTION] == Counter({event_id: saved[event_id] for event_id in expired})
        assert all(saved[event_id] for event_id in expired)

    def check_statements(self, stubs: Stubs) -> None:
        """The statements are what the policy makes of the stored events: one for each, and no others."""
        for worker in self.workers:
            request = semantic_pb2.ListSemanticMemoriesRequest(page_size=100)
            request.filter.scope.user = worker.name
            known = Counter(
                (memory.content, tuple(memory.metadata["episodic_event_ids"].string_list_value.values))
                for memory in pages(stubs.semantic.ListSemanticMemories, request, "memories")
            )
            expected = Counter(
                (event.content, (event.event_id,)) for event in worker.kept.values() if _is_routed(event)
            )
            assert known == expected


def _is_routed(event: episodic_pb2.EpisodicEvent) -> bool:
    return event.event_type in ROUTED_TYPES and event.importance >= 0.6


if __name__ == "__main__":
    run_trial(__doc__, EpisodicTrial)
