# Generated from _async/rules.py by `make generate`: change that file instead.
"""The blocking client's object for merge rules."""

from collections.abc import Iterable, Iterator
from typing import Any, TypeAlias

from mnemon._messages.calls import update_rule
from mnemon._messages.records import given_statement
from mnemon._messages.rules import rule_from_pb, rule_to_pb, rules_to_pb
from mnemon._messages.translation import read, request
from mnemon._sync.service import Service, Stub
from mnemon._values import rules, semantic
from mnemon.v1 import rules_pb2 as pb
from mnemon.v1.rules_pb2_grpc import RulesServiceStub

# In the class, `list` is a method.
_WrittenRules: TypeAlias = list[dict[str, Any]]


class Rules(Service):
    """Merge rules, as `client.rules`: what counts as a conflict, how it is decided, and how statements are merged.

    Rules inherit, and are plain dicts in the form of `MergeRule`. An unknown key or value raises InvalidArgumentError,
    which names it.
    """

    _stub = Stub(RulesServiceStub)

    def add(
        self, rule: rules.MergeRule, *, request_id: str | None = None, timeout: float | None = None
    ) -> rules.StoredRule:
        """Adds a rule, and returns it as stored, with `warnings` about unexpected effects.

        A rule without conditions applies to every statement, so that "default" is used for none.

        Raises RuleExistsError if a rule has this name, UnknownBaseRuleError if the rule that it extends does not exist,
        and CircularInheritanceError.
        """
        asked = request(pb.RegisterRuleRequest, rule=rule_to_pb(rule), request_id=request_id)
        return read(rules.StoredRule, self._call(self._stub.RegisterRule, asked, timeout))

    def get(self, name: str, *, timeout: float | None = None) -> rules.StoredRule:
        """Returns a rule as it was written. Raises RuleNotFoundError if it does not exist."""
        asked = request(pb.GetRuleRequest, name=name)
        return read(rules.StoredRule, self._call(self._stub.GetRule, asked, timeout))

    def update(
        self,
        name: str,
        changes: rules.MergeRule | None = None,
        *,
        update_mask: Iterable[str] = (),
        expected_revision: int | None = None,
        request_id: str | None = None,
        timeout: float | None = None,
    ) -> rules.StoredRule:
        """Changes the given keys of a rule and keeps the others; lists are replaced.

        With an `update_mask`, such as ["arbitration.merge_threshold", "conditions"], exactly these fields change: given
        ones are replaced, and the others are inherited again. With `expected_revision`, it writes only if the rule has
        this revision; otherwise it raises RevisionMismatchError. Raises RuleNotFoundError, UnknownBaseRuleError and
        CircularInheritanceError.
        """
        asked = update_rule(
            name,
            {} if changes is None else changes,
            update_mask=update_mask,
            expected_revision=expected_revision,
            request_id=request_id,
        )
        return read(rules.StoredRule, self._call(self._stub.UpdateRule, asked, timeout))

    def delete(
        self,
        name: str,
        *,
        force: bool = False,
        allow_missing: bool = False,
        expected_revision: int | None = None,
        request_id: str | None = None,
        timeout: float | None = None,
    ) -> rules.RuleDeleteReceipt:
        """Removes a rule. Raises RuleNotFoundError if it does not exist; with `allow_missing`, `deleted` is then False.

        With `expected_revision`, it removes the rule only if it has this revision; otherwise it raises
        RevisionMismatchError. Raises RuleInUseError if other rules extend it; with `force`, they keep what they
        inherited as their own. Raises InvalidOperationError for "default".
        """
        asked = request(
            pb.DeleteRuleRequest,
            name=name,
            force=force,
            allow_missing=allow_missing,
            expected_revision=expected_revision,
            request_id=request_id,
        )
        return read(rules.RuleDeleteReceipt, self._call(self._stub.DeleteRule, asked, timeout))

    def list(
        self, *, order: str = rules.RuleOrder.REGISTRATION, page_size: int = 0, timeout: float | None = None
    ) -> Iterator[dict[str, Any]]:
        """Yields all rules as they were written, in the order of registration or of matching.

        "registration" begins with "default"; "matching" is the order in which rules are tried. `timeout` applies to
        each page.
        """
        return self._items(self.list_page, order=order, page_size=page_size, timeout=timeout)

    def list_page(
        self,
        *,
        order: str = rules.RuleOrder.REGISTRATION,
        page_size: int = 0,
        page_token: str = "",
        timeout: float | None = None,
    ) -> rules.RulePage:
        """Returns one page of rules: 100 if `page_size` is 0, at most 1,000.

        The order must be that of the previous page. Raises InvalidPageTokenError if it differs.
        """
        asked = request(pb.ListRulesRequest, order=order, page_size=page_size, page_token=page_token)
        return read(rules.RulePage, self._call(self._stub.ListRules, asked, timeout))

    def match(
        self,
        candidate: semantic.SemanticMemory,
        existing: semantic.SemanticMemory | None = None,
        *,
        timeout: float | None = None,
    ) -> dict[str, Any]:
        """Returns the rule that applies to a statement, with everything that it inherits.

        User, persona, source and importance of the candidate decide: the enabled rule with the highest priority whose
        conditions match, or "default". `existing`, the statement that it conflicts with, must have the same user,
        household and persona.
        """
        asked = request(
            pb.FindMatchingRuleRequest,
            candidate=given_statement("candidate", candidate, with_embedding=False),
            existing=None if existing is None else given_statement("existing", existing, with_embedding=False),
        )
        response = self._call(self._stub.FindMatchingRule, asked, timeout)
        return rule_from_pb(response.rule)

    def resolve(self, name: str, *, timeout: float | None = None) -> rules.ResolvedRule:
        """Returns a rule with everything that it inherits, and the origin of each field. Raises RuleNotFoundError."""
        asked = request(pb.ResolveRuleRequest, name=name)
        return read(rules.ResolvedRule, self._call(self._stub.ResolveRule, asked, timeout))

    def export(self, *, timeout: float | None = None) -> _WrittenRules:
        """Returns all rules as they were written, in the order of their registration, for `load`."""
        response = self._call(self._stub.ExportRules, pb.ExportRulesRequest(), timeout)
        return list(map(rule_from_pb, response.rules))

    def load(
        self,
        given: Iterable[rules.MergeRule],
        *,
        replace_all: bool = False,
        lenient: bool = False,
        request_id: str | None = None,
        timeout: float | None = None,
    ) -> rules.LoadReceipt:
        """Adds rules, or replaces those with the same name. Loads all of them or none, in any order. At most 1,000.

        With `replace_all`, it removes all other rules. With `lenient`, "default" stands in for a missing base;
        otherwise a missing base raises UnknownBaseRuleError. Raises CircularInheritanceError.
        """
        asked = request(
            pb.LoadRulesRequest,
            rules=rules_to_pb(given),
            replace_all=replace_all,
            lenient=lenient,
            request_id=request_id,
        )
        return read(rules.LoadReceipt, self._call(self._stub.LoadRules, asked, timeout))

    def reset(self, *, request_id: str | None = None, timeout: float | None = None) -> int:
        """Removes all rules, resets "default", and returns the version of the registry."""
        asked = request(pb.ResetRulesRequest, request_id=request_id)
        response = self._call(self._stub.ResetRules, asked, timeout)
        return response.registry_version
