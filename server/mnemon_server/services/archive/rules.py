"""How merge rules are imported: together, since they extend one another, and in the order of their places."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from mnemon_server.domain.archive import ImportConflict, ImportOutcome
from mnemon_server.domain.collections import RULES
from mnemon_server.domain.documents import Document
from mnemon_server.domain.errors import InvalidArgumentError, MnemonError
from mnemon_server.domain.rules import RuleDict
from mnemon_server.domain.validation import refuse
from mnemon_server.engines.promises.values import RecordStamps
from mnemon_server.engines.promises.vault import VaultTransaction
from mnemon_server.services.archive.records import RECORD, stamp_violations
from mnemon_server.services.archive.writes import ImportResult, decided
from mnemon_server.services.rules.registry import MergeRuleRegistry
from mnemon_server.services.rules.rule_set import RuleSet
from mnemon_server.services.rules.schema import checked_rule, rule_json
from mnemon_server.services.rules.store import PLACE, RuleStore


@dataclass(frozen=True, slots=True)
class IncomingRule:
    """A rule that was checked, with its place in the order of registration."""

    rule: RuleDict
    place: int
    stamps: RecordStamps | None

    @property
    def name(self) -> str:
        """The rule's name, which is its record's id."""
        return str(self.rule["name"])


def checked_rule_record(given: Document, stamps: RecordStamps | None) -> IncomingRule:
    """The rule that a record stands for.

    Raises:
        InvalidArgumentError: it is not a rule; names what is wrong.
    """
    refuse(stamp_violations(given))
    try:
        rule = checked_rule(json.loads(given.content), f"{RECORD}.content")
    except (ValueError, RecursionError) as error:
        if isinstance(error, InvalidArgumentError):
            raise
        raise InvalidArgumentError.of(f"{RECORD}.content", "must be the JSON of a rule") from error
    if rule["name"] != given.doc_id:
        raise InvalidArgumentError.of(f"{RECORD}.id", "must be the rule's name")
    place = given.metadata.get(PLACE)
    return IncomingRule(rule, place if isinstance(place, int) else 0, stamps)


def store_rules(
    tx: VaultTransaction, store: RuleStore, rules: Sequence[IncomingRule], policy: ImportConflict, version: int
) -> list[ImportResult]:
    """Loads rules; an invalid rule fails alone; an empty registry gets the `version`."""
    known = tx.collection(RULES).get_documents([each.name for each in rules])
    results: dict[int, ImportResult] = {}
    for number, (each, stored) in enumerate(zip(rules, known, strict=True)):
        if stored is not None:
            # The registry decides where a rule stands among the others.
            document = Document(each.name, rule_json(each.rule), metadata=stored.metadata)
            outcome = decided(stored, document, each.stamps, policy)
            if outcome is not None:
                results[number] = outcome
    wanted = sorted(set(range(len(rules))) - results.keys(), key=lambda number: rules[number].place)
    registry = store.registry_in(tx)
    before = registry.rules
    failed = _load(registry, {number: rules[number].rule for number in wanted})
    after = registry.rules
    if after is not before:
        if before == RuleSet({}) and before.version == 1:
            after = RuleSet(after.rules, max(after.version, version))
        stamps = {rules[number].name: given for number in wanted if (given := rules[number].stamps)}
        store.write_in(tx, before, after, stamps)
    for number in wanted:
        is_new = known[number] is None
        results[number] = failed.get(number) or (ImportOutcome.CREATED if is_new else ImportOutcome.REPLACED)
    return [results[number] for number in range(len(rules))]


def _load(registry: MergeRuleRegistry, rules: Mapping[int, RuleDict]) -> dict[int, MnemonError]:
    """Loads rules by their numbers; returns the errors of those that do not fit."""
    try:
        registry.load(list(rules.values()))
    except MnemonError:
        return _load_each(registry, rules)
    return {}


def _load_each(registry: MergeRuleRegistry, rules: Mapping[int, RuleDict]) -> dict[int, MnemonError]:
    """Loads them one by one, and again as long as that helps: a base may come after a rule that extends it."""
    failed: dict[int, MnemonError] = {}
    waiting = dict(rules)
    while waiting:
        failed = {}
        for number, rule in waiting.items():
            try:
                registry.load([rule])
            except MnemonError as error:
                failed[number] = error
        if len(failed) == len(waiting):
            break
        waiting = {number: rules[number] for number in failed}
    return failed
