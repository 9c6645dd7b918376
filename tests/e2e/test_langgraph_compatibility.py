"""What programs rely on that use LangGraph's own stores. Each test runs on LangGraph's in-memory store and on ours."""

import asyncio
import math
import warnings
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest
from langgraph.store.base import GetOp, ListNamespacesOp, MatchCondition, PutOp, SearchOp
from mnemon import AsyncClient, Client
from mnemon.langgraph import AsyncMnemonStore, MnemonStore

from tests.support.langgraph_stores import BATCHED, MNEMON, REFERENCES, Store, embedded, opened
from tests.support.server import server_process

CALLS_AT_ONCE = 40
WAYS = (MNEMON[0], BATCHED)
DOCS = ("docs",)
USERS = {
    "open": {"access-level": "public", "user": {"access-level": "nested", "2fa": True, "name": "Ada"}},
    "closed": {"access-level": "secret", "user": {"access-level": "none", "2fa": False, "name": "Bob"}},
    "plain": {"123abc": "ok", "user": "Ada", "tags": [1, 2]},
}


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    flags = ("--knowledge-store-backend", "local", "--unary-calls-max", str(CALLS_AT_ONCE))
    with server_process(tmp_path_factory.mktemp("data"), *flags) as server:
        yield server.address()


@pytest.fixture(params=(REFERENCES[0], *WAYS))
async def store(request: pytest.FixtureRequest, address: str) -> AsyncIterator[Store]:
    async with opened(request.param, address) as opened_store:
        yield opened_store


@pytest.fixture(params=WAYS)
async def mnemon_store(request: pytest.FixtureRequest, address: str) -> AsyncIterator[Store]:
    async with opened(request.param, address) as opened_store:
        yield opened_store


async def fill(store: Store, items: dict[str, Any], namespace: tuple[str, ...] = DOCS) -> None:
    await store.batch([PutOp(namespace, key, value) for key, value in items.items()])


@pytest.mark.parametrize(
    ("where", "keys"),
    [
        ({"user": {"access-level": "nested"}}, ["open"]),
        ({"user": {"2fa": False}}, ["closed"]),
        ({"user": {"name": {"$ne": "Ada"}}}, ["closed"]),
        ({"user": {}}, ["closed", "open"]),
        ({"user": "Ada"}, ["plain"]),
        ({"123abc": "ok"}, ["plain"]),
        ({"access-level": "public"}, ["open"]),
        ({"tags": [1, 2]}, ["plain"]),
        ({"tags": [1, {"$gt": 1}]}, ["plain"]),
        ({"tags": [1]}, []),
        ({"tags": None}, ["closed", "open"]),
        ({"access-level": None, "user": {"$eq": "Ada"}}, ["plain"]),
        ({"missing": {"a": 1}}, []),
    ],
    ids=str,
)
async def test_a_filter_may_compare_keys_inside_an_object(store: Store, where: Any, keys: list[str]) -> None:
    await fill(store, USERS)

    assert sorted(await store.keys(DOCS, filter=where)) == keys
    assert sorted(await store.keys(DOCS, filter=where, query="Ada")) == keys


@pytest.mark.parametrize(
    ("where", "keys"),
    [
        ({"user.access-level": "nested"}, ["open"]),
        ({"user.2fa": True}, ["open"]),
        ({"user.name": {"$in": ["Ada", "Bob"]}}, ["closed", "open"]),
        ({"user.name": {"$nin": ["Ada"]}}, ["closed", "dotted", "plain"]),
        ({"user.name.first": "x"}, []),
        ({"a.b": 1}, ["dotted"]),
        ({"c.d.e": 2}, ["dotted"]),
        ({"c.d.e": {"$gte": 2, "$lt": 2}}, []),
    ],
    ids=str,
)
async def test_a_dotted_key_names_a_key_of_an_inner_object(mnemon_store: Store, where: Any, keys: list[str]) -> None:
    await fill(mnemon_store, {**USERS, "dotted": {"a.b": 1, "c": {"d.e": 2}}})

    assert sorted(await mnemon_store.keys(DOCS, filter=where)) == keys


@pytest.mark.parametrize(
    "value",
    ["a\0b", math.inf, -math.inf, "x' OR '1'='1", 'x" OR ""="', "{$ne: null}", "\\", "%", 2**70, "\ud800"],
    ids=ascii,
)
async def test_impossible_values_match_nothing(store: Store, value: Any) -> None:
    await fill(store, {"text": {"field": "x"}, "number": {"field": 5}})

    assert await store.keys(DOCS, filter={"field": value}) == []
    assert await store.keys(DOCS, filter={"field": {"$eq": value}}) == []
    assert sorted(await store.keys(DOCS, filter={"field": {"$ne": value}})) == ["number", "text"]
    assert await store.keys(DOCS, filter={"inner": {"field": value}}) == []


@pytest.mark.parametrize("key", ["a') = 'x' OR '1'='1", 'a"', "a\0b", "", " ", "ключ", "k" * 100], ids=ascii)
async def test_a_key_of_any_form_is_only_a_key(store: Store, key: str) -> None:
    await fill(store, {"one": {"a": "x"}, "two": {"a": "y"}})

    assert await store.keys(DOCS, filter={key: "x"}) == []
    assert sorted(await store.keys(DOCS, filter={key: {"$ne": "x"}})) == ["one", "two"]


async def test_a_number_may_be_compared_with_infinity(store: Store) -> None:
    await fill(store, {"one": {"n": 1}, "two": {"n": 2.5}})

    assert sorted(await store.keys(DOCS, filter={"n": {"$lt": math.inf}})) == ["one", "two"]
    assert await store.keys(DOCS, filter={"n": {"$lte": -math.inf}}) == []


async def test_the_pages_of_a_filter_decided_by_the_client_are_complete(store: Store) -> None:
    await fill(store, {f"{number:03d}": {"at": {"n": number % 3}, "text": f"item {number}"} for number in range(130)})
    where = {"at": {"n": 1}}

    full = await store.keys(DOCS, filter=where, limit=1_000)
    pages = [await store.keys(DOCS, filter=where, limit=15, offset=offset) for offset in range(0, 60, 15)]

    assert sorted(full) == [f"{number:03d}" for number in range(1, 130, 3)]
    assert [key for page in pages for key in page] == full


async def test_a_query_lists_unindexed_items_without_a_score(store: Store) -> None:
    await store.put(DOCS, "ranked", {"text": "green tea", "kind": "drink"})
    await store.put(DOCS, "unranked", {"text": "green tea", "kind": "drink"}, index=False)
    await store.put(DOCS, "empty", {"n": 1, "kind": "number"}, index=False)

    found = await store.search(DOCS, query="green tea")
    assert [(item.key, item.score is None) for item in found] == [
        ("ranked", False),
        ("unranked", True),
        ("empty", True),
    ]
    assert await store.keys(DOCS, query="green tea", limit=1) == ["ranked"]
    assert await store.keys(DOCS, query="green tea", filter={"kind": "drink"}) == ["ranked", "unranked"]
    assert await store.keys(DOCS, query="green tea", filter={"kind": "number"}) == ["empty"]
    assert await store.keys(("elsewhere",), query="green tea") == []


async def test_items_without_a_score_come_page_by_page_after_those_with_one(mnemon_store: Store) -> None:
    for number in range(3):
        await mnemon_store.put(DOCS, f"ranked{number}", {"text": f"green tea number {number}"})
        await mnemon_store.put(DOCS, f"rest{number}", {"text": "coffee"}, index=False)

    pages = [await mnemon_store.keys(DOCS, query="green tea", limit=2, offset=offset) for offset in (0, 2, 4, 6)]

    assert [len(page) for page in pages] == [2, 2, 2, 0]
    assert [key[:4] for page in pages for key in page] == ["rank"] * 3 + ["rest"] * 3
    assert len({key for page in pages for key in page}) == 6


async def test_a_search_renews_only_the_items_that_it_returns(mnemon_store: Store, address: str) -> None:
    await mnemon_store.put(DOCS, "found", {"at": {"n": 1}}, ttl=10)
    await mnemon_store.put(DOCS, "other", {"at": {"n": 2}}, ttl=10)
    with Client(address) as client:
        before = {fact.key: fact.expire_time for fact in client.facts.list(DOCS)}
        assert await mnemon_store.keys(DOCS, filter={"at": {"n": 1}}) == ["found"]
        after = {fact.key: fact.expire_time for fact in client.facts.list(DOCS)}
    assert after["found"] != before["found"]
    assert after["other"] == before["other"]


async def test_hundreds_of_operations_in_one_turn_of_the_loop_all_get_answers(address: str) -> None:
    async with opened("asyncio", address) as store:
        async_store = store.store
        count = 6 * CALLS_AT_ONCE
        await asyncio.gather(*(async_store.aput(DOCS, f"{n:03d}", {"n": n}, index=False) for n in range(count)))

        found = await asyncio.gather(*(async_store.asearch(DOCS, filter={"n": n}) for n in range(count)))
        listed = await asyncio.gather(*(async_store.alist_namespaces(limit=n) for n in range(1, count)))
        await asyncio.gather(*(async_store.adelete(DOCS, f"{n:03d}") for n in range(count)))

        assert [[item.value["n"] for item in each] for each in found] == [[n] for n in range(count)]
        assert listed == [[DOCS]] * (count - 1)
        assert await async_store.asearch(DOCS) == []


async def test_stores_that_share_a_server_wait_for_each_other(address: str) -> None:
    async with AsyncClient(address) as client, opened(BATCHED, address) as store:
        await fill(store, {f"{n:03d}": {"n": n} for n in range(6 * CALLS_AT_ONCE)})
        stores = [AsyncMnemonStore(client) for _ in range(4)]

        await asyncio.gather(*(stores[n % 4].abatch([PutOp(DOCS, f"{n:03d}", None)]) for n in range(6 * CALLS_AT_ONCE)))

        assert await store.search(DOCS) == []


@pytest.mark.parametrize(
    ("op", "message"),
    [
        (("get", DOCS), r"Unknown operation type: <class 'tuple'>"),
        (SearchOp(DOCS, filter={"color": {"$regex": "r"}}), r"Unsupported operator: \$regex"),
        (SearchOp(DOCS, filter={"color": {"$eq": "red", "shade": 1}}), r"Unsupported operator: shade"),
        (SearchOp(DOCS, filter={"inner": {"color": {"$like": "r"}}}), r"Unsupported operator: \$like"),
        (
            ListNamespacesOp((MatchCondition("infix", DOCS),)),  # type: ignore[arg-type]
            r"Unsupported match type: infix",
        ),
    ],
    ids=str,
)
async def test_an_unknown_operation_is_a_value_error_in_langgraphs_words(store: Store, op: Any, message: str) -> None:
    await fill(store, {"doc": {"color": "red", "inner": {"color": "red"}}})

    with pytest.raises(ValueError, match=message):
        await store.batch([op])


@pytest.mark.parametrize(
    ("index", "said"),
    [
        (
            {"dims": 3, "embed": embedded, "fields": ["title"]},
            "'dims', 'embed' are not used: the Mnemon server embeds",
        ),
        ({"embed": "openai:any", "fields": ["$"]}, "'embed' is not used"),
        ({"ann_index_config": {"kind": "hnsw"}, "distance_type": "cosine"}, "'ann_index_config', 'distance_type' are"),
    ],
    ids=["function", "name", "postgres"],
)
async def test_an_embedder_is_accepted_with_a_warning_of_what_is_used_instead(
    address: str, index: Any, said: str
) -> None:
    with Client(address) as client:
        client.facts.delete_many((), subtree=True)
        with pytest.warns(UserWarning, match=said) as warned:
            store = MnemonStore(client, index=index)
        assert warned[0].filename == __file__
        store.put(DOCS, "tea", {"title": "green tea", "body": "a leaf"})
        assert store.search(DOCS, query="green tea")[0].score is not None
    async with AsyncClient(address) as asyncio_client:
        with pytest.warns(UserWarning, match=said):
            AsyncMnemonStore(asyncio_client, index=index)


async def test_an_index_without_an_embedder_gives_no_warning_and_an_unknown_key_is_refused(address: str) -> None:
    with Client(address) as client, warnings.catch_warnings():
        warnings.simplefilter("error")
        MnemonStore(client, index={"fields": ["title"]})
        with pytest.raises(ValueError, match="field"):
            MnemonStore(client, index={"field": ["title"]})  # type: ignore[arg-type]


@pytest.mark.parametrize("ttl", [{"default_tll": 5}, 5])
async def test_a_ttl_configuration_that_is_not_one_is_refused_when_the_store_is_made(address: str, ttl: Any) -> None:
    with Client(address) as client, pytest.raises(ValueError, match="'default_ttl'"):
        MnemonStore(client, ttl=ttl)
    async with AsyncClient(address) as asyncio_client:
        with pytest.raises(ValueError, match="'default_ttl'"):
            AsyncMnemonStore(asyncio_client, ttl=ttl)


async def test_the_whole_value_may_be_named_as_the_searched_field(store: Store) -> None:
    await store.put(DOCS, "tea", {"title": "green tea"}, index=["$"])
    await store.put(DOCS, "gate", {"title": "red gate"}, index=["$"])

    assert (await store.keys(DOCS, query="green tea"))[0] == "tea"
    assert (await store.batch([GetOp(DOCS, "gate")]))[0].value == {"title": "red gate"}
