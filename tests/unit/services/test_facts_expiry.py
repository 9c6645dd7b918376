"""Facts that live for a time: gone for whoever reads at once, renewed by reads that ask for it, swept for good."""

import asyncio
from datetime import timedelta

import pytest
from mnemon_server.domain.collections import FACTS
from mnemon_server.domain.errors import FactExistsError, FactNotFoundError, RevisionMismatchError, StorageFailedError
from mnemon_server.domain.facts import FactFilter, FactQuery, PutFact, PutMode, filter_expression
from mnemon_server.domain.records import WriteOutcome
from mnemon_server.services.facts import store as facts_module
from mnemon_server.services.facts.expiry import FactExpiry

from tests.support.fact_stores import HERE, OpenedFacts, keys_of
from tests.support.gated_embedder import until
from tests.support.memory_stores import NOON

HOUR = timedelta(hours=1)
ALL = FactFilter(namespace=HERE)


def document_count(facts: OpenedFacts) -> int:
    return facts.vault.collection(FACTS).stats().document_count


async def test_what_has_expired_is_gone_for_every_read_at_once(facts: OpenedFacts) -> None:
    await facts.put("ends", "zebra", ttl=HOUR)
    await facts.put("stays", "zebra")
    facts.clock.time = NOON + HOUR - timedelta(microseconds=1)
    assert await facts.keys() == ["ends", "stays"]
    facts.clock.time = NOON + HOUR
    assert await facts.keys() == ["stays"]
    assert [fact.key for fact in await facts.store.get_many([(HERE, "ends"), (HERE, "stays")])] == ["stays"]
    for text in ("zebra", ""):
        assert keys_of((await facts.store.search(FactQuery(filter=ALL, text=text))).matches) == ["stays"]
    with pytest.raises(FactNotFoundError):
        await facts.store.get(HERE, "ends", renew_ttl=True)
    with pytest.raises(FactNotFoundError):
        await facts.store.update_content(HERE, "ends", "lion")
    assert (await facts.store.delete(HERE, "ends")).outcome is WriteOutcome.MISSING
    assert (await facts.store.delete_many(ALL, dry_run=True)).deleted_count == 1
    # It is still on the disk, and nothing was said of it.
    assert (document_count(facts), facts.told()) == (2, [("created", "ends", ""), ("created", "stays", "")])


async def test_a_fact_in_the_place_of_one_that_expired_is_a_new_one(facts: OpenedFacts) -> None:
    put = PutFact(namespace=HERE, key="k", value={"content": "new"}, mode=PutMode.CREATE)
    await facts.put("k", "old")
    await facts.put("k", "ends", ttl=HOUR)
    with pytest.raises(FactExistsError):
        await facts.store.put(put)
    facts.clock.pass_hours(1)
    with pytest.raises(FactNotFoundError):
        await facts.store.put(PutFact(namespace=HERE, key="k", value={"content": "x"}, mode=PutMode.UPDATE))
    with pytest.raises(RevisionMismatchError):
        await facts.store.put(PutFact(namespace=HERE, key="k", value={"content": "x"}, expected_revision=2))
    answer = await facts.store.put(put)
    assert (answer.receipt.outcome, answer.receipt.revision) == (WriteOutcome.CREATED, 1)
    fact = await facts.store.get(HERE, "k", versions=True)
    assert (fact.created_at, fact.versions, fact.expires_at) == (facts.clock.time, (), None)
    assert facts.told()[-2:] == [("deleted", "k", "expired"), ("created", "k", "")]


async def test_reads_that_ask_for_it_let_the_time_begin_anew(facts: OpenedFacts) -> None:
    for key in ("got", "of many", "found", "listed"):
        await facts.put(key, key, ttl=HOUR)
    await facts.put("never ends", "x")
    facts.clock.pass_hours(0.5)
    end = facts.clock.time + HOUR
    assert (await facts.store.get(HERE, "got")).expires_at == NOON + HOUR
    assert (await facts.store.get(HERE, "got", renew_ttl=True)).expires_at == end
    many = await facts.store.get_many([(HERE, "of many"), (HERE, "never ends"), (HERE, "of many")], renew_ttl=True)
    assert [fact.expires_at for fact in many] == [end, None, end]
    answer = await facts.store.search(FactQuery(filter=ALL, text="found", limit=1, renew_ttl=True))
    assert [(match.fact.key, match.fact.expires_at) for match in answer.matches] == [("found", end)]
    facts.clock.pass_hours(0.75)
    assert set(await facts.keys()) == {"got", "of many", "found", "never ends"}


async def test_a_renewal_is_no_change(facts: OpenedFacts) -> None:
    await facts.put("k", "zebra", ttl=HOUR)
    before = await facts.store.get(HERE, "k", versions=True)
    facts.clock.pass_hours(0.5)
    renewed = await facts.store.get(HERE, "k", renew_ttl=True, versions=True)
    assert (renewed.revision, renewed.updated_at, renewed.versions) == (1, NOON, before.versions)
    assert await facts.store.get(HERE, "k") == renewed
    assert len(facts.events()) == 1
    found = await facts.store.search(FactQuery(filter=ALL, text="zebra"))
    assert keys_of(found.matches) == ["k"]


async def test_many_reads_at_once_renew_all_that_they_read(facts: OpenedFacts) -> None:
    keys = [f"k{number}" for number in range(50)]
    await facts.store.put_many([PutFact(namespace=HERE, key=key, value={"content": key}, ttl=HOUR) for key in keys])
    facts.clock.pass_hours(0.5)
    await asyncio.gather(*(facts.store.get(HERE, key, renew_ttl=True) for key in keys[:30]))
    facts.clock.pass_hours(0.75)
    assert await facts.keys() == keys[:30]


async def test_a_sweep_removes_what_has_expired_and_says_so_of_each(
    facts: OpenedFacts, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(facts_module, "SWEEP_STEP", 3)
    for number in range(8):
        await facts.put(f"k{number}", "x", ttl=HOUR if number != 4 else None)
    assert await facts.store.sweep() == 0
    facts.clock.pass_hours(2)
    await facts.put("later", "x", ttl=HOUR)
    assert await facts.store.sweep() == 7
    assert await facts.store.sweep() == 0
    assert await facts.keys() == ["k4", "later"]
    assert document_count(facts) == 2
    swept = facts.told()[9:]
    assert swept == [("deleted", f"k{number}", "expired") for number in range(8) if number != 4]


async def test_a_deletion_of_all_takes_what_has_expired_along_uncounted(facts: OpenedFacts) -> None:
    await facts.put("ended", {"kind": "x"}, ttl=HOUR)
    await facts.put("other", {"kind": "y"}, ttl=HOUR)
    facts.clock.pass_hours(1)
    await facts.put("there", {"kind": "x"})
    where = FactFilter(namespace=HERE, where=filter_expression({"kind": "x"}))
    assert (await facts.store.delete_many(where)).deleted_count == 1
    assert document_count(facts) == 1
    assert [reason for kind, _, reason in facts.told() if kind == "deleted"] == ["requested", "expired"]


async def test_the_sweeper_sweeps_again_and_again_until_it_is_left(facts: OpenedFacts) -> None:
    async with FactExpiry(facts.store, interval_s=0.01):
        for _ in range(2):
            await facts.put("k", "x", ttl=HOUR)
            facts.clock.pass_hours(1)
            await until(lambda: not document_count(facts))
    await facts.put("k", "x", ttl=HOUR)
    facts.clock.pass_hours(1)
    assert document_count(facts) == 1
    assert [kind for kind, _, _ in facts.told()] == ["created", "deleted", "created", "deleted", "created"]


@pytest.mark.parametrize("failure", [StorageFailedError("the disk failed"), OSError("too many open files")])
async def test_a_sweep_that_fails_is_tried_again_whatever_it_fails_with(facts: OpenedFacts, failure: Exception) -> None:
    await facts.put("k", "x", ttl=HOUR)
    facts.clock.pass_hours(1)
    facts.clock.failures.append(failure)
    async with FactExpiry(facts.store, interval_s=0.01):
        await until(lambda: not document_count(facts))
