"""A server that is killed at random moments while memories change, and the check of its memories and of its change log.

python -m tests.support.memory_crashing --rounds 200
"""

import random
from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import grpc
from mnemon.v1 import changes_pb2, changes_pb2_grpc, common_pb2, memory_pb2, memory_pb2_grpc
from mnemon.v1.memory_pb2 import DecayPolicy

from tests.support.kill_trials import KillTrial, all_changes, pages, run_trial
from tests.support.killable import insist_on

WORKERS = 8
MEMORIES_PER_WORKER = 10

Change = tuple[str, int, str]
"""Type, revision and request id of a change."""


@dataclass
class Expected:
    """The expected state of a memory."""

    content: str
    revision: int
    deleted: bool = False
    topic: str = ""


@dataclass
class Worker:
    """One client with its own memories. It retries each write under its request id until it is acknowledged."""

    name: str
    rng: random.Random
    memories: dict[str, Expected] = field(default_factory=dict)
    history: dict[str, list[Change]] = field(default_factory=lambda: defaultdict(list))
    writes: int = 0

    def write(self, stubs: "Stubs") -> None:
        """One change, chosen at random."""
        stub = stubs.memories
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
        request = memory_pb2.UpdateMemoryRequest(memory={"memory_id": memory_id}, request_id=request_id)
        if self.rng.random() < 0.5:
            known.content = f"{request_id.replace('-', 'n')} is remembered otherwise"
            request.memory.content = known.content
            request.update_mask.paths.append("content")
        else:
            known.topic = request_id
            request.set_metadata["topic"].string_value = request_id
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
        condition.field, condition.comparator = "memory_id", common_pb2.COMPARATOR_EQ
        condition.values.add(string_value=memory_id)
        answer = insist_on(lambda: stub.PurgeMemories(request, timeout=5))
        assert answer.purged_count == 1, answer
        del self.memories[memory_id]
        self._note(memory_id, "MEMORY_PURGED", known.revision, request_id)

    def _changed(self, memory_id: str, known: Expected, kind: str, revision: int, request_id: str) -> None:
        assert revision == known.revision + 1, f"{kind} of {memory_id} was applied {revision - known.revision} times"
        known.revision = revision
        self._note(memory_id, kind, revision, request_id)

    def _note(self, memory_id: str, kind: str, revision: int, request_id: str) -> None:
        self.history[memory_id].append((kind, revision, request_id))


class Stubs:
    """The services that a client calls."""

    def __init__(self, channel: grpc.Channel) -> None:
        self.memories = memory_pb2_grpc.MemoryServiceStub(channel)
        self.changes = changes_pb2_grpc.ChangeServiceStub(channel)


class MemoryTrial(KillTrial):
    """One server, the workers that write to it, and what it acknowledged."""

    def __init__(self, folder: Path, seed: int) -> None:
        self.workers = [Worker(f"w{number}", random.Random(seed * 1000 + number)) for number in range(WORKERS)]
        super().__init__(folder, seed, self.workers, "--knowledge-store-backend", "local")

    @property
    def acknowledged(self) -> int:
        """How many writes were acknowledged."""
        return sum(worker.writes for worker in self.workers)

    def stubs(self, channel: grpc.Channel) -> Stubs:
        return Stubs(channel)

    def check(self, stubs: Stubs) -> str:
        self.check_memories(stubs.memories)
        self.check_changes(stubs.changes)
        return f"{self.acknowledged} writes: each memory as acknowledged, one change for each change, none without"

    def check_memories(self, stub: memory_pb2_grpc.MemoryServiceStub) -> None:
        """Every memory is in the last acknowledged state, none is duplicated, and each is found by its word."""
        stored = {
            memory.memory_id: Expected(
                memory.content, memory.revision, memory.HasField("delete_time"), memory.metadata["topic"].string_value
            )
            for memory in pages(
                stub.ListMemories, memory_pb2.ListMemoriesRequest(show_deleted=True, page_size=50), "memories"
            )
        }
        expected = {memory_id: known for worker in self.workers for memory_id, known in worker.memories.items()}
        assert stored == expected
        for memory_id, known in expected.items():
            request = memory_pb2.SearchMemoriesRequest(
                query=known.content.split()[0], mode=common_pb2.SEARCH_MODE_KEYWORD
            )
            found = [match.memory.memory_id for match in stub.SearchMemories(request, timeout=60).results]
            assert found == ([] if known.deleted else [memory_id]), (known, found)

    def check_changes(self, stub: changes_pb2_grpc.ChangeServiceStub) -> None:
        """The log holds each acknowledged change once, the changes of each record in order, and nothing else."""
        logged: dict[str, list[Change]] = defaultdict(list)
        last = 0
        for change in all_changes(stub):
            assert change.sequence > last
            last = change.sequence
            kind = changes_pb2.ChangeType.Name(change.type).removeprefix("CHANGE_TYPE_")
            logged[change.record_id].append((kind, change.revision, change.request_id))
        assert logged == {record: changes for worker in self.workers for record, changes in worker.history.items()}


if __name__ == "__main__":
    run_trial(__doc__, MemoryTrial)
