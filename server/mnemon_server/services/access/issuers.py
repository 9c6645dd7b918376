"""Identity providers whose tokens are trusted, and whom their tokens name."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from mnemon_server.domain.access import NO_TENANT, TENANT_ID, Principal, Role
from mnemon_server.domain.access.bounds import ALL, UNBOUNDED, Bounds
from mnemon_server.domain.errors import InvalidArgumentError, PermissionDeniedError, UnauthenticatedError

SUBJECT_CHARACTERS_MAX = 255

ClaimPath = tuple[str, ...]
"""A claim, or a claim within claims, such as ("realm_access", "roles")."""


@dataclass(frozen=True, slots=True)
class KeySource:
    """Where the public keys of an issuer are: a JWKS."""

    url: str
    """Empty if they are in a file."""
    file: Path
    refresh_s: float
    """Seconds from one reading to the next."""
    stale_s: float
    """Seconds for which keys are valid after they were read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Issuer:
    """An identity provider, and what its tokens may say."""

    name: str
    """Its name in the subjects of callers, which remains if its URL changes."""
    issuer: str
    """The claim `iss`, exactly."""
    audiences: Sequence[str]
    """One of them is in the claim `aud`."""
    keys: KeySource
    leeway: timedelta
    """How far its clock may differ from ours."""
    tenant: str
    """The tenant of all its callers; empty if a claim names it, or if all are operators."""
    tenant_claim: ClaimPath
    tenants: Sequence[str]
    """The tenants that the claim may name; empty: any."""
    creates_tenants: bool
    """Whether a tenant begins with the first token that names it, if the claim may name any."""
    role: Role | None
    """The role of all its callers; None if a claim names it."""
    role_claim: ClaimPath
    roles: Mapping[str, Role]
    """The meaning of the values of that claim."""
    users_claim: ClaimPath
    """The claim that names the users to whom a caller is bound; empty, as the next one: no bounds."""
    namespaces_claim: ClaimPath
    """The claim that names the namespaces of facts to which a caller is bound."""
    origins: Sequence[str] = ()
    """The origins of which its callers write records; empty: any."""

    def principal(self, claims: Mapping[str, Any]) -> Principal:
        """The caller that verified claims name.

        Raises:
            UnauthenticatedError: a claim is not what it should be.
            PermissionDeniedError: the claims give no role.
        """
        subject = claims["sub"]
        if not (0 < len(subject) <= SUBJECT_CHARACTERS_MAX and subject.isprintable()):
            raise refusal(f"its sub is not 1 to {SUBJECT_CHARACTERS_MAX} printable characters")
        ends_at = datetime.fromtimestamp(int(claims["exp"]), UTC) + self.leeway
        role = self._role(claims)
        tenant = NO_TENANT if role is Role.OPERATOR else self._tenant(claims)
        return Principal(tenant, f"jwt:{self.name}:{subject}", role, ends_at, self._bounds(claims, role))

    @property
    def names_any_tenant(self) -> bool:
        """Whether its tokens may name tenants that the identity file does not."""
        return bool(self.tenant_claim) and not self.tenants

    def _tenant(self, claims: Mapping[str, Any]) -> str:
        if self.tenant:
            return self.tenant
        named = _claim(claims, self.tenant_claim)
        if not isinstance(named, str) or not TENANT_ID.fullmatch(named) or (self.tenants and named not in self.tenants):
            raise refusal(f"its claim {'.'.join(self.tenant_claim)} names no tenant that this issuer may name")
        return named

    def _role(self, claims: Mapping[str, Any]) -> Role:
        if self.role is not None:
            return self.role
        named = _claim(claims, self.role_claim)
        values = named.split() if isinstance(named, str) else named if isinstance(named, list) else []
        roles = [self.roles[value] for value in values if isinstance(value, str) and value in self.roles]
        if not roles:
            raise PermissionDeniedError(f"the claim {'.'.join(self.role_claim)} of the token names no role here")
        return max(roles)

    def _bounds(self, claims: Mapping[str, Any], role: Role) -> Bounds:
        # Admins change what concerns the whole tenant.
        if role >= Role.ADMIN:
            return UNBOUNDED
        try:
            return Bounds.of(_named(claims, self.users_claim), _named(claims, self.namespaces_claim), self.origins)
        except InvalidArgumentError as error:
            raise refusal("its claims name users or namespaces that cannot exist") from error


def refusal(why: str) -> UnauthenticatedError:
    """The error of a token that is not valid. It contains nothing of the token."""
    return UnauthenticatedError(f"the token is not valid: {why}")


def _named(claims: Mapping[str, Any], path: ClaimPath) -> Sequence[str]:
    """The texts in a claim that bounds a caller. "*" is none of them: a caller may have chosen its own name."""
    if not path:
        return ()
    found = _claim(claims, path)
    texts = [found] if isinstance(found, str) else found
    if not isinstance(texts, list) or not texts or not all(isinstance(text, str) and text != ALL for text in texts):
        raise refusal(f"its claim {'.'.join(path)} does not say to what the caller is bound")
    return texts


def _claim(claims: Mapping[str, Any], path: ClaimPath) -> Any:
    found: Any = claims
    for name in path:
        found = found.get(name) if isinstance(found, dict) else None
    return found
