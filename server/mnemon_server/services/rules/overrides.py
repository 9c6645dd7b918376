"""Changes to a rule for a single call."""

from collections.abc import Mapping
from typing import Any

from mnemon_server.domain.errors import FieldViolation, InvalidArgumentError
from mnemon_server.domain.rules import ResolvedRule
from mnemon_server.domain.validation import refuse
from mnemon_server.services.rules.inheritance import idle_settings, resolved, resolved_to_dict
from mnemon_server.services.rules.schema import checked_rule


def overridden(rule: ResolvedRule, section: str, changes: Mapping[str, Any] | None) -> ResolvedRule:
    """The rule with changes to one of its sections: "detection", "arbitration" or "merge", as RuleDict writes them.

    Raises:
        InvalidArgumentError: names every invalid value, by a field such as "merge.importance_boost", and settings of a
            signal that is not evaluated.
    """
    if not changes:
        return rule
    try:
        changed = checked_rule({"name": rule.name, section: changes})
    except InvalidArgumentError as error:
        violations = [FieldViolation(one.field.removeprefix("rule."), one.description) for one in error.violations]
        raise InvalidArgumentError(violations) from None
    applied = resolved([changed, resolved_to_dict(rule)])
    refuse(FieldViolation(field, why) for field, why in idle_settings(changed, applied).items())
    return applied
