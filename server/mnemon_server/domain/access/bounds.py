"""The bounds of a caller: which records of a tenant exist for the caller."""

import hmac
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from mnemon_server.domain.collections import FACTS, RULES, VERSIONS, Collection
from mnemon_server.domain.documents import Document
from mnemon_server.domain.errors import FieldViolation, InvalidArgumentError, PermissionDeniedError
from mnemon_server.domain.filters import AllOf, AnyOf, Condition, Expression, NoneOf, Operator, RecordFilter
from mnemon_server.domain.namespaces import (
    Namespace,
    encode_namespace,
    namespace_labels,
    namespace_text,
    span_of,
    starts_with,
)
from mnemon_server.domain.origins import NAMES, Origin, is_origin, trust
from mnemon_server.domain.records import Scope
from mnemon_server.domain.validation import id_violations

ALL = "*"
"""Stands for all users, or for all namespaces."""
ENTRIES_MAX = 64
"""Users, and namespaces, of one caller."""
_DIGEST_BYTES = 16
_NOTHING = AnyOf(())


@dataclass(frozen=True, slots=True)
class Bounds:
    """The users whose records a caller sees, and the namespaces whose facts. Other records do not exist for the caller.

    A fact belongs to its namespace, every other record to the user in its scope. A record without a user belongs to no
    one, so only callers without bounds see it. Rules alone exist for all: they decide about everybody's statements.
    """

    users: tuple[str, ...] | None = None
    """In order, each once; None means all, and records without a user as well."""
    namespaces: tuple[Namespace, ...] | None = None
    """Each with those below it; None means all."""
    origins: tuple[str, ...] = ()
    """The origins of which the caller writes records, the most trusted first; empty means any. Others are only read."""

    @classmethod
    def of(cls, users: Sequence[str], namespaces: Sequence[str], origins: Sequence[str] = ()) -> "Bounds":
        """Reads them from texts: users, namespaces such as "users.ada", with a backslash before a dot within a label,
        and origins. ALL stands for all users or namespaces; without any entry of either kind, all records exist for the
        caller.

        Raises:
            InvalidArgumentError: an entry is not valid.
        """
        if violations := [*_user_violations(users), *_namespace_violations(namespaces), *_origin_violations(origins)]:
            raise InvalidArgumentError(violations)
        return cls.stored(users, namespaces, origins)

    @classmethod
    def stored(cls, users: Sequence[str], namespaces: Sequence[str], origins: Sequence[str] = ()) -> "Bounds":
        """Reads texts that were checked when they were stored; an earlier version allowed blank ones."""
        written = tuple(sorted(set(origins), key=trust, reverse=True))
        if not users and not namespaces:
            return cls(origins=written) if written else UNBOUNDED
        distinct = set(map(namespace_labels, namespaces))
        return cls(
            None if ALL in users else tuple(sorted(set(users))),
            None if ALL in namespaces else tuple(map(Namespace.stored, sorted(distinct, key=namespace_text))),
            written,
        )

    def __bool__(self) -> bool:
        """Whether there may be records that the caller cannot read or write."""
        return self.is_narrow or bool(self.origins)

    @property
    def is_narrow(self) -> bool:
        """Whether any record may be outside."""
        return self.users is not None or self.namespaces is not None

    @property
    def user_texts(self) -> list[str]:
        """The users as `of` reads them."""
        return [] if not self.is_narrow else [ALL] if self.users is None else [*self.users]

    @property
    def namespace_texts(self) -> list[str]:
        """The namespaces as `of` reads them."""
        return (
            [] if not self.is_narrow else [ALL] if self.namespaces is None else [*map(namespace_text, self.namespaces)]
        )

    def digest(self, secret: bytes, purpose: bytes) -> bytes:
        """16 bytes that differ between bounds, and that only the holder of the secret can tell."""
        text = json.dumps([self.user_texts, self.namespace_texts, *map(str, self.origins)]).encode()
        return hmac.digest(secret, purpose + b"\0" + text, "sha256")[:_DIGEST_BYTES]

    @property
    def namespace_spans(self) -> list[tuple[str, str]] | None:
        """The ranges of encoded namespaces, ascending, without overlaps; see `span_of`. None means all."""
        if self.namespaces is None:
            return None
        spans: list[tuple[str, str]] = []
        for first, end in sorted(map(span_of, self.namespaces)):
            if not spans or first >= spans[-1][1]:
                spans.append((first, end))
        return spans

    # Records

    def admits(self, collection: Collection, document: Document) -> bool:
        """Whether a record exists for the caller."""
        if collection == RULES:
            return True
        if collection == FACTS or (collection == VERSIONS and document.fields["namespace"]):
            text = str(document.fields["namespace"])
            return self.namespaces is None or any(text.startswith(encode_namespace(each)) for each in self.namespaces)
        return self.admits_user(document.scope.user)

    def restricted(self, collection: Collection, where: RecordFilter) -> RecordFilter:
        """The filter for the records that match and exist for the caller."""
        if collection == RULES:
            return where
        if collection == VERSIONS:
            return _with(where, AnyOf(tuple(self._of_versions())))
        if collection == FACTS:
            if self.namespaces is None:
                return where
            within = tuple(starts_with(each, "namespace") for each in self.namespaces)
            # Alone, it is a range that an index serves together with the rest of the filter.
            return _with(where, within[0] if len(within) == 1 else AnyOf(within))
        if self.users is None:
            return where
        if where.scope.user:
            return where if where.scope.user in self.users else _with(where, _NOTHING)
        if len(self.users) == 1:
            # The index of scopes serves this.
            return replace(where, scope=replace(where.scope, user=self.users[0]))
        return _with(where, Condition("user", Operator.IN, self.users) if self.users else _NOTHING)

    def _of_versions(self) -> Iterator[Expression]:
        """The versions of facts that exist for the caller, and the versions of all other records."""
        is_of_fact = Condition("namespace", Operator.EXISTS, (True,))
        spans = None if self.namespaces is None else [starts_with(each, "namespace") for each in self.namespaces]
        yield is_of_fact if spans is None else AnyOf(tuple(spans))
        users = () if self.users is None else (Condition("user", Operator.IN, self.users) if self.users else _NOTHING,)
        yield AllOf((NoneOf((is_of_fact,)), *users))

    def admits_user(self, user: str) -> bool:
        """Whether records of this user exist for the caller."""
        return self.users is None or user in self.users

    def owned(self, scope: Scope) -> Scope:
        """The scope of a new record: the caller's user, if it names none and the caller has only one.

        Raises:
            PermissionDeniedError: a record with this scope would not exist for the caller.
        """
        if self.users is None or scope.user in self.users:
            return scope
        if not scope.user and len(self.users) == 1:
            return replace(scope, user=self.users[0])
        raise PermissionDeniedError(f"scope.user must be {_choice(self.users)}: your credential is bound to that")

    def sourced(self, scope: Scope) -> Scope:
        """The scope of a new record with the origin that it gets: the least trusted of the caller's, if it names none.

        Raises:
            PermissionDeniedError: the caller may not write records of this origin.
        """
        if not self.origins or scope.origin in self.origins:
            return scope
        if not scope.origin:
            return replace(scope, origin=self.origins[-1])
        raise PermissionDeniedError(f"scope.origin must be {_choice(self.origins)}: your credential is bound to that")

    def may_change(self, scope: Scope) -> bool:
        """Whether the caller may change a stored record, as far as its origin says."""
        return not self.origins or (scope.origin or Origin.AGENT) in self.origins

    def check_change(self, scope: Scope) -> None:
        """Raises PermissionDeniedError unless `may_change`."""
        if not self.may_change(scope):
            found = repr(scope.origin) if scope.origin else "not set"
            raise PermissionDeniedError(
                f"the record's origin is {found}, and must be {_choice(self.origins)}: your credential is bound to that"
            )

    def foreign(self) -> Expression | None:
        """The records that the caller may not change because of their origins; None if there are none."""
        if not self.origins:
            return None
        changeable = {*self.origins, *(("",) if Origin.AGENT in self.origins else ())}
        others = tuple(origin for origin in ("", *map(str, Origin)) if origin not in changeable)
        return Condition("origin", Operator.IN, others)

    def check_namespace(self, text: str) -> None:
        """Raises PermissionDeniedError if a fact in this encoded namespace would not exist for the caller."""
        if self.namespaces is not None and not any(text.startswith(encode_namespace(one)) for one in self.namespaces):
            known = [*map(namespace_text, self.namespaces)]
            raise PermissionDeniedError(f"namespace must be within {_choice(known)}: your credential is bound to that")


UNBOUNDED = Bounds()


def _with(where: RecordFilter, condition: Expression) -> RecordFilter:
    return replace(where, expression=AllOf((condition, where.expression)) if where.expression else condition)


def _choice(texts: Sequence[str]) -> str:
    return " or ".join(map(repr, texts)) if texts else "one of a credential that has any"


def _user_violations(users: Sequence[str]) -> Iterator[FieldViolation]:
    if len(users) > ENTRIES_MAX:
        yield FieldViolation("users", f"must have at most {ENTRIES_MAX} entries")
    for i, user in enumerate(users):
        if not user:
            yield FieldViolation(f"users[{i}]", f'must name a user, or be "{ALL}" for all')
        yield from id_violations(user, f"users[{i}]")


def _origin_violations(origins: Sequence[str]) -> Iterator[FieldViolation]:
    if len(origins) > len(Origin):
        yield FieldViolation("origins", f"must have at most {len(Origin)} entries")
    for i, origin in enumerate(origins[: len(Origin)]):
        if not is_origin(origin):
            yield FieldViolation(f"origins[{i}]", f"must be one of {NAMES}")


def _namespace_violations(namespaces: Sequence[str]) -> Iterator[FieldViolation]:
    if len(namespaces) > ENTRIES_MAX:
        yield FieldViolation("namespaces", f"must have at most {ENTRIES_MAX} entries")
    for i, text in enumerate(namespaces):
        try:
            # ALL is a label, too.
            Namespace(namespace_labels(text))
        except InvalidArgumentError as error:
            reasons = "; ".join(violation.description for violation in error.violations)
            yield FieldViolation(f"namespaces[{i}]", f'must be labels joined by dots, or "{ALL}" for all: {reasons}')
