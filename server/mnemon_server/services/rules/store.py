"""The rules service: the merge rules of a vault, which stores them.

A rule is a document of the collection RULES, under its name. The set is built from these documents, and cached as
long as the vault's stamp does not change. The stamp is the version with a digest of all rules, so that the rules of a
transaction that was rolled back are never mistaken for those of another.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from typing import Any, cast

from mnemon_server.domain.changes import ChangeType
from mnemon_server.domain.collections import RULES
from mnemon_server.domain.damage import reads
from mnemon_server.domain.documents import Document
from mnemon_server.domain.encoding import text_digest
from mnemon_server.domain.errors import RevisionMismatchError
from mnemon_server.domain.filters import RecordFilter
from mnemon_server.domain.records import RequestKey, WriteOutcome, WriteReceipt
from mnemon_server.domain.rules import (
    RULES_MAX,
    RULES_STAMP,
    DeletedRule,
    LoadedRules,
    ResolvedRule,
    RuleDict,
    RuleOrder,
    RulePage,
    RuleReceipt,
    StoredRule,
)
from mnemon_server.domain.semantic import SemanticMemory
from mnemon_server.domain.validation import refuse, request_id_violations, revision_violations
from mnemon_server.engines.promises.values import DocumentWrite, RecordStamps
from mnemon_server.engines.promises.vault import TransactionReceipt, Vault, VaultTransaction
from mnemon_server.services.background.offload import Offload, completion
from mnemon_server.services.rules.rule_set import PlacedRule, RuleSet
from mnemon_server.services.rules.schema import changed_paths, checked_rule, rule_json
from mnemon_server.services.semantic.checks import refuse_other_scope
from mnemon_server.services.writing.writes import request_key

READER_THREADS = 2

PLACE = "place"
"""The metadata key of a document that holds the rule's place in the order of registration."""

NO_STAMPS: Mapping[str, RecordStamps] = {}

Change = Callable[[RuleSet], RuleSet]
Answer = Callable[[RuleSet, RuleSet], dict[str, Any]]
"""Makes the answer to a call from the rules before and after its change."""


class RuleStore:
    """The merge rules of a vault. All methods are safe to call from many tasks at once.

    A change is one transaction, and the log names every rule that it changed, with the fields. It raises the errors of
    RuleSet, and the errors of a RecordEngine's write. A repeated call with the same `request_id` gets the first
    answer.
    """

    def __init__(self, vault: Vault) -> None:
        """The vault belongs to the caller."""
        self._vault = vault
        self._offload = Offload(READER_THREADS, "rule-reader")
        self._known: tuple[str | None, RuleSet] = (None, RuleSet({}))

    def rules_in(self, tx: VaultTransaction | None = None) -> RuleSet:
        """The rules that the transaction sees, or the last committed ones. Blocks; any thread may call it."""
        source = self._vault if tx is None else tx
        known = self._known
        # Outside a transaction, the rules may change while they are read: then the stamp differs again.
        while (stamp := source.value(RULES_STAMP)) != known[0]:
            known = self._known = (stamp, _read(source, stamp))
        return known[1]

    def write_in(
        self, tx: VaultTransaction, before: RuleSet, after: RuleSet, stamps: Mapping[str, RecordStamps] = NO_STAMPS
    ) -> None:
        """Replaces the rules that the transaction sees, which are `before`, by `after`; `stamps` are by name."""
        stamp = _write(tx, before, after, stamps)
        # Stamps change revisions in a way that only the vault knows.
        if not stamps:
            self._known = (stamp, after)

    # Reading

    async def get(self, name: str) -> RuleReceipt:
        """The rule as it was written. RuleNotFoundError if it does not exist."""
        return (await self._rules()).receipt(name)

    async def list(self, order: RuleOrder = RuleOrder.REGISTRATION, *, after: int = 0, limit: int) -> RulePage:
        """A page of the rules, from behind position `after`."""
        rules = await self._rules()
        behind = [pair for pair in rules.listed(order) if pair[0] > after]
        page = behind[:limit]
        position = page[-1][0] if page and len(behind) > limit else None
        found = tuple(StoredRule(placed.rule, placed.revision) for _, placed in page)
        return RulePage(found, position, rules.version)

    async def find_matching(self, candidate: SemanticMemory, existing: SemanticMemory | None = None) -> ResolvedRule:
        """The rule that applies to a candidate. No condition uses `existing`, which the candidate conflicts with.

        Raises:
            InvalidArgumentError: the two differ in user, household or persona, so that they never conflict.
        """
        if existing is not None:
            refuse_other_scope(existing, candidate, "existing", "candidate")
        return (await self._rules()).find_matching(candidate)

    async def resolve(self, name: str) -> ResolvedRule:
        """The rule with everything that it inherits. RuleNotFoundError if it does not exist."""
        return (await self._rules()).resolve(name)

    async def export(self) -> tuple[tuple[RuleDict, ...], int]:
        """All rules as they were written, "default" first, the others as they were registered, and the version."""
        page = await self.list(limit=RULES_MAX)
        return tuple(stored.rule for stored in page.rules), page.version

    # Changing

    async def register(self, rule: RuleDict, *, request_id: str = "") -> RuleReceipt:
        """Adds a rule."""
        kept = checked_rule(rule)
        key = _key(request_id, "register-rule", kept)
        answer, _ = await self._change(key, lambda rules: rules.registered(kept), _receipt(kept["name"]))
        return RuleReceipt(**answer)

    async def update(
        self,
        changes: RuleDict,
        *,
        mask: Sequence[str] = (),
        expected_revision: int | None = None,
        request_id: str = "",
    ) -> RuleReceipt:
        """Changes the rule that `changes` name; see `RuleSet.updated`.

        Raises:
            RevisionMismatchError: the rule does not have the expected revision.
        """
        kept = checked_rule(changes)
        name = kept["name"]
        refuse(revision_violations(expected_revision))

        def change(rules: RuleSet) -> RuleSet:
            _check_revision(rules.placed(name), expected_revision)
            return rules.updated(name, kept, mask)

        key = _key(request_id, "update-rule", kept, [*mask], expected_revision)
        answer, _ = await self._change(key, change, _receipt(name), updated=name)
        return RuleReceipt(**answer)

    async def delete(
        self,
        name: str,
        *,
        force: bool = False,
        allow_missing: bool = False,
        expected_revision: int | None = None,
        request_id: str = "",
    ) -> DeletedRule:
        """Removes a rule. With `force`, rules that extend it keep what they inherited.

        Raises:
            RuleNotFoundError: it does not exist. With `allow_missing`, the outcome is MISSING instead.
            RevisionMismatchError: it does not have the expected revision.
        """
        refuse(revision_violations(expected_revision))

        def change(rules: RuleSet) -> RuleSet:
            if name in rules.rules or not allow_missing:
                _check_revision(rules.placed(name), expected_revision)
            return rules.deleted(name, force=force)

        def answer_of(before: RuleSet, after: RuleSet) -> dict[str, Any]:
            known = before.rules.get(name)
            outcome = WriteOutcome.DELETED if known else WriteOutcome.MISSING
            return {"outcome": outcome, "revision": known.revision if known else 0, "version": after.version}

        key = _key(request_id, "delete-rule", name, force, allow_missing, expected_revision)
        answer, done = await self._change(key, change, answer_of)
        outcome = WriteOutcome(answer["outcome"])
        receipt = WriteReceipt(name, outcome, answer["revision"], done.commit_time, replayed=done.replayed)
        return DeletedRule(receipt, answer["version"])

    async def load(
        self,
        rules: Sequence[RuleDict],
        *,
        replace_all: bool = False,
        lenient: bool = False,
        request_id: str = "",
    ) -> LoadedRules:
        """Registers rules in any order: all of them or none; see `RuleSet.loaded`."""
        kept = [checked_rule(rule, f"rules[{index}]") for index, rule in enumerate(rules)]
        key = _key(request_id, "load-rules", kept, replace_all, lenient)
        answer, _ = await self._change(
            key,
            lambda rules: rules.loaded(kept, replace_all=replace_all, lenient=lenient),
            lambda before, after: asdict(after.since(before)),
        )
        return LoadedRules(**answer)

    async def reset(self, *, request_id: str = "") -> int:
        """Removes all rules, and restores the original "default"; returns the version."""
        key = _key(request_id, "reset-rules")
        answer, _ = await self._change(key, RuleSet.reset, lambda _, after: {"version": after.version})
        return int(answer["version"])

    async def aclose(self) -> None:
        """Waits for the reads that have begun; calls after it fail. The vault stays open."""
        await self._offload.aclose()

    async def _rules(self) -> RuleSet:
        return await self._offload(self.rules_in)

    async def _change(
        self, request: RequestKey | None, change: Change, answer_of: Answer, *, updated: str = ""
    ) -> tuple[dict[str, Any], TransactionReceipt]:
        """Changes the rules; returns the answer, which is the first one for a replay.

        The log includes the `updated` rule even if it already had these values.
        """

        def program(tx: VaultTransaction) -> str:
            before = self.rules_in(tx)
            after = change(before)
            if after is not before:
                self.write_in(tx, before, after)
                if updated and after == before:
                    placed = after.placed(updated)
                    details = rule_json(placed.rule)
                    tx.note_change(ChangeType.RULE_UPDATED, updated, revision=placed.revision, details=details)
            return json.dumps(answer_of(before, after))

        receipt = await completion(self._vault.transact(program, request=request))
        return json.loads(receipt.answer), receipt


def _check_revision(placed: PlacedRule, expected: int | None) -> None:
    if expected not in (None, placed.revision):
        raise RevisionMismatchError(placed.rule["name"], expected, placed.revision)


def _receipt(name: str) -> Answer:
    return lambda _, after: asdict(after.receipt(name))


def _key(request_id: str, *parts: Any) -> RequestKey | None:
    refuse(request_id_violations(request_id))
    return request_key(request_id, *parts)


def _read(source: Vault | VaultTransaction, stamp: str | None) -> RuleSet:
    if stamp is None:
        return RuleSet({})
    rules = [document for _, document in source.collection(RULES).list_documents(RecordFilter(), limit=RULES_MAX)]
    return RuleSet({rule.doc_id: _from_document(rule) for rule in rules}, _version(stamp))


def _write(tx: VaultTransaction, before: RuleSet, after: RuleSet, stamps: Mapping[str, RecordStamps]) -> str:
    """Writes the differences between `before` and `after`, and returns the new stamp."""
    collection = tx.collection(RULES)
    for name, placed in before.rules.items():
        if name not in after.rules:
            collection.delete_document(name, change=ChangeType.RULE_DELETED, details=rule_json(placed.rule))
    for name, placed in after.rules.items():
        if placed != before.rules.get(name):
            change = ChangeType.RULE_UPDATED if name in before.rules else ChangeType.RULE_REGISTERED
            known = before.rules.get(name, placed)
            changed = tuple(changed_paths(known.rule, placed.rule))
            collection.put_document(_to_write(placed, change, changed, stamps.get(name)))
    stamp = _stamp(after)
    tx.set_value(RULES_STAMP, stamp)
    return stamp


def _to_write(
    placed: PlacedRule, change: ChangeType, changed: tuple[str, ...], stamps: RecordStamps | None
) -> DocumentWrite:
    text = rule_json(placed.rule)
    document = Document(placed.rule["name"], text, metadata={PLACE: placed.place})
    return DocumentWrite(document=document, passages=(), change=change, details=text, changed=changed, stamps=stamps)


@reads(RULES)
def _from_document(document: Document) -> PlacedRule:
    return PlacedRule(json.loads(document.content), cast("int", document.metadata[PLACE]), document.revision)


def _stamp(rules: RuleSet) -> str:
    parts = [[placed.place, placed.rule] for placed in rules.rules.values()]
    return f"{rules.version} {text_digest(json.dumps(parts)).hex()}"


def _version(stamp: str) -> int:
    return int(stamp.partition(" ")[0])
