"""Reads from a TOML file whose tokens and certificates are trusted, and for which tenant.

[[issuer]]
name = "login"
issuer = "https://login.example.com/"
audiences = ["mnemon"]
jwks = "https://login.example.com/.well-known/jwks.json"
tenant = "acme"
role_claim = "groups"
roles = { memory-admins = "admin", staff = "writer" }

[[certificate]]
name = "uri:spiffe://acme/assistant"
tenant = "acme"
role = "writer"

ACCESS.md describes the keys.
"""

import ipaddress
import os
import re
import stat
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

from mnemon_server.domain.access import NO_TENANT, TENANT_ID, Principal, Role
from mnemon_server.domain.access.bounds import Bounds
from mnemon_server.domain.errors import ConfigurationError, InvalidArgumentError
from mnemon_server.endpoints.client import base_url
from mnemon_server.services.access.issuers import ClaimPath, Issuer, KeySource

FILE_BYTES_MAX = 4 << 20
LEEWAY_S, LEEWAY_MAX_S = 30.0, 600.0
REFRESH_S, REFRESH_MAX_S = 300.0, 86_400.0
STALE_S, STALE_MAX_S = 86_400.0, 30 * 86_400.0

_NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,62}")
_CERTIFICATE_NAME = re.compile(r"(uri|dns|email):[!-~]{1,1000}")
_ROLES = {role.name.lower(): role for role in Role}
_ISSUER_KEYS = (
    *("name", "issuer", "audiences", "jwks", "leeway_s", "refresh_s", "stale_s"),
    *(
        "tenant",
        "tenant_claim",
        "tenants",
        "creates_tenants",
        "role",
        "role_claim",
        "roles",
        "users_claim",
        "namespaces_claim",
        "origins",
    ),
)
_BINDING = ("users_claim", "namespaces_claim", "origins")
_UNBOUND_ADMIN = "role must be reader or writer for callers who are bound to users, namespaces or origins"
Table = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class IdentityFile:
    """The content of a file."""

    issuers: Sequence[Issuer]
    certificates: Mapping[str, Principal]
    """Callers by a name in their certificates, such as "dns:robot.acme.example"."""

    @property
    def tenants(self) -> Iterator[str]:
        """The tenants that it names, some of them repeatedly."""
        for issuer in self.issuers:
            yield from filter(None, (issuer.tenant, *issuer.tenants))
        yield from (caller.tenant for caller in self.certificates.values() if caller.tenant != NO_TENANT)


def read_identity_file(path: Path) -> IdentityFile:
    """The content of the file. Blocks.

    Raises:
        ConfigurationError: it cannot be read, others may change it, or a table is not valid; the message names it.
    """
    try:
        tables = _tables(path)
        _check_keys(tables, ("issuer", "certificate"))
        issuers = [_issuer(table, path.parent) for table in _entries(tables, "issuer")]
        certificates = [_certificate(table) for table in _entries(tables, "certificate")]
        for part, values in (
            ("name", [each.name for each in issuers]),
            ("issuer", [each.issuer for each in issuers]),
            ("name", [name for name, _ in certificates]),
        ):
            if twice := {value for value in values if values.count(value) > 1}:
                raise ConfigurationError(f"two tables have the same {part}, {min(twice)!r}")
    except ConfigurationError as error:
        raise ConfigurationError(f"the identity file {path}: {error}") from error
    return IdentityFile(issuers, dict(certificates))


def _tables(path: Path) -> Table:
    try:
        with path.open("rb") as file:
            mode = os.fstat(file.fileno()).st_mode
            content = file.read(FILE_BYTES_MAX + 1)
    except OSError as error:
        raise ConfigurationError(f"it cannot be read: {error.strerror}") from error
    if mode & stat.S_IWOTH:
        raise ConfigurationError(f"other users may change it; run `chmod o-w {path}`")
    if len(content) > FILE_BYTES_MAX:
        raise ConfigurationError(f"it must be at most {FILE_BYTES_MAX:,} bytes")
    try:
        return tomllib.loads(content.decode())
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ConfigurationError(f"it is not TOML: {error}") from error


def _entries(tables: Table, kind: str) -> list[Table]:
    entries = tables.get(kind, [])
    if not isinstance(entries, list) or not all(isinstance(each, dict) for each in entries):
        raise ConfigurationError(f"{kind} must be written as [[{kind}]] tables")
    return entries


def _issuer(table: Table, folder: Path) -> Issuer:
    name = _text(table, "name", _NAME, "must be 1 to 63 lower-case letters, digits, '_' and '-'")
    try:
        _check_issuer(table)
        return Issuer(
            name=name,
            issuer=_text(table, "issuer"),
            audiences=_texts(table, "audiences"),
            keys=_key_source(table, folder),
            leeway=timedelta(seconds=_seconds(table, "leeway_s", LEEWAY_S, 0, LEEWAY_MAX_S)),
            tenant=_tenant(table, "tenant") if "tenant" in table else "",
            tenant_claim=_claim_path(table, "tenant_claim"),
            tenants=_texts(table, "tenants") if "tenants" in table else (),
            creates_tenants=_truth(table, "creates_tenants"),
            role=_role(table["role"], "role") if "role" in table else None,
            role_claim=_claim_path(table, "role_claim"),
            roles=_roles(table),
            users_claim=_claim_path(table, "users_claim"),
            namespaces_claim=_claim_path(table, "namespaces_claim"),
            origins=_bounds({"origins": table["origins"]}).origins if "origins" in table else (),
        )
    except ConfigurationError as error:
        raise ConfigurationError(f"issuer {name}: {error}") from error


def _check_issuer(table: Table) -> None:
    """Checks which keys the table has, together and at all."""
    _check_keys(table, _ISSUER_KEYS)
    _check_one_of(table, "role", "role_claim")
    if ("role_claim" in table) != ("roles" in table):
        raise ConfigurationError("role_claim and roles belong together: set both, or neither")
    roles = {_role(table["role"], "role")} if "role" in table else set(_roles(table).values())
    if roles == {Role.OPERATOR}:
        _check_no_tenant(table, "tenant", "tenant_claim")
    else:
        _check_one_of(table, "tenant", "tenant_claim")
    if "tenants" in table and "tenant_claim" not in table:
        raise ConfigurationError("tenants belongs to tenant_claim: set both, or neither")
    if "creates_tenants" in table and ("tenant_claim" not in table or "tenants" in table):
        raise ConfigurationError("creates_tenants belongs to a tenant_claim without tenants; leave it out")
    if min(roles, default=Role.READER) >= Role.ADMIN and not table.keys().isdisjoint(_BINDING):
        raise ConfigurationError(_UNBOUND_ADMIN)


def _check_no_tenant(table: Table, *keys: str) -> None:
    for key in keys:
        if key in table:
            raise ConfigurationError(f"{key} must be left out for operators, who belong to no tenant")


def _certificate(table: Table) -> tuple[str, Principal]:
    name = _text(table, "name", _CERTIFICATE_NAME, 'must look like "uri:spiffe://acme/robot", "dns:..." or "email:..."')
    try:
        _check_keys(table, ("name", "tenant", "role", "users", "namespaces", "origins"))
        role, bounds = _role(table.get("role"), "role"), _bounds(table)
        if role >= Role.ADMIN and bounds:
            raise ConfigurationError(_UNBOUND_ADMIN)
        if role is Role.OPERATOR:
            _check_no_tenant(table, "tenant")
        tenant = NO_TENANT if role is Role.OPERATOR else _tenant(table, "tenant")
        return name, Principal(tenant, f"mtls:{name}", role, bounds=bounds)
    except ConfigurationError as error:
        raise ConfigurationError(f"certificate {name}: {error}") from error


def _bounds(table: Table) -> Bounds:
    bounds = (_texts(table, key) if key in table else () for key in ("users", "namespaces", "origins"))
    try:
        return Bounds.of(*bounds)
    except InvalidArgumentError as error:
        raise ConfigurationError(str(error)) from error


def _key_source(table: Table, folder: Path) -> KeySource:
    jwks = _text(table, "jwks")
    is_url = "://" in jwks
    if is_url:
        url = base_url(jwks)
        if url.scheme != "https" and not _is_this_machine(url.host):
            raise ConfigurationError(
                "jwks must be an https URL: whoever can change what comes over http can be anybody"
            )
    return KeySource(
        url=jwks if is_url else "",
        file=folder / jwks,
        refresh_s=_seconds(table, "refresh_s", REFRESH_S, 1, REFRESH_MAX_S),
        stale_s=_seconds(table, "stale_s", STALE_S, 1, STALE_MAX_S),
    )


def _is_this_machine(host: str) -> bool:
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _check_keys(table: Table, known: Sequence[str]) -> None:
    for key in table:
        if key not in known:
            raise ConfigurationError(f"{key[:80]!r} is not a key; the keys are {', '.join(known)}")


def _check_one_of(table: Table, one: str, other: str) -> None:
    if (one in table) == (other in table):
        raise ConfigurationError(f"must have either {one} or {other}")


_ANY = re.compile(r"\S(.*\S)?")


def _text(table: Table, key: str, form: re.Pattern[str] = _ANY, rule: str = "must be a text") -> str:
    value = table.get(key)
    if not isinstance(value, str) or not form.fullmatch(value):
        raise ConfigurationError(f"{key} {rule}")
    return value


def _texts(table: Table, key: str) -> Sequence[str]:
    value = table.get(key)
    if not isinstance(value, list) or not value or not all(isinstance(each, str) and each for each in value):
        raise ConfigurationError(f"{key} must be a list of texts, not empty")
    return tuple(value)


def _tenant(table: Table, key: str) -> str:
    return _text(table, key, TENANT_ID, 'must be 1 to 63 lower-case letters, digits, "_" and "-"')


def _truth(table: Table, key: str) -> bool:
    value = table.get(key, False)
    if not isinstance(value, bool):
        raise ConfigurationError(f"{key} must be true or false")
    return value


def _role(value: Any, key: str) -> Role:
    if not isinstance(value, str) or value not in _ROLES:
        raise ConfigurationError(f"{key} must be one of {', '.join(_ROLES)}")
    return _ROLES[value]


def _roles(table: Table) -> Mapping[str, Role]:
    roles = table.get("roles", {})
    if not isinstance(roles, dict):
        raise ConfigurationError('roles must be a table, such as { staff = "writer" }')
    return {value: _role(role, f"roles.{value}") for value, role in roles.items()}


def _claim_path(table: Table, key: str) -> ClaimPath:
    """A text names a claim, whatever dots it has; a list leads into claims."""
    if key not in table:
        return ()
    return (_text(table, key),) if isinstance(table[key], str) else tuple(_texts(table, key))


def _seconds(table: Table, key: str, default: float, at_least: float, at_most: float) -> float:
    value = table.get(key, default)
    if not isinstance(value, int | float) or isinstance(value, bool) or not at_least <= value <= at_most:
        raise ConfigurationError(f"{key} must be {at_least:,g} to {at_most:,g} seconds")
    return float(value)
