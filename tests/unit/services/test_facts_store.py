"""The fact service: replacing, earlier versions, runs, new content and repeated calls."""

import asyncio
import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from mnemon_server.domain.errors import (
    FactExistsError,
    FactNotFoundError,
    InvalidArgumentError,
    RequestIdReusedError,
    RevisionMismatchError,
)
from mnemon_server.domain.facts import (
    FactFilter,
    FactIndex,
    FactQuery,
    FactReceipt,
    PutFact,
    PutMode,
    record_id,
)
from mnemon_server.domain.namespaces import Namespace
from mnemon_server.domain.records import SearchMode, WriteOutcome, WriteReceipt
from mnemon_server.services.facts.stored_form import VERSIONS_BYTES_MAX, VERSIONS_MAX

from tests.support.fact_stores import HERE, OpenedFacts, keys_of, open_facts
from tests.support.gated_embedder import GatedEmbedder, until
from tests.support.memory_stores import NOON, fields_of
from tests.support.turns import Turns
from tests.support.vaults import DIMENSION

THERE = Namespace(("org", "acme", "user", "ada"))
FULL = PutFact(
    namespace=HERE,
    key="k",
    value={
        "content": "Ada drinks tea",
        "count": 5,
        "share": 0.5,
        "tags": ["a", "b"],
        "deep": {"yes": True, "no": None},
    },
    metadata={"topic": "drinks", "since": datetime(2020, 1, 1, tzinfo=UTC), "names": ("x", "y")},
    ttl=timedelta(days=2, microseconds=7),
    index=FactIndex(paths=("content", "tags[*]")),
)
"""A fact with everything that a caller may say."""


async def versions_of(facts: OpenedFacts, key: str) -> list[tuple[int, Any]]:
    fact = await facts.store.get(HERE, key, versions=True)
    return [(version.revision, version.value) for version in fact.versions]


async def test_a_replaced_fact_keeps_only_its_creation_time(facts: OpenedFacts) -> None:
    await facts.store.put(FULL)
    facts.clock.pass_hours(1)
    fact = await facts.put("k", {"title": "other"})
    assert (fact.value, fact.metadata, fact.ttl, fact.expires_at) == ({"title": "other"}, {}, None, None)
    assert (fact.created_at, fact.updated_at, fact.revision) == (NOON, facts.clock.time, 2)
    assert await facts.store.get(HERE, "k") == fact


async def test_an_import_may_set_the_times(facts: OpenedFacts) -> None:
    made, changed = datetime(2020, 1, 1, tzinfo=UTC), datetime(2021, 1, 1)
    fact = await facts.put("k", "x", created_at=made, updated_at=changed)
    assert (fact.created_at, fact.updated_at) == (made, changed.replace(tzinfo=UTC))
    assert await facts.store.get(HERE, "k") == fact
    again = await facts.put("k", "y")
    assert (again.created_at, again.updated_at) == (made, NOON)
    moved = await facts.put("k", "y", created_at=changed, updated_at=changed)
    assert (moved.created_at, moved.revision) == (changed.replace(tzinfo=UTC), 3)


async def test_putting_the_same_again_only_restarts_the_lifetime(facts: OpenedFacts) -> None:
    first = await facts.store.put(FULL)
    assert first.fact is not None
    facts.clock.pass_hours(1)
    again = await facts.store.put(replace(FULL, value=dict(reversed(FULL.value.items()))))
    assert (again.receipt.outcome, again.receipt.revision) == (WriteOutcome.UNCHANGED, 1)
    assert again.fact == replace(first.fact, expires_at=facts.clock.time + FULL.ttl)  # type: ignore[operator]
    assert await facts.store.get(HERE, "k") == again.fact
    assert facts.told() == [("created", "k", "")]
    assert await versions_of(facts, "k") == []


@pytest.mark.parametrize(
    ("change", "name"),
    [
        ({"value": FULL.value | {"count": 5.0}}, "value"),
        ({"value": FULL.value | {"deep": {"yes": 1, "no": None}}}, "value"),
        ({"metadata": {**FULL.metadata, "topic": "food"}}, "metadata"),
        ({"index": FactIndex()}, "index"),
        ({"embedding": (1.0,) * DIMENSION}, "index"),
        ({"ttl": timedelta(days=2)}, "ttl"),
        ({"ttl": None}, "ttl"),
        ({"created_at": NOON - timedelta(days=1)}, "create_time"),
        ({"updated_at": NOON - timedelta(days=1)}, "update_time"),
    ],
)
async def test_any_difference_is_a_change_and_the_log_names_it(
    facts: OpenedFacts, change: dict[str, Any], name: str
) -> None:
    await facts.store.put(FULL)
    changed = replace(FULL, **change)
    answer = await facts.store.put(changed)
    assert (answer.receipt.outcome, answer.receipt.revision) == (WriteOutcome.REPLACED, 2)
    assert facts.changes()[-1].changed == (name,)
    assert (await facts.store.put(changed)).receipt.outcome is WriteOutcome.UNCHANGED


async def test_earlier_versions_come_newest_first_and_only_on_request(facts: OpenedFacts) -> None:
    for number in range(VERSIONS_MAX + 3):
        await facts.put("k", {"content": f"version {number}\u2028\n"})
    last = VERSIONS_MAX + 3
    assert await versions_of(facts, "k") == [
        (number, {"content": f"version {number - 1}\u2028\n"})
        for number in range(last - 1, last - 1 - VERSIONS_MAX, -1)
    ]
    assert (await facts.store.get(HERE, "k")).versions == ()
    [listed] = (await facts.store.list(FactFilter(namespace=HERE), limit=9, versions=True)).facts
    assert len(listed.versions) == VERSIONS_MAX
    assert listed.versions[0].updated_at == NOON
    [listed] = (await facts.store.list(FactFilter(namespace=HERE), limit=9)).facts
    assert listed.versions == ()


async def test_earlier_versions_have_a_total_size_limit(facts: OpenedFacts) -> None:
    size = VERSIONS_BYTES_MAX // 3
    for letter in "abcdef":
        await facts.put("k", {"content": letter * size})
    assert [value["content"][0] for _, value in await versions_of(facts, "k")] == ["e", "d"]
    await facts.put("k", {"content": "x" * (VERSIONS_BYTES_MAX + 1)})
    assert [value["content"][0] for _, value in await versions_of(facts, "k")] == ["f", "e"]
    await facts.put("k", "small")
    assert await versions_of(facts, "k") == []


async def test_the_log_names_the_fact_and_holds_no_text_of_it(facts: OpenedFacts) -> None:
    await facts.put("k", "zebra", namespace=THERE, metadata={"m": "zebra"})
    await facts.put("k", "zebra crossing", namespace=THERE)
    await facts.store.delete(THERE, "k")
    changes = facts.changes()
    assert {change.record_id for change in changes} == {record_id(THERE, "k")}
    assert [change.revision for change in changes] == [1, 2, 2]
    assert json.loads(changes[0].details) == {"namespace": ["org", "acme", "user", "ada"], "key": "k"}
    assert "zebra" not in repr(changes)


async def test_a_repeated_put_gets_the_first_answer_and_the_current_fact(facts: OpenedFacts) -> None:
    put = replace(FULL, key="", request_id="r")
    first = await facts.store.put(put)
    await facts.put(first.receipt.id, "changed")
    again = await facts.store.put(put)
    assert again.receipt == replace(first.receipt, replayed=True)
    assert again.fact is not None
    assert again.fact.value == {"content": "changed"}
    for other in (
        replace(put, value={"content": "x"}),
        replace(put, namespace=THERE),
        replace(put, key="k"),
        replace(put, ttl=None),
        replace(put, embedding=(1.0,) * DIMENSION),
        replace(put, metadata={"names": ("x",)}),
        replace(put, index=FactIndex()),
        replace(put, mode=PutMode.CREATE),
        replace(put, created_at=NOON),
    ):
        with pytest.raises(RequestIdReusedError):
            await facts.store.put(other)
    await facts.store.delete(HERE, first.receipt.id)
    assert await facts.store.put(put) == FactReceipt(replace(first.receipt, replayed=True), None)
    assert await facts.keys() == []


async def test_repeated_deletions_get_the_first_answer(facts: OpenedFacts) -> None:
    for key in ("a", "b"):
        await facts.put(key, "x")
    first = await facts.store.delete(HERE, "a", request_id="one")
    await facts.put("a", "there again")
    assert await facts.store.delete(HERE, "a", request_id="one") == replace(first, replayed=True)
    assert await facts.keys() == ["b", "a"]
    everything = FactFilter(namespace=HERE)
    many = await facts.store.delete_many(everything, request_id="many")
    await facts.put("c", "x")
    again = await facts.store.delete_many(everything, request_id="many")
    assert (many.deleted_count, again) == (2, replace(many, replayed=True))
    with pytest.raises(RequestIdReusedError):
        await facts.store.delete_many(FactFilter(namespace=HERE, subtree=True), request_id="many")
    with pytest.raises(RequestIdReusedError):
        await facts.store.delete(HERE, "c", request_id="one")
    assert await facts.keys() == ["c"]


async def test_facts_of_a_run_are_stored_in_order_and_a_bad_one_fails_alone(facts: OpenedFacts) -> None:
    await facts.put("known", "x")
    puts = [
        PutFact(namespace=HERE, key="a", value={"content": "one"}),
        PutFact(namespace=HERE, key="a", value={"content": "two"}),
        PutFact(namespace=HERE, key="a" * 513, value={"content": "x"}),
        PutFact(namespace=HERE, key="known", value={"content": "x"}, mode=PutMode.CREATE),
        PutFact(namespace=HERE, key="b", value={"content": "x"}, request_id="r"),
        PutFact(namespace=HERE, key="b", value={"content": "x"}, request_id="r"),
        PutFact(namespace=HERE, key="b", value={"content": "y"}, request_id="r"),
        PutFact(namespace=HERE, key="a", value={"content": "three"}, expected_revision=2),
        PutFact(namespace=HERE, key="known", value={"content": "y"}, expected_revision=4),
        PutFact(namespace=THERE, key="missing", value={"content": "x"}, mode=PutMode.UPDATE),
    ]
    results = await facts.store.put_many(puts)
    said = [
        (result.id, result.revision, result.replayed) if isinstance(result, WriteReceipt) else type(result)
        for result in results
    ]
    assert said == [
        ("a", 1, False),
        ("a", 2, False),
        InvalidArgumentError,
        FactExistsError,
        ("b", 1, False),
        ("b", 1, True),
        RequestIdReusedError,
        ("a", 3, False),
        RevisionMismatchError,
        FactNotFoundError,
    ]
    assert (await facts.store.get(HERE, "a")).value == {"content": "three"}
    assert await facts.keys() == ["known", "a", "b"]


async def test_a_run_is_one_commit_of_the_log(facts: OpenedFacts) -> None:
    await facts.store.put_many([PutFact(namespace=HERE, key=key, value={"content": key}) for key in "abc"])
    assert [(change.record_id, change.commit) for change in facts.changes()] == [
        (record_id(HERE, key), facts.changes()[0].sequence) for key in "abc"
    ]
    assert await facts.store.put_many([]) == []


async def test_limits_are_named(facts: OpenedFacts) -> None:
    cases = [
        ({"value": {"content": "x" * (1 << 20)}}, "fact.value"),
        ({"ttl": timedelta(days=36_501)}, "fact.ttl"),
        ({"index": FactIndex(paths=("a",) * 17)}, "fact.index.paths"),
        ({"index": FactIndex(off=True, paths=("a",))}, "fact.index.paths"),
        ({"index": FactIndex(off=True), "embedding": (1.0,) * DIMENSION}, "embedding"),
        ({"embedding": (0.0,) * DIMENSION}, "embedding"),
    ]
    for change, field in cases:
        with pytest.raises(InvalidArgumentError) as caught:
            await facts.store.put(replace(FULL, **change))
        assert fields_of(caught.value) == [field]


async def test_other_calls_are_served_while_a_large_value_is_checked(facts: OpenedFacts) -> None:
    value = {"numbers": [0] * 450_000, "wrong": float("inf")}
    async with Turns() as turns:
        with pytest.raises(InvalidArgumentError, match="finite"):
            await facts.store.put(PutFact(namespace=HERE, key="k", value=value))
    assert turns.count > 3


async def test_new_content_leaves_everything_else_as_it_was(facts: OpenedFacts) -> None:
    await facts.store.put(FULL)
    facts.clock.pass_hours(1)
    answer = await facts.store.update_content(HERE, "k", "Ada drinks coffee")
    assert answer.fact is not None
    assert answer.fact.value == FULL.value | {"content": "Ada drinks coffee"}
    assert (answer.fact.metadata, answer.fact.index, answer.fact.ttl) == (FULL.metadata, FULL.index, FULL.ttl)
    assert (answer.fact.created_at, answer.fact.updated_at, answer.fact.revision) == (NOON, facts.clock.time, 2)
    assert answer.fact.expires_at == facts.clock.time + timedelta(days=2, microseconds=7)
    assert await facts.store.get(HERE, "k") == answer.fact
    assert facts.changes()[-1].changed == ("value",)


async def test_new_content_needs_a_text_and_a_fact_of_this_namespace(facts: OpenedFacts) -> None:
    await facts.put("k", "x")
    for namespace, key in ((THERE, "k"), (HERE, "other")):
        with pytest.raises(FactNotFoundError):
            await facts.store.update_content(namespace, key, "y")
        with pytest.raises(FactNotFoundError):
            await facts.store.update_content(namespace, key, "y", request_id="r")
    with pytest.raises(InvalidArgumentError) as caught:
        await facts.store.update_content(HERE, "", " ", request_id="r" * 129)
    assert fields_of(caught.value) == ["key", "content", "request_id"]
    with pytest.raises(InvalidArgumentError) as caught:
        await facts.store.update_content(HERE, "k", "x" * (1 << 20))
    assert fields_of(caught.value) == ["fact.value"]
    assert (await facts.store.get(HERE, "k")).revision == 1


async def test_a_repeated_change_of_content_gets_the_first_answer_even_if_the_fact_is_gone(facts: OpenedFacts) -> None:
    await facts.put("k", "x")
    first = await facts.store.update_content(HERE, "k", "y", request_id="r")
    await facts.put("k", "z")
    again = await facts.store.update_content(HERE, "k", "y", request_id="r")
    assert again.receipt == replace(first.receipt, replayed=True)
    assert again.fact is not None
    assert again.fact.value == {"content": "z"}
    with pytest.raises(RequestIdReusedError):
        await facts.store.update_content(HERE, "k", "other", request_id="r")
    await facts.store.delete(HERE, "k")
    gone = await facts.store.update_content(HERE, "k", "y", request_id="r")
    assert gone == FactReceipt(replace(first.receipt, replayed=True), None)


async def test_concurrent_changes_of_content_all_count(facts: OpenedFacts) -> None:
    await facts.put("k", {"content": "x", "title": "stays"}, index=FactIndex(paths=("content", "title")))
    texts = [f"text {number}" for number in range(40)]
    await asyncio.gather(*(facts.store.update_content(HERE, "k", text) for text in texts))
    fact = await facts.store.get(HERE, "k", versions=True)
    assert fact.revision == 41
    contents = {fact.value["content"], *(version.value["content"] for version in fact.versions)}
    assert contents <= {*texts}
    assert len(contents) == 11


async def test_new_content_is_indexed_with_what_changed_while_it_was_embedded(tmp_path: Path) -> None:
    embedder = GatedEmbedder(parallelism=2)
    async with open_facts(tmp_path / "vault", embedder=embedder) as facts:
        both = FactIndex(paths=("content", "title"))
        await facts.put("k", {"content": "free tea", "title": "free zebra"}, index=both)
        embedder.gate.clear()
        update = asyncio.create_task(facts.store.update_content(HERE, "k", "coffee"))
        await until(lambda: any("coffee" in batch for batch in embedder.batches))
        await facts.put("k", {"content": "free tea", "title": "free lion"}, index=both, metadata={"new": True})
        embedder.gate.set()
        answer = await update
        assert answer.fact is not None
        assert (answer.fact.value, answer.fact.revision) == ({"content": "coffee", "title": "free lion"}, 3)
        assert answer.fact.metadata == {"new": True}
        for word, expected in (("coffee", ["k"]), ("lion", ["k"]), ("zebra", []), ("tea", [])):
            query = FactQuery(filter=FactFilter(namespace=HERE), text=word, mode=SearchMode.KEYWORD)
            assert keys_of((await facts.store.search(query)).matches) == expected
