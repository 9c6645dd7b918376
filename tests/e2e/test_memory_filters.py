"""Filters of memories over a real channel: every field and operator, and malicious values."""

from collections.abc import AsyncIterator
from typing import Any

import grpc
import pytest
import pytest_asyncio
from google.protobuf.timestamp_pb2 import Timestamp
from google.rpc import error_details_pb2
from mnemon.v1 import common_pb2
from mnemon.v1 import memory_pb2 as pb

from tests.support.memory_messages import (
    all_of,
    any_of,
    compare,
    contents_of,
    create,
    metadata,
    none_of,
    remember,
    where,
)
from tests.support.server import Connection, detail, failure_of, whole_server

HOSTILE = (
    "' OR 1=1 --",
    '"; DROP TABLE documents; --',
    "%",
    "_",
    "*",
    "\\",
    "$.a",
    "{}",
    "a'b\"c`d",
    "🦉 \u202e\u0301 NULL",
    "x" * 60_000,
)


pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def connection(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Connection]:
    """A server for all tests that leave it without memories."""
    async with whole_server(tmp_path_factory.mktemp("empty")) as connected:
        yield connected


@pytest_asyncio.fixture(loop_scope="module")
async def memories(connection: Connection) -> AsyncIterator[Any]:
    """The stub of the memory service of a server without memories."""
    yield connection.memories
    everything = where(compare("content", "EXISTS", True))
    await connection.memories.PurgeMemories(pb.PurgeMemoriesRequest(filter=everything))


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def two(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Any]:
    """The stub of a server with two memories that differ in every field."""
    async with whole_server(tmp_path_factory.mktemp("two")) as connected:
        await store_two(connected.memories)
        yield connected.memories


async def store_two(memories: Any) -> None:
    await remember(
        memories,
        "Ada sits by the window.",
        scope={"user": "ada", "household": "h1", "persona": "p1", "agent": "claude", "project": "x"},
        personality="engineer",
        type="preference",
        decay_policy=pb.DECAY_POLICY_REINFORCEABLE,
        metadata={
            **metadata(n=5, share=0.5, done=True, text="abc", odd_one="only here"),
            "tags": common_pb2.MetadataValue(string_list_value={"values": ["red", "blue"]}),
        },
        is_global=True,
    )
    await remember(
        memories,
        "Bob sits by the aisle.",
        scope={"user": "bob", "household": "h2", "persona": "p2", "agent": "gpt", "project": "y"},
        personality="poet",
        type="fact",
        metadata={
            **metadata(n=6, share=1.5, done=False, text="abx"),
            "tags": common_pb2.MetadataValue(string_list_value={"values": ["green"]}),
        },
    )


def who(contents: list[str]) -> str:
    """The initials of the memories found."""
    return "".join(content[0] for content in contents)


async def refused(memories: Any, chosen: pb.MemoryFilter) -> dict[str, str]:
    """The reasons for which a list with this filter is refused, by field."""
    error = await failure_of(memories.ListMemories(pb.ListMemoriesRequest(filter=chosen)))
    assert error.code() is grpc.StatusCode.INVALID_ARGUMENT
    return {v.field: v.description for v in detail(error, error_details_pb2.BadRequest).field_violations}


@pytest.mark.parametrize(
    ("chosen", "expected"),
    [
        (where(), "AB"),
        (where(scope={"user": "ada"}), "A"),
        (where(scope={"user": "ada", "agent": "gpt"}), ""),
        (where(personality="poet"), "B"),
        (where(type="preference"), "A"),
        (where(is_global=True), "A"),
        (where(is_global=False), "B"),
        (where(metadata=metadata(n=6)), "B"),
        (where(metadata=metadata(n=6.0)), "B"),
        (where(metadata=metadata(n=5, done=False)), ""),
        (where(created={"start_time": Timestamp(seconds=1)}), "AB"),
        (where(created={"end_time": Timestamp(seconds=1)}), ""),
        (where(reinforced={"start_time": Timestamp(seconds=1)}), ""),
        (where(reinforced={"end_time": Timestamp(seconds=10**11)}), ""),
        (where(min_confidence=1.0, type="fact"), "B"),
        (where(compare("type", "EQ", "fact"), scope={"user": "ada"}), ""),
    ],
    ids=str,
)
async def test_all_conditions_must_hold(two: Any, chosen: pb.MemoryFilter, expected: str) -> None:
    assert who(await contents_of(two, chosen)) == expected


@pytest.mark.parametrize(
    ("part", "expected"),
    [
        (compare("user", "EQ", "ada"), "A"),
        (compare("household", "NE", "h1"), "B"),
        (compare("persona", "IN", "p1", "p3"), "A"),
        (compare("agent", "NIN", "gpt"), "A"),
        (compare("project", "GT", "x"), "B"),
        (compare("personality", "LTE", "engineer"), "A"),
        (compare("type", "EQ", "Fact"), ""),
        (compare("is_global", "EQ", True), "A"),
        (compare("decay_policy", "EQ", "stable"), "B"),
        (compare("content", "CONTAINS", "window"), "A"),
        (compare("content", "CONTAINS", "Window"), ""),
        (compare("reinforce_time", "EXISTS", False), "AB"),
        (compare("create_time", "EXISTS", True), "AB"),
        (compare("metadata.n", "GTE", 5), "AB"),
        (compare("metadata.n", "GT", 5.5), "B"),
        (compare("metadata.n", "EQ", 5.0), "A"),
        (compare("metadata.n", "LT", "6"), ""),
        (compare("metadata.share", "LTE", 1), "A"),
        (compare("metadata.done", "EQ", True), "A"),
        (compare("metadata.done", "EQ", 1), ""),
        (compare("metadata.text", "LT", "abx"), "A"),
        (compare("metadata.text", "CONTAINS", "b"), "AB"),
        (compare("metadata.tags", "CONTAINS", "blue"), "A"),
        (compare("metadata.tags", "CONTAINS", "blu"), ""),
        (compare("metadata.odd_one", "EXISTS", True), "A"),
        (compare("metadata.odd_one", "NE", "only here"), "B"),
        (compare("metadata.nobody_has_it", "EXISTS", False), "AB"),
        (none_of(compare("user", "EQ", "ada")), "B"),
        (any_of(compare("user", "EQ", "ada"), compare("user", "EQ", "bob")), "AB"),
        (all_of(compare("user", "EQ", "ada"), compare("user", "EQ", "bob")), ""),
        (none_of(any_of(compare("metadata.n", "EQ", 6), compare("metadata.odd_one", "EXISTS", True))), ""),
        (none_of(compare("metadata.n", "EQ", 6), compare("metadata.odd_one", "EXISTS", True)), ""),
    ],
    ids=str,
)
async def test_each_filter_selects_the_right_memories(two: Any, part: common_pb2.Filter, expected: str) -> None:
    chosen = where(part)
    assert who(await contents_of(two, chosen)) == expected
    answer = await two.SearchMemories(pb.SearchMemoriesRequest(query="sits by the", filter=chosen))
    assert sorted(match.memory.content[0] for match in answer.results) == sorted(expected)
    assert (await two.CountMemories(pb.CountMemoriesRequest(filter=chosen))).count == len(expected)


async def test_a_filter_finds_one_by_id_and_by_time(two: Any) -> None:
    page = await two.ListMemories(pb.ListMemoriesRequest())
    first, second = page.memories
    assert await contents_of(two, where(compare("memory_id", "EQ", second.memory_id))) == [second.content]
    reinforced = (await two.ReinforceMemory(pb.ReinforceMemoryRequest(memory_id=first.memory_id))).memory
    for field in ("reinforce_time", "update_time"):
        time = common_pb2.MetadataValue(timestamp_value=getattr(reinforced, field))
        condition = common_pb2.Condition(field=field, comparator=common_pb2.COMPARATOR_GTE, values=[time])
        assert who(await contents_of(two, where(common_pb2.Filter(condition=condition)))) == "A"
    whole = where(reinforced={"start_time": reinforced.reinforce_time, "end_time": reinforced.reinforce_time})
    assert who(await contents_of(two, whole)) == "A"
    created = where(created={"start_time": second.create_time, "end_time": second.create_time})
    assert who(await contents_of(two, created)) == "B"


@pytest.mark.parametrize("text", HOSTILE, ids=lambda text: ascii(text[:12]))
async def test_values_are_data_whatever_they_look_like(memories: Any, text: str) -> None:
    short = text[:200].encode()[:200].decode("utf-8", "ignore")
    await remember(memories, f"it says {text}", type=short, metadata=metadata(key=text))
    await remember(memories, "another", type="another", metadata=metadata(key="another"))
    for part in (
        compare("metadata.key", "EQ", text),
        compare("metadata.key", "IN", text, "nothing"),
        compare("metadata.key", "CONTAINS", text),
        compare("content", "CONTAINS", text),
        compare("type", "EQ", short),
    ):
        assert await contents_of(memories, where(part)) == [f"it says {text}"]
    assert await contents_of(memories, where(metadata=metadata(key=text))) == [f"it says {text}"]
    purged = await memories.PurgeMemories(pb.PurgeMemoriesRequest(filter=where(compare("metadata.key", "EQ", text))))
    assert purged.purged_count == 1
    assert await contents_of(memories, where()) == ["another"]


@pytest.mark.parametrize("name", ["rowid", "content'; --", "metadata", "metadata.", "metadata.a b", "", "delete_time"])
async def test_an_unknown_field_name_is_refused_whatever_it_looks_like(memories: Any, name: str) -> None:
    [(path, reason)] = (await refused(memories, where(compare(name, "EQ", "x")))).items()
    assert path == "filter.filter.all_of.filters[0].condition.field"
    assert reason.startswith(f'"{name}": ')


async def test_every_invalid_part_is_named_by_its_path(memories: Any) -> None:
    chosen = where(
        common_pb2.Filter(),
        common_pb2.Filter(condition=common_pb2.Condition(field="type")),
        any_of(),
        scope={"user": "u" * 257},
        created={"start_time": Timestamp(nanos=-1)},
        reinforced={"start_time": Timestamp(seconds=2), "end_time": Timestamp(seconds=1)},
        min_confidence=2.0,
    )
    assert set(await refused(memories, chosen)) == {
        "filter.created.start_time",
        "filter.filter.all_of.filters[0]",
        "filter.filter.all_of.filters[1].condition.comparator",
        "filter.filter.all_of.filters[2].any_of.filters",
        "filter.min_confidence",
        "filter.reinforced.end_time",
        "filter.scope.user",
    }


@pytest.mark.parametrize(
    "part",
    [
        compare("metadata.n", "EQ", float("nan")),
        compare("metadata.n", "GT", float("inf")),
        compare("metadata.n", "EQ"),
        compare("metadata.n", "EQ", 1, 2),
        compare("metadata.n", "IN"),
        compare("metadata.n", "GT", True),
        compare("metadata.n", "EXISTS", "yes"),
        compare("content", "CONTAINS", 5),
        compare("type", "EQ", "a\0b"),
        compare("type", "EQ", "x" * 65_537),
    ],
    ids=lambda part: str(part)[:60],
)
async def test_a_value_that_cannot_be_compared_is_refused(memories: Any, part: common_pb2.Filter) -> None:
    [(path, reason)] = (await refused(memories, where(part))).items()
    assert path.startswith("filter.filter.all_of.filters[0].condition.values")
    assert reason.startswith(f'"{part.condition.field}": ')


async def test_a_filter_at_the_limits_works_and_one_beyond_is_refused(memories: Any) -> None:
    await remember(memories, "a", scope={"agent": "claude"})
    part = compare("agent", "EQ", "claude")
    for _ in range(6):
        part = none_of(part)
    deep, deeper = where(part), where(none_of(part))
    assert await contents_of(memories, deep) == ["a"]
    assert await refused(memories, deeper) == {"filter.filter": "must be at most 8 levels deep"}
    wide = [compare("agent", "NE", f"agent {i}") for i in range(128)]
    assert await contents_of(memories, where(*wide[:127])) == ["a"]
    assert await refused(memories, where(*wide)) == {"filter.filter": "must have at most 128 parts"}
    # Large enough to be read in slices: no part may be lost at their ends.
    large = [compare("agent", "NE", f"agent {i} {'x' * 1_000}") for i in range(126)]
    assert await contents_of(memories, where(*large, compare("agent", "EQ", "claude"))) == ["a"]
    for place in range(0, 127, 9):
        assert await contents_of(memories, where(*large[:place], compare("agent", "EQ", "gpt"), *large[place:])) == []
    names = [f"agent {i}" for i in range(256)]
    assert await contents_of(memories, where(compare("agent", "IN", *names[:255], "claude"))) == ["a"]
    many = await refused(memories, where(compare("agent", "IN", *names, "claude")))
    assert list(many) == ["filter.filter.all_of.filters[0].condition.values"]


async def test_a_filter_as_deep_as_a_message_allows_is_refused_without_harm(memories: Any) -> None:
    message = pb.CountMemoriesRequest()
    part = message.filter.filter
    for _ in range(47):
        part = part.none_of.filters.add()
    part.condition.field = "agent"
    error = await failure_of(memories.CountMemories(message))
    assert error.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert [v.field for v in detail(error, error_details_pb2.BadRequest).field_violations] == ["filter.filter"]
    assert (await memories.CreateMemory(create("after"))).memory.memory_id


async def test_a_filter_with_a_hundred_thousand_parts_is_refused_quickly(memories: Any) -> None:
    message = pb.CountMemoriesRequest(filter=where(*[compare("agent", "EQ", "x")] * 100_000))
    error = await failure_of(memories.CountMemories(message, timeout=60))
    assert error.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert (await memories.CreateMemory(create("after"))).memory.memory_id
