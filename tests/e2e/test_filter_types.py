"""Filters compare fields of the server's own with values of their types, in every call that takes a filter."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from google.protobuf.descriptor import Descriptor
from google.rpc import error_details_pb2
from grpc import aio
from mnemon import F, InvalidArgumentError, Mnemon
from mnemon.v1 import archive_pb2, common_pb2

from tests.support.memory_messages import compare, none_of
from tests.support.rpcs import Rpc, rpcs
from tests.support.server import detail, whole_server

LONG_AGO, NEVER = "2000-01-01T00:00:00Z", "9000-01-01T02:00:00+02:00"


def _paths(message: Descriptor, above: tuple[Descriptor, ...] = ()) -> Iterator[tuple[str, ...]]:
    """The paths of the filters of a message."""
    for field in message.fields:
        kind = field.message_type
        if kind is None or kind in above:
            continue
        if kind.full_name == "mnemon.v1.Filter":
            yield (field.name,)
        else:
            yield from ((field.name, *rest) for rest in _paths(kind, (*above, kind)))


CALLS = [(rpc, path) for rpc in rpcs() for path in _paths(rpc.method.input_type)]


async def test_every_call_with_a_filter_refuses_a_value_of_another_type(tmp_path: Path) -> None:
    found = {}
    async with whole_server(tmp_path) as server:
        for rpc, path in CALLS:
            own = rpc.method.input_type.fields_by_name.get("filter")
            of_events = own is not None and "Episodic" in own.message_type.name
            request = _request(rpc, path, none_of(compare("event_time" if of_events else "create_time", "GTE", 5)))
            with pytest.raises(aio.AioRpcError) as caught:
                await rpc.call(server.channel, request)
            violations = detail(caught.value, error_details_pb2.BadRequest).field_violations
            found[rpc.name] = [each.field for each in violations if "condition" in each.field]
    expected = {rpc.name: [f"{_shown(rpc, path)}.none_of.filters[0].condition.values[0]"] for rpc, path in CALLS}
    assert found == expected
    assert len(found) >= 20


def _shown(rpc: Rpc, path: tuple[str, ...]) -> str:
    """The path as an error shows it, with the number of the item of a list."""
    is_list = {field.name for field in rpc.method.input_type.fields if field.is_repeated}
    return ".".join(f"{name}[0]" if name in is_list else name for name in path)


def _request(rpc: Rpc, path: tuple[str, ...], chosen: common_pb2.Filter) -> Any:
    request = message = rpc.request()
    for name in path[:-1]:
        inner = getattr(message, name)
        message = inner.add() if hasattr(inner, "add") else inner
    getattr(message, path[-1]).CopyFrom(chosen)
    if "kind" in message.DESCRIPTOR.fields_by_name:
        message.kind = archive_pb2.RECORD_KIND_MEMORY
    return request


@pytest.fixture(scope="module")
def mnemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mnemon]:
    """A client with one record of each kind."""
    with Mnemon(tmp_path_factory.mktemp("vault")) as client:
        client.documents.put("d", "tea")
        client.memories.add("tea", user="ada")
        client.facts.put(("users", "ada"), "k", {"content": "tea"})
        client.semantic.add("tea", user="ada")
        client.timeline.add("task", "tea", user="ada")
        yield client


@pytest.mark.parametrize("kind", ["documents", "memories", "facts", "semantic", "timeline"])
def test_a_time_in_text_is_a_time(mnemon: Mnemon, kind: str) -> None:
    field = F("record_time" if kind == "timeline" else "create_time")

    def found(where: Any) -> int:
        selection = {"namespace": ("users", "ada")} if kind == "facts" else {}
        return len(list(getattr(mnemon, kind).list(where=where, **selection)))

    assert found(field >= LONG_AGO) == found(field < NEVER) == found(field >= "2000-01-01") == 1
    assert found(~(field >= LONG_AGO)) == found(field > NEVER) == found(field < "2000-01-01") == 0
    with pytest.raises(InvalidArgumentError, match=r"^where\.(record|create)_time: takes a time") as caught:
        found(~(field >= "soon"))
    [violation] = caught.value.violations
    assert str(caught.value) == f"{violation.field}: {violation.description}"


def test_a_purge_of_all_but_the_memories_since_a_time_in_text_keeps_those(mnemon: Mnemon) -> None:
    assert mnemon.memories.purge(user="ada", where=~(F("create_time") >= LONG_AGO)).purged_count == 0
    for wrong in (F("is_global") == "true", F("type") == 5, F("decay_policy") == "permanent", F("agent") == ["a"]):
        with pytest.raises(InvalidArgumentError, match=r"^where\.\w+: "):
            mnemon.memories.purge(user="ada", where=~wrong)
    assert mnemon.memories.count() == 1
