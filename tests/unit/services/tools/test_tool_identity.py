"""Tokens that tell a tool who calls."""

from datetime import timedelta

import jwt
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from mnemon_server.domain.access import Principal, Role
from mnemon_server.domain.access.bounds import Bounds
from mnemon_server.domain.clock import system_clock
from mnemon_server.domain.tools import OperatorTool
from mnemon_server.services.tools.identity import CallerTokens

TOOL = OperatorTool(name="news", description="Tells it.", parameters={"type": "object"}, grpc="news:50051")


def claims_of(caller: Principal) -> dict[str, object]:
    key = Ed25519PrivateKey.generate()
    token = CallerTokens(key, "first").sign(caller, TOOL)
    assert jwt.get_unverified_header(token) == {"alg": "EdDSA", "kid": "first", "typ": "JWT"}
    return jwt.decode(token, key.public_key(), algorithms=["EdDSA"], audience="news:50051")


def test_a_token_does_not_outlive_the_credential_of_its_caller() -> None:
    soon = system_clock() + timedelta(seconds=20)
    ends = {
        expires_at: claims_of(Principal("acme", "jwt:login:ada", Role.READER, expires_at))["exp"]
        for expires_at in (soon, soon + timedelta(days=1))
    }
    assert ends[soon] == int(soon.timestamp())
    assert int(soon.timestamp()) < ends[soon + timedelta(days=1)] <= int(soon.timestamp()) + 41


def test_a_caller_with_one_kind_of_bounds_has_nothing_of_the_other() -> None:
    for users, namespaces, expected in (
        (["ada"], [], (["ada"], [])),
        ([], ["team"], ([], ["team"])),
        (["*"], ["team"], (["*"], ["team"])),
        ([], [], (["*"], ["*"])),
    ):
        claims = claims_of(Principal("acme", "key:1", Role.WRITER, None, Bounds.of(users, namespaces)))
        assert (claims["users"], claims["namespaces"]) == expected
