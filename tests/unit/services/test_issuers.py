"""Claims of verified tokens: whom they name, with which role and bounds."""

import time
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from mnemon_server.domain.access import Credentials, Role
from mnemon_server.domain.access.bounds import UNBOUNDED, Bounds
from mnemon_server.domain.errors import MnemonError, PermissionDeniedError, UnauthenticatedError
from mnemon_server.services.access.identities import SocketOwner
from mnemon_server.services.access.issuers import SUBJECT_CHARACTERS_MAX, Issuer, KeySource

CLAIMS = {
    "sub": "ada",
    "exp": time.time() + 60,
    "org": "acme",
    "groups": ["staff", "visitors", 7],
    "text": "visitors staff",
    "spaces": ["users.ada", "shared"],
}


def issuer(**changes: Any) -> Issuer:
    usual: dict[str, Any] = {
        "name": "login",
        "issuer": "https://login.example.com/",
        "audiences": ["mnemon"],
        "keys": KeySource("", Path("jwks.json"), refresh_s=300, stale_s=600),
        "leeway": timedelta(seconds=30),
        "tenant": "acme",
        "tenant_claim": (),
        "tenants": (),
        "creates_tenants": False,
        "role": Role.WRITER,
        "role_claim": (),
        "roles": {},
        "users_claim": (),
        "namespaces_claim": (),
    }
    return Issuer(**{**usual, **changes})


BY_CLAIM = {"tenant": "", "tenant_claim": ("org",)}
ROLES = {"role": None, "roles": {"staff": Role.WRITER, "visitors": Role.READER, "chiefs": Role.ADMIN}}

TEAM = {"role": None, "role_claim": ("groups",), "roles": {"staff": Role.WRITER, "team": Role.OPERATOR}}


@pytest.mark.parametrize(
    ("changes", "claims", "tenant", "role", "bounds"),
    [
        ({}, {}, "acme", Role.WRITER, UNBOUNDED),
        (BY_CLAIM, {}, "acme", Role.WRITER, UNBOUNDED),
        ({**BY_CLAIM, "tenants": ["acme", "other"]}, {"org": "other"}, "other", Role.WRITER, UNBOUNDED),
        ({**ROLES, "role_claim": ("groups",)}, {}, "acme", Role.WRITER, UNBOUNDED),
        ({**ROLES, "role_claim": ("text",)}, {}, "acme", Role.WRITER, UNBOUNDED),
        ({**ROLES, "role_claim": ("a", "b")}, {"a": {"b": "visitors"}}, "acme", Role.READER, UNBOUNDED),
        ({"users_claim": ("sub",)}, {}, "acme", Role.WRITER, Bounds.of(["ada"], [])),
        ({"namespaces_claim": ("spaces",)}, {}, "acme", Role.WRITER, Bounds.of([], ["users.ada", "shared"])),
        ({"users_claim": ("sub",), "origins": ("web",)}, {}, "acme", Role.WRITER, Bounds.of(["ada"], [], ["web"])),
        ({"origins": ("web",)}, {}, "acme", Role.WRITER, Bounds.of([], [], ["web"])),
        ({"users_claim": ("sub",), "role": Role.ADMIN}, {}, "acme", Role.ADMIN, UNBOUNDED),
        ({"users_claim": ("sub",), "role": Role.OPERATOR, "tenant": ""}, {}, "", Role.OPERATOR, UNBOUNDED),
        ({**TEAM, **BY_CLAIM, "users_claim": ("sub",)}, {"groups": ["staff", "team"]}, "", Role.OPERATOR, UNBOUNDED),
        ({**TEAM, **BY_CLAIM, "users_claim": ("sub",)}, {}, "acme", Role.WRITER, Bounds.of(["ada"], [])),
    ],
)
def test_claims_name_tenant_role_and_bounds(
    changes: dict[str, Any], claims: dict[str, Any], tenant: str, role: Role, bounds: Bounds
) -> None:
    caller = issuer(**changes).principal({**CLAIMS, **claims})
    assert (caller.tenant, caller.subject, caller.role, caller.bounds) == (tenant, "jwt:login:ada", role, bounds)
    assert caller.expires_at is not None
    assert caller.expires_at.timestamp() == int(CLAIMS["exp"]) + 30  # type: ignore[call-overload]


UNKNOWN, NO_ROLE = UnauthenticatedError, PermissionDeniedError


@pytest.mark.parametrize(
    ("changes", "claims", "error"),
    [
        ({}, {"sub": ""}, UNKNOWN),
        ({}, {"sub": "x" * (SUBJECT_CHARACTERS_MAX + 1)}, UNKNOWN),
        ({}, {"sub": "a\nb"}, UNKNOWN),
        (BY_CLAIM, {"org": None}, UNKNOWN),
        (BY_CLAIM, {"org": ["acme"]}, UNKNOWN),
        (BY_CLAIM, {"org": "Not a tenant"}, UNKNOWN),
        ({**BY_CLAIM, "tenants": ["acme"]}, {"org": "other"}, UNKNOWN),
        ({**ROLES, "role_claim": ("none",)}, {}, NO_ROLE),
        ({**ROLES, "role_claim": ("a", "b")}, {"a": "staff"}, NO_ROLE),
        ({**ROLES, "role_claim": ("groups",)}, {"groups": 7}, NO_ROLE),
        ({**ROLES, "role_claim": ("groups",)}, {"groups": {"staff": True}}, NO_ROLE),
        ({**ROLES, "role_claim": ("groups",)}, {"groups": [["staff"], {}, 7]}, NO_ROLE),
        ({**ROLES, "role_claim": ("groups",)}, {"groups": ["strangers"]}, NO_ROLE),
        ({"users_claim": ("none",)}, {}, UNKNOWN),
        ({"users_claim": ("sub",)}, {"sub": "*"}, UNKNOWN),
        ({"users_claim": ("groups",)}, {}, UNKNOWN),
        ({"users_claim": ("groups",)}, {"groups": []}, UNKNOWN),
        ({"users_claim": ("groups",)}, {"groups": ["ada", "*"]}, UNKNOWN),
        ({"users_claim": ("groups",)}, {"groups": {"ada": 1}}, UNKNOWN),
        ({"namespaces_claim": ("spaces",)}, {"spaces": ["a..b"]}, UNKNOWN),
    ],
)
def test_claims_that_name_no_caller_are_refused_without_being_repeated(
    changes: dict[str, Any], claims: dict[str, Any], error: type[MnemonError]
) -> None:
    with pytest.raises(error) as caught:
        issuer(**changes).principal({**CLAIMS, **claims})
    assert "Not a tenant" not in str(caught.value)


def test_an_issuer_names_any_tenant_if_a_claim_does_and_the_file_does_not() -> None:
    assert not issuer().names_any_tenant
    assert issuer(**BY_CLAIM).names_any_tenant
    assert not issuer(**BY_CLAIM, tenants=("acme",)).names_any_tenant


def test_whoever_shows_a_credential_on_the_socket_is_not_its_owner() -> None:
    owner = SocketOwner(1000)
    found = owner.identify(Credentials())
    assert found is not None
    assert found.subject == "unix:1000"
    assert owner.identify(Credentials(bearer="x")) is None
    assert owner.identify(Credentials(certificate=b"x")) is None
