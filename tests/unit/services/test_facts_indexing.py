"""Which texts of a fact are searched. Each text counts by itself."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from mnemon_server.domain.collections import FACTS
from mnemon_server.domain.facts import FactFilter, FactIndex, FactQuery, PutFact, record_id
from mnemon_server.domain.records import SearchMode
from mnemon_server.services.facts.texts import TEXTS_MAX, IndexedTexts
from mnemon_server.services.search.embedded_passages import TOGETHER_MAX

from tests.support.fact_stores import HERE, OpenedFacts, keys_of, open_facts
from tests.support.vaults import DIMENSION

DEFAULT, OFF = FactIndex(), FactIndex(off=True)
VALUE = {
    "title": "zebra",
    "author": {"name": "lion", "age": 7, "alive": True},
    "messages": [{"text": "tiger"}, {"text": "bear"}, {"note": "wolf"}, "loose"],
    "tags": ["red", "green", "blue"],
    "grid": [["a0", "a1"], ["b0"]],
    "nothing": None,
    "blank": " \n",
}


def texts(value: dict[str, Any], index: FactIndex = DEFAULT) -> list[str]:
    indexed = IndexedTexts.of(value, index)
    for placed in indexed.texts:
        assert indexed.content[placed.start :].startswith(placed.text)
    return [placed.text for placed in indexed.texts]


@pytest.mark.parametrize(
    ("value", "index", "expected"),
    [
        ({"content": "Ada", "title": "no"}, DEFAULT, ["Ada"]),
        ({"content": " ", "title": "yes"}, DEFAULT, ["yes"]),
        ({"content": {"b": "two", "a": "one"}, "n": 5}, DEFAULT, ["one", "two"]),
        ({"b": ["two", {"c": "three"}], "a": "one"}, DEFAULT, ["one", "two", "three"]),
        ({"a": "same", "b": "same"}, DEFAULT, ["same"]),
        ({"n": 5, "yes": True}, DEFAULT, []),
        ({"content": "Ada"}, OFF, []),
    ],
)
def test_without_paths_the_content_is_indexed_or_else_every_text(
    value: dict[str, Any], index: FactIndex, expected: list[str]
) -> None:
    assert texts(value, index) == expected


@pytest.mark.parametrize(
    ("paths", "expected"),
    [
        (["title"], ["zebra"]),
        (["author.name"], ["lion"]),
        (["author"], ["lion"]),
        (["author.age", "author.alive"], ["7"]),
        (["messages[*].text"], ["tiger", "bear"]),
        (["messages[1]"], ["bear"]),
        (["messages[-1]"], ["loose"]),
        (["tags[0]", "tags[-1]", "tags[3]", "tags[-4]"], ["red", "blue"]),
        (["grid[*][0]"], ["a0", "b0"]),
        (["grid[0][1]"], ["a1"]),
        (["title", "tags[*]", "title"], ["zebra", "red", "green", "blue"]),
        (["missing", "title.deeper", "title[0]", "author[0]", "nothing", "blank"], []),
        (["$"], ["lion", "a0", "a1", "b0", "tiger", "bear", "wolf", "loose", "red", "green", "blue", "zebra"]),
    ],
)
def test_a_path_selects_a_text_and_all_texts_below_it(paths: list[str], expected: list[str]) -> None:
    assert texts(VALUE, FactIndex(paths=tuple(paths))) == expected


def test_beyond_a_maximum_number_texts_are_split_as_one() -> None:
    many = [f"text {number}" for number in range(10_000)]
    found = texts({"list": many})
    assert len(found) == TEXTS_MAX
    assert found[: TEXTS_MAX - 1] == many[: TEXTS_MAX - 1]
    assert found[-1].split("\n") == many[TEXTS_MAX - 1 :]
    assert texts({"list": many[:TEXTS_MAX]}) == many[:TEXTS_MAX]


async def found_by_word(facts: OpenedFacts, word: str) -> list[str]:
    query = FactQuery(filter=FactFilter(namespace=HERE), text=word, mode=SearchMode.KEYWORD)
    return keys_of((await facts.store.search(query)).matches)


async def test_texts_no_longer_indexed_are_no_longer_found(facts: OpenedFacts) -> None:
    await facts.put("k", {"content": "zebra", "title": "lion"})
    await facts.put("k", {"content": "zebra", "title": "lion"}, index=FactIndex(paths=("title",)))
    assert (await found_by_word(facts, "zebra"), await found_by_word(facts, "lion")) == ([], ["k"])
    await facts.put("k", {"content": "zebra", "title": "lion"}, index=OFF)
    assert await found_by_word(facts, "lion") == []


async def test_new_content_is_indexed_like_the_old(facts: OpenedFacts) -> None:
    await facts.put("off", "zebra", index=OFF)
    await facts.put("both", {"content": "zebra", "title": "lion"}, index=FactIndex(paths=("content", "title")))
    await facts.put("title", {"content": "zebra", "title": "lion"}, index=FactIndex(paths=("title",)))
    for key in ("off", "both", "title"):
        await facts.store.update_content(HERE, key, "tiger")
    assert await found_by_word(facts, "tiger") == ["both"]
    assert await found_by_word(facts, "zebra") == []
    assert sorted(await found_by_word(facts, "lion")) == ["both", "title"]


async def test_the_best_matching_text_decides(facts: OpenedFacts) -> None:
    filler = "nothing of what is looked for is said by any of these words at all"
    await facts.put("one long text", {"content": f"{filler} zebra crossing {filler}"})
    await facts.put("many texts", {"list": [filler, "zebra crossing", filler + " either"]})
    answer = await facts.store.search(FactQuery(filter=FactFilter(namespace=HERE), text="zebra crossing"))
    assert keys_of(answer.matches) == ["many texts", "one long text"]
    assert answer.matches[0].score == pytest.approx(1.0, abs=1e-6)


async def test_a_long_text_is_split_and_its_end_is_found(facts: OpenedFacts) -> None:
    await facts.put("long", {"title": "short", "text": " ".join(["word"] * 2_000) + " zebra crossing"})
    [document] = facts.vault.collection(FACTS).get_documents([record_id(HERE, "long")])
    assert document is not None
    assert len(document.passages) > 3
    pieces = [document.content[passage.start : passage.end] for passage in document.passages]
    assert "short" in pieces
    answer = await facts.store.search(FactQuery(filter=FactFilter(namespace=HERE), text="zebra crossing"))
    assert keys_of(answer.matches) == ["long"]
    assert (answer.matches[0].keyword_score or 0.0) > 0.0


async def test_a_given_vector_stands_for_the_whole_fact(facts: OpenedFacts) -> None:
    near = tuple(1.0 if i == 3 else 0.0 for i in range(DIMENSION))
    far = tuple({3: 0.6, 4: 0.8}.get(i, 0.0) for i in range(DIMENSION))
    await facts.put("far", {"a": "zebra", "b": "lion"}, embedding=far)
    await facts.put("near", {"a": "zebra", "b": "lion"}, embedding=np.array(near) * 1e20)
    await facts.put("no text", {"n": 5}, embedding=near)
    query = FactQuery(filter=FactFilter(namespace=HERE), vector=near)
    answer = await facts.store.search(query)
    assert keys_of(answer.matches) == ["near", "no text", "far"]
    assert [match.similarity for match in answer.matches] == pytest.approx([1.0, 1.0, 0.6], abs=1e-6)
    await facts.put("near", {"a": "zebra", "b": "lion"}, embedding=far)
    assert keys_of((await facts.store.search(query)).matches) == ["no text", "far", "near"]
    assert await found_by_word(facts, "lion") == ["far", "near"]


async def test_a_run_with_more_texts_than_the_queue_allows_is_embedded(tmp_path: Path) -> None:
    async with open_facts(tmp_path, waiting_texts_max=TOGETHER_MAX) as facts:
        count = TOGETHER_MAX // TEXTS_MAX + 2
        value = [{"list": [f"zebra{number} lion{i}" for number in range(TEXTS_MAX)]} for i in range(count)]
        await facts.store.put_many([PutFact(namespace=HERE, key=f"k{i}", value=value[i]) for i in range(count)])
        answer = await facts.store.search(FactQuery(filter=FactFilter(namespace=HERE), text=f"zebra9 lion{count - 1}"))
        assert answer.matches[0].fact.key == f"k{count - 1}"
        assert answer.matches[0].similarity == pytest.approx(1.0, abs=1e-6)
