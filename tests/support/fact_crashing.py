"""A server that is killed at random moments while facts change, and the check of its facts and of its change log.

python -m tests.support.fact_crashing --rounds 200
"""

import random
from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import grpc
from mnemon.v1 import changes_pb2, changes_pb2_grpc, common_pb2, facts_pb2, facts_pb2_grpc

from tests.support.kill_trials import KillTrial, all_changes, pages, run_trial
from tests.support.killable import insist_on
from tests.support.tool_messages import struct

WORKERS = 6
KEYS = [f"k{number}" for number in range(12)]
VERSIONS_MAX = 10

Name = tuple[str, str, str]
"""Two labels of a namespace, and a key."""
Change = tuple[str, int, str]
"""Type, revision and request id of a change."""


@dataclass(frozen=True)
class Expected:
    """The expected state of a fact."""

    content: str
    revision: int
    versions: tuple[str, ...] = ()
    """Contents of earlier versions, newest first."""


@dataclass
class Worker:
    """One client with its own namespaces. It retries each write unchanged until it is acknowledged."""

    name: str
    rng: random.Random
    facts: dict[Name, Expected] = field(default_factory=dict)
    history: dict[Name, list[Change]] = field(default_factory=lambda: defaultdict(list))
    writes: int = 0

    def write(self, stubs: "Stubs") -> None:
        """One call, chosen at random."""
        labels = (self.name, self.rng.choice("ab"))
        chance = self.rng.random()
        if chance < 0.45:
            self._put(stubs.facts, (*labels, self.rng.choice(KEYS)))
        elif chance < 0.7:
            self._put_many(stubs.facts, [(*labels, key) for key in self.rng.sample(KEYS, self.rng.randint(2, 8))])
        elif chance < 0.95:
            self._delete(stubs.facts, (*labels, self.rng.choice(KEYS)))
        else:
            self._delete_namespace(stubs.facts, labels)

    def _put(self, stub: Any, name: Name) -> None:
        request = self._request(name)
        self._stored(name, request, insist_on(lambda: stub.PutFact(request, timeout=5)).receipt)

    def _put_many(self, stub: Any, names: list[Name]) -> None:
        requests = [self._request(name) for name in names]
        message = facts_pb2.BulkPutFactsRequest(requests=requests)
        [answer] = insist_on(lambda: list(stub.BulkPutFacts(iter([message]), timeout=5)))
        for name, request, result in zip(names, requests, answer.results, strict=True):
            self._stored(name, request, result.receipt)

    def _delete(self, stub: Any, name: Name) -> None:
        request = facts_pb2.DeleteFactRequest(namespace=name[:2], key=name[2], request_id=self._request_id())
        request.allow_missing = True
        receipt = insist_on(lambda: stub.DeleteFact(request, timeout=5)).receipt
        known = self.facts.pop(name, None)
        assert receipt.revision == (known.revision if known else 0), (name, known, receipt)
        if known:
            self.history[name].append(("FACT_DELETED", known.revision, request.request_id))

    def _delete_namespace(self, stub: Any, labels: tuple[str, str]) -> None:
        request = facts_pb2.DeleteFactsRequest(request_id=self._request_id())
        request.filter.namespace.extend(labels)
        answer = insist_on(lambda: stub.DeleteFacts(request, timeout=5))
        gone = [name for name in self.facts if name[:2] == labels]
        assert answer.deleted_count == len(gone), (labels, answer, gone)
        for name in gone:
            self.history[name].append(("FACT_DELETED", self.facts.pop(name).revision, request.request_id))

    def _request(self, name: Name) -> facts_pb2.PutFactRequest:
        request_id = self._request_id()
        value = struct({"content": f"{request_id.replace('-', 'n')} is known"})
        fact = facts_pb2.Fact(namespace=name[:2], key=name[2], value=value)
        return facts_pb2.PutFactRequest(fact=fact, request_id=request_id)

    def _request_id(self) -> str:
        self.writes += 1
        return f"{self.name}-{self.writes}"

    def _stored(self, name: Name, request: facts_pb2.PutFactRequest, receipt: common_pb2.WriteReceipt) -> None:
        known = self.facts.get(name)
        revision = known.revision + 1 if known else 1
        assert receipt.revision == revision, f"{name} was at {revision - 1}, and its put told {receipt}"
        earlier = (known.content, *known.versions)[:VERSIONS_MAX] if known else ()
        self.facts[name] = Expected(request.fact.value["content"], revision, earlier)
        self.history[name].append(("FACT_UPDATED" if known else "FACT_CREATED", revision, request.request_id))


class Stubs:
    """The services that a client calls."""

    def __init__(self, channel: grpc.Channel) -> None:
        self.facts = facts_pb2_grpc.FactServiceStub(channel)
        self.changes = changes_pb2_grpc.ChangeServiceStub(channel)


class FactTrial(KillTrial):
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
        for worker in self.workers:
            self.check_facts(stubs.facts, worker)
        self.check_changes(stubs.changes)
        return f"{self.acknowledged} writes: each fact as acknowledged, with its versions; one change for each change"

    def check_facts(self, stub: Any, worker: Worker) -> None:
        """Every fact is in the last acknowledged state, with its history, and is found only by its own word."""
        request = facts_pb2.ListFactsRequest(page_size=7, show_versions=True)
        request.filter.namespace.append(worker.name)
        request.filter.subtree = True
        stored = {_name(fact): _as_expected(fact) for fact in pages(stub.ListFacts, request, "facts")}
        assert stored == worker.facts
        for name, known in worker.facts.items():
            query = facts_pb2.SearchFactsRequest(filter=request.filter, mode=common_pb2.SEARCH_MODE_KEYWORD)
            for content in (known.content, *known.versions[:1]):
                query.query = content.split()[0]
                found = [_name(match.fact) for match in stub.SearchFacts(query, timeout=60).results]
                assert found == ([name] if content == known.content else []), (name, known, content, found)

    def check_changes(self, stub: changes_pb2_grpc.ChangeServiceStub) -> None:
        """The log holds each acknowledged change once, the changes of each fact in order, and nothing else."""
        logged: dict[Name, list[Change]] = defaultdict(list)
        for change in all_changes(stub):
            kind = changes_pb2.ChangeType.Name(change.type).removeprefix("CHANGE_TYPE_")
            logged[_name(change.fact_change)].append((kind, change.revision, change.request_id))
        assert logged == {name: changes for worker in self.workers for name, changes in worker.history.items()}


def _name(fact: Any) -> Name:
    first, second = fact.namespace
    return (first, second, fact.key)


def _as_expected(fact: facts_pb2.Fact) -> Expected:
    versions = tuple(version.value["content"] for version in fact.versions)
    return Expected(fact.value["content"], fact.revision, versions)


if __name__ == "__main__":
    run_trial(__doc__, FactTrial)
