"""Tells an operator's endpoint who calls its tool: a token (JWT) that it verifies with the server's public key."""

from datetime import timedelta

import jwt
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from mnemon_server.domain.access import Principal
from mnemon_server.domain.access.bounds import ALL
from mnemon_server.domain.clock import system_clock
from mnemon_server.domain.tools import OperatorTool
from mnemon_server.services.writing.writes import new_id

ISSUER = "mnemon"
ANONYMOUS = "anonymous"
"""The subject on a server without authentication. Every other subject has a colon."""
VALID_FOR = timedelta(seconds=60)


class CallerTokens:
    """Signs tokens with EdDSA. A token is valid for one endpoint, for a minute at most."""

    def __init__(self, key: Ed25519PrivateKey, key_id: str) -> None:
        """`key_id` is that of the public key in the set of those who verify."""
        self._key = key
        self._key_id = key_id

    def sign(self, caller: Principal, tool: OperatorTool) -> str:
        """A token that says who calls this tool. It does not outlive the caller's own credential."""
        now = system_clock()
        ends = now + VALID_FOR
        bounds = caller.bounds
        claims = {
            "iss": ISSUER,
            "aud": tool.endpoint,
            "sub": caller.subject or ANONYMOUS,
            "tenant": caller.tenant,
            "roles": [caller.role.name.lower()],
            "users": bounds.user_texts if bounds.is_narrow else [ALL],
            "namespaces": bounds.namespace_texts if bounds.is_narrow else [ALL],
            "tool": tool.name,
            "iat": now,
            "exp": min(ends, caller.expires_at) if caller.expires_at else ends,
            "jti": new_id(),
        }
        return jwt.encode(claims, self._key, "EdDSA", {"kid": self._key_id})
