"""How facts are found and listed: by filters, and without omissions."""

from typing import Any

import pytest
from mnemon_server.domain.errors import InvalidArgumentError
from mnemon_server.domain.facts import FactFilter, FactQuery, PutFact, filter_expression
from mnemon_server.domain.namespaces import Namespace
from mnemon_server.services.search.settings import SearchSettings

from tests.support.fact_stores import HERE, OpenedFacts, keys_of, open_facts
from tests.support.vaults import DIMENSION

ALL = FactFilter(namespace=HERE)
BELOW = Namespace((*HERE, "team"))
VALUES: dict[str, dict[str, Any]] = {
    "a": {"category": "preference", "rank": 1, "done": True, "tags": ["x", "y"]},
    "b": {"category": "fact", "rank": 2.5, "done": False},
    "c": {"category": "preference", "rank": -3, "note": None},
    "d": {"category": 7, "rank": "2", "deep": {"rank": 1}},
    "e": {"rank": 1.0, "category": "Preference"},
    "f": {},
}


async def fill(facts: OpenedFacts) -> None:
    for key, value in VALUES.items():
        await facts.put(key, value, metadata={"origin": "import" if key in "ab" else "chat", "rank": 99})


def where(conditions: dict[str, Any]) -> FactFilter:
    return FactFilter(namespace=HERE, where=filter_expression(conditions))


async def test_each_operator_selects_the_right_facts(facts: OpenedFacts) -> None:
    cases = [
        ({"category": "preference"}, "ac"),
        ({"category": {"$eq": "preference"}}, "ac"),
        ({"category": {"$ne": "preference"}}, "bdef"),
        ({"rank": 1}, "ae"),
        ({"rank": {"$gt": 1}}, "bf"),
        ({"rank": {"$gte": 1}}, "abef"),
        ({"rank": {"$lt": 1}}, "c"),
        ({"rank": {"$lte": 1.0}}, "ace"),
        ({"rank": {"$gt": 0, "$lt": 2}}, "ae"),
        ({"rank": {"$gt": "1"}}, "d"),
        ({"category": {"$in": ["fact", 7, "other"]}}, "bd"),
        ({"category": {"$nin": ["fact", "preference"]}}, "def"),
        ({"done": True}, "a"),
        ({"done": {"$ne": True}}, "bcdef"),
        ({"tags": ["x", "y"]}, "a"),
        ({"tags": ["y", "x"]}, ""),
        ({"origin": "import"}, "ab"),
        ({"origin": "chat", "rank": {"$gt": 50}}, "f"),
        ({"note": {"$ne": "x"}}, "abcdef"),
        ({}, "abcdef"),
    ]
    await fill(facts)
    for conditions, expected in cases:
        meant = where(conditions)
        assert await facts.keys(where=meant.where) == list(expected)
        assert keys_of((await facts.store.search(FactQuery(filter=meant))).matches) == list(expected)
        found = set[str]()
        for sign in (1.0, -1.0):  # a fact is near to a vector, or to its opposite
            found.update(
                keys_of((await facts.store.search(FactQuery(filter=meant, vector=(sign,) * DIMENSION))).matches)
            )
        # Facts without a text have no vector.
        assert found == set(expected) - {"f"}
        if "note" in conditions:  # a key that no fact has
            with pytest.raises(InvalidArgumentError, match="no fact has this key"):
                await facts.store.delete_many(meant, dry_run=True)
        else:
            assert (await facts.store.delete_many(meant, dry_run=True)).deleted_count == len(expected)


async def test_an_object_in_a_fact_is_nothing_that_a_filter_compares(facts: OpenedFacts) -> None:
    await fill(facts)
    meant = where({"deep": {"$in": ["rank"]}})
    assert await facts.keys(where=meant.where) == []
    assert (await facts.store.search(FactQuery(filter=meant))).matches == ()
    with pytest.raises(InvalidArgumentError, match="no fact has this key"):
        await facts.store.delete_many(meant, dry_run=True)


async def test_the_best_relevance_is_that_of_the_first_result_on_every_page(facts: OpenedFacts) -> None:
    for number in range(3):
        await facts.put(f"k{number}", f"zebra {' filler' * number}")
    pages = [await facts.store.search(FactQuery(filter=ALL, text="zebra", limit=1, offset=n)) for n in range(4)]
    best = {page.diagnostics.relevance and page.diagnostics.relevance.best for page in pages}
    assert best == {pages[0].matches[0].score}
    listed = await facts.store.search(FactQuery(filter=ALL, limit=1))
    assert listed.diagnostics.relevance is None


async def test_beyond_the_limit_of_exact_comparison_the_same_facts_are_found(tmp_path: Any) -> None:
    async with open_facts(tmp_path / "vault", search=SearchSettings(exact_scan_max=20)) as facts:
        puts = [
            PutFact(
                namespace=BELOW if number % 7 else HERE,
                key=f"k{number}",
                value={"content": f"zebra number {number}", "even": number % 2 == 0},
            )
            for number in range(300)
        ]
        await facts.store.put_many(puts)
        for meant, count in (
            (ALL, 43),
            (where({"even": True}), 22),
            (FactFilter(namespace=None, subtree=True), 50),
            (FactFilter(namespace=HERE, subtree=True), 50),
        ):
            answer = await facts.store.search(FactQuery(filter=meant, text="zebra number 14", limit=50))
            assert len(answer.matches) == count
            assert answer.matches[0].fact.key == "k14"
        expired = FactQuery(filter=FactFilter(namespace=None, subtree=True), text="zebra", offset=280, limit=50)
        assert len((await facts.store.search(expired)).matches) == 20
