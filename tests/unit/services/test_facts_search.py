"""How facts are found and listed: by meaning and word, by filters, in pages, and without omissions."""

import random
from typing import Any

import pytest
from mnemon_server.domain.errors import InvalidArgumentError
from mnemon_server.domain.facts import FILTER_OPERATORS, FactFilter, FactQuery, PutFact, filter_expression
from mnemon_server.domain.filters import matches
from mnemon_server.domain.namespaces import Namespace
from mnemon_server.domain.records import SearchMode
from mnemon_server.services.search.settings import SearchSettings

from tests.support.fact_stores import HERE, OpenedFacts, keys_of, open_facts
from tests.support.memory_stores import fields_of
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


async def test_random_filters_find_what_their_meaning_says(facts: OpenedFacts) -> None:
    random_ = random.Random(6)
    values = [1, 2, 2.5, "x", "y", True, False]
    stored = {}
    for number in range(40):
        value = {key: random_.choice(values) for key in random_.sample("pqr", random_.randint(0, 3))}
        stored[f"k{number}"] = value
    await facts.store.put_many([PutFact(namespace=HERE, key=key, value=value) for key, value in stored.items()])
    for _ in range(60):
        conditions: dict[str, Any] = {}
        for key in random_.sample("pqr", random_.randint(1, 2)):
            sign = random_.choice([*FILTER_OPERATORS])
            choices = [
                value for value in values if not (isinstance(value, bool) and sign in ("$gt", "$gte", "$lt", "$lte"))
            ]
            several = random_.sample(choices, random_.randint(1, 3))
            conditions[key] = {sign: several if sign in ("$in", "$nin") else several[0]}
        expression = filter_expression(conditions)
        assert expression is not None
        expected = [
            key
            for key, value in stored.items()
            if matches(expression, lambda name, value=value: value.get(name.removeprefix("metadata.")))  # type: ignore[misc]
        ]
        assert await facts.keys(where=expression) == expected, conditions


async def test_a_filter_before_a_limit_omits_no_match(facts: OpenedFacts) -> None:
    puts = [
        PutFact(namespace=HERE, key=f"k{number}", value={"content": "zebra crossing", "rare": number % 50 == 49})
        for number in range(200)
    ]
    await facts.store.put_many(puts)
    for mode in SearchMode:
        query = FactQuery(filter=where({"rare": True}), text="zebra crossing", mode=mode, limit=4)
        assert keys_of((await facts.store.search(query)).matches) == ["k49", "k99", "k149", "k199"]


async def test_results_come_best_first_with_their_scores(facts: OpenedFacts) -> None:
    for key, content in (("tea", "Ada drinks green tea"), ("code", "Ada writes Python"), ("rain", "It rained")):
        await facts.put(key, content)
    answer = await facts.store.search(FactQuery(filter=ALL, text="Ada drinks green tea"))
    assert keys_of(answer.matches)[0] == "tea"
    assert len(answer.matches) == 3
    scores = [match.score for match in answer.matches]
    assert scores == sorted(scores, key=lambda score: -(score or 0.0))
    assert answer.matches[0].score == pytest.approx(1.0, abs=1e-6)
    assert answer.matches[0].similarity == pytest.approx(1.0, abs=1e-6)
    assert answer.matches[0].keyword_score == pytest.approx(1.0, abs=1e-6)
    assert (answer.diagnostics.mode, answer.diagnostics.exact) == (SearchMode.HYBRID, True)
    strict = await facts.store.search(FactQuery(filter=ALL, text="Ada drinks green tea", min_score=0.9))
    assert keys_of(strict.matches) == ["tea"]
    words = await facts.store.search(FactQuery(filter=ALL, text="python", mode=SearchMode.KEYWORD))
    assert keys_of(words.matches) == ["code"]
    assert words.matches[0].similarity is None


async def test_the_best_relevance_is_that_of_the_first_result_on_every_page(facts: OpenedFacts) -> None:
    for number in range(3):
        await facts.put(f"k{number}", f"zebra {' filler' * number}")
    pages = [await facts.store.search(FactQuery(filter=ALL, text="zebra", limit=1, offset=n)) for n in range(4)]
    best = {page.diagnostics.relevance and page.diagnostics.relevance.best for page in pages}
    assert best == {pages[0].matches[0].score}
    listed = await facts.store.search(FactQuery(filter=ALL, limit=1))
    assert listed.diagnostics.relevance is None


async def test_an_offset_continues_where_the_last_page_ended(facts: OpenedFacts) -> None:
    for number in range(9):
        await facts.put(f"k{number}", f"zebra {' filler' * number}")
    everything = keys_of((await facts.store.search(FactQuery(filter=ALL, text="zebra", limit=9))).matches)
    assert len(everything) == 9
    for query in (FactQuery(filter=ALL, text="zebra", limit=4), FactQuery(filter=ALL, limit=4)):
        whole = everything if query.text else await facts.keys()
        found = []
        for offset in (0, 4, 8, 12):
            page = FactQuery(filter=ALL, text=query.text, limit=4, offset=offset)
            found += keys_of((await facts.store.search(page)).matches)
        assert found == whole


async def test_without_a_query_facts_come_in_list_order_without_scores(facts: OpenedFacts) -> None:
    await fill(facts)
    for text in ("", " \n"):
        answer = await facts.store.search(FactQuery(filter=ALL, text=text, limit=3))
        assert keys_of(answer.matches) == ["a", "b", "c"]
        assert {match.score for match in answer.matches} == {None}


async def test_a_search_covers_one_namespace_or_the_whole_subtree(facts: OpenedFacts) -> None:
    for key, labels in (("here", HERE), ("below", BELOW), ("above", HERE[:1]), ("beside", ("org", "acme-team"))):
        await facts.put(key, "zebra", namespace=labels)
    for namespace, subtree, expected in (
        (HERE, False, {"here"}),
        (HERE, True, {"here", "below"}),
        (Namespace(("org",)), False, {"above"}),
        (Namespace(("org",)), True, {"here", "below", "above", "beside"}),
        (BELOW, True, {"below"}),
        (None, True, {"here", "below", "above", "beside"}),
        (Namespace(("or",)), True, set()),
    ):
        meant = FactFilter(namespace=namespace, subtree=subtree)
        for text in ("zebra", ""):
            answer = await facts.store.search(FactQuery(filter=meant, text=text))
            assert set(keys_of(answer.matches)) == expected
        assert {fact.key for fact in (await facts.store.list(meant, limit=9)).facts} == expected


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


async def test_pages_neither_repeat_nor_skip_and_end_when_they_are_full(facts: OpenedFacts) -> None:
    for number in range(7):
        await facts.put(f"k{number}", {"text": "x" * 900_000})
    position, found, sizes = 0, list[str](), list[int]()
    while True:
        page = await facts.store.list(ALL, after=position, limit=5)
        found += [fact.key for fact in page.facts]
        sizes.append(len(page.facts))
        if page.position is None:
            break
        position = page.position
        await facts.put("k6", {"text": f"changed {len(sizes)}"})
    assert found == [f"k{number}" for number in range(7)]
    assert sizes[0] == 3


@pytest.mark.parametrize(
    ("query", "fields"),
    [
        (FactQuery(filter=FactFilter(namespace=None)), ["filter.namespace"]),
        (FactQuery(filter=ALL, limit=0, offset=-1, min_score=1.5), ["limit", "offset", "min_score"]),
        (FactQuery(filter=ALL, limit=1_001, offset=100_001), ["limit", "offset"]),
        (FactQuery(filter=ALL, text="x" * 65_537, vector=(1.0,)), ["query", "vector"]),
    ],
)
async def test_errors_in_a_search_are_named(facts: OpenedFacts, query: FactQuery, fields: list[str]) -> None:
    with pytest.raises(InvalidArgumentError) as caught:
        await facts.store.search(query)
    assert fields_of(caught.value) == fields
