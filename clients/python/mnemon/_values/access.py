"""API keys, grants, and who a caller is."""

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from mnemon._values.documents import JsonValue, Scope


class Role(StrEnum):
    """The rights of a caller. Of `reader`, `writer` and `admin`, each may do what those before may.

    `reader`: read all records of the tenant. `writer`: write and delete records, and call tools. `admin`: change what
    concerns the whole tenant, such as keys, merge rules and the routing policy. `operator`: belongs to no tenant;
    manages all tenants and their keys, and reads the records of none.
    """

    READER = "reader"
    WRITER = "writer"
    ADMIN = "admin"
    OPERATOR = "operator"


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiKey(JsonValue):
    """An API key without its secret."""

    key_id: str
    name: str
    role: Role
    create_time: datetime
    expire_time: datetime | None = None
    """When it ends; None if it does not end by itself."""
    last_use_time: datetime | None = None
    """When it was last used, to the minute; None if never."""
    previous_expire_time: datetime | None = None
    """Until when the secret before the last rotation is valid; None if only one is."""
    users: tuple[str, ...] = ()
    """The users whose records exist for its holder, or "*" for all. Without these and namespaces, it has no bounds."""
    namespaces: tuple[str, ...] = ()
    """The namespaces whose facts exist for its holder, with those below them, such as "user.ada"; or "*" for all."""
    origins: tuple[str, ...] = ()
    """The origins of the records that its holder may write, the most trusted first; empty means any."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KeySecret(JsonValue):
    """An API key with its secret, which the server does not show again."""

    key: ApiKey
    secret: str


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyPage(JsonValue):
    """A page of keys; `next_page_token` is empty after the last one."""

    keys: tuple[ApiKey, ...]
    next_page_token: str


class GrantAccess(StrEnum):
    """The rights that a grant gives. `write`: also add, change and delete records."""

    READ = "read"
    WRITE = "write"


@dataclass(frozen=True, slots=True, kw_only=True)
class Grant(JsonValue):
    """Access of a caller to records of others."""

    grant_id: str
    """Computed from the subject and the scope or namespace."""
    subject: str
    """A caller such as "key:1f3a5c7e9b0d2f46", or "user:bob" for every caller that is bound to this user alone."""
    scope: Scope
    """The records with this scope, of all kinds but facts; empty if a namespace is shared."""
    namespace: tuple[str, ...]
    """The facts in this namespace and below it, such as ("user", "ada"); empty if a scope is shared."""
    access: GrantAccess
    create_time: datetime
    granted_by: str
    """The subject of the caller that granted it; empty on a server without authentication."""
    expire_time: datetime | None = None
    """When it ends; None if it does not end by itself."""
    accept_time: datetime | None = None
    """When it took effect; None until it is accepted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GrantPage(JsonValue):
    """A page of grants; `next_page_token` is empty after the last one."""

    grants: tuple[Grant, ...]
    next_page_token: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Identity(JsonValue):
    """A caller. On a server without authentication, every caller is the admin of the tenant "default"."""

    tenant: str
    """Whose records the caller works on; empty for an operator."""
    subject: str
    """Such as "key:1f3a5c7e9b0d2f46"; empty on a server without authentication."""
    role: Role
    expire_time: datetime | None = None
    """When the credential ends; None if it does not end by itself."""
    users: tuple[str, ...] = ()
    """The users whose records exist for the caller, or "*" for all. Without these and namespaces: no bounds."""
    namespaces: tuple[str, ...] = ()
    """The namespaces whose facts exist for the caller, or "*" for all."""
    origins: tuple[str, ...] = ()
    """The origins of the records that the caller may write, the most trusted first; empty means any."""
