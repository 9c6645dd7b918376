"""Merge rules at one version: an immutable value, which any number of threads can use.

Rules are kept as they were written, and resolved when they are read, so that a changed base affects its children. Every
change returns a new set, or raises and changes nothing. The version increases by one with every effective change, and
with every update.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
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
from mnemon_server.domain.origins import Origin
from mnemon_server.domain.rules import (
    DEFAULT_RULE,
    RULES_BYTES_MAX,
    RULES_MAX,
    LoadedRules,
    ResolvedRule,
    RuleConditions,
    RuleDict,
    RuleOrder,
    RuleReceipt,
)
from mnemon_server.domain.semantic import SemanticMemory
from mnemon_server.domain.validation import refuse
from mnemon_server.services.rules.inheritance import flattened, idle_settings, resolved
from mnemon_server.services.rules.schema import check_mask, checked_rule, merged, only_fields, rule_json, without_fields

_PRIORITY_MAX, _PLACE_BITS = 2**31 - 1, 31
_LAST_POSITION = 2**63
"""Larger than any position of the lowest priority."""


@dataclass(frozen=True, slots=True)
class PlacedRule:
    """A rule as it was written, with its permanent place in the order of registration; "default" has place 0.

    Its revision is that of its document, and increases by one whenever rule or place changes.
    """

    rule: RuleDict
    place: int
    revision: int = 0


DEFAULT_AT_FIRST = PlacedRule({"name": DEFAULT_RULE}, 0)


class RuleSet:
    """All rules as they were written, by name, "default" first and the others by their places."""

    def __init__(self, rules: Mapping[str, PlacedRule], version: int = 1) -> None:
        """Takes rules that are valid together; adds "default" if it is missing."""
        others = sorted((placed for name, placed in rules.items() if name != DEFAULT_RULE), key=lambda one: one.place)
        default = rules.get(DEFAULT_RULE, DEFAULT_AT_FIRST)
        self.rules: Mapping[str, PlacedRule] = {placed.rule["name"]: placed for placed in (default, *others)}
        self.version = version
        self._resolved: dict[str, ResolvedRule] = {}

    # Reading

    def resolve(self, name: str) -> ResolvedRule:
        """The rule with everything that it inherits, and from which rules. RuleNotFoundError if it does not exist."""
        if (found := self._resolved.get(name)) is None:
            # Two threads may do this at the same time; both write the same value.
            found = self._resolved[name] = resolved(self._chain(name))
        return found

    def find_matching(self, candidate: SemanticMemory) -> ResolvedRule:
        """The first enabled rule, in the order of matching, whose conditions hold; otherwise "default"."""
        matching = (rule for rule in self._asked if _holds(rule.conditions, candidate))
        return next(matching, None) or self.resolve(DEFAULT_RULE)

    def listed(self, order: RuleOrder) -> list[tuple[int, PlacedRule]]:
        """All rules in this order, with ascending positions, which do not change when other rules do."""
        position = self._matching_position if order is RuleOrder.MATCHING else _registration_position
        return sorted(((position(placed), placed) for placed in self.rules.values()), key=lambda pair: pair[0])

    def warnings(self, *names: str) -> list[str]:
        """Surprises of these rules: that one is used instead of "default", or that a setting has no effect.

        Neither is an error: a rule that extends this one may have conditions, or evaluate the signal.
        """
        return [warning for name in names for warning in self._warnings(name)]

    def receipt(self, name: str) -> RuleReceipt:
        """A rule as it was written. RuleNotFoundError if it does not exist."""
        placed = self.placed(name)
        return RuleReceipt(placed.rule, placed.revision, self.version, self.warnings(name))

    def since(self, before: "RuleSet") -> LoadedRules:
        """The differences from `before` to this set."""
        there = before.rules
        new = [name for name in self.rules if name not in there]
        changed = [name for name, each in self.rules.items() if name in there and there[name].rule != each.rule]
        gone = len(there.keys() - self.rules.keys())
        return LoadedRules(len(new), len(changed), gone, self.version, self.warnings(*new, *changed))

    # Changing

    def registered(self, rule: object) -> "RuleSet":
        """The set with one more rule.

        Raises:
            InvalidArgumentError: a value is invalid.
            RuleExistsError: a rule with this name exists.
            UnknownBaseRuleError, CircularInheritanceError: it extends a rule that does not exist, or itself.
            InvalidOperationError: the set is full.
        """
        kept = checked_rule(rule)
        if kept["name"] in self.rules:
            raise RuleExistsError(kept["name"])
        return self._with([kept])

    def updated(self, name: str, changes: object, mask: Sequence[str] = ()) -> "RuleSet":
        """The set after applying `changes` to a rule: all fields that they set, or only the masked fields.

        The version increases even if nothing differs.

        Raises:
            InvalidArgumentError: a value is invalid, the name differs, or the mask names an unknown field.
            RuleNotFoundError: the rule does not exist.
            UnknownBaseRuleError, CircularInheritanceError: its new base does not exist, or extends it.
        """
        laid_over = checked_rule({"name": name, **changes} if isinstance(changes, Mapping) else changes)
        if laid_over["name"] != name:
            raise InvalidArgumentError.of("rule.name", f"must be {name!r} or unset: a rule cannot be renamed")
        rule = self.placed(name).rule
        if mask:
            check_mask(mask)
            rule, laid_over = without_fields(rule, mask), only_fields(laid_over, mask)
        changed = self._with([checked_rule(merged(rule, laid_over))])
        return RuleSet(self.rules, self.version + 1) if changed is self else changed

    def deleted(self, name: str, *, force: bool = False) -> "RuleSet":
        """The set without a rule; the same set if the rule does not exist.

        Args:
            name: the name of the rule.
            force: removes it even if other rules extend it; they get what they inherited, and extend no rule.

        Raises:
            InvalidOperationError: it is "default".
            RuleInUseError: other rules extend it.
        """
        if name == DEFAULT_RULE:
            raise InvalidOperationError('the rule "default" cannot be deleted; reset the rules to restore it')
        if name not in self.rules:
            return self
        children = [child for child, placed in self.rules.items() if placed.rule.get("extends") == name]
        if children and not force:
            raise RuleInUseError(name, children)
        frozen = {child: PlacedRule(flattened(self._chain(child)), self.rules[child].place) for child in children}
        remaining = {other: placed for other, placed in self.rules.items() if other != name}
        return self._changed(remaining | frozen)

    def loaded(self, rules: Sequence[object], *, replace_all: bool = False, lenient: bool = False) -> "RuleSet":
        """The set with all of these rules, in any order. Each one replaces any rule with the same name as a whole.

        Args:
            rules: the rules.
            replace_all: the set has only these rules, in their order, and the original "default" unless they name it.
            lenient: replaces an unknown base by "default".

        Raises:
            InvalidArgumentError: a value is invalid, or a name occurs twice.
            UnknownBaseRuleError, CircularInheritanceError: a base does not exist, or a rule extends itself.
            InvalidOperationError: there would be too many rules.
        """
        kept = [checked_rule(rule, f"rules[{index}]") for index, rule in enumerate(rules)]
        _refuse_repeated_names(kept)
        if lenient:
            names = {DEFAULT_RULE, *(rule["name"] for rule in kept), *(() if replace_all else self.rules)}
            kept = [_with_known_base(rule, names) for rule in kept]
        return self._replaced_by(kept) if replace_all else self._with(kept)

    def reset(self) -> "RuleSet":
        """The set with only the original "default"."""
        return self._changed({})

    # Combining

    def _with(self, rules: Sequence[dict[str, Any]]) -> "RuleSet":
        """The set with these rules: known names keep their places, new ones follow behind all others."""
        placed = dict(self.rules)
        last = max(one.place for one in placed.values())
        for rule in rules:
            if (known := placed.get(rule["name"])) is None:
                last += 1
            placed[rule["name"]] = PlacedRule(rule, last if known is None else known.place)
        return self._changed(placed)

    def _replaced_by(self, rules: Sequence[dict[str, Any]]) -> "RuleSet":
        """The set with exactly these rules, in this order; a rule keeps its place if the order allows that."""
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
        """The rule with the revision that it has in the next set."""
        known = self.rules.get(placed.rule["name"])
        if known is None:
            return replace(placed, revision=1)
        is_changed = (placed.rule, placed.place) != (known.rule, known.place)
        return replace(placed, revision=known.revision + is_changed)

    def __eq__(self, other: object) -> bool:
        """Whether both have the same rules in the same order; the versions may differ."""
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

    def _warnings(self, name: str) -> Iterator[str]:
        rule = self.resolve(name)
        if name != DEFAULT_RULE and rule.enabled and rule.conditions == RuleConditions():
            yield (
                f"the rule {name!r} has no conditions, so it applies to every statement that no rule before it is for, "
                'and "default" to none: set its conditions, or update "default" instead'
            )
        for field, why in idle_settings(self.placed(name).rule, rule).items():
            yield f"{field} of the rule {name!r} {why}"

    def _chain(self, name: str) -> list[RuleDict]:
        """The rule, its base, the base of its base, and so on."""
        chain = [self.placed(name).rule]
        while (base := chain[-1].get("extends")) is not None:
            chain.append(self.rules[base].rule)
        return chain

    @cached_property
    def _asked(self) -> tuple[ResolvedRule, ...]:
        """The enabled rules in the order of matching; rules of equal priority are in the order of their places."""
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
        and (not conditions.origins or (candidate.scope.origin or Origin.AGENT) in conditions.origins)
        and _is_within(candidate.importance, conditions.importance_min, conditions.importance_max)
    )


def _is_within(importance: float | None, low: float | None, high: float | None) -> bool:
    if low is None and high is None:
        return True
    return importance is not None and (low is None or importance >= low) and (high is None or importance <= high)


def _refuse_repeated_names(rules: Sequence[RuleDict]) -> None:
    first = {rule["name"]: index for index, rule in reversed([*enumerate(rules)])}
    refuse(
        FieldViolation(f"rules[{index}].name", "must differ from the names of the rules before it")
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
        # The nodes of the error go from base to child.
        raise CircularInheritanceError(error.args[1][::-1]) from error
