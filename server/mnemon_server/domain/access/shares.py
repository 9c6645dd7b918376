"""Shares: records of other users that a caller may read and, if allowed, write."""

from collections.abc import Iterable
from dataclasses import dataclass

from mnemon_server.domain.encoding import SCOPE_FIELDS, scope_values
from mnemon_server.domain.filters import AllOf, AnyOf, Condition, Expression, Operator
from mnemon_server.domain.namespaces import Namespace, namespace_text
from mnemon_server.domain.records import Scope


@dataclass(frozen=True, slots=True)
class Share:
    """Access to the records of a scope, or to the facts in a namespace."""

    scope: Scope = Scope()
    """A user, optionally with further fields; empty if a namespace is shared."""
    namespace: Namespace | None = None
    """Including its children."""
    may_write: bool = False


def covers(outer: Scope, scope: Scope) -> bool:
    """Whether a record with this scope has every field that `outer` sets."""
    return all(wanted in ("", found) for wanted, found in zip(scope_values(outer), scope_values(scope), strict=True))


def narrowed(outer: Scope, scope: Scope) -> Scope | None:
    """The intersection of two filters; None if they contradict each other."""
    pairs = list(zip(scope_values(outer), scope_values(scope), strict=True))
    if any(one and other and one != other for one, other in pairs):
        return None
    return Scope(*(one or other for one, other in pairs))


def is_whole_user(scope: Scope) -> bool:
    """Whether it selects all records of a user."""
    return scope == Scope(user=scope.user)


def any_of(scopes: Iterable[Scope]) -> Expression:
    """Selects the records of any of these scopes, each of which names a user."""
    kept = list(scopes)
    users = tuple(each.user for each in kept if is_whole_user(each))
    parts: list[Expression] = [Condition("user", Operator.IN, users)] if users else []
    parts += [AllOf(tuple(_conditions(each))) for each in kept if not is_whole_user(each)]
    return parts[0] if len(parts) == 1 else AnyOf(tuple(parts))


def _conditions(scope: Scope) -> Iterable[Condition]:
    for name, value in zip(SCOPE_FIELDS, scope_values(scope), strict=True):
        if value:
            yield Condition(name, Operator.EQ, (value,))


def scope_text(scope: Scope) -> str:
    """The scope as written in error messages, such as "'ada' with project 'garden'"."""
    others = [
        f"{name} {value!r}" for name, value in zip(SCOPE_FIELDS[1:], scope_values(scope)[1:], strict=True) if value
    ]
    return f"{scope.user!r} with {' and '.join(others)}" if others else repr(scope.user)


def order(share: Share) -> tuple[str, ...]:
    """The sort key of shares, so that equal sets compare equal."""
    return (*scope_values(share.scope), namespace_text(share.namespace or ()), str(share.may_write))
