"""The registry of merge rules, in memory."""

from collections.abc import Callable, Sequence
from copy import deepcopy
from threading import Lock
from typing import Any

from mnemon_server.domain.rules import LoadedRules, ResolvedRule, RuleDict, RuleReceipt
from mnemon_server.domain.semantic import SemanticMemory
from mnemon_server.services.rules.rule_set import RuleSet

Rule = dict[str, Any]


class MergeRuleRegistry:
    """Merge rules, each found by its name, that inherit from one another. Any thread may call any method.

    Rules are kept as they were written, and resolved when they are read, so that a changed base reaches its children.
    A change is made as a whole or, where it raises, not at all; the version grows by one with every change that changes
    something. Errors of the methods are those of the methods of RuleSet that do the work.
    """

    def __init__(self, rules: RuleSet | None = None) -> None:
        """Begins with `rules`, or with nothing but "default" at version 1."""
        self._rules = RuleSet({}) if rules is None else rules
        self._changing = Lock()

    @property
    def rules(self) -> RuleSet:
        """All rules as they are now; later changes do not reach what is returned."""
        return self._rules

    @property
    def version(self) -> int:
        """1 at first, one more with every change."""
        return self._rules.version

    def get(self, name: str) -> Rule:
        """A copy of the rule as it was written. RuleNotFoundError if it does not exist."""
        return copied(self._rules.placed(name).rule)

    def find_matching(self, candidate: SemanticMemory, existing: SemanticMemory | None = None) -> ResolvedRule:
        """The rule that applies to a candidate: of the enabled ones whose conditions hold, the first of the highest
        priority, and otherwise "default". No condition looks at `existing`, what the candidate conflicts with.
        """
        return self._rules.find_matching(candidate)

    def resolve(self, name: str) -> ResolvedRule:
        """The rule with all that it inherits, and which rule gave each field. RuleNotFoundError if it is missing."""
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
        """Lays `changes` over the rule: objects are merged key by key, lists are replaced.

        With a mask, only its fields are changed: what `changes` say of them takes the place of what is there, and what
        they do not say is inherited again.
        """
        _, after = self._change(lambda rules: rules.updated(name, changes, mask))
        return receipt_of(after, name)

    def delete(self, name: str, *, force: bool = False) -> bool:
        """Removes a rule; False where there was none. With `force`, rules that extend it keep what they inherited."""
        before, after = self._change(lambda rules: rules.deleted(name, force=force))
        return after is not before

    def load(self, rules: Sequence[object], *, replace_all: bool = False, lenient: bool = False) -> LoadedRules:
        """Takes rules in any order: all of them or none.

        Args:
            rules: as `export` gives them; each is taken as a whole, in place of one of the same name.
            replace_all: remove all others, and take over this order.
            lenient: a base that is not there is taken as "default", rather than refused.
        """
        before, after = self._change(lambda now: now.loaded(rules, replace_all=replace_all, lenient=lenient))
        changes = after.difference(before)
        return LoadedRules(len(changes.registered), len(changes.updated), len(changes.deleted), after.version)

    def reset(self) -> None:
        """Removes all rules, and takes "default" back to what it was."""
        self._change(RuleSet.reset)

    def __eq__(self, other: object) -> bool:
        """Whether the same rules are there in the same order, at whatever version."""
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
    """A rule as it stands in `rules`."""
    placed = rules.placed(name)
    return RuleReceipt(copied(placed.rule), placed.revision, rules.version)
