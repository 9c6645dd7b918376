"""What a Mnemon store for LangGraph accepts and refuses: lifetimes, filters and clients. A graph can use it."""

from collections.abc import AsyncIterator
from typing import Any, TypedDict

import mnemon
import pytest
from langgraph.graph import END, START, StateGraph
from langgraph.runtime import Runtime
from langgraph.store.base import GetOp, ListNamespacesOp, PutOp, SearchOp
from mnemon import AsyncClient, Client
from mnemon.langgraph import AsyncMnemonStore, MnemonStore

from tests.support.langgraph_stores import BATCHED, MNEMON, Store, opened
from tests.support.server import eventually

MINUTE = 60.0


@pytest.fixture(params=MNEMON)
def way(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
async def store(way: str, address: str) -> AsyncIterator[Store]:
    async with opened(way, address) as opened_store:
        yield opened_store


def fact(address: str, key: str = "doc") -> mnemon.Fact:
    with Client(address) as client:
        return client.facts.get(("test",), key)


def lifetime_s(address: str, key: str = "doc") -> float | None:
    ttl = fact(address, key).ttl
    return None if ttl is None else ttl.total_seconds()


async def test_a_ttl_is_in_minutes_and_none_means_forever(store: Store, address: str) -> None:
    await store.put(("test",), "short", {"v": 1}, ttl=1.5)
    await store.put(("test",), "long", {"v": 1}, ttl=None)
    await store.put(("test",), "plain", {"v": 1})

    assert [lifetime_s(address, key) for key in ("short", "long", "plain")] == [1.5 * MINUTE, None, None]


async def test_an_item_is_gone_when_its_ttl_has_passed(store: Store) -> None:
    await store.put(("test",), "doc", {"v": 1}, ttl=0.4 / MINUTE)
    await store.put(("test",), "kept", {"v": 2}, ttl=10)

    async def gone() -> bool:
        return await store.get(("test",), "doc", refresh_ttl=False) is None

    await eventually(gone)
    assert await store.keys(("test",), refresh_ttl=False) == ["kept"]


async def test_the_default_ttl_is_for_puts_without_one(way: str, address: str) -> None:
    async with opened(way, address, ttl={"default_ttl": 2}) as store:
        await store.put(("test",), "default", {"v": 1})
        await store.put(("test",), "own", {"v": 1}, ttl=3)
        await store.put(("test",), "ever", {"v": 1}, ttl=None)

    assert [lifetime_s(address, key) for key in ("default", "own", "ever")] == [2 * MINUTE, 3 * MINUTE, None]


async def test_reads_renew_the_ttl_unless_they_or_the_store_say_otherwise(way: str, address: str) -> None:
    def expiry() -> Any:
        return fact(address).expire_time

    for renews in (True, False):
        async with opened(way, address, ttl={"refresh_on_read": renews}) as store:
            await store.put(("test",), "doc", {"text": "tea"}, ttl=1)
            first = expiry()
            await store.get(("test",), "doc")
            assert (expiry() > first) is renews
            second = expiry()
            await store.search(("test",), query="tea")
            assert (expiry() > second) is renews
            third = expiry()
            await store.get(("test",), "doc", refresh_ttl=not renews)
            assert (expiry() > third) is not renews


async def test_a_read_that_renews_is_not_a_change(store: Store, address: str) -> None:
    await store.put(("test",), "doc", {"v": 1}, ttl=1)
    before = fact(address)

    item = await store.get(("test",), "doc")

    after = fact(address)
    assert (after.revision, after.update_time) == (before.revision, before.update_time)
    assert item.updated_at == before.update_time


async def test_a_put_keeps_the_time_of_creation(store: Store) -> None:
    await store.put(("test",), "doc", {"v": 1})
    first = await store.get(("test",), "doc")

    await store.put(("test",), "doc", {"v": 2})

    second = await store.get(("test",), "doc")
    assert second.created_at == first.created_at < second.updated_at


async def test_in_and_not_in_are_operators_too(store: Store) -> None:
    for number, color in enumerate(["red", "green", "blue"]):
        await store.put(("test",), f"doc{number}", {"color": color})

    assert await store.keys(("test",), filter={"color": {"$in": ["red", "blue"]}}) == ["doc0", "doc2"]
    assert await store.keys(("test",), filter={"color": {"$nin": ["red", "blue"]}}) == ["doc1"]


async def test_a_bad_item_of_a_batch_is_an_error_and_the_others_are_stored(store: Store) -> None:
    with pytest.raises(ValueError, match="namespace"):
        await store.batch([PutOp(("test",), "good", {"v": 1}), PutOp(("x",) * 40, "bad", {"v": 1})])

    assert await store.keys(("test",)) == ["good"]


async def test_an_empty_key_is_refused_and_never_replaced_by_another(store: Store) -> None:
    with pytest.raises(ValueError, match="key"):
        await store.put(("test",), "", {"v": 1})

    assert await store.list_namespaces() == []


async def test_an_empty_batch_returns_an_empty_list(store: Store) -> None:
    assert await store.batch([]) == []


@pytest.mark.parametrize("field", ["limit", "offset"])
async def test_a_negative_limit_or_offset_is_refused_and_named(store: Store, field: str) -> None:
    for op in (SearchOp(("test",), **{field: -1}), ListNamespacesOp(**{field: -1})):
        with pytest.raises(mnemon.InvalidArgumentError, match=f"^{field}: must be at least 0, not -1"):
            await store.batch([op])


async def test_a_search_with_limit_zero_or_beyond_the_end_finds_nothing(store: Store) -> None:
    await store.put(("test",), "doc", {"v": 1})

    assert await store.batch(
        [SearchOp(("test",), limit=0), SearchOp(("test",), offset=5), ListNamespacesOp(limit=0)]
    ) == [
        [],
        [],
        [],
    ]


async def test_items_are_the_facts_of_the_client(store: Store, address: str) -> None:
    with Client(address) as client:
        client.facts.put(("user", "ada"), "tea", {"content": "Ada likes green tea."}, metadata={"topic": "drinks"})

    assert await store.keys(("user",), query="What does Ada drink?") == ["tea"]
    assert await store.keys(("user",), filter={"topic": "drinks"}) == ["tea"]


async def test_each_store_refuses_the_other_kind_of_client(address: str) -> None:
    async with AsyncClient(address) as asyncio_client:
        with pytest.raises(TypeError, match="AsyncMnemonStore"):
            MnemonStore(asyncio_client)  # type: ignore[arg-type]
    with Client(address) as client, pytest.raises(TypeError, match="AsyncClient"):
        AsyncMnemonStore(client)  # type: ignore[arg-type]


async def test_blocking_calls_in_the_loop_of_an_asyncio_store_are_refused(address: str) -> None:
    async with opened(BATCHED, address) as store:
        with pytest.raises(Exception, match="aget"):
            store.store.get(("test",), "doc")
        assert await store.store.abatch([GetOp(("test",), "doc")]) == [None]


class State(TypedDict):
    said: str


async def test_the_nodes_of_a_graph_share_the_store(store: Store) -> None:
    async def remember(state: State, runtime: Runtime) -> State:
        assert runtime.store is not None
        await runtime.store.aput(("user", "ada"), "note", {"content": state["said"]})
        return state

    async def recall(state: State, runtime: Runtime) -> State:
        assert runtime.store is not None
        found = await runtime.store.asearch(("user", "ada"), query="What tea?")
        return {"said": found[0].value["content"].upper()}

    builder = StateGraph(State)
    builder.add_node("remember", remember)
    builder.add_node("recall", recall)
    builder.add_edge(START, "remember")
    builder.add_edge("remember", "recall")
    builder.add_edge("recall", END)

    assert await builder.compile(store=store.store).ainvoke({"said": "green tea"}) == {"said": "GREEN TEA"}
