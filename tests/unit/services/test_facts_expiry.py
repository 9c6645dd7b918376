"""Facts with a lifetime: invisible to reads as soon as it ends, renewed on request, and finally swept."""

import asyncio
from datetime import timedelta

import pytest
from mnemon_server.domain.collections import FACTS
from mnemon_server.domain.errors import (
    FactExistsError,
    FactNotFoundError,
    RequestIdReusedError,
    StorageFailedError,
)
from mnemon_server.domain.facts import FactFilter, FactQuery, FactRenewal, PutFact, PutMode, filter_expression
from mnemon_server.domain.records import WriteOutcome
from mnemon_server.services.background.clock_guard import DOUBT_KEY, ClockGuard
from mnemon_server.services.facts import store as facts_module
from mnemon_server.services.facts.expiry import FactExpiry

from tests.support.fact_stores import HERE, OpenedFacts, keys_of
from tests.support.gated_embedder import until
from tests.support.memory_stores import NOON

HOUR = timedelta(hours=1)
ALL = FactFilter(namespace=HERE)


def document_count(facts: OpenedFacts) -> int:
    return facts.vault.collection(FACTS).stats().document_count


def steady(facts: OpenedFacts) -> ClockGuard:
    """A guard whose uptime follows the clock."""

    def uptime() -> float:
        return (facts.clock.time - NOON).total_seconds()

    return ClockGuard(facts.vault, clock=facts.clock, uptime=uptime)


async def test_an_expired_fact_is_gone_for_every_read_at_once(facts: OpenedFacts) -> None:
    await facts.put("ends", "zebra", ttl=HOUR)
    await facts.put("stays", "zebra")
    facts.clock.time = NOON + HOUR - timedelta(microseconds=1)
    assert await facts.keys() == ["ends", "stays"]
    facts.clock.time = NOON + HOUR
    assert await facts.keys() == ["stays"]
    living = await facts.store.get_many([(HERE, "ends"), (HERE, "stays")])
    assert [fact.key for fact in living.facts] == ["stays"]
    for text in ("zebra", ""):
        assert keys_of((await facts.store.search(FactQuery(filter=ALL, text=text))).matches) == ["stays"]
    with pytest.raises(FactNotFoundError):
        await facts.store.get(HERE, "ends")
    [result] = (await facts.store.renew([(HERE, "ends")])).results
    assert isinstance(result, FactNotFoundError)
    with pytest.raises(FactNotFoundError):
        await facts.store.update_content(HERE, "ends", "lion")
    with pytest.raises(FactNotFoundError):
        await facts.store.delete(HERE, "ends")
    assert (await facts.store.delete(HERE, "ends", allow_missing=True)).outcome is WriteOutcome.MISSING
    assert (await facts.store.delete_many(ALL, dry_run=True)).deleted_count == 1
    # It is still on disk, and its end is not yet in the log.
    assert (document_count(facts), facts.told()) == (2, [("created", "ends", ""), ("created", "stays", "")])


async def test_a_fact_that_replaces_an_expired_one_is_new(facts: OpenedFacts) -> None:
    put = PutFact(namespace=HERE, key="k", value={"content": "new"}, mode=PutMode.CREATE)
    await facts.put("k", "old")
    await facts.put("k", "ends", ttl=HOUR)
    with pytest.raises(FactExistsError):
        await facts.store.put(put)
    facts.clock.pass_hours(1)
    with pytest.raises(FactNotFoundError):
        await facts.store.put(PutFact(namespace=HERE, key="k", value={"content": "x"}, mode=PutMode.UPDATE))
    with pytest.raises(FactNotFoundError):
        await facts.store.put(PutFact(namespace=HERE, key="k", value={"content": "x"}, expected_revision=2))
    answer = await facts.store.put(put)
    assert (answer.receipt.outcome, answer.receipt.revision) == (WriteOutcome.CREATED, 1)
    fact = await facts.store.get(HERE, "k", versions=True)
    assert (fact.created_at, fact.versions, fact.expires_at) == (facts.clock.time, (), None)
    assert facts.told()[-2:] == [("deleted", "k", "expired"), ("created", "k", "")]


async def test_a_renewal_restarts_the_lifetime_and_reports_missing_facts(facts: OpenedFacts) -> None:
    for key in ("kept", "too", "only read"):
        await facts.put(key, key, ttl=HOUR)
    await facts.put("never ends", "x")
    facts.clock.pass_hours(0.5)
    await facts.store.get(HERE, "only read")
    names = [(HERE, key) for key in ("kept", "gone", "never ends", "kept", "too")]
    kept, gone, unending, again, too = (await facts.store.renew(names)).results
    assert kept == again == too == FactRenewal(facts.clock.time + HOUR)
    assert isinstance(gone, FactNotFoundError)
    assert unending == FactRenewal(None)
    assert (await facts.store.get(HERE, "kept")).expires_at == facts.clock.time + HOUR
    assert (await facts.store.get(HERE, "only read")).expires_at == NOON + HOUR
    facts.clock.pass_hours(0.75)
    assert set(await facts.keys()) == {"kept", "too", "never ends"}


async def test_a_repeated_renewal_gets_the_first_answer_and_renews_nothing(facts: OpenedFacts) -> None:
    await facts.put("k", "zebra", ttl=HOUR)
    names = [(HERE, "k"), (HERE, "gone")]
    first = await facts.store.renew(names, request_id="once")
    await facts.put("gone", "x")
    facts.clock.pass_hours(0.5)
    again = await facts.store.renew(names, request_id="once")
    assert (first.replayed, again.replayed) == (False, True)
    assert first.results[0] == again.results[0] == FactRenewal(NOON + HOUR)
    assert isinstance(again.results[1], FactNotFoundError)
    assert (await facts.store.get(HERE, "k")).expires_at == NOON + HOUR
    with pytest.raises(RequestIdReusedError):
        await facts.store.renew(names[:1], request_id="once")


async def test_a_renewal_is_not_a_change(facts: OpenedFacts) -> None:
    await facts.put("k", "zebra", ttl=HOUR)
    before = await facts.store.get(HERE, "k", versions=True)
    facts.clock.pass_hours(0.5)
    await facts.store.renew([(HERE, "k")])
    renewed = await facts.store.get(HERE, "k", versions=True)
    assert (renewed.revision, renewed.updated_at, renewed.versions) == (1, NOON, before.versions)
    assert len(facts.changes()) == 1
    found = await facts.store.search(FactQuery(filter=ALL, text="zebra"))
    assert keys_of(found.matches) == ["k"]


async def test_many_renewals_at_once_renew_all_that_they_name(facts: OpenedFacts) -> None:
    keys = [f"k{number}" for number in range(50)]
    await facts.store.put_many([PutFact(namespace=HERE, key=key, value={"content": key}, ttl=HOUR) for key in keys])
    facts.clock.pass_hours(0.5)
    await asyncio.gather(*(facts.store.renew([(HERE, key)]) for key in keys[:30]))
    facts.clock.pass_hours(0.75)
    assert await facts.keys() == keys[:30]


async def test_a_sweep_removes_expired_facts_and_logs_each(facts: OpenedFacts, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(facts_module, "SWEEP_STEP", 3)
    for number in range(8):
        await facts.put(f"k{number}", "x", ttl=HOUR if number != 4 else None)
    assert await facts.store.sweep(facts.clock()) == 0
    facts.clock.pass_hours(2)
    await facts.put("later", "x", ttl=HOUR)
    assert await facts.store.sweep(facts.clock()) == 7
    assert await facts.store.sweep(facts.clock()) == 0
    assert await facts.keys() == ["k4", "later"]
    assert document_count(facts) == 2
    swept = facts.told()[9:]
    assert swept == [("deleted", f"k{number}", "expired") for number in range(8) if number != 4]


async def test_deleting_everything_removes_expired_facts_without_counting_them(facts: OpenedFacts) -> None:
    await facts.put("ended", {"kind": "x"}, ttl=HOUR)
    await facts.put("other", {"kind": "y"}, ttl=HOUR)
    facts.clock.pass_hours(1)
    await facts.put("there", {"kind": "x"})
    where = FactFilter(namespace=HERE, where=filter_expression({"kind": "x"}))
    assert (await facts.store.delete_many(where)).deleted_count == 1
    assert document_count(facts) == 1
    assert [reason for kind, _, reason in facts.told() if kind == "deleted"] == ["requested", "expired"]


async def test_the_sweeper_sweeps_periodically_until_it_is_closed(facts: OpenedFacts) -> None:
    async with FactExpiry(facts.store, steady(facts), interval_s=0.01):
        for _ in range(2):
            await facts.put("k", "x", ttl=HOUR)
            facts.clock.pass_hours(1)
            await until(lambda: not document_count(facts))
    await facts.put("k", "x", ttl=HOUR)
    facts.clock.pass_hours(1)
    assert document_count(facts) == 1
    assert [kind for kind, _, _ in facts.told()] == ["created", "deleted", "created", "deleted", "created"]


@pytest.mark.parametrize("failure", [StorageFailedError("the disk failed"), OSError("too many open files")])
async def test_a_failing_sweep_is_retried_whatever_the_error(facts: OpenedFacts, failure: Exception) -> None:
    await facts.put("k", "x", ttl=HOUR)
    facts.clock.pass_hours(1)
    facts.clock.failures.append(failure)
    async with FactExpiry(facts.store, steady(facts), interval_s=0.01):
        await until(lambda: not document_count(facts))


async def test_a_clock_that_jumped_ahead_removes_no_fact_before_its_time(facts: OpenedFacts) -> None:
    guard = ClockGuard(facts.vault, clock=facts.clock, uptime=lambda: 0.0)
    await guard.jump()
    await facts.put("young", "x", ttl=24 * HOUR)
    facts.clock.pass_hours(48)
    async with FactExpiry(facts.store, guard, interval_s=0.01):
        await until(lambda: facts.vault.value(DOUBT_KEY))
        assert (await facts.keys(), document_count(facts)) == ([], 1)
        facts.clock.pass_hours(-48)
        await until(lambda: not facts.vault.value(DOUBT_KEY))
    assert await facts.keys() == ["young"]
