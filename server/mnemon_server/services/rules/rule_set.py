"""Merge rules at one version: a value that never changes, and so can be used by any number of threads.

Every change makes a new set out of this one, or raises; what is raised has changed nothing.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from graphlib import CycleError, TopologicalSorter
from typing import Any

from mnemon_server.domain.errors import (
    CircularInheritanceError,
    FieldViolation,
    InvalidArgumentError,
    InvalidOperationError,
    RuleExistsError,
    RuleInUseError,
    RuleNotFoundError,
    UnknownBaseRuleError,
)
from mnemon_server.domain.rules import (
    DEFAULT_RULE,
    RULES_BYTES_MAX,
    RULES_MAX,
    ResolvedRule,
    RuleConditions,
    RuleDict,
    RuleOrder,
)
from mnemon_server.domain.semantic import SemanticMemory
from mnemon_server.domain.validation import refuse
from mnemon_server.services.rules.inheritance import flattened, resolved
from mnemon_server.services.rules.schema import check_mask, checked_rule, merged, only_fields, rule_json, without_fields

_PRIORITY_MAX, _PLACE_BITS = 2**31 - 1, 31
_LAST_POSITION = 2**63
"""Behind every place of the lowest priority."""


@dataclass(frozen=True, slots=True)
class PlacedRule:
    """A rule as it was written, and its place in the order of registration, which it keeps; "default" has place 0.

    Its revision is that of the document that holds it, which grows by one whenever either of them changes.
    """

    rule: RuleDict
    place: int
    revision: int = 0


@dataclass(frozen=True, slots=True)
class RuleChanges:
    """What became of rules from one set to the next, by name."""

    registered: tuple[str, ...]
    updated: tuple[str, ...]
    deleted: tuple[str, ...]


DEFAULT_AT_FIRST = PlacedRule({"name": DEFAULT_RULE}, 0)


class RuleSet:
    """All rules as they were written, by name, "default" first and the others by their places."""

    def __init__(self, rules: Mapping[str, PlacedRule], version: int = 1) -> None:
        """Takes rules that fit together; "default" is added where it is not among them."""
        others = sorted((placed for name, placed in rules.items() if name != DEFAULT_RULE), key=lambda one: one.place)
        default = rules.get(DEFAULT_RULE, DEFAULT_AT_FIRST)
        self.rules: Mapping[str, PlacedRule] = {placed.rule["name"]: placed for placed in (default, *others)}
        self.version = version
        self._resolved: dict[str, ResolvedRule] = {}

    # Reading

    def resolve(self, name: str) -> ResolvedRule:
        """The rule with all that it inherits, and where from. RuleNotFoundError if it does not exist."""
        if (found := self._resolved.get(name)) is None:
            # Two threads may both come here, and then write the same.
            found = self._resolved[name] = resolved(self._chain(name))
        return found

    def find_matching(self, candidate: SemanticMemory) -> ResolvedRule:
        """The first of the enabled rules, as they are asked, whose conditions hold; "default" where none does."""
        matching = (rule for rule in self._asked if _holds(rule.conditions, candidate))
        return next(matching, None) or self.resolve(DEFAULT_RULE)

    def listed(self, order: RuleOrder) -> list[tuple[int, PlacedRule]]:
        """All rules in this order, each with a position that grows, and that no other change of rules moves."""
        position = self._matching_position if order is RuleOrder.MATCHING else _registration_position
        return sorted(((position(placed), placed) for placed in self.rules.values()), key=lambda pair: pair[0])

    def difference(self, before: "RuleSet") -> RuleChanges:
        """What was changed since `before`."""
        there = before.rules
        return RuleChanges(
            registered=tuple(name for name in self.rules if name not in there),
            updated=tuple(
                name for name, placed in self.rules.items() if name in there and there[name].rule != placed.rule
            ),
            deleted=tuple(name for name in there if name not in self.rules),
        )

    # Changing

    def registered(self, rule: object) -> "RuleSet":
        """With one more rule.

        Raises:
            InvalidArgumentError: a value that cannot be.
            RuleExistsError: there is one of this name.
            UnknownBaseRuleError, CircularInheritanceError: it extends one that is not there, or itself.
            InvalidOperationError: there are as many as there may be.
        """
        kept = checked_rule(rule)
        if kept["name"] in self.rules:
            raise RuleExistsError(kept["name"])
        return self._with([kept])

    def updated(self, name: str, changes: object, mask: Sequence[str] = ()) -> "RuleSet":
        """With `changes` laid over a rule, or, with a mask, with its fields as they are in `changes`.

        Raises:
            InvalidArgumentError: a value that cannot be, another name, or a mask that names what is no field.
            RuleNotFoundError: there is no such rule.
            UnknownBaseRuleError, CircularInheritanceError: its new base is not there, or extends it.
        """
        laid_over = checked_rule({"name": name, **changes} if isinstance(changes, Mapping) else changes)
        if laid_over["name"] != name:
            raise InvalidArgumentError.of("rule.name", f"must be {name!r}, or be left out: a rule keeps its name")
        rule = self.placed(name).rule
        if mask:
            check_mask(mask)
            rule, laid_over = without_fields(rule, mask), only_fields(laid_over, mask)
        return self._with([checked_rule(merged(rule, laid_over))])

    def deleted(self, name: str, *, force: bool = False) -> "RuleSet":
        """Without a rule; this same set where there is none of that name.

        Args:
            name: which rule.
            force: also where others extend it; they are given what they had inherited, and extend none.

        Raises:
            InvalidOperationError: it is "default".
            RuleInUseError: others extend it.
        """
        if name == DEFAULT_RULE:
            raise InvalidOperationError('the rule "default" cannot be deleted; reset the rules to take it back')
        if name not in self.rules:
            return self
        children = [child for child, placed in self.rules.items() if placed.rule.get("extends") == name]
        if children and not force:
            raise RuleInUseError(name, children)
        frozen = {child: PlacedRule(flattened(self._chain(child)), self.rules[child].place) for child in children}
        remaining = {other: placed for other, placed in self.rules.items() if other != name}
        return self._changed(remaining | frozen)

    def loaded(self, rules: Sequence[object], *, replace_all: bool = False, lenient: bool = False) -> "RuleSet":
        """With all of these rules, in any order, each as a whole in place of one of its name.

        Args:
            rules: the rules.
            replace_all: exactly with these, in their order; a "default" that is not among them becomes what it was.
            lenient: a base that is not there is taken as "default".

        Raises:
            InvalidArgumentError: a value that cannot be, or one name twice.
            UnknownBaseRuleError, CircularInheritanceError: they do not fit together.
            InvalidOperationError: there would be more than there may be.
        """
        kept = [checked_rule(rule, f"rules[{index}]") for index, rule in enumerate(rules)]
        _refuse_repeated_names(kept)
        if lenient:
            names = {DEFAULT_RULE, *(rule["name"] for rule in kept), *(() if replace_all else self.rules)}
            kept = [_with_known_base(rule, names) for rule in kept]
        return self._replaced_by(kept) if replace_all else self._with(kept)

    def reset(self) -> "RuleSet":
        """With nothing but "default" as it was at first."""
        return self._changed({})

    # Fitting together

    def _with(self, rules: Sequence[dict[str, Any]]) -> "RuleSet":
        """Those of a known name keep their places, new ones get places behind all others."""
        placed = dict(self.rules)
        last = max(one.place for one in placed.values())
        for rule in rules:
            if (known := placed.get(rule["name"])) is None:
                last += 1
            placed[rule["name"]] = PlacedRule(rule, last if known is None else known.place)
        return self._changed(placed)

    def _replaced_by(self, rules: Sequence[dict[str, Any]]) -> "RuleSet":
        """In the order given; a rule keeps its place as far as that allows."""
        placed, last = {}, 0
        for rule in rules:
            name = rule["name"]
            known = self.rules.get(name)
            if name == DEFAULT_RULE:
                placed[name] = PlacedRule(rule, 0)
            else:
                last = max(last + 1, known.place if known else 0)
                placed[name] = PlacedRule(rule, last)
        return self._changed(placed)

    def _changed(self, rules: Mapping[str, PlacedRule]) -> "RuleSet":
        changed = RuleSet(rules, self.version + 1)
        if changed == self:
            return self
        if len(changed.rules) > RULES_MAX:
            raise InvalidOperationError(f"there can be at most {RULES_MAX:,} merge rules; delete some first")
        size, known = _size(changed), _size(self)
        if size > max(RULES_BYTES_MAX, known):
            raise InvalidOperationError(f"merge rules can take at most {RULES_BYTES_MAX:,} bytes of JSON, not {size:,}")
        _check_bases({name: placed.rule.get("extends") for name, placed in changed.rules.items()})
        return RuleSet({name: self._revised(placed) for name, placed in changed.rules.items()}, changed.version)

    def _revised(self, placed: PlacedRule) -> PlacedRule:
        """A rule of the next set, with the revision that it has there."""
        known = self.rules.get(placed.rule["name"])
        if known is None:
            return replace(placed, revision=1)
        is_changed = (placed.rule, placed.place) != (known.rule, known.place)
        return replace(placed, revision=known.revision + is_changed)

    def __eq__(self, other: object) -> bool:
        """Whether the same rules are there in the same order, at whatever version."""
        if not isinstance(other, RuleSet):
            return NotImplemented
        return [one.rule for one in self.rules.values()] == [one.rule for one in other.rules.values()]

    __hash__ = None  # type: ignore[assignment]

    # Looking up

    def placed(self, name: str) -> PlacedRule:
        """The rule of this name as it was written. RuleNotFoundError if it does not exist."""
        if (found := self.rules.get(name)) is None:
            raise RuleNotFoundError(name)
        return found

    def _chain(self, name: str) -> list[RuleDict]:
        """The rule, its base, the base of that, and so on."""
        chain = [self.placed(name).rule]
        while (base := chain[-1].get("extends")) is not None:
            chain.append(self.rules[base].rule)
        return chain

    @cached_property
    def _asked(self) -> tuple[ResolvedRule, ...]:
        """The rules that compete, as they are asked; equal priorities stay in the order of their places."""
        competing = [self.resolve(name) for name in self.rules if name != DEFAULT_RULE]
        return tuple(sorted((rule for rule in competing if rule.enabled), key=lambda rule: -rule.priority))

    def _matching_position(self, placed: PlacedRule) -> int:
        name = placed.rule["name"]
        if name == DEFAULT_RULE:
            return _LAST_POSITION
        return ((_PRIORITY_MAX - self.resolve(name).priority) << _PLACE_BITS) + placed.place


def _size(rules: RuleSet) -> int:
    return sum(len(rule_json(placed.rule).encode()) for placed in rules.rules.values())


def _registration_position(placed: PlacedRule) -> int:
    return placed.place + 1


def _holds(conditions: RuleConditions, candidate: SemanticMemory) -> bool:
    return (
        (not conditions.users or candidate.scope.user in conditions.users)
        and (not conditions.personas or candidate.scope.persona in conditions.personas)
        and (not conditions.sources or candidate.source in conditions.sources)
        and _is_within(candidate.importance, conditions.importance_min, conditions.importance_max)
    )


def _is_within(importance: float | None, low: float | None, high: float | None) -> bool:
    if low is None and high is None:
        return True
    return importance is not None and (low is None or importance >= low) and (high is None or importance <= high)


def _refuse_repeated_names(rules: Sequence[RuleDict]) -> None:
    first = {rule["name"]: index for index, rule in reversed([*enumerate(rules)])}
    refuse(
        FieldViolation(f"rules[{index}].name", "must be another than that of every rule before it")
        for index, rule in enumerate(rules)
        if first[rule["name"]] != index
    )


def _with_known_base(rule: dict[str, Any], names: Collection[str]) -> dict[str, Any]:
    if rule.get("extends", DEFAULT_RULE) in names:
        return rule
    # "default" cannot extend itself.
    if rule["name"] == DEFAULT_RULE:
        return {key: value for key, value in rule.items() if key != "extends"}
    return {**rule, "extends": DEFAULT_RULE}


def _check_bases(bases: Mapping[str, str | None]) -> None:
    for name, base in bases.items():
        if base is not None and base not in bases:
            raise UnknownBaseRuleError(name, base)
    try:
        TopologicalSorter({name: [base] for name, base in bases.items() if base is not None}).prepare()
    except CycleError as error:
        # Its nodes go from base to child.
        raise CircularInheritanceError(error.args[1][::-1]) from error
