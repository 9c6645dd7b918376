"""Verifies tokens of identity providers (JWT)."""

from collections.abc import Mapping
from datetime import datetime
from typing import NamedTuple

import jwt
from jwt import PyJWK

from mnemon_server.domain.access import Credentials, Principal, Role
from mnemon_server.domain.clock import Clock, system_clock
from mnemon_server.services.access.issuers import Issuer, refusal
from mnemon_server.services.access.key_sets import KeySet
from mnemon_server.services.access.remembered import Remembered
from mnemon_server.services.access.tenants import Tenants
from mnemon_server.services.background.listeners import Listeners

TOKEN_BYTES_MAX = 8 << 10
_REQUIRED = ["iss", "sub", "aud", "exp"]
# The errors that parsing an invented token may raise.
_MALFORMED = (jwt.PyJWTError, ValueError, TypeError, ArithmeticError, RecursionError)


class TrustedIssuer(NamedTuple):
    """An issuer, and its keys."""

    issuer: Issuer
    key_set: KeySet


class _Verified(NamedTuple):
    principal: Principal
    ends_at: datetime
    key_set: KeySet
    keys: Mapping[str, PyJWK]
    """The keys of the set that verified the token."""

    def holds(self, now: datetime) -> bool:
        return self.keys is self.key_set.keys and self.key_set.is_usable_at(now)


class Tokens:
    """Knows callers by their tokens. Belongs to one event loop, and calls nobody."""

    wanted = "send a token of an issuer that the server trusts as the header `authorization: Bearer TOKEN`"

    def __init__(self, tenants: Tenants, *, clock: Clock = system_clock) -> None:
        """Trusts nobody yet. `tenants` are those that exist."""
        self._tenants, self._clock = tenants, clock
        self._issuers: Mapping[str, TrustedIssuer] = {}
        self._verified: Remembered[_Verified] = Remembered()
        self.listeners = Listeners()
        """Called once other issuers are trusted, or one of them has other keys."""

    def trust(self, issuers: Mapping[str, TrustedIssuer]) -> None:
        """Trusts these issuers, by their claim `iss`, and no others."""
        self._issuers = issuers
        for trusted in issuers.values():
            trusted.key_set.on_change = self.listeners.tell
        self._verified.clear()
        self.listeners.tell()

    def identify(self, shown: Credentials) -> Principal | None:
        """The caller whom the token names; None if it is no token.

        Raises:
            UnauthenticatedError: the token is not valid, or not any more.
            PermissionDeniedError: it gives no role here.
            UnknownError: it may be valid, by a key or a tenant that the server has not seen yet.
        """
        token = shown.bearer
        if token.count(".") != 2:
            return None
        known, now = self._verified.get(token), self._clock()
        if known is None or not known.holds(now):
            known = self._verified.keep(token, self._verify(token))
        if now >= known.ends_at:
            raise refusal("it has expired")
        return known.principal

    def _verify(self, token: str) -> _Verified:
        if len(token) > TOKEN_BYTES_MAX:
            raise refusal(f"it is longer than {TOKEN_BYTES_MAX:,} bytes")
        try:
            (issuer, key_set), key = self._signer(token)
            claims = jwt.decode(
                token,
                key,
                # The algorithm of the key, which the token cannot choose.
                algorithms=[key.algorithm_name],
                audience=issuer.audiences,
                issuer=issuer.issuer,
                leeway=issuer.leeway,
                options={"require": _REQUIRED},
            )
            principal = issuer.principal(claims)
        except _MALFORMED as error:
            # Without what the library says, which may repeat what the token says.
            raise refusal(_why(error)) from None
        if principal.role is not Role.OPERATOR and issuer.names_any_tenant:
            self._tenants.require_known(principal.tenant, begins=issuer.creates_tenants)
        assert principal.expires_at is not None  # noqa: S101 - a token without exp is refused
        return _Verified(principal, principal.expires_at, key_set, key_set.keys)

    def _signer(self, token: str) -> tuple[TrustedIssuer, PyJWK]:
        """The claimed issuer of a token, and its key with the id that the token names."""
        unverified = jwt.decode_complete(token, options={"verify_signature": False})
        named, key_id = unverified["payload"].get("iss"), unverified["header"].get("kid")
        trusted = self._issuers.get(named)
        if trusted is None:
            raise refusal("the server does not trust its issuer")
        if not key_id:
            raise refusal("its header names no key (kid)")
        return trusted, trusted.key_set.key(key_id)


def _why(error: Exception) -> str:
    match error:
        case jwt.ExpiredSignatureError():
            return "it has expired"
        case jwt.ImmatureSignatureError():
            return "it is not valid yet"
        case jwt.InvalidAudienceError():
            return "it is for another audience"
        case jwt.MissingRequiredClaimError():
            return f"it has no claim {error.claim}"
        case jwt.InvalidAlgorithmError():
            return "it names another algorithm than its key has"
        case jwt.InvalidSignatureError():
            return "its signature is wrong"
    return "it is not a well-formed JWT"
