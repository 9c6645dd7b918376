"""Callers, their rights, and API keys; in the other modules, the records that exist for them."""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import IntEnum
from typing import NamedTuple

from mnemon_server.domain.access.bounds import UNBOUNDED, Bounds
from mnemon_server.domain.errors import FieldViolation, InvalidArgumentError
from mnemon_server.domain.validation import name_violations

DEFAULT_TENANT = "default"
"""The only tenant of a server without authentication."""
NO_TENANT = ""
"""In the place of a tenant, for operators: their keys belong to none."""
TENANT_ID = re.compile(r"[a-z0-9][a-z0-9_-]{0,62}")
_WHOLE_KEY = re.compile(r"mn_([^_]*)_.*", re.DOTALL)
NAME_BYTES_MAX = 128
KEYS_MAX = 1_000
"""API keys of one tenant."""
TTL_MIN, TTL_MAX = timedelta(seconds=1), timedelta(days=36_525)
OVERLAP_DEFAULT, OVERLAP_MAX = timedelta(days=1), timedelta(days=30)


class Role(IntEnum):
    """The rights of a caller. Of the first three, each includes those before it.

    An operator is beside them: it manages all tenants and their keys, and reads the records of none.
    """

    READER = 1
    WRITER = 2
    ADMIN = 3
    OPERATOR = 4


@dataclass(frozen=True, slots=True)
class Permission:
    """The callers of a method."""

    role: Role
    """The least role that may."""
    open_to_operators: bool = False
    """Whether operators may, too."""
    whole_tenant: bool = False
    """Whether callers with bounds may not, because it concerns the whole tenant."""

    def allows(self, role: Role) -> bool:
        """Whether a caller with this role may."""
        if role is Role.OPERATOR:
            return self.open_to_operators or self.role is Role.OPERATOR
        return self.role <= role


@dataclass(frozen=True, slots=True)
class Principal:
    """A caller whose identity is known."""

    tenant: str
    """Whose records the caller works on; NO_TENANT for an operator."""
    subject: str
    """The name of the caller, such as "key:1f3a5c7e9b0d2f46"; empty without authentication."""
    role: Role
    expires_at: datetime | None = None
    bounds: Bounds = UNBOUNDED
    """Which of the tenant's records exist for the caller."""
    log_name: str = field(default="", compare=False)
    """The name of the caller in logs, hashed if it may identify a person; empty: the subject."""


class Credentials(NamedTuple):
    """The credentials of a caller. It is a tuple because every call creates one."""

    bearer: str = ""
    """The secret or token in the header `authorization`; empty without one."""
    certificate: bytes = b""
    """The certificate of the connection, in PEM, which TLS has verified; empty without one, or beside a header."""

    def __repr__(self) -> str:
        """Without the secret."""
        return f"Credentials(bearer={'...' if self.bearer else ''!r}, certificate={self.certificate!r})"


EVERYBODY = Principal(DEFAULT_TENANT, "", Role.ADMIN)
"""The caller on a server without authentication."""


@dataclass(frozen=True, slots=True)
class ApiKey:
    """An API key without its secret."""

    key_id: str
    tenant: str
    name: str
    """The purpose, as its creator wrote."""
    role: Role
    created_at: datetime
    expires_at: datetime | None = None
    last_used_at: datetime | None = None
    """To the minute; None if it was never used."""
    previous_expires_at: datetime | None = None
    """Until when the secret before the last rotation is valid; None if only one is."""
    bounds: Bounds = UNBOUNDED

    @property
    def principal(self) -> Principal:
        """The caller with the secret."""
        return Principal(self.tenant, f"key:{self.key_id}", self.role, self.expires_at, self.bounds)


@dataclass(frozen=True, slots=True)
class NewSecret:
    """A key, with a secret that is shown only once."""

    key: ApiKey
    secret: str = field(repr=False)


def without_secret(key_id: str) -> str:
    """The id of a key, which may be given as a whole. The rest of it must never be shown."""
    whole = _WHOLE_KEY.fullmatch(key_id.strip())
    return whole[1] if whole else key_id


def check_tenant(tenant: str) -> None:
    """Raises InvalidArgumentError if no tenant can have this name."""
    if not TENANT_ID.fullmatch(tenant):
        raise InvalidArgumentError.of(
            "tenant", 'must be 1 to 63 lower-case letters, digits, "_" and "-", a letter or digit first'
        )


def check_tenant_of_keys(tenant: str) -> None:
    """Raises InvalidArgumentError if keys can belong neither to a tenant of this name, nor to operators."""
    if tenant != NO_TENANT:
        check_tenant(tenant)


def check_key(tenant: str, name: str, role: Role, ttl: timedelta | None, bounds: Bounds) -> None:
    """Raises InvalidArgumentError if the tenant cannot have such a key."""
    violations = list(key_violations(name, ttl))
    if role is Role.OPERATOR and tenant != NO_TENANT:
        violations.append(FieldViolation("tenant", "must be left out for an operator, who belongs to no tenant"))
    if role is not Role.OPERATOR and tenant == NO_TENANT:
        violations.append(FieldViolation("tenant", f"must be the tenant of the {role.name.lower()}"))
    if role >= Role.ADMIN and bounds:
        violations.append(FieldViolation("role", "must be reader or writer for a key with bounds or origins"))
    if violations:
        raise InvalidArgumentError(violations)


def key_violations(name: str, ttl: timedelta | None) -> Iterator[FieldViolation]:
    """Violations in the name of a key, and with the time for which it is to be valid."""
    if not name.strip() or len(name.encode("utf-8", "surrogatepass")) > NAME_BYTES_MAX:
        yield FieldViolation("name", f"must say what the key is for, in 1 to {NAME_BYTES_MAX} bytes")
    yield from name_violations(name, "name")
    if ttl is not None and not TTL_MIN <= ttl <= TTL_MAX:
        yield FieldViolation("ttl", "must be a second to 100 years; leave it out for a key that does not end by itself")


def check_overlap(overlap: timedelta) -> None:
    """Raises InvalidArgumentError if a former secret cannot remain valid for this time."""
    if not timedelta(0) <= overlap <= OVERLAP_MAX:
        raise InvalidArgumentError.of("overlap", f"must be 0 to {OVERLAP_MAX.days} days")
