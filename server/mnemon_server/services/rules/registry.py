"""The in-memory registry of merge rules."""

from collections.abc import Callable, Sequence
from copy import deepcopy
from threading import Lock
from typing import Any

from mnemon_server.domain.rules import LoadedRules, ResolvedRule, RuleDict, RuleReceipt
from mnemon_server.domain.semantic import SemanticMemory
from mnemon_server.services.rules.rule_set import RuleSet
from mnemon_server.services.semantic.checks import refuse_other_scope

Rule = dict[str, Any]


class MergeRuleRegistry:
    """Merge rules by name, which may inherit from one another. Any thread may call any method.

    Rules are stored as they were written, and resolved when they are read, so that a changed base affects its children.
    A change applies as a whole, or not at all if it raises. The version increases by one with every effective change,
    and with every update.
    The methods raise the errors of the RuleSet methods that do the work.
    """

    def __init__(self, rules: RuleSet | None = None) -> None:
        """Starts with `rules`, or with only "default" at version 1."""
        self._rules = RuleSet({}) if rules is None else rules
        self._changing = Lock()

    @property
    def rules(self) -> RuleSet:
        """All current rules; later changes do not affect the returned value."""
        return self._rules

    @property
    def version(self) -> int:
        """Starts at 1; the class says when it increases."""
        return self._rules.version

    def get(self, name: str) -> Rule:
        """A copy of the rule as it was written. RuleNotFoundError if it does not exist."""
        return copied(self._rules.placed(name).rule)

    def find_matching(self, candidate: SemanticMemory, existing: SemanticMemory | None = None) -> ResolvedRule:
        """The rule that applies to a candidate: among enabled rules whose conditions hold, the first with the highest
        priority; if there is no such rule, "default". No condition uses `existing`, which the candidate conflicts with.

        Raises:
            InvalidArgumentError: the two differ in user, household or persona, so that they never conflict.
        """
        if existing is not None:
            refuse_other_scope(existing, candidate, "existing", "candidate")
        return self._rules.find_matching(candidate)

    def resolve(self, name: str) -> ResolvedRule:
        """The rule with everything that it inherits, and where each field came from. RuleNotFoundError if missing."""
        return self._rules.resolve(name)

    def export(self) -> list[Rule]:
        """Copies of all rules as they were written, "default" first, the others as they were registered."""
        return [copied(placed.rule) for placed in self._rules.rules.values()]

    def register(self, rule: object) -> RuleReceipt:
        """Adds a rule."""
        before, after = self._change(lambda rules: rules.registered(rule))
        [name] = after.difference(before).registered
        return receipt_of(after, name)

    def update(self, name: str, changes: object, mask: Sequence[str] = ()) -> RuleReceipt:
        """Applies `changes` to the rule: objects are merged key by key, lists are replaced. The version increases even
        if the rule had these values.

        With a mask, only the fields that it names change: they get their values from `changes`, and a field that
        `changes` do not set is inherited again.
        """
        _, after = self._change(lambda rules: rules.updated(name, changes, mask))
        return receipt_of(after, name)

    def delete(self, name: str, *, force: bool = False) -> bool:
        """Removes a rule; False if it did not exist. With `force`, rules that extend it keep what they inherited."""
        before, after = self._change(lambda rules: rules.deleted(name, force=force))
        return after is not before

    def load(self, rules: Sequence[object], *, replace_all: bool = False, lenient: bool = False) -> LoadedRules:
        """Registers rules in any order: all of them, or none if it raises.

        Args:
            rules: as `export` returns them; each one replaces any rule with the same name as a whole.
            replace_all: removes all other rules, and uses the order of `rules`.
            lenient: replaces an unknown base by "default" instead of refusing it.
        """
        before, after = self._change(lambda now: now.loaded(rules, replace_all=replace_all, lenient=lenient))
        changes = after.difference(before)
        counts = len(changes.registered), len(changes.updated), len(changes.deleted)
        return LoadedRules(*counts, after.version, after.warnings(*changes.registered, *changes.updated))

    def reset(self) -> None:
        """Removes all rules, and restores the original "default"."""
        self._change(RuleSet.reset)

    def __eq__(self, other: object) -> bool:
        """Whether both have the same rules in the same order; the versions may differ."""
        return self._rules == other.rules if isinstance(other, MergeRuleRegistry) else NotImplemented

    __hash__ = None  # type: ignore[assignment]

    def _change(self, change: Callable[[RuleSet], RuleSet]) -> tuple[RuleSet, RuleSet]:
        """The rules before the change and after it."""
        with self._changing:
            before = self._rules
            after = self._rules = change(before)
        return before, after


def copied(rule: RuleDict) -> Rule:
    """A copy that the caller may change."""
    return deepcopy(dict(rule))


def receipt_of(rules: RuleSet, name: str) -> RuleReceipt:
    """The receipt for a rule of `rules`."""
    placed = rules.placed(name)
    return RuleReceipt(copied(placed.rule), placed.revision, rules.version, rules.warnings(name))
