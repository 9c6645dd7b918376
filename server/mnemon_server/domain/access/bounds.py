"""The bounds of a caller: which records of a tenant exist for the caller."""

import hashlib
import hmac
import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from mnemon_server.domain.access.shares import Share, any_of, covers, is_whole_user, narrowed, order, scope_text
from mnemon_server.domain.collections import DECISIONS, FACTS, RULES, SEMANTIC, VERSIONS, Collection
from mnemon_server.domain.documents import Document
from mnemon_server.domain.errors import FieldViolation, InvalidArgumentError, PermissionDeniedError
from mnemon_server.domain.filters import (
    AllOf,
    AnyOf,
    Condition,
    Expression,
    NoneOf,
    Operator,
    RecordFilter,
    RefersTo,
)
from mnemon_server.domain.namespaces import (
    Namespace,
    encode_namespace,
    namespace_labels,
    namespace_text,
    span_of,
    starts_with,
)
from mnemon_server.domain.origins import NAMES, Origin, Provenance, any_from, is_origin, trust
from mnemon_server.domain.records import RequestKey, Scope
from mnemon_server.domain.validation import id_violations

ALL = "*"
"""Stands for all users, or for all namespaces."""
ENTRIES_MAX = 64
"""Users, and namespaces, of one caller."""
_DIGEST_BYTES = 16


@dataclass(frozen=True, slots=True)
class Bounds:
    """The users whose records a caller sees, and the namespaces whose facts. Other records do not exist for the caller.

    A fact belongs to its namespace, every other record to the user in its scope. A record without a user belongs to no
    one, so only callers without bounds see it. Rules alone exist for all: they decide about everybody's statements.

    Shares add records of other users. A share may be narrower than a user, and may be read-only.

    Records from a source in quarantine exist for no caller.
    """

    users: tuple[str, ...] | None = None
    """In order, each once; None means all, and records without a user as well."""
    namespaces: tuple[Namespace, ...] | None = None
    """Each with those below it; None means all."""
    origins: tuple[str, ...] = ()
    """The origins of records that the caller may write, the most trusted first; empty means any."""
    shares: tuple[Share, ...] = ()
    """Sorted, without shares that the caller's own users and namespaces already cover."""
    holder: str = ""
    """The caller, to whom shares are given; see `request`."""
    hidden: tuple[Provenance, ...] = ()
    """The sources in quarantine."""

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
        return self.is_bound or bool(self.hidden)

    @property
    def is_bound(self) -> bool:
        """Whether the caller itself is limited: to users, namespaces or origins."""
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

    def sharing(self, shares: Iterable[Share], holder: str) -> "Bounds":
        """These bounds with the shares of one caller."""
        return replace(
            self, shares=tuple(sorted((each for each in shares if self._adds(each)), key=order)), holder=holder
        )

    @property
    def unshared(self) -> "Bounds":
        """These bounds without the shares."""
        return replace(self, shares=())

    def _adds(self, share: Share) -> bool:
        """Whether the share is not covered by the caller's own users and namespaces."""
        if share.namespace is None:
            return self.users is not None and share.scope.user not in self.users
        return self.namespaces is not None and not any(map(share.namespace.is_within, self.namespaces))

    # Request ids

    def digest(self, secret: bytes, purpose: bytes) -> bytes:
        """16 bytes that identify the caller's own bounds, and that only the holder of the secret can compute. Shares
        and quarantines are not included, because they come and go.
        """
        text = json.dumps([self.user_texts, self.namespace_texts, *map(str, self.origins)]).encode()
        return hmac.digest(secret, purpose + b"\0" + text, "sha256")[:_DIGEST_BYTES]

    def owner(self, secret: bytes) -> str:
        """A key shared by all callers whose own bounds are the same; empty for unbound callers."""
        return self.digest(secret, b"requests").hex() if self.is_bound else ""

    def request(self, request: RequestKey, owner: str) -> RequestKey:
        """The identity of a request by this caller, with its `owner`.

        While the caller has a writable share, its answers are stored under its own digest, because others with the same
        own bounds may lack that share. The other digest is accepted too, so a retry does not write twice after a share
        was added or removed.
        """
        if not owner:
            return request
        alone = hashlib.sha256(request.digest + self.holder.encode()).digest()
        kept, earlier = (
            (alone, request.digest) if any(each.may_write for each in self.shares) else (request.digest, alone)
        )
        return replace(request, owner=owner, digest=kept, earlier_digest=earlier)

    # What the caller may read and write

    def scopes(self, *, writing: bool = False) -> tuple[Scope, ...] | None:
        """The scopes that the caller may read or, if `writing`, write: its own users, then shares; None means all."""
        if self.users is None:
            return None
        shared = (each.scope for each in self._shared(writing=writing) if each.namespace is None)
        return (*map(Scope, self.users), *shared)

    def spaces(self, *, writing: bool = False) -> tuple[Namespace, ...] | None:
        """The namespaces that the caller may read or, if `writing`, write, each with its children; None means all."""
        if self.namespaces is None:
            return None
        shared = (each.namespace for each in self._shared(writing=writing) if each.namespace is not None)
        return (*self.namespaces, *shared)

    def _shared(self, *, writing: bool) -> Iterator[Share]:
        return (each for each in self.shares if each.may_write or not writing)

    @property
    def namespace_spans(self) -> list[tuple[str, str]] | None:
        """The ranges of encoded namespaces, ascending, without overlaps; see `span_of`. None means all."""
        spaces = self.spaces()
        if spaces is None:
            return None
        spans: list[tuple[str, str]] = []
        for first, end in sorted(map(span_of, spaces)):
            if not spans or first >= spans[-1][1]:
                spans.append((first, end))
        return spans

    # Records

    def admits(self, collection: Collection, document: Document) -> bool:
        """Whether a record exists for the caller."""
        return collection == RULES or self._has(collection, document, writing=False)

    def writable(self, collection: Collection, document: Document) -> bool:
        """Whether the caller may write a stored or new record in this place; `check_change` checks its origin."""
        return collection not in (RULES, VERSIONS) and self._has(collection, document, writing=True)

    def hides(self, scope: Scope) -> bool:
        """Whether records with the origin of this scope are in quarantine."""
        return any(origin == scope.origin and name in ("", scope.origin_name) for origin, name in self.hidden)

    def _has(self, collection: Collection, document: Document, *, writing: bool) -> bool:
        if self.hides(document.scope):
            return False
        if collection == FACTS or (collection == VERSIONS and document.fields["namespace"]):
            return _is_in(str(document.fields["namespace"]), self.spaces(writing=writing))
        scopes = self._scopes_of(collection, writing=writing)
        return scopes is None or any(covers(each, document.scope) for each in scopes)

    def _scopes_of(self, collection: Collection, *, writing: bool) -> tuple[Scope, ...] | None:
        scopes = self.scopes(writing=writing)
        if scopes is None or collection != DECISIONS or writing:
            return scopes
        # A decision quotes two statements but has the scope of one; the other may be outside of a narrow share.
        return tuple(filter(is_whole_user, scopes))

    @property
    def reads_more(self) -> bool:
        """Whether the caller has read-only shares."""
        return not all(each.may_write for each in self.shares)

    def restricted(self, collection: Collection, where: RecordFilter) -> RecordFilter:
        """The filter for the records that match and exist for the caller."""
        own = self._within(collection, where)
        # Decisions go with any of their statements.
        if not self.hidden or collection == RULES or (collection == DECISIONS and where.is_writing):
            return own
        return _with(own, NoneOf((self._quarantined(collection),)))

    def _quarantined(self, collection: Collection) -> Expression:
        """Selects the records from quarantined sources, and the ones derived from statements of theirs."""
        source = any_from(self.hidden)
        if collection not in _FROM_STATEMENTS:
            return source
        made = RefersTo(_FROM_STATEMENTS[collection], SEMANTIC, "merged_from", source)
        if collection == VERSIONS:
            return AnyOf((source, AllOf((Condition("kind", Operator.EQ, (SEMANTIC.name,)), made))))
        return AnyOf((source, made))

    def _within(self, collection: Collection, where: RecordFilter) -> RecordFilter:
        writing = where.is_writing
        if collection == RULES:
            return where
        if collection == VERSIONS:
            return _with(where, AnyOf(tuple(self._of_versions())))
        if collection == FACTS:
            spaces = self.spaces(writing=writing)
            if spaces is None:
                return where
            within = tuple(starts_with(each, "namespace") for each in spaces)
            # Alone, it is a range that an index serves together with the rest of the filter.
            return _with(where, within[0] if len(within) == 1 else AnyOf(within))
        scopes = self._scopes_of(collection, writing=writing)
        if scopes is None:
            return where
        matching = {narrow: each for each in scopes if (narrow := narrowed(each, where.scope)) is not None}
        if where.scope in matching:
            return where
        if writing and not matching and any(narrowed(each, where.scope) for each in self.scopes() or ()):
            raise read_only()
        if len(matching) == 1:
            # The index of scopes serves this.
            return replace(where, scope=next(iter(matching)))
        return _with(where, any_of(matching.values()))

    def _of_versions(self) -> Iterator[Expression]:
        """The versions of facts that exist for the caller, and the versions of all other records."""
        is_of_fact = Condition("namespace", Operator.EXISTS, (True,))
        spaces, scopes = self.spaces(), self.scopes()
        yield is_of_fact if spaces is None else AnyOf(tuple(starts_with(each, "namespace") for each in spaces))
        yield AllOf((NoneOf((is_of_fact,)), *(() if scopes is None else (any_of(scopes),))))

    def owned(self, scope: Scope) -> Scope:
        """The scope of a new record: the caller's user, if it names none and the caller has only one.

        Raises:
            PermissionDeniedError: the caller may not write a record with this scope.
        """
        if self.users is not None and not scope.user and len(self.users) == 1:
            return replace(scope, user=self.users[0])
        scopes = self.scopes(writing=True)
        if scopes is None or any(covers(each, scope) for each in scopes):
            return scope
        if any(covers(each, scope) for each in self.scopes() or ()):
            raise read_only()
        raise PermissionDeniedError(f"scope.user must be {_choice(map(scope_text, scopes))}: {_BOUND}")

    def selected(self, scope: Scope) -> tuple[Scope, Scope]:
        """The scope that a call about one user reads, and the scope that contains it: the whole user, or a share.

        Raises:
            PermissionDeniedError: no record with this scope exists for the caller.
            InvalidArgumentError: several shares of the user fit.
        """
        scopes = self.scopes()
        if scopes is None:
            return scope, Scope(scope.user)
        if not scope.user and self.users is not None and len(self.users) == 1:
            scope = replace(scope, user=self.users[0])
        fitting = {found: each for each in scopes if (found := narrowed(each, scope)) is not None} if scope.user else {}
        if scope in fitting:
            return scope, fitting[scope]
        if not fitting:
            raise PermissionDeniedError(f"scope.user must be {_choice(map(scope_text, scopes))}: {_BOUND}")
        if len(fitting) > 1:
            raise _ambiguous(list(fitting))
        return next(iter(fitting.items()))

    def parts(self, scope: Scope) -> tuple[Scope, ...]:
        """The scopes that together cover the visible records with this scope, the caller's own first.

        Raises PermissionDeniedError if the scope names a user whose records do not exist for the caller.
        """
        scopes = self.scopes()
        if scopes is None:
            return (scope,)
        found = dict.fromkeys(narrow for each in scopes if (narrow := narrowed(each, scope)) is not None)
        if scope.user and not found:
            raise PermissionDeniedError(f"scope.user must be {_choice(map(scope_text, scopes))}: {_BOUND}")
        return tuple(each for each in found if not any(other != each and covers(other, each) for other in found))

    def sourced(self, scope: Scope) -> Scope:
        """The scope of a new record with its origin; by default, the least trusted one that the caller may write.

        Raises:
            PermissionDeniedError: the caller may not write records of this origin.
        """
        if not self.origins or scope.origin in self.origins:
            return scope
        if not scope.origin:
            return replace(scope, origin=self.origins[-1])
        raise PermissionDeniedError(f"scope.origin must be {_choice(map(repr, self.origins))}: {_BOUND}")

    def may_change(self, scope: Scope) -> bool:
        """Whether the caller may change stored records with the origin of this scope."""
        return not self.hides(scope) and (not self.origins or (scope.origin or Origin.AGENT) in self.origins)

    def check_change(self, scope: Scope) -> None:
        """Raises PermissionDeniedError unless `may_change`."""
        if not self.may_change(scope):
            found = repr(scope.origin) if scope.origin else "not set"
            raise PermissionDeniedError(
                f"the record's origin is {found}, and must be {_choice(map(repr, self.origins))}: {_BOUND}"
            )

    def foreign(self) -> Expression | None:
        """Selects records that the caller may not change because of their origin; None without a limit."""
        if not self.origins:
            return None
        changeable = {*self.origins, *(("",) if Origin.AGENT in self.origins else ())}
        others = tuple(origin for origin in ("", *map(str, Origin)) if origin not in changeable)
        return Condition("origin", Operator.IN, others)

    def check_owner(self, stored: Scope, scope: Scope) -> None:
        """Raises PermissionDeniedError if a stored record is shared with the caller and would get another user."""
        if self.users is not None and stored.user not in self.users and scope.user != stored.user:
            raise PermissionDeniedError(
                f"the record belongs to {stored.user!r}, who shares it with you: scope.user must be {stored.user!r}"
            )

    def sharing_of(self, namespace: str) -> Share | None:
        """The share that contains an encoded namespace, preferably a writable one; None if it is not shared."""
        if _is_in(namespace, self.namespaces):
            return None
        found = [each for each in self.shares if each.namespace and _is_in(namespace, (each.namespace,))]
        return max(found, key=lambda each: each.may_write, default=None)

    def check_namespace(self, text: str) -> None:
        """Raises PermissionDeniedError if the caller may not write a fact in this encoded namespace."""
        spaces = self.spaces(writing=True)
        if _is_in(text, spaces):
            return
        if _is_in(text, self.spaces()):
            raise read_only()
        if not spaces:
            raise PermissionDeniedError(
                "your credential is bound to users alone and has no facts; they need a namespace"
            )
        raise PermissionDeniedError(
            f"namespace must be within {_choice(repr(namespace_text(one)) for one in spaces or ())}: {_BOUND}"
        )


UNBOUNDED = Bounds()
_FROM_STATEMENTS = {
    SEMANTIC: ("merged_from",),
    DECISIONS: ("candidate_id", "existing_id", "result_id"),
    VERSIONS: ("record_id",),
}
"""The fields that name the statements from which a record was derived."""
_BOUND = "your credential is bound to that"


def read_only() -> PermissionDeniedError:
    """The error for a write to a read-only share."""
    return PermissionDeniedError("this is shared with you for reading only; ask its owner for a grant to write")


def _ambiguous(scopes: Sequence[Scope]) -> InvalidArgumentError:
    """The error for a scope that matches several shares of one user."""
    known = _choice(map(scope_text, scopes))
    return InvalidArgumentError.of("scope", f"must name one of the parts that are shared with you: {known}")


def _is_in(text: str, spaces: Sequence[Namespace] | None) -> bool:
    """Whether an encoded namespace is in or below one of these."""
    return spaces is None or any(text.startswith(encode_namespace(each)) for each in spaces)


def _with(where: RecordFilter, condition: Expression) -> RecordFilter:
    return replace(where, expression=AllOf((condition, where.expression)) if where.expression else condition)


def _choice(texts: Iterable[str]) -> str:
    return " or ".join(texts) or "one of a credential that has any"


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
