"""Accounts of tenants and callers: where their quotas end, and what they say of it."""

import math
from collections.abc import Callable
from dataclasses import replace

import pytest
from mnemon_server.domain.access.quotas import UNLIMITED, Quotas, parse_quotas
from mnemon_server.domain.errors import InvalidArgumentError, QuotaExceededError
from mnemon_server.services.limits.accounts import MIB, Account, Accounts, Bucket, Usage


class Clock:
    """A time that only tests move."""

    def __init__(self) -> None:
        self.seconds = 100.0

    def __call__(self) -> float:
        return self.seconds


@pytest.fixture
def clock() -> Clock:
    return Clock()


def begin(account: Account) -> None:
    account.begin(single=True)
    account.end(single=True)


def passed(act: Callable[[], None]) -> tuple[int, QuotaExceededError]:
    """How often it succeeds, and its first failure."""
    for count in range(1_000):
        try:
            act()
        except QuotaExceededError as error:
            return count, error
    raise AssertionError("it never fails")


def test_calls_begin_at_the_rate_of_the_quota_after_a_burst(clock: Clock) -> None:
    account = Accounts(Quotas(calls_per_second=4, calls_burst=10), now=clock).of_tenant("acme")
    count, error = passed(lambda: begin(account))
    assert (count, error.quota, error.limit, error.retry_after_s) == (10, "calls_per_second", 4, 0.25)
    clock.seconds += 0.2
    assert passed(lambda: begin(account))[1].retry_after_s == pytest.approx(0.05)
    clock.seconds += 0.05
    assert passed(lambda: begin(account))[0] == 1
    clock.seconds += 3_600
    assert passed(lambda: begin(account))[0] == 10
    assert account.usage == Usage(calls=21, refused_calls=4)


def test_without_a_burst_the_calls_of_a_second_may_begin_at_once_and_one_always_may(clock: Clock) -> None:
    for rate, at_once in ((5.0, 5), (0.5, 1)):
        account = Accounts(Quotas(calls_per_second=rate), now=clock).of_tenant("acme")
        assert passed(lambda account=account: begin(account))[0] == at_once  # type: ignore[misc]


def test_single_calls_and_streams_have_quotas_of_their_own(clock: Clock) -> None:
    account = Accounts(Quotas(concurrent_calls=2, open_streams=3), now=clock).of_tenant("acme")
    for single, most, quota in ((True, 2, "concurrent_calls"), (False, 3, "open_streams")):
        count, error = passed(lambda single=single: account.begin(single=single))  # type: ignore[misc]
        assert (count, error.quota, error.limit, error.used) == (most, quota, most, most)
        account.end(single=single)
        account.begin(single=single)


def test_a_tenants_quota_holds_for_all_its_callers_and_a_refused_call_costs_nothing(clock: Clock) -> None:
    accounts = Accounts(Quotas(concurrent_calls=3), Quotas(concurrent_calls=2), now=clock)
    one, two = accounts.of("acme", "key:1"), accounts.of("acme", "key:2")
    one.begin(single=True)
    one.begin(single=True)
    with pytest.raises(QuotaExceededError, match=r"concurrent_calls of caller:key:1 is 2, and 2 are used"):
        one.begin(single=True)
    two.begin(single=True)
    with pytest.raises(QuotaExceededError, match=r"of tenant:acme is 3"):
        two.begin(single=True)
    accounts.of("other", "key:1").begin(single=True)
    assert accounts.usage_of("acme") == Usage(calls=3, refused_calls=2, concurrent_calls=3)
    assert two.usage.concurrent_calls == 1


def test_bytes_in_flight_are_limited_but_what_comes_alone_passes(clock: Clock) -> None:
    account = Accounts(Quotas(mib_in_flight=2), Quotas(mib_in_flight=100), now=clock).of("acme", "key:1")
    account.hold(5 * MIB)
    with pytest.raises(QuotaExceededError, match="mib_in_flight of tenant:acme is 2"):
        account.hold(1)
    with pytest.raises(QuotaExceededError, match="mib_in_flight"):
        account.begin(single=True)
    account.give(5 * MIB)
    account.begin(single=True)
    account.hold(MIB)
    account.hold(MIB)
    assert passed(lambda: account.hold(1))[0] == 0
    account.end(single=True, held=2 * MIB)
    assert account.is_idle
    assert account.parent is not None
    assert account.parent.usage.bytes_in_flight == 0


def test_quotas_of_a_tenant_take_effect_while_it_is_at_its_limit(clock: Clock) -> None:
    accounts = Accounts(Quotas(open_streams=1, calls_per_second=2), now=clock)
    account = accounts.of_tenant("acme")
    account.begin(single=False)
    with pytest.raises(QuotaExceededError):
        account.begin(single=False)
    accounts.set_quotas({"acme": Quotas(open_streams=2)})
    assert accounts.quotas_of("acme") == Quotas(open_streams=2, calls_per_second=2)
    account.begin(single=False)
    accounts.set_quotas({})
    with pytest.raises(QuotaExceededError, match="open_streams of tenant:acme is 1, and 2 would be used"):
        account.begin(single=False)
    assert accounts.quotas_of("other") == Quotas(open_streams=1, calls_per_second=2)


def test_callers_without_open_calls_are_forgotten(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mnemon_server.services.limits.accounts.CALLERS_MAX", 10)
    accounts = Accounts(UNLIMITED, Quotas(open_streams=1), now=clock)
    accounts.of("acme", "busy").begin(single=False)
    for number in range(100):
        accounts.of("acme", f"key:{number}")
    with pytest.raises(QuotaExceededError):
        accounts.of("acme", "busy").begin(single=False)
    assert len(accounts._callers) <= 11


def test_quotas_are_read_from_texts_and_say_what_is_wrong() -> None:
    assert parse_quotas(["calls_per_second=2.5", "open_streams = 20"]) == Quotas(calls_per_second=2.5, open_streams=20)
    for text, wrong in (
        ("streams=2", "the names are calls_per_second"),
        ("open_streams", "NAME=NUMBER"),
        ("open_streams=many", "NAME=NUMBER"),
        ("open_streams=0", "positive"),
        ("open_streams=nan", "positive"),
        ("open_streams=inf", "positive"),
        ("open_streams=1.5", "whole"),
    ):
        with pytest.raises(InvalidArgumentError, match=wrong):
            parse_quotas([text])
    assert replace(UNLIMITED).as_dict() == {}


def test_an_account_is_idle_once_nothing_is_open_and_its_rate_is_saved_up_again(clock: Clock) -> None:
    account = Accounts(Quotas(calls_per_second=2), now=clock).of_tenant("acme")
    for starts, ends in (
        (lambda: account.begin(single=True), lambda: account.end(single=True)),
        (lambda: account.begin(single=False), lambda: account.end(single=False)),
        (lambda: account.hold(5), lambda: account.give(5)),
        (lambda: account.count_answer(5), lambda: account.count_answer(-5)),
        (lambda: account.count_unread(5), lambda: account.count_unread(-5)),
    ):
        assert account.is_idle
        starts()
        clock.seconds += 1
        assert not account.is_idle
        ends()
        assert account.is_idle
    begin(account)
    assert not account.is_idle
    clock.seconds += 0.5
    assert account.is_idle
    unlimited = Accounts(now=clock).of_tenant("acme")
    begin(unlimited)
    assert unlimited.is_idle


def test_what_has_no_limit_has_an_infinite_rate_and_never_waits(clock: Clock) -> None:
    bucket = Bucket(None, 0, now=clock)
    bucket.spend(5)
    assert (bucket.rate, bucket.wait_s(5), bucket.is_full) == (math.inf, 0, True)
    assert Bucket(2, 4, now=clock).rate == 2


def test_the_same_quotas_again_give_nothing_back(clock: Clock) -> None:
    accounts = Accounts(Quotas(calls_per_second=1), now=clock)
    begin(accounts.of_tenant("acme"))
    accounts.set_quotas({"other": Quotas(open_streams=1)})
    assert passed(lambda: begin(accounts.of_tenant("acme")))[0] == 0


def test_without_quotas_of_callers_a_call_counts_in_the_account_of_its_tenant(clock: Clock) -> None:
    accounts = Accounts(now=clock)
    assert accounts.of("acme", "key:1") is accounts.of_tenant("acme")
    assert accounts.of("acme", "key:2") is accounts.of("acme", "key:1")
    for _ in range(3):
        accounts.of("acme", "key:1").hold(MIB)
    assert accounts.usage_of("acme").bytes_in_flight == 3 * MIB
    assert accounts.usage_of("never called") == Usage()


@pytest.mark.parametrize(
    ("quotas", "records", "disk_bytes", "quota"),
    [
        (Quotas(records=5), 5, None, "records"),
        (Quotas(records=5), 4, 9 * MIB, ""),
        (Quotas(records=5), None, None, ""),
        (Quotas(disk_mib=2), None, 2 * MIB, "disk_mib"),
        (Quotas(disk_mib=2), 9, 2 * MIB - 1, ""),
        (Quotas(disk_mib=2), None, None, ""),
        (Quotas(open_streams=9), 9, 9 * MIB, ""),
    ],
)
def test_a_tenant_that_is_full_stores_no_more_and_still_reads(
    quotas: Quotas, records: int | None, disk_bytes: int | None, quota: str, clock: Clock
) -> None:
    accounts = Accounts(quotas, Quotas(open_streams=1), now=clock)
    caller, tenant = accounts.of("acme", "key:1"), accounts.of_tenant("acme")
    tenant.usage.records, tenant.usage.disk_bytes = records, disk_bytes
    assert tenant.limits_space is (quotas.records is not None or quotas.disk_mib is not None)
    caller.begin(single=True, stores=False)
    accounts.require("acme", stored=False)
    for act in (lambda: caller.begin(single=True, stores=True), lambda: accounts.require("acme", stored=True)):
        if quota:
            count, error = passed(act)
            assert (count, error.quota, error.subject, error.retry_after_s) == (0, quota, "tenant:acme", None)
        else:
            act()


def test_the_model_runs_for_its_seconds_and_then_as_they_are_saved_up(clock: Clock) -> None:
    accounts = Accounts(Quotas(embedding_seconds_per_minute=60), now=clock)
    accounts.note("acme", 30)
    accounts.require("acme", stored=False)
    accounts.note("acme", 32)
    count, error = passed(lambda: accounts.require("acme", stored=False))
    assert (count, error.quota, error.limit, error.retry_after_s) == (0, "embedding_seconds_per_minute", 60, 2)
    clock.seconds += 2
    accounts.require("acme", stored=False)
    assert accounts.usage_of("acme").embedding_seconds == 62


def test_quotas_of_calls_hold_only_where_there_are_some(clock: Clock) -> None:
    account = Accounts(Quotas(records=1_000), now=clock).of_tenant("acme")
    for single in (True, False):
        for _ in range(3):
            account.begin(single=single)
    account.hold(9 * MIB)
    account.begin(single=True)
    assert (account.usage.concurrent_calls, account.usage.open_streams) == (4, 3)
