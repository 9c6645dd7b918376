"""Both of our stores keep LangGraph's promises of a store. Each promise is also tested on LangGraph's own store."""

import asyncio
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from typing import Any

import pytest
from langgraph.store.base import (
    GetOp,
    InvalidNamespaceError,
    ListNamespacesOp,
    MatchCondition,
    PutOp,
    SearchItem,
    SearchOp,
)

from tests.support.langgraph_stores import BATCHED, MNEMON, REFERENCES, Store, opened

INVALID_NAMESPACES = [("foo.bar",), ("foo\x00",), ("foo", ""), (123,)]
NAMESPACES = [
    ("a", "b", "c"),
    ("a", "b", "d", "e"),
    ("a", "b", "d", "i"),
    ("a", "b", "f"),
    ("a", "c", "f"),
    ("b", "a", "f"),
    ("users", "123"),
    ("users", "456", "settings"),
    ("admin", "users", "789"),
]
FRUIT = {
    "doc1": {"text": "red apple", "color": "red", "score": 4.5},
    "doc2": {"text": "red car", "color": "red", "score": 3.0},
    "doc3": {"text": "green apple", "color": "green", "score": 4.0},
    "doc4": {"text": "blue car", "color": "blue", "score": 3.5},
}


@pytest.fixture(params=[*REFERENCES, *MNEMON])
def way(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
async def store(way: str, address: str) -> AsyncIterator[Store]:
    async with opened(way, address) as opened_store:
        yield opened_store


async def fill(store: Store, items: dict[str, dict[str, Any]], namespace: tuple[str, ...] = ("test",)) -> None:
    for key, value in items.items():
        await store.put(namespace, key, value)


async def fill_namespaces(store: Store, namespaces: list[tuple[str, ...]]) -> None:
    for number, namespace in enumerate(namespaces):
        await store.put(namespace, f"id_{number}", {"data": f"value_{number:02d}"})


async def test_an_item_comes_back_as_it_was_put(store: Store) -> None:
    value = {"text": "tea", "count": 3, "share": 0.5, "on": True, "none": None, "tags": ["a", "b"], "deep": {"x": [1]}}
    before = datetime.now(UTC)

    await store.put(("users", "ada"), "prefs", value)

    item = await store.get(("users", "ada"), "prefs")
    assert (item.namespace, item.key, item.value) == (("users", "ada"), "prefs", value)
    assert before <= item.created_at <= item.updated_at <= datetime.now(UTC)
    assert type(item.value["count"]) is int


async def test_a_missing_item_is_none(store: Store) -> None:
    await store.put(("users", "ada"), "prefs", {"a": 1})

    assert await store.get(("users", "ada"), "other") is None
    assert await store.get(("users", "bob"), "prefs") is None
    assert await store.get(("users",), "prefs") is None


async def test_a_put_replaces_the_whole_value(store: Store) -> None:
    await store.put(("test",), "doc", {"old": 1, "kept": 2})
    first = await store.get(("test",), "doc")

    await store.put(("test",), "doc", {"kept": 3})

    second = await store.get(("test",), "doc")
    assert second.value == {"kept": 3}
    assert second.updated_at > first.updated_at


async def test_a_deleted_item_is_gone_and_may_be_deleted_again(store: Store) -> None:
    await store.put(("test",), "doc", {"a": 1})

    await store.delete(("test",), "doc")
    await store.delete(("test",), "doc")

    assert await store.get(("test",), "doc") is None
    assert await store.search(("test",)) == []


async def test_the_same_key_in_another_namespace_is_another_item(store: Store) -> None:
    await store.put(("users", "ada"), "prefs", {"who": "ada"})
    await store.put(("users", "bob"), "prefs", {"who": "bob"})

    await store.delete(("users", "ada"), "prefs")

    assert await store.get(("users", "ada"), "prefs") is None
    assert (await store.get(("users", "bob"), "prefs")).value == {"who": "bob"}


@pytest.mark.parametrize("namespace", [(), ("the", "thing.about"), ("some", "fun", ""), ("langgraph", "foo")])
async def test_a_put_refuses_a_namespace_that_is_not_valid(store: Store, namespace: tuple[str, ...]) -> None:
    with pytest.raises(InvalidNamespaceError):
        await store.put(namespace, "foo", {"foo": "bar"})

    assert await store.list_namespaces() == []


@pytest.mark.parametrize("namespace", INVALID_NAMESPACES)
async def test_reads_and_deletes_refuse_labels_that_are_not_valid(store: Store, namespace: tuple[Any, ...]) -> None:
    calls = [
        lambda: store.get(namespace, "key"),
        lambda: store.delete(namespace, "key"),
        lambda: store.search(namespace),
        lambda: store.list_namespaces(prefix=namespace),
        lambda: store.list_namespaces(suffix=namespace),
    ]
    for call in calls:
        with pytest.raises(InvalidNamespaceError):
            await call()


async def test_the_label_langgraph_is_only_refused_in_first_place(store: Store) -> None:
    await store.put(("foo", "langgraph", "foo"), "bar", {"foo": "bar"})

    assert (await store.get(("foo", "langgraph", "foo"), "bar")).value == {"foo": "bar"}
    assert (await store.search(("foo", "langgraph", "foo"), query="bar"))[0].value == {"foo": "bar"}


async def test_a_batch_may_write_where_a_put_may_not(store: Store) -> None:
    await store.batch([PutOp(("langgraph", "foo"), "bar", {"foo": "bar"})])

    assert (await store.get(("langgraph", "foo"), "bar")).value == {"foo": "bar"}
    assert (await store.search(("langgraph", "foo")))[0].value == {"foo": "bar"}
    await store.delete(("langgraph", "foo"), "bar")
    assert await store.get(("langgraph", "foo"), "bar") is None


async def test_a_search_finds_the_namespaces_below_and_compares_whole_labels(store: Store) -> None:
    for namespace in [("tenant", "a"), ("tenant", "a", "b"), ("tenant", "ab"), ("tenant", "a_%"), ("tenan",)]:
        await store.put(namespace, "key", {"v": 1})

    assert [item.namespace for item in await store.search(("tenant", "a"))] == [("tenant", "a"), ("tenant", "a", "b")]
    assert [item.namespace for item in await store.search(("tenant", "a_%"))] == [("tenant", "a_%")]
    assert len(await store.search(())) == 5


async def test_the_pages_of_a_search_are_complete(store: Store) -> None:
    for namespace in [("a",), ("a", "b"), ("ab",), ("a", "c", "d")]:
        for number in range(7):
            await store.put(namespace, f"k{number}", {"i": number, "even": number % 2 == 0})

    full = [(item.namespace, item.key) for item in await store.search(("a",), limit=100)]
    paged = [
        (item.namespace, item.key)
        for offset in range(0, len(full), 4)
        for item in await store.search(("a",), limit=4, offset=offset)
    ]
    even = [(item.namespace, item.key) for item in await store.search(("a",), filter={"even": True}, limit=100)]
    page = [(item.namespace, item.key) for item in await store.search(("a",), filter={"even": True}, limit=3, offset=2)]

    assert len(full) == len(set(full)) == 21
    assert paged == full
    assert (len(even), page) == (12, even[2:5])
    assert len(await store.search(("a",))) == 10


@pytest.mark.parametrize(
    ("where", "found"),
    [
        ({"color": "red"}, ["doc1", "doc2"]),
        ({"color": {"$eq": "red"}}, ["doc1", "doc2"]),
        ({"color": {"$ne": "red"}}, ["doc3", "doc4"]),
        ({"score": {"$gt": 3.5}}, ["doc1", "doc3"]),
        ({"score": {"$gte": 3.5}}, ["doc1", "doc3", "doc4"]),
        ({"score": {"$lt": 3.5}}, ["doc2"]),
        ({"score": {"$lte": 3.5}}, ["doc2", "doc4"]),
        ({"score": {"$gte": 3.5, "$lt": 4.5}}, ["doc3", "doc4"]),
        ({"score": {"$gte": 4.0}, "color": "green"}, ["doc3"]),
        ({"score": 3}, ["doc2"]),
        ({"missing": {"$ne": 1}}, ["doc1", "doc2", "doc3", "doc4"]),
        ({"missing": "x"}, []),
        ({}, ["doc1", "doc2", "doc3", "doc4"]),
    ],
    ids=str,
)
async def test_a_filter_selects_by_the_keys_of_the_value(store: Store, where: dict[str, Any], found: list[str]) -> None:
    await fill(store, FRUIT)

    assert await store.keys(("test",), filter=where) == found


async def test_a_filter_compares_lists_and_booleans_as_wholes(store: Store) -> None:
    await fill(store, {"doc1": {"tags": ["a", "b"], "on": True}, "doc2": {"tags": ["a"], "on": False}})

    assert await store.keys(("test",), filter={"tags": ["a", "b"]}) == ["doc1"]
    assert await store.keys(("test",), filter={"on": False}) == ["doc2"]


async def test_a_query_finds_the_nearest_first_with_scores(store: Store) -> None:
    await fill(store, {"doc1": {"text": "zany zebra Xerxes"}, "doc2": {"text": "dogs"}, "doc3": {"text": "birds"}})

    found = await store.search(("test",), query="Zany Xerxes")

    assert all(isinstance(item, SearchItem) for item in found)
    assert found[0].key == "doc1"
    scores = [item.score for item in found if item.score is not None]
    assert scores == sorted(scores, reverse=True)
    assert 0 < scores[0] <= 1.0001


async def test_without_a_query_no_item_has_a_score(store: Store) -> None:
    await fill(store, FRUIT)

    assert {item.score for item in await store.search(("test",))} == {None}


async def test_a_changed_item_is_found_by_its_new_text_only(store: Store) -> None:
    await fill(store, {"doc1": {"text": "zany zebra Xerxes"}, "doc2": {"text": "dogs"}, "doc3": {"text": "birds"}})
    initial = (await store.search(("test",), query="Zany Xerxes"))[0].score

    await store.put(("test",), "doc1", {"text": "new text about dogs"})

    after = {item.key: item.score for item in await store.search(("test",), query="Zany Xerxes")}.get("doc1") or 0.0
    assert after < initial
    assert (await store.search(("test",), query="new text about dogs"))[0].key == "doc1"


@pytest.mark.parametrize(
    ("query", "where", "keys"),
    [
        ("apple", {"color": "red"}, {"doc1", "doc2"}),
        ("car", {"color": "red"}, {"doc2", "doc1"}),
        ("blue", {"score": {"$gt": 3.2}}, {"doc4", "doc1", "doc3"}),
        ("apple", {"score": {"$gte": 4.0}, "color": "green"}, {"doc3"}),
    ],
)
async def test_a_filter_narrows_a_query(store: Store, query: str, where: dict[str, Any], keys: set[str]) -> None:
    await fill(store, FRUIT)

    found = await store.keys(("test",), query=query, filter=where)

    assert set(found) == keys
    assert query in FRUIT[found[0]]["text"]


async def test_the_pages_of_a_query_are_complete(store: Store) -> None:
    await fill(store, {f"doc{number}": {"text": f"test document number {number}"} for number in range(5)})

    pages = [
        await store.keys(("test",), query="test", limit=2),
        await store.keys(("test",), query="test", limit=2, offset=2),
        await store.keys(("test",), query="test", limit=2, offset=4),
    ]

    assert [len(page) for page in pages] == [2, 2, 1]
    assert [key for page in pages for key in page] == await store.keys(("test",), query="test", limit=10)


async def test_the_index_fields_of_the_store_are_searched(way: str, address: str) -> None:
    async with opened(way, address, fields=["title", "notes[*].text"]) as store:
        await store.put(("test",), "first", {"title": "zebra", "body": "walrus", "notes": [{"text": "heron"}]})
        await store.put(("test",), "second", {"title": "otter", "body": "zebra", "notes": [{"text": "walrus"}]})

        for query, best in [("zebra", "first"), ("heron", "first"), ("walrus", "second"), ("otter", "second")]:
            assert (await store.keys(("test",), query=query))[0] == best


async def test_the_index_fields_of_a_put_override_those_of_the_store(way: str, address: str) -> None:
    async with opened(way, address, fields=["nothing"]) as store:
        await store.put(("test",), "first", {"a": "zebra", "b": "otter", "c": "heron"}, index=["a", "b"])
        await store.put(("test",), "second", {"a": "heron", "b": "zebra", "c": "walrus"}, index=["b", "c"])

        assert (await store.keys(("test",), query="otter"))[0] == "first"
        assert (await store.keys(("test",), query="walrus"))[0] == "second"
        scores = {item.key: item.score for item in await store.search(("test",), query="zebra")}
        assert scores["first"] == pytest.approx(scores["second"], abs=0.01)


async def test_the_last_element_of_a_list_can_be_a_field(store: Store) -> None:
    await store.put(("test",), "first", {"revisions": ["zebra", "otter"]}, index=["revisions[-1]"])
    await store.put(("test",), "second", {"revisions": ["otter", "zebra"]}, index=["revisions[-1]"])

    assert (await store.keys(("test",), query="zebra"))[0] == "second"


async def test_texts_of_any_script_are_found(store: Store) -> None:
    texts = ["这是中文", "これは日本語です", "이건 한국어야", "Это русский", "यह रूसी है"]
    await fill(store, {str(number): {"text": text} for number, text in enumerate(texts)}, ("user_123", "memories"))

    for number, text in enumerate(texts):
        assert (await store.keys(("user_123", "memories"), query=text))[0] == str(number)


async def test_namespaces_are_listed_by_prefix_and_suffix(store: Store) -> None:
    await fill_namespaces(store, NAMESPACES)

    assert await store.list_namespaces(prefix=("a", "b")) == NAMESPACES[:4]
    assert await store.list_namespaces(suffix=("f",)) == [("a", "b", "f"), ("a", "c", "f"), ("b", "a", "f")]
    assert await store.list_namespaces(prefix=("a",), suffix=("f",)) == [("a", "b", "f"), ("a", "c", "f")]
    assert await store.list_namespaces(prefix=("nonexistent",)) == []
    assert await store.list_namespaces(prefix=("users", "123")) == [("users", "123")]
    assert sorted(await store.list_namespaces()) == sorted(NAMESPACES)


async def test_a_star_matches_any_one_label(store: Store) -> None:
    await fill_namespaces(store, NAMESPACES)

    assert await store.list_namespaces(prefix=("a", "*", "f")) == [("a", "b", "f"), ("a", "c", "f")]
    assert await store.list_namespaces(suffix=("*", "f")) == [("a", "b", "f"), ("a", "c", "f"), ("b", "a", "f")]
    assert await store.list_namespaces(prefix=("users", "*")) == [("users", "123"), ("users", "456", "settings")]
    assert await store.list_namespaces(prefix=("*", "users"), suffix=("*", "settings")) == []
    assert await store.list_namespaces(prefix=("users", "*"), suffix=("*",)) == NAMESPACES[6:8]


async def test_namespaces_are_truncated_to_a_depth_without_duplicates(store: Store) -> None:
    await fill_namespaces(store, [*NAMESPACES[:6], ("h", "i", "j", "k"), ("a", "g")])

    assert await store.list_namespaces(prefix=("a", "b"), max_depth=3) == [
        ("a", "b", "c"),
        ("a", "b", "d"),
        ("a", "b", "f"),
    ]
    assert await store.list_namespaces(max_depth=2) == [("a", "b"), ("a", "c"), ("a", "g"), ("b", "a"), ("h", "i")]


async def test_namespaces_come_page_by_page_in_the_order_of_their_labels(store: Store) -> None:
    await fill_namespaces(store, [("namespace", f"sub_{number:02d}") for number in reversed(range(20))])

    for offset in (0, 5, 15):
        page = await store.list_namespaces(prefix=("namespace",), limit=5, offset=offset)
        assert page == [("namespace", f"sub_{number:02d}") for number in range(offset, offset + 5)]
    assert await store.list_namespaces(prefix=("namespace",), limit=5, offset=20) == []


async def test_an_empty_store_lists_no_namespaces(store: Store) -> None:
    assert await store.list_namespaces() == []


async def test_all_conditions_of_a_list_must_hold(store: Store) -> None:
    await fill_namespaces(store, NAMESPACES)

    def listing(*conditions: tuple[Any, tuple[str, ...]]) -> ListNamespacesOp:
        return ListNamespacesOp(tuple(MatchCondition(kind, path) for kind, path in conditions))

    found = await store.batch(
        [
            listing(("prefix", ("a",)), ("prefix", ("*", "b")), ("suffix", ("*", "i"))),
            listing(("suffix", ("f",)), ("suffix", ("b", "*"))),
            listing(("prefix", ("a",)), ("prefix", ("b",))),
        ]
    )

    assert found == [[("a", "b", "d", "i")], [("a", "b", "f")], []]


async def test_a_batch_answers_in_order_and_reads_before_it_writes(store: Store) -> None:
    await fill(store, {"old": {"v": 1}, "gone": {"v": 2}})

    found = await store.batch(
        [
            PutOp(("test",), "new", {"v": 3}),
            GetOp(("test",), "old"),
            SearchOp(("test",), filter={"v": {"$gte": 2}}),
            PutOp(("test",), "gone", None),
            GetOp(("test",), "new"),
            ListNamespacesOp(),
            GetOp(("test",), "gone"),
            GetOp(("test",), "old", refresh_ttl=False),
        ]
    )

    assert [found[0], found[3], found[4]] == [None, None, None]
    assert [item.key for item in found[2]] == ["gone"]
    assert (found[1].value, found[5], found[6].value, found[7].value) == ({"v": 1}, [("test",)], {"v": 2}, {"v": 1})
    assert await store.keys(("test",)) == ["old", "new"]


async def test_the_last_of_several_writes_of_one_item_in_a_batch_wins(store: Store) -> None:
    await store.batch(
        [
            PutOp(("test",), "twice", {"v": 1}),
            PutOp(("test",), "removed", {"v": 1}),
            PutOp(("test",), "kept", None),
            PutOp(("test",), "twice", {"v": 2}),
            PutOp(("test",), "removed", None),
            PutOp(("test",), "kept", {"v": 3}),
        ]
    )

    assert {item.key: item.value["v"] for item in await store.search(("test",))} == {"twice": 2, "kept": 3}


async def test_a_search_or_batch_can_return_more_than_one_call_of_the_server(store: Store) -> None:
    await store.batch([PutOp(("test",), f"{number:04d}", {"n": number}, index=False) for number in range(1_100)])

    found = await store.search(("test",), limit=2_000)
    read = await store.batch([GetOp(("test",), f"{number:04d}") for number in range(1_100)])

    # The store promises no order for a list without a query. A batch of reads has the order of its operations.
    assert sorted(item.value["n"] for item in found) == [item.value["n"] for item in read] == list(range(1_100))


@pytest.mark.parametrize("way", [*REFERENCES[1:], BATCHED])
async def test_concurrent_calls_take_effect_in_the_order_of_their_calls(store: Store) -> None:
    values = {f"doc{number}": {"text": f"item {number}", "n": number} for number in range(50)}

    await asyncio.gather(
        *(store.put(("test",), key, value) for key, value in values.items()),
        *(store.delete(("test",), key) for key in values),
        *(store.put(("test",), key, value) for key, value in values.items()),
    )

    answers = await asyncio.gather(*(store.search(("test",), filter={"n": {"$lt": most}}) for most in (1, 5, 9)))
    assert [len(found) for found in answers] == [1, 5, 9]
    assert len(await store.search(("test",), limit=100)) == 50
