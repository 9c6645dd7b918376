"""A server that is killed at random moments while memories change, and the check of its memories and of its event log.

python -m tests.support.memory_crashing --rounds 200
"""

import argparse
import random
import sys
import tempfile
import threading
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import grpc
from mnemon.v1 import common_pb2, events_pb2, events_pb2_grpc, memory_pb2, memory_pb2_grpc
from mnemon.v1.memory_pb2 import DecayPolicy

from tests.support.killable import KillableServer, insist_on

WORKERS = 8
MEMORIES_PER_WORKER = 10
CHANNEL_OPTIONS = [("grpc.initial_reconnect_backoff_ms", 20), ("grpc.max_reconnect_backoff_ms", 200)]

Change = tuple[str, int, str]
"""Type, revision and request id of an event."""


@dataclass
class Expected:
    """What a memory must be now."""

    content: str
    revision: int
    deleted: bool = False
    topic: str = ""


@dataclass
class Worker:
    """One client with memories of its own; each write is sent again, under its request id, until it is acknowledged."""

    name: str
    rng: random.Random
    memories: dict[str, Expected] = field(default_factory=dict)
    history: dict[str, list[Change]] = field(default_factory=lambda: defaultdict(list))
    writes: int = 0

    def write(self, stub: memory_pb2_grpc.MemoryServiceStub) -> None:
        """One change, chosen at random."""
        self.writes += 1
        request_id = f"{self.name}-{self.writes}"
        if (len(self.memories) < MEMORIES_PER_WORKER and self.rng.random() < 0.5) or not self.memories:
            self._create(stub, request_id)
            return
        memory_id = self.rng.choice(sorted(self.memories))
        known = self.memories[memory_id]
        change = self._undelete if known.deleted else self.rng.choice([self._update, self._reinforce, self._delete])
        if known.deleted and self.rng.random() < 0.5:
            change = self._purge
        change(stub, memory_id, known, request_id)

    def _create(self, stub: Any, request_id: str) -> None:
        content = f"{request_id.replace('-', 'n')} is remembered"
        memory = memory_pb2.Memory(content=content, type=self.name, decay_policy=DecayPolicy.DECAY_POLICY_REINFORCEABLE)
        request = memory_pb2.CreateMemoryRequest(memory=memory, request_id=request_id)
        answer = insist_on(lambda: stub.CreateMemory(request, timeout=5))
        assert answer.receipt.revision == 1
        self.memories[answer.memory.memory_id] = Expected(content, 1)
        self._note(answer.memory.memory_id, "MEMORY_CREATED", 1, request_id)

    def _update(self, stub: Any, memory_id: str, known: Expected, request_id: str) -> None:
        memory = memory_pb2.Memory(memory_id=memory_id)
        if self.rng.random() < 0.5:
            known.content = f"{request_id.replace('-', 'n')} is remembered otherwise"
            memory.content = known.content
            mask = ["content"]
        else:
            known.topic = request_id
            memory.metadata["topic"].string_value = request_id
            mask = ["metadata.topic"]
        request = memory_pb2.UpdateMemoryRequest(memory=memory, request_id=request_id)
        request.update_mask.paths.extend(mask)
        answer = insist_on(lambda: stub.UpdateMemory(request, timeout=5))
        self._changed(memory_id, known, "MEMORY_UPDATED", answer.receipt.revision, request_id)

    def _reinforce(self, stub: Any, memory_id: str, known: Expected, request_id: str) -> None:
        request = memory_pb2.ReinforceMemoryRequest(memory_id=memory_id, request_id=request_id)
        answer = insist_on(lambda: stub.ReinforceMemory(request, timeout=5))
        self._changed(memory_id, known, "MEMORY_REINFORCED", answer.receipt.revision, request_id)

    def _delete(self, stub: Any, memory_id: str, known: Expected, request_id: str) -> None:
        request = memory_pb2.DeleteMemoryRequest(memory_id=memory_id, request_id=request_id)
        answer = insist_on(lambda: stub.DeleteMemory(request, timeout=5))
        known.deleted = True
        self._changed(memory_id, known, "MEMORY_DELETED", answer.receipt.revision, request_id)

    def _undelete(self, stub: Any, memory_id: str, known: Expected, request_id: str) -> None:
        request = memory_pb2.UndeleteMemoryRequest(memory_id=memory_id, request_id=request_id)
        answer = insist_on(lambda: stub.UndeleteMemory(request, timeout=5))
        known.deleted = False
        self._changed(memory_id, known, "MEMORY_UNDELETED", answer.receipt.revision, request_id)

    def _purge(self, stub: Any, memory_id: str, known: Expected, request_id: str) -> None:
        request = memory_pb2.PurgeMemoriesRequest(only_deleted=True, request_id=request_id)
        condition = request.filter.filter.condition
        condition.field, condition.operator = "memory_id", common_pb2.FILTER_OPERATOR_EQ
        condition.values.add(string_value=memory_id)
        answer = insist_on(lambda: stub.PurgeMemories(request, timeout=5))
        assert answer.purged_count == 1, answer
        del self.memories[memory_id]
        self._note(memory_id, "MEMORY_PURGED", known.revision, request_id)

    def _changed(self, memory_id: str, known: Expected, kind: str, revision: int, request_id: str) -> None:
        assert revision == known.revision + 1, f"{kind} of {memory_id} was done {revision - known.revision} times"
        known.revision = revision
        self._note(memory_id, kind, revision, request_id)

    def _note(self, memory_id: str, kind: str, revision: int, request_id: str) -> None:
        self.history[memory_id].append((kind, revision, request_id))


class MemoryTrial:
    """One server, the workers that write to it, and what it acknowledged."""

    def __init__(self, folder: Path, seed: int) -> None:
        self.server = KillableServer(folder, "--knowledge-store-backend", "local")
        self.workers = [Worker(f"w{number}", random.Random(seed * 1000 + number)) for number in range(WORKERS)]
        self.errors: list[str] = []
        self._rng = random.Random(seed)
        self._stop = threading.Event()

    @property
    def writes(self) -> int:
        """How many were acknowledged."""
        return sum(worker.writes for worker in self.workers)

    def run(self, rounds: int, report: Callable[[str], None]) -> None:
        """Kills `rounds` times; raises AssertionError where records and events are not what was acknowledged."""
        self.server.start()
        threads = [threading.Thread(target=self._work, args=(worker,)) for worker in self.workers]
        for thread in threads:
            thread.start()
        try:
            for number in range(rounds):
                # Lets the load run for a random time: what is interrupted is left to chance.
                self._stop.wait(self._rng.uniform(0.02, 0.6))
                self.server.kill()
                self.server.start()
                assert not self.errors, self.errors
                report(f"round {number + 1} of {rounds}: {self.writes} writes acknowledged")
        finally:
            self._stop.set()
            for thread in threads:
                thread.join()
        assert not self.errors, self.errors
        with grpc.insecure_channel(self.server.address) as channel:
            self.check_memories(memory_pb2_grpc.MemoryServiceStub(channel))
            self.check_events(events_pb2_grpc.EventServiceStub(channel))
        report(f"{self.writes} writes: each memory as acknowledged, one event for each change, none without")

    def check_memories(self, stub: memory_pb2_grpc.MemoryServiceStub) -> None:
        """Every memory is what was acknowledged last, none is there twice, and each is found by its word."""
        stored = {
            memory.memory_id: Expected(
                memory.content, memory.revision, memory.HasField("delete_time"), memory.metadata["topic"].string_value
            )
            for memory in _all_memories(stub)
        }
        expected = {memory_id: known for worker in self.workers for memory_id, known in worker.memories.items()}
        assert stored == expected
        for memory_id, known in expected.items():
            request = memory_pb2.SearchMemoriesRequest(
                query=known.content.split()[0], mode=common_pb2.SEARCH_MODE_KEYWORD
            )
            found = [match.memory.memory_id for match in stub.SearchMemories(request, timeout=10).results]
            assert found == ([] if known.deleted else [memory_id]), (known, found)

    def check_events(self, stub: events_pb2_grpc.EventServiceStub) -> None:
        """The log holds each acknowledged change once, those of a record in their order, and nothing else."""
        logged: dict[str, list[Change]] = defaultdict(list)
        last = 0
        for event in _all_events(stub):
            assert event.sequence > last
            last = event.sequence
            kind = events_pb2.EventType.Name(event.type).removeprefix("EVENT_TYPE_")
            logged[event.record_id].append((kind, event.revision, event.request_id))
        assert logged == {record: changes for worker in self.workers for record, changes in worker.history.items()}

    def _work(self, worker: Worker) -> None:
        with grpc.insecure_channel(self.server.address, CHANNEL_OPTIONS) as channel:
            stub = memory_pb2_grpc.MemoryServiceStub(channel)
            while not self._stop.is_set():
                try:
                    worker.write(stub)
                except (AssertionError, grpc.RpcError) as error:
                    self.errors.append(f"{worker.name}: {error!r}")
                    return


def _all_memories(stub: memory_pb2_grpc.MemoryServiceStub) -> Iterator[Any]:
    request = memory_pb2.ListMemoriesRequest(show_deleted=True, page_size=50)
    while True:
        page = stub.ListMemories(request, timeout=10)
        yield from page.memories
        if not page.next_page_token:
            return
        request.page_token = page.next_page_token


def _all_events(stub: events_pb2_grpc.EventServiceStub) -> Iterator[Any]:
    request = events_pb2.ListEventsRequest(page_size=1000)
    while True:
        page = stub.ListEvents(request, timeout=10)
        yield from page.events
        if page.caught_up:
            return
        request.cursor = page.cursor


def main() -> None:
    """Runs a long trial, and says what came of it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        trial = MemoryTrial(Path(folder), arguments.seed)
        try:
            trial.run(arguments.rounds, lambda line: print(line, flush=True))  # noqa: T201
        except BaseException:
            trial.server.kill()
            sys.stderr.write(trial.server.log()[-8000:])
            raise
        trial.server.terminate()


if __name__ == "__main__":
    main()
