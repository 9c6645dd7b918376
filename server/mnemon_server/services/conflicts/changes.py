"""Merges and their undoing as transactions, and the stored answers for repeated calls: ids, no text."""

import json
from dataclasses import asdict, replace
from typing import Any

from mnemon_server.domain.collections import DECISIONS, SEMANTIC
from mnemon_server.domain.conflicts import ContentStrategy, Decision, MergeStatistics
from mnemon_server.domain.errors import DecisionNotFoundError
from mnemon_server.domain.resolution import MemoryRef, MergedMemories, Unmerged
from mnemon_server.engines.promises.vault import Vault, VaultTransaction
from mnemon_server.services.conflicts.merges import MergeTerms, merge_stored
from mnemon_server.services.conflicts.statements import find_statement
from mnemon_server.services.conflicts.undo import unmerge
from mnemon_server.services.rules.store import RuleStore
from mnemon_server.services.semantic.decisions import stored_decision
from mnemon_server.services.semantic.stored_form import to_semantic
from mnemon_server.services.shared.engine_futures import completion
from mnemon_server.services.shared.offload import Offload
from mnemon_server.services.shared.writes import request_key


class ConflictChanges:
    """Changes stored statements and decisions; any number of calls at the same time."""

    def __init__(self, vault: Vault, rules: RuleStore, offload: Offload) -> None:
        self._vault = vault
        self._rules = rules
        self._offload = offload

    async def merge(self, first: MemoryRef, second: MemoryRef, terms: MergeTerms, request_id: str) -> MergedMemories:
        """See `merge_stored`. A replay gets the statement and the decision as they are now."""
        merged: MergedMemories | None = None

        def program(tx: VaultTransaction) -> str:
            nonlocal merged
            merged = merge_stored(tx, self._rules.registry_in(tx), first, second, terms)
            return _merge_answer(merged)

        changes = json.dumps(terms.changes, sort_keys=True, default=repr)
        named = [[each.memory_id, each.expected_revision] for each in (first, second)]
        key = request_key(request_id, "merge", named, terms.rule, changes)
        receipt = await completion(self._vault.transact(program, request=key))
        if merged is None:
            return await self._offload(self._merge_again, json.loads(receipt.answer))
        return merged

    async def unmerge(self, memory_id: str, decision_id: str, request_id: str) -> Unmerged:
        """See `unmerge`. A replay gets the statements and the decision as they are now."""
        unmerged: Unmerged | None = None

        def program(tx: VaultTransaction) -> str:
            nonlocal unmerged
            unmerged = unmerge(tx, memory_id=memory_id, decision_id=decision_id)
            return _unmerge_answer(unmerged)

        key = request_key(request_id, "unmerge", memory_id, decision_id)
        receipt = await completion(self._vault.transact(program, request=key))
        if unmerged is None:
            return await self._offload(self._unmerge_again, json.loads(receipt.answer))
        return unmerged

    def _merge_again(self, answer: dict[str, Any]) -> MergedMemories:
        memory = find_statement(self._vault.collection(SEMANTIC), answer["memory"])
        return MergedMemories(
            memory=replace(memory, embedding=None),
            statistics=MergeStatistics(**answer["statistics"]),
            content_strategy=ContentStrategy(answer["content_strategy"]),
            decision=self._decision(answer["decision"]),
            rule=answer["rule"],
        )

    def _unmerge_again(self, answer: dict[str, Any]) -> Unmerged:
        restored = self._vault.collection(SEMANTIC).get_documents(answer["restored"])
        return Unmerged(
            restored=tuple(to_semantic(document) for document in restored if document),
            removed_id=answer["removed"],
            decision=self._decision(answer["decision"]),
        )

    def _decision(self, decision_id: str) -> Decision:
        [document] = self._vault.collection(DECISIONS).get_documents([decision_id])
        if document is None:
            raise DecisionNotFoundError(decision_id)
        return stored_decision(document)


def _merge_answer(merged: MergedMemories) -> str:
    answer = {
        "memory": merged.memory.memory_id,
        "statistics": asdict(merged.statistics),
        "content_strategy": merged.content_strategy,
        "decision": merged.decision.decision_id if merged.decision else "",
        "rule": merged.rule,
    }
    return json.dumps(answer)


def _unmerge_answer(unmerged: Unmerged) -> str:
    answer = {
        "restored": [memory.memory_id for memory in unmerged.restored],
        "removed": unmerged.removed_id,
        "decision": unmerged.decision.decision_id,
    }
    return json.dumps(answer)
