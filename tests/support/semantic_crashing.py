"""A server that is killed at random moments while conflicts are settled, and the check of its statements afterwards.

python -m tests.support.semantic_crashing --rounds 200
"""

import random
from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path

import grpc
from mnemon.v1 import (
    changes_pb2,
    changes_pb2_grpc,
    common_pb2,
    conflicts_pb2,
    conflicts_pb2_grpc,
    decisions_pb2,
    rules_pb2,
    rules_pb2_grpc,
    semantic_pb2,
    semantic_pb2_grpc,
)

from tests.support.kill_trials import KillTrial, all_changes, pages, run_trial
from tests.support.killable import insist_on
from tests.support.semantic_messages import DIMENSION, by_id, save
from tests.support.statement_ledger import HOLDER, MERGING, NEWCOMER, REFUSING, Known, Ledger, Settled, Told

WORKERS = 8
SAVES_PER_TOPIC = 12
FLAGS = ("--knowledge-store-backend", "local", "--semantic-write-latency-target-ms", "60000")
_DEFAULTS = {
    NEWCOMER: decisions_pb2.DEFAULT_STRATEGY_KEEP_CANDIDATE,
    HOLDER: decisions_pb2.DEFAULT_STRATEGY_KEEP_EXISTING,
    REFUSING: decisions_pb2.DEFAULT_STRATEGY_REJECT,
}


class Stubs:
    """The services that a client calls."""

    def __init__(self, channel: grpc.Channel) -> None:
        self.semantic = semantic_pb2_grpc.SemanticMemoryServiceStub(channel)
        self.conflicts = conflicts_pb2_grpc.ConflictServiceStub(channel)
        self.rules = rules_pb2_grpc.RulesServiceStub(channel)
        self.changes = changes_pb2_grpc.ChangeServiceStub(channel)


@dataclass
class Worker:
    """One client with its own user. It retries each call under its request id until it is answered."""

    name: str
    rng: random.Random
    ledger: Ledger = field(default_factory=Ledger)
    writes: int = 0

    def write(self, stubs: Stubs) -> None:
        """One change, chosen at random."""
        self.writes += 1
        request_id = f"{self.name}-{self.writes}"
        chance, visible, revertible = self.rng.random(), self.ledger.visible(), self.ledger.revertible()
        if chance < 0.25 and revertible:
            self._unmerge(stubs, request_id, self.rng.choice(revertible))
        elif chance < 0.35 and len(visible) > 1:
            self._merge(stubs, request_id, *self.rng.sample(visible, 2))
        else:
            self._save(stubs, request_id)

    def _save(self, stubs: Stubs, request_id: str) -> None:
        topic, rule = (
            f"{self.name}t{self.writes // SAVES_PER_TOPIC}",
            self.rng.choice([MERGING, NEWCOMER, HOLDER, REFUSING]),
        )
        known = Known(f"{request_id.replace('-', 'n')} is known", frozenset({topic}))
        request = save(
            known.content,
            user=self.name,
            keywords=[topic],
            embedding=[self.rng.gauss(0, 1) for _ in range(DIMENSION)],
            conflict_policy=semantic_pb2.CONFLICT_POLICY_RESOLVE,
            rule=rule,
            request_id=request_id,
        )
        answer = insist_on(lambda: stubs.semantic.SaveSemanticMemory(request, timeout=5))
        opponent = self.ledger.opponent(topic)
        if opponent is None:
            assert not answer.HasField("decision"), answer
            self.ledger.saved(request_id, answer.memory.memory_id, known)
            return
        settled = _settled(answer.decision, rule)
        assert settled.existing == opponent, (answer, opponent)
        self.ledger.settled(request_id, answer.decision.decision_id, settled, known)
        assert answer.memory.memory_id == settled.result
        assert answer.HasField("memory") == (rule != REFUSING)
        self._check_answer(answer.memory)

    def _merge(self, stubs: Stubs, request_id: str, first: str, second: str) -> None:
        request = conflicts_pb2.MergeMemoriesRequest(
            first=by_id(first), second=by_id(second), rule=MERGING, request_id=request_id
        )
        answer = insist_on(lambda: stubs.conflicts.MergeMemories(request, timeout=5))
        settled = _settled(answer.decision, MERGING)
        assert (settled.existing, settled.candidate) == (first, second)
        self.ledger.merged(request_id, answer.decision.decision_id, settled)
        self._check_answer(answer.memory)

    def _unmerge(self, stubs: Stubs, request_id: str, decision_id: str) -> None:
        request = conflicts_pb2.UnmergeMemoryRequest(decision_id=decision_id, request_id=request_id)
        answer = insist_on(lambda: stubs.conflicts.UnmergeMemory(request, timeout=5))
        settled = self.ledger.decisions[decision_id]
        self.ledger.reverted(request_id, decision_id)
        assert tuple(memory.memory_id for memory in answer.restored) == settled.given_way
        assert answer.removed_id == (settled.result if settled.rule == MERGING else "")
        for memory in answer.restored:
            self._check_answer(memory)

    def _check_answer(self, memory: semantic_pb2.SemanticMemory) -> None:
        if memory.memory_id:
            known = self.ledger.statements[memory.memory_id]
            assert (memory.content, memory.superseded_by) == (known.content, known.superseded_by)


class SemanticTrial(KillTrial):
    """One server, the workers that write to it, and the expected statements."""

    def __init__(self, folder: Path, seed: int) -> None:
        self.workers = [Worker(f"w{number}", random.Random(seed * 1000 + number)) for number in range(WORKERS)]
        super().__init__(folder, seed, self.workers, *FLAGS)

    @property
    def acknowledged(self) -> int:
        """How many writes were acknowledged."""
        return sum(worker.writes for worker in self.workers)

    def stubs(self, channel: grpc.Channel) -> Stubs:
        return Stubs(channel)

    def prepare(self, stubs: Stubs) -> None:
        _register_rules(stubs)

    def check(self, stubs: Stubs) -> str:
        self.check_statements(stubs)
        self.check_index(stubs)
        self.check_decisions(stubs)
        self.check_changes(stubs)
        return (
            f"{self.acknowledged} writes: each was done as a whole and once, and the index finds what the records hold"
        )

    def check_statements(self, stubs: Stubs) -> None:
        """Every statement is stored once, in the expected state, and in the order of saving."""
        for worker in self.workers:
            request = semantic_pb2.ListSemanticMemoriesRequest(show_superseded=True, page_size=100)
            request.filter.scope.user = worker.name
            stored = {
                memory.memory_id: Known(
                    memory.content, frozenset(memory.keywords), memory.superseded_by, tuple(memory.merged_from)
                )
                for memory in pages(stubs.semantic.ListSemanticMemories, request, "memories")
            }
            assert stored == worker.ledger.statements
            assert list(stored) == list(worker.ledger.statements)

    def check_index(self, stubs: Stubs) -> None:
        """Visible statements are found by their vectors, superseded ones are not, and the counts are right."""
        statements = {
            memory_id: known for worker in self.workers for memory_id, known in worker.ledger.statements.items()
        }
        for memory_id, known in statements.items():
            request = semantic_pb2.GetSemanticMemoryRequest(memory_id=memory_id, view=common_pb2.VIEW_FULL)
            memory = stubs.semantic.GetSemanticMemory(request, timeout=60).memory
            query = semantic_pb2.SearchSimilarRequest(vector=memory.embedding, min_score=0.9999)
            found = [match.memory.memory_id for match in stubs.semantic.SearchSimilar(query, timeout=60).results]
            assert found == ([] if known.superseded_by else [memory_id]), (known, found)
        status = stubs.semantic.GetIndexStatus(semantic_pb2.GetIndexStatusRequest(), timeout=60)
        superseded = sum(bool(known.superseded_by) for known in statements.values())
        assert (status.record_count, status.superseded_count) == (len(statements) - superseded, superseded)

    def check_decisions(self, stubs: Stubs) -> None:
        """Every decision is stored and says whether it was undone."""
        for worker in self.workers:
            decisions = worker.ledger.decisions
            request = conflicts_pb2.ListDecisionsRequest(user=worker.name, page_size=100)
            stored = {
                decision.decision_id: _settled(decision, decisions[decision.decision_id].rule)
                for decision in pages(stubs.conflicts.ListDecisions, request, "decisions")
            }
            assert stored == decisions
            assert list(stored) == list(reversed(decisions))

    def check_changes(self, stubs: Stubs) -> None:
        """The log holds the changes of each acknowledged call in one commit, and nothing else."""
        logged: dict[str, list[Told]] = defaultdict(list)
        commits: dict[str, set[str]] = defaultdict(set)
        for change in all_changes(stubs.changes):
            kind = changes_pb2.ChangeType.Name(change.type).removeprefix("CHANGE_TYPE_")
            if not kind.startswith("RULE_"):
                logged[change.request_id].append((kind, change.record_id))
                commits[change.request_id].add(change.commit_id)
        assert logged == {call: told for worker in self.workers for call, told in worker.ledger.changes.items()}
        assert all(len(of_call) == 1 for of_call in commits.values())


def _register_rules(stubs: Stubs) -> None:
    """Rules under which only the topic makes a conflict, and only the rule's name decides it."""
    for name in (MERGING, NEWCOMER, HOLDER, REFUSING):
        rule = rules_pb2.MergeRuleConfig(
            name=name,
            # A rule whose conditions never match is used where it is named.
            conditions=rules_pb2.RuleConditions(users=["nobody"]),
            detection=decisions_pb2.DetectionConfig(signals=[decisions_pb2.SIGNAL_TYPE_KEYWORD]),
            arbitration=decisions_pb2.ArbitrationConfig(
                priority_importance=False,
                priority_recency=False,
                priority_source=False,
                weights=dict.fromkeys(("importance", "recency", "source", "semantic"), 0.0),
                allow_merge=name == MERGING,
                default_strategy=_DEFAULTS.get(name),
            ),
            merge=decisions_pb2.MergeConfig(
                content_strategy=decisions_pb2.CONTENT_STRATEGY_CONCATENATE, deduplicate=False
            ),
        )
        stubs.rules.RegisterRule(rules_pb2.RegisterRuleRequest(rule=rule), timeout=60)


def _settled(decision: decisions_pb2.Decision, rule: str) -> Settled:
    return Settled(
        rule, decision.existing_id, decision.candidate_id, decision.result_id, decision.HasField("revert_time")
    )


if __name__ == "__main__":
    run_trial(__doc__, SemanticTrial)
