"""Keys and tenants that cannot be: refused with the field that is wrong."""

from collections.abc import Callable
from datetime import timedelta

import pytest
from mnemon_server.domain.access import (
    NAME_BYTES_MAX,
    OVERLAP_MAX,
    TTL_MAX,
    TTL_MIN,
    Credentials,
    Permission,
    Role,
    check_key,
    check_overlap,
    check_tenant,
    check_tenant_of_keys,
)
from mnemon_server.domain.access.bounds import UNBOUNDED, Bounds
from mnemon_server.domain.access.quotas import UNLIMITED, Quotas
from mnemon_server.domain.access.tenants import (
    DISPLAY_NAME_BYTES_MAX,
    REASON_BYTES_MAX,
    TenantChange,
    change_violations,
    tenant_violations,
)
from mnemon_server.domain.errors import InvalidArgumentError

MOMENT = timedelta(microseconds=1)
HOSTILE = ("\n", "\r", "\t", "\0", "\x1b[31m", "\x7f", "\x9b", "\u2028", "\u202e", "\u2066")
"""Characters that names in operators' lists must not contain."""


def test_a_key_that_cannot_be_is_refused_with_the_name_of_the_field() -> None:
    bound = Bounds.of(["ada"], [])
    check_key("acme", "x" * NAME_BYTES_MAX, Role.WRITER, None, bound)
    check_key("", "x", Role.OPERATOR, None, UNBOUNDED)
    for tenant, name, role, bounds, field in (
        ("acme", "x" * (NAME_BYTES_MAX + 1), Role.WRITER, UNBOUNDED, "name"),
        *(("acme", f"a{hostile}b", Role.WRITER, UNBOUNDED, "name") for hostile in HOSTILE),
        ("acme", " ", Role.WRITER, UNBOUNDED, "name"),
        ("acme", "x", Role.OPERATOR, UNBOUNDED, "tenant"),
        ("", "x", Role.ADMIN, UNBOUNDED, "tenant"),
        ("acme", "x", Role.ADMIN, bound, "role"),
        ("", "x", Role.OPERATOR, bound, "role"),
    ):
        with pytest.raises(InvalidArgumentError) as caught:
            check_key(tenant, name, role, None, bounds)
        assert [violation.field for violation in caught.value.violations] == [field]


@pytest.mark.parametrize("ttl", [TTL_MIN - MOMENT, TTL_MAX + MOMENT, timedelta(0), timedelta(seconds=-1)], ids=str)
def test_a_key_is_valid_for_a_second_to_a_century(ttl: timedelta) -> None:
    for valid in (TTL_MIN, TTL_MAX, None):
        check_key("acme", "x", Role.READER, valid, UNBOUNDED)
    with pytest.raises(InvalidArgumentError, match="ttl"):
        check_key("acme", "x", Role.READER, ttl, UNBOUNDED)


def test_a_former_secret_is_valid_for_a_month_at_most() -> None:
    for valid in (timedelta(0), OVERLAP_MAX):
        check_overlap(valid)
    for invalid in (-MOMENT, OVERLAP_MAX + MOMENT):
        with pytest.raises(InvalidArgumentError, match="overlap"):
            check_overlap(invalid)


def test_a_tenant_that_cannot_be_is_refused_with_the_name_of_the_field() -> None:
    wide, none = "é" * (DISPLAY_NAME_BYTES_MAX // 2), Quotas(calls_per_second=-1)
    for tenant, name, quotas, fields in (
        ("a" * 63, wide, UNLIMITED, []),
        ("a" * 64, "", UNLIMITED, ["tenant"]),
        ("", "", UNLIMITED, ["tenant"]),
        ("Acme", "", UNLIMITED, ["tenant"]),
        ("_acme", "", UNLIMITED, ["tenant"]),
        ("acme", wide + "x", UNLIMITED, ["display_name"]),
        *(("acme", f"a{hostile}b", UNLIMITED, ["display_name"]) for hostile in HOSTILE),
        ("acme", "", none, ["quotas.calls_per_second"]),
    ):
        assert [each.field for each in tenant_violations(tenant, name, quotas)] == fields


def test_a_suspension_says_why() -> None:
    for reason in ("unpaid", "x" * REASON_BYTES_MAX):
        assert list(change_violations(TenantChange(is_suspended=True, reason=reason))) == []
    for reason in ("", " ", "x" * (REASON_BYTES_MAX + 1), *(f"a{hostile}b" for hostile in HOSTILE)):
        violations = change_violations(TenantChange(is_suspended=True, reason=reason))
        assert [each.field for each in violations] == ["reason"]
    assert list(change_violations(TenantChange(is_suspended=False))) == []


@pytest.mark.parametrize("least", [Role.READER, Role.WRITER, Role.ADMIN])
def test_a_role_may_what_lesser_ones_may_and_an_operator_only_what_is_open_to_operators(least: Role) -> None:
    plain, opened = Permission(least), Permission(least, open_to_operators=True)
    for role in (Role.READER, Role.WRITER, Role.ADMIN):
        assert plain.allows(role) == opened.allows(role) == (role.value >= least.value)
    assert (plain.allows(Role.OPERATOR), opened.allows(Role.OPERATOR)) == (False, True)


def test_what_is_for_operators_is_for_no_one_else() -> None:
    assert [role for role in Role if Permission(Role.OPERATOR).allows(role)] == [Role.OPERATOR]


@pytest.mark.parametrize("check", [check_tenant, check_tenant_of_keys])
def test_a_tenant_has_a_name_that_a_folder_can_have(check: Callable[[str], None]) -> None:
    for valid in ("a", "0_-", "a" * 63):
        check(valid)
    for invalid in ("A", "_a", "-a", "a.b", "../a", "a/b", "a\n", "a" * 64):
        with pytest.raises(InvalidArgumentError, match="tenant"):
            check(invalid)


def test_only_keys_may_belong_to_no_tenant() -> None:
    check_tenant_of_keys("")
    with pytest.raises(InvalidArgumentError, match="tenant"):
        check_tenant("")


def test_what_is_printed_of_credentials_says_whether_there_is_a_secret_and_not_which() -> None:
    assert repr(Credentials("hunter2")) == repr(Credentials("another")) != repr(Credentials())
    assert "hunter2" not in repr(Credentials("hunter2"))
