"""The conflict service: finds, arbitrates, previews and merges conflicts, lists decisions and undoes them."""

import json
from collections.abc import Callable, Iterable, Sequence
from copy import copy
from dataclasses import asdict, replace
from typing import Any, TypeVar

import numpy as np

from mnemon_server.domain.access.bounds import UNBOUNDED, Bounds
from mnemon_server.domain.clock import Clock, system_clock
from mnemon_server.domain.collections import DECISIONS, SEMANTIC
from mnemon_server.domain.conflicts import (
    CONFLICTS_DEFAULT,
    CONFLICTS_MAX,
    ContentStrategy,
    Decision,
    MergeStatistics,
)
from mnemon_server.domain.errors import FieldViolation, MnemonError
from mnemon_server.domain.records import PageOf, RequestKey
from mnemon_server.domain.rules import RULE_NAME_BYTES_MAX, ResolvedRule, RuleDict
from mnemon_server.domain.semantic import (
    Arbitrated,
    ConflictPolicy,
    Detected,
    MemoryRef,
    MergedMemories,
    SavedSemantic,
    SemanticMemory,
    Unmerged,
)
from mnemon_server.domain.validation import (
    doc_id_violations,
    id_violations,
    refuse,
    request_id_violations,
    text_violations,
)
from mnemon_server.embedding.batcher import EmbeddingBatcher
from mnemon_server.engines.promises.vault import Vault, VaultTransaction
from mnemon_server.services.background.offload import Offload, completion
from mnemon_server.services.conflicts.arbitration import arbitrate
from mnemon_server.services.conflicts.detection import BY_VECTOR, find_conflicts
from mnemon_server.services.conflicts.judging import Advisor
from mnemon_server.services.conflicts.merges import MergeTerms, merge_stored, merge_unstored
from mnemon_server.services.conflicts.plans import Plan, find_rule, plan_save, preview_plan
from mnemon_server.services.conflicts.signals import compare
from mnemon_server.services.conflicts.statements import find_statement, pair_violations, reference_violations
from mnemon_server.services.conflicts.undo import find_decision, unmerge
from mnemon_server.services.reading.pages import read_page
from mnemon_server.services.rules.overrides import overridden
from mnemon_server.services.rules.store import RuleStore
from mnemon_server.services.semantic.checks import refuse_other_scope, statement_violations
from mnemon_server.services.semantic.decisions import decision_filter, stored_decision
from mnemon_server.services.semantic.resolver import NewSemantic
from mnemon_server.services.semantic.stored_form import given_statement, to_semantic
from mnemon_server.services.semantic.vectors import is_read, vectors_of
from mnemon_server.services.writing.writes import request_key, vector_violations

READER_THREADS = 4

Changed = TypeVar("Changed", MergedMemories, Unmerged)


class ConflictStore:
    """The conflicts between the statements of a vault. All methods are safe to call from many tasks at once."""

    def __init__(
        self,
        vault: Vault,
        embedder: EmbeddingBatcher,
        *,
        rules: RuleStore,
        advisor: Advisor | None = None,
        clock: Clock = system_clock,
    ) -> None:
        """The vault and the rules belong to the caller. Without an advisor, no judge is asked."""
        self._dimension = embedder.model.dimension
        self._embedder = embedder
        self._rules = rules
        self._clock = clock
        self._offload = Offload(READER_THREADS, "conflict-reader")
        self._use(vault, UNBOUNDED, advisor)

    def _use(self, vault: Vault, bounds: Bounds, advisor: Advisor | None) -> None:
        self._advisor = advisor
        self._vault = vault
        self._records, self._decisions = vault.collection(SEMANTIC), vault.collection(DECISIONS)
        self._bounds = bounds

    def over(self, vault: Vault, bounds: Bounds) -> "ConflictStore":
        """The same store over the part of the vault within bounds, with all rules. It shares the threads; close this
        one alone.
        """
        part = copy(self)
        part._use(vault, bounds, self._advisor and self._advisor.over(vault.collection(SEMANTIC)))
        return part

    # Asking

    async def detect(
        self,
        candidate: MemoryRef,
        *,
        rule: str = "",
        detection: RuleDict | None = None,
        limit: int = CONFLICTS_DEFAULT,
    ) -> Detected:
        """The conflicts of a statement with all known statements of its user, household and persona.

        `rule` is empty for the rule whose conditions match; `detection` has changes to it, in the form of a rule;
        `limit` is 1 to 1,000.

        Raises:
            MemoryNotFoundError, RuleNotFoundError, InvalidArgumentError, EmbeddingError.
        """
        refuse(
            [
                *reference_violations(candidate, "candidate", self._dimension),
                *text_violations(rule, "rule", RULE_NAME_BYTES_MAX),
                *_limit_violations(limit),
            ]
        )
        memory = await self._find(candidate)
        resolved = await self._offload(self._rule, rule, memory, "detection", detection)
        config = resolved.detection
        is_comparable = memory.embedding is not None or is_read(self._embedder, memory.content)
        if is_comparable and not config.signals.isdisjoint(BY_VECTOR):
            [memory] = await self._embedded([memory])
        found = await self._offload(find_conflicts, self._records, memory, config, limit=limit)
        conflicts = tuple(opponent.conflict for opponent in found.opponents)
        return Detected(conflicts, found.total_count, resolved.name)

    async def arbitrate(
        self, candidate: MemoryRef, existing: MemoryRef, *, rule: str = "", arbitration: RuleDict | None = None
    ) -> Arbitrated:
        """Decides between a new and a known statement of the same user, household and persona; changes nothing.

        `rule` is empty for the rule whose conditions match the candidate; `arbitration` has changes to it, as in
        a rule.

        Raises:
            MemoryNotFoundError, RuleNotFoundError, InvalidArgumentError, EmbeddingError.
        """
        refuse(
            [
                *reference_violations(candidate, "candidate", self._dimension),
                *reference_violations(existing, "existing", self._dimension),
                *text_violations(rule, "rule", RULE_NAME_BYTES_MAX),
            ]
        )
        new, known = await self._find(candidate), await self._find(existing)
        refuse_other_scope(known, new, "existing", "candidate")
        resolved = await self._offload(self._rule, rule, new, "arbitration", arbitration)
        new, known = await self._embedded([new, known])
        similarity = compare(new, known).similarity
        return Arbitrated(arbitrate(new, known, resolved.arbitration, similarity=similarity), resolved.name)

    async def preview(self, memory: SemanticMemory, *, rule: str = "") -> SavedSemantic:
        """The answer that saving a statement with RESOLVE would get; changes nothing.

        A statement that would be stored has no id, and nothing has a receipt. Embeds a statement that has no embedding.

        Raises:
            RuleNotFoundError, InvalidArgumentError, EmbeddingError.
        """
        refuse(
            [
                *statement_violations(memory),
                *vector_violations(memory.embedding, self._dimension, "memory.embedding"),
                *text_violations(rule, "rule", RULE_NAME_BYTES_MAX),
            ]
        )
        [embedded] = await self._embedded([replace(self._owned(memory), memory_id="")])
        vector = np.array(embedded.embedding, np.float32)
        new = NewSemantic(
            memory=given_statement(embedded),
            vector=vector,
            is_read=memory.embedding is not None or is_read(self._embedder, memory.content),
            policy=ConflictPolicy.RESOLVE,
            rule=rule,
        )
        if self._advisor is not None:
            new = replace(new, judged=await self._advisor.judge(new))
        return preview_plan(await self._offload(self._plan, new))

    async def list_decisions(
        self, *, user: str = "", memory_id: str = "", before: int = 0, limit: int
    ) -> PageOf[Decision]:
        """A page of decisions, newest first, from before position `before`; 0 begins with the newest."""
        refuse(
            [
                *id_violations(user, "user"),
                *(doc_id_violations(memory_id, "memory_id") if memory_id else ()),
            ]
        )
        where = decision_filter(user=user, memory_id=memory_id)
        rows, position = await self._offload(
            read_page, self._decisions, where, after=before, limit=limit, descending=True
        )
        return PageOf(tuple(stored_decision(document) for _, document in rows), position)

    # Changing

    async def merge(
        self,
        first: MemoryRef,
        second: MemoryRef,
        *,
        rule: str = "",
        merge: RuleDict | None = None,
        dry_run: bool = False,
        request_id: str = "",
    ) -> MergedMemories:
        """Merges two statements of the same user, household and persona into one, which supersedes two stored ones.

        Both are stored, or neither is. `rule` is empty for the rule whose conditions match the second; `merge` has
        changes to it, in the form of a rule. With `dry_run`, nothing is changed.

        Raises:
            MemoryNotFoundError, RuleNotFoundError, InvalidArgumentError.
            RevisionMismatchError: a stored one does not have the expected revision.
            InvalidOperationError: a stored one is superseded.
        """
        refuse(
            [
                *reference_violations(first, "first", self._dimension),
                *reference_violations(second, "second", self._dimension),
                *pair_violations(first, second),
                *text_violations(rule, "rule", RULE_NAME_BYTES_MAX),
                *request_id_violations(request_id),
            ]
        )
        terms = MergeTerms(rule, merge)
        if first.memory is None and not dry_run:
            changes = json.dumps(merge, sort_keys=True, default=repr)
            named = [[each.memory_id, each.expected_revision] for each in (first, second)]
            return await self._change(
                lambda tx: merge_stored(tx, self._rules.rules_in(tx), first, second, terms),
                _merge_answer,
                self._merge_again,
                request_key(request_id, "merge", named, rule, changes),
            )
        one, other = await self._find(first), await self._find(second)
        return await self._offload(lambda: merge_unstored(self._rules.rules_in(), one, other, terms))

    async def unmerge(self, *, memory_id: str = "", decision_id: str = "", request_id: str = "") -> Unmerged:
        """Takes back a decision: that of the merge that made a statement, or any other.

        Raises:
            MemoryNotFoundError, DecisionNotFoundError: the id is unknown.
            InvalidOperationError: nothing was decided, it was undone already, or a later decision depends on it.
            InvalidArgumentError: not exactly one of the two ids is given.
        """
        refuse([*_target_violations(memory_id, decision_id), *request_id_violations(request_id)])
        return await self._change(
            lambda tx: unmerge(tx, memory_id=memory_id, decision_id=decision_id),
            _unmerge_answer,
            self._unmerge_again,
            request_key(request_id, "unmerge", memory_id, decision_id),
        )

    async def aclose(self) -> None:
        """Waits for the reads that have begun; calls after it fail. The vault stays open."""
        await self._offload.aclose()

    async def _find(self, reference: MemoryRef) -> SemanticMemory:
        """The statement: a stored one with its vector, or a given one as a save would store it now.

        Raises MemoryNotFoundError or RevisionMismatchError for a stored one, PermissionDeniedError for a given one.
        """
        if reference.memory is None:
            return await self._offload(find_statement, self._records, reference.memory_id, reference.expected_revision)
        memory = self._owned(given_statement(reference.memory))
        return replace(memory, create_time=memory.create_time or self._clock())

    def _owned(self, memory: SemanticMemory) -> SemanticMemory:
        """A given statement as its save would own it. PermissionDeniedError if it would be another user's."""
        return replace(memory, scope=self._bounds.owned(memory.scope)) if self._bounds else memory

    async def _embedded(self, memories: Sequence[SemanticMemory]) -> list[SemanticMemory]:
        """The statements with their vectors, of unit length. Raises the errors of EmbeddingBatcher."""
        given = [memory.embedding for memory in memories]
        vectors = await vectors_of(self._embedder, [memory.content for memory in memories], given)
        embedded = []
        for memory, vector in zip(memories, vectors, strict=True):
            if isinstance(vector, MnemonError):
                raise vector
            embedded.append(replace(memory, embedding=tuple(vector.tolist())))
        return embedded

    async def _change(
        self,
        program: Callable[[VaultTransaction], Changed],
        answer_of: Callable[[Changed], dict[str, Any]],
        again: Callable[[dict[str, Any]], Changed],
        request: RequestKey | None,
    ) -> Changed:
        """The result of a program. A replay reads again the records that the first answer names."""
        done: list[Changed] = []

        def run(tx: VaultTransaction) -> str:
            done[:] = [program(tx)]
            return json.dumps(answer_of(done[0]))

        receipt = await completion(self._vault.transact(run, request=request))
        return done[0] if done else await self._offload(again, json.loads(receipt.answer))

    def _merge_again(self, answer: dict[str, Any]) -> MergedMemories:
        memory = find_statement(self._records, answer["memory"])
        return MergedMemories(
            memory=replace(memory, embedding=None),
            statistics=MergeStatistics(**answer["statistics"]),
            content_strategy=ContentStrategy(answer["content_strategy"]),
            decision=find_decision(self._decisions, answer["decision"]),
            rule=answer["rule"],
        )

    def _unmerge_again(self, answer: dict[str, Any]) -> Unmerged:
        restored = self._records.get_documents(answer["restored"])
        return Unmerged(
            restored=tuple(to_semantic(document) for document in restored if document),
            removed_id=answer["removed"],
            decision=find_decision(self._decisions, answer["decision"]),
        )

    def _plan(self, new: NewSemantic) -> Plan:
        return plan_save(self._records, self._rules.rules_in(), new, now=self._clock())

    def _rule(self, name: str, candidate: SemanticMemory, section: str, changes: RuleDict | None) -> ResolvedRule:
        return overridden(find_rule(self._rules.rules_in(), name, candidate), section, changes)


def _merge_answer(merged: MergedMemories) -> dict[str, Any]:
    return {
        "memory": merged.memory.memory_id,
        "statistics": asdict(merged.statistics),
        "content_strategy": merged.content_strategy,
        "decision": merged.decision.decision_id if merged.decision else "",
        "rule": merged.rule,
    }


def _unmerge_answer(unmerged: Unmerged) -> dict[str, Any]:
    return {
        "restored": [memory.memory_id for memory in unmerged.restored],
        "removed": unmerged.removed_id,
        "decision": unmerged.decision.decision_id,
    }


def _limit_violations(limit: int) -> Iterable[FieldViolation]:
    if not 1 <= limit <= CONFLICTS_MAX:
        yield FieldViolation("limit", f"must be 1 to {CONFLICTS_MAX:,}")


def _target_violations(memory_id: str, decision_id: str) -> Iterable[FieldViolation]:
    if bool(memory_id) == bool(decision_id):
        yield FieldViolation("target", "must be either the id of a merged statement or the id of a decision")
    elif memory_id:
        yield from doc_id_violations(memory_id, "memory_id")
    else:
        yield from doc_id_violations(decision_id, "decision_id")
