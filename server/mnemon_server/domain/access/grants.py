"""Grants: records that one caller shares with another."""

import hashlib
import json
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime

from mnemon_server.domain.access import TTL_MAX, Principal, Role
from mnemon_server.domain.access.bounds import ALL, Bounds
from mnemon_server.domain.access.shares import Share
from mnemon_server.domain.encoding import scope_values
from mnemon_server.domain.errors import FieldViolation
from mnemon_server.domain.namespaces import namespace_text
from mnemon_server.domain.records import Scope
from mnemon_server.domain.validation import id_violations, scope_violations

GRANTS_MAX, GRANTS_PER_SUBJECT_MAX, PENDING_MAX = 10_000, 128, 1_000
"""Grants of a tenant, accepted grants to one subject, and grants by one caller that were not accepted yet."""
OF_USER = "user:"
"""The prefix of a subject that stands for all callers bound to one user."""
SUBJECT_BYTES_MAX = 1_024
SUBJECTS = (OF_USER, "key:", "jwt:", "mtls:", "unix:")


@dataclass(frozen=True, slots=True)
class Grant:
    """Access to the records of a scope, or to the facts in a namespace, for callers who could not see them."""

    subject: str
    """A caller by name, such as "key:1f3a5c7e9b0d2f46", or "user:bob" for all that are bound to this user alone."""
    share: Share
    created_at: datetime
    granted_by: str
    """The subject of the caller who granted it; empty without authentication."""
    expires_at: datetime | None = None
    accepted_at: datetime | None = None
    """When it took effect; None until its subject accepts it."""

    @property
    def grant_id(self) -> str:
        """A digest of the subject and the share, so that a repeated grant replaces the earlier one."""
        shared = [*scope_values(self.share.scope), namespace_text(self.share.namespace or ())]
        return hashlib.sha256(json.dumps([self.subject, *shared]).encode()).hexdigest()[:32]

    def has_ended(self, now: datetime) -> bool:
        """Whether it has expired."""
        return self.expires_at is not None and self.expires_at <= now


def subjects_of(subject: str, bounds: Bounds) -> tuple[str, ...]:
    """The subjects that include a caller."""
    users = bounds.users or ()
    return (subject, f"{OF_USER}{users[0]}") if len(users) == 1 else (subject,)


def subject_users(subject: str) -> Iterator[str]:
    """The users whom a subject may name: itself, "bob" of "user:bob", or of "jwt:login:bob"."""
    kind, _, name = subject.partition(":")
    yield from (subject, name, name.partition(":")[2]) if kind != "key" else ()


def is_manager(principal: Principal) -> bool:
    """Whether the caller may grant any record of the tenant."""
    return principal.role is Role.ADMIN and not principal.bounds


def owns(bounds: Bounds, share: Share) -> bool:
    """Whether everything in the share belongs to the caller, instead of being shared with it."""
    if share.namespace is None:
        return bounds.users is None or share.scope.user in bounds.users
    return bounds.namespaces is None or any(map(share.namespace.is_within, bounds.namespaces))


def grant_violations(grant: Grant, place: str = "") -> Iterator[FieldViolation]:
    """The invalid fields of a grant; `place` begins their names."""
    name, scope = grant.subject, grant.share.scope
    if not name:
        yield FieldViolation(f"{place}subject", "is required")
    elif not name.startswith(SUBJECTS) or name in SUBJECTS:
        known = ", ".join(f'"{each}…"' for each in SUBJECTS)
        yield FieldViolation(f"{place}subject", f"must be a user or a caller as WhoAmI names it, one of {known}")
    elif name == f"{OF_USER}{ALL}":
        yield FieldViolation(f"{place}subject", "must name one user")
    yield from id_violations(name, f"{place}subject", SUBJECT_BYTES_MAX)
    if grant.share.namespace is None:
        yield from _scope_violations(scope, place)
    elif scope != Scope():
        yield FieldViolation(f"{place}scope", "must be empty if a namespace is shared")
    if scope.user and name == f"{OF_USER}{scope.user}":
        yield FieldViolation(f"{place}subject", "must not be the user whose records are shared")


def end_violations(expires_at: datetime | None, now: datetime) -> Iterator[FieldViolation]:
    """The violation in the end of a new grant."""
    if expires_at is not None and not now < expires_at <= now + TTL_MAX:
        yield FieldViolation("expire_time", "must be in the future, at most 100 years from now")


def _scope_violations(scope: Scope, place: str) -> Iterator[FieldViolation]:
    if not scope.user:
        yield FieldViolation(f"{place}scope.user", "must name the user whose records are shared")
    if scope.origin or scope.origin_name:
        yield FieldViolation(f"{place}scope.origin", "must be empty: a share has records of every origin")
    yield from scope_violations(scope, f"{place}scope")
