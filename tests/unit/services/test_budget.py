"""Shared slots: how many a single holder gets, and how many are left for the others."""

from collections.abc import Hashable

import pytest
from mnemon_server.domain.errors import TooManyRequestsError
from mnemon_server.services.limits.accounts import Budget, SharedBudget


def take_all(budget: SharedBudget, *holder: Hashable) -> None:
    while True:
        budget.take(*holder)


def taken(budget: SharedBudget, *holder: Hashable) -> int:
    """How many slots the holder gets before it is refused."""
    before = budget.used
    with pytest.raises(TooManyRequestsError) as refused:
        take_all(budget, *holder)
    assert refused.value.retry_after_s > 0
    return budget.used - before


def test_a_holder_that_takes_all_it_can_leaves_slots_for_later_ones() -> None:
    budget = SharedBudget(256, "streams")
    assert taken(budget, "greedy") == 224
    assert taken(budget, "second") == 28
    budget.take("third")


def test_holders_that_all_want_more_end_up_with_equal_shares() -> None:
    budget = SharedBudget(256, "streams")
    held = dict.fromkeys("abc", 0)
    refused: set[str] = set()
    while len(refused) < len(held):
        for holder in held:
            try:
                budget.take(holder)
                held[holder] += 1
            except TooManyRequestsError:
                refused.add(holder)
    assert max(held.values()) - min(held.values()) <= 1
    assert 240 <= sum(held.values()) < 256


def test_a_returned_slot_can_be_taken_again() -> None:
    budget = SharedBudget(3, "calls")
    assert taken(budget, "one") == 3
    budget.give_back("one")
    budget.take("two")
    with pytest.raises(TooManyRequestsError, match="3 calls"):
        budget.take("one")
    for holder in ("one", "one", "two"):
        budget.give_back(holder)
    assert budget.used == 0
    assert taken(budget, "two") == 3


def test_a_plain_budget_refuses_more_than_its_limit() -> None:
    budget = Budget(1, "calls of the tool 'slow'")
    with budget, pytest.raises(TooManyRequestsError, match="1 calls of the tool 'slow'"), budget:
        pass
    assert budget.used == 0


def test_the_callers_of_a_tenant_leave_slots_for_other_tenants_and_for_each_other() -> None:
    budget = SharedBudget(512, "calls")
    held = [taken(budget, "greedy", ("greedy", number)) for number in range(20)]
    assert sum(held) == 448
    assert held[1] > 1
    budget.take("other", ("other", 0))
    for number, count in enumerate(held):
        for _ in range(count):
            budget.give_back("greedy", ("greedy", number))
    budget.give_back("other", ("other", 0))
    assert budget.used == 0
