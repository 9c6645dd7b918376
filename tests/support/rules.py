"""Merge rules that a test changes step by step."""

from collections.abc import Callable, Sequence
from typing import Any

from mnemon_server.domain.rules import LoadedRules, ResolvedRule, RuleDict, RuleReceipt
from mnemon_server.domain.semantic import SemanticMemory
from mnemon_server.services.rules.rule_set import RuleSet


class Registry:
    """The present set of rules, which the methods of this object replace."""

    def __init__(self, *rules: RuleDict) -> None:
        """These rules are registered in order."""
        self.rules = RuleSet({})
        for rule in rules:
            self.register(rule)

    @property
    def version(self) -> int:
        """The version of the rules."""
        return self.rules.version

    def get(self, name: str) -> RuleDict:
        """The rule as it was written."""
        return self.rules.receipt(name).rule

    def export(self) -> list[RuleDict]:
        """All rules as they were written."""
        return [placed.rule for placed in self.rules.rules.values()]

    def resolve(self, name: str) -> ResolvedRule:
        """See RuleSet."""
        return self.rules.resolve(name)

    def find_matching(self, candidate: SemanticMemory) -> ResolvedRule:
        """See RuleSet."""
        return self.rules.find_matching(candidate)

    def register(self, rule: object) -> RuleReceipt:
        """Adds a rule."""
        before = self.rules
        self._change(lambda rules: rules.registered(rule))
        [name] = self.rules.rules.keys() - before.rules.keys()
        return self.rules.receipt(name)

    def update(self, name: str, changes: object, mask: Sequence[str] = ()) -> RuleReceipt:
        """Changes a rule."""
        self._change(lambda rules: rules.updated(name, changes, mask))
        return self.rules.receipt(name)

    def delete(self, name: str, *, force: bool = False) -> bool:
        """Removes a rule; whether it existed."""
        before = self.rules
        self._change(lambda rules: rules.deleted(name, force=force))
        return self.rules is not before

    def load(self, rules: Sequence[object], **options: Any) -> LoadedRules:
        """Registers rules in any order."""
        before = self.rules
        self._change(lambda known: known.loaded(rules, **options))
        return self.rules.since(before)

    def reset(self) -> None:
        """Removes all rules."""
        self._change(RuleSet.reset)

    def __eq__(self, other: object) -> bool:
        return self.rules == other.rules if isinstance(other, Registry) else NotImplemented

    __hash__ = None  # type: ignore[assignment]

    def _change(self, change: Callable[[RuleSet], RuleSet]) -> None:
        self.rules = change(self.rules)
