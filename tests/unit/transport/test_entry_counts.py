"""Lists and maps that are too long are truncated before they are iterated, in every field of every request."""

from collections.abc import Iterator
from typing import Any

from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass
from mnemon.v1 import archive_pb2, facts_pb2, memory_pb2, tools_pb2
from mnemon_server.transport.convert.shared.counts import COUNTED_ELSEWHERE, cut, entries_max
from mnemon_server.transport.server import SERVICES

Path = tuple[FieldDescriptor, ...]


def requests() -> Iterator[Descriptor]:
    pool = facts_pb2.DESCRIPTOR.pool
    for service in SERVICES:
        for method in pool.FindServiceByName(service).methods:
            yield method.input_type


def counted_paths(descriptor: Descriptor, before: Path = ()) -> Iterator[Path]:
    """The paths of the lists and maps of a request."""
    for field in descriptor.fields:
        path = (*before, field)
        if field.is_repeated:
            yield path
        kind = field.message_type
        if kind is not None and not kind.GetOptions().map_entry and kind.full_name not in COUNTED_ELSEWHERE:
            yield from counted_paths(kind, path)


PATHS = {
    f"{request.name}.{'.'.join(field.name for field in path)}": (request, path)
    for request in requests()
    for path in counted_paths(request)
}


def filled(request: Descriptor, path: Path, count: int) -> Message:
    """A request with this many entries at the end of the path."""
    message = target = GetMessageClass(request)()
    for field in path[:-1]:
        inner = getattr(target, field.name)
        target = inner.add() if field.is_repeated else inner
    field = path[-1]
    entries = getattr(target, field.name)
    kind = field.message_type
    if kind is not None and kind.GetOptions().map_entry:
        for number in range(count):
            if kind.fields_by_name["value"].message_type is None:
                entries[str(number)] = number
            else:
                entries[str(number)].SetInParent()
    elif kind is not None:
        for _ in range(count):
            entries.add()
    else:
        entries.extend(["" if field.type == FieldDescriptor.TYPE_STRING else 0] * count)
    return message


def test_every_list_and_map_of_a_request_is_truncated_to_one_more_than_the_maximum() -> None:
    for name, (request, path) in PATHS.items():
        most = entries_max(path[-1])
        message = filled(request, path, most + 3)
        target: Any = message
        cut(message)
        for field in path:
            target = getattr(target, field.name)
            target = target[0] if field.is_repeated and field is not path[-1] else target
        assert len(target) == most + 1, name


def test_lists_and_maps_at_the_maximum_are_unchanged() -> None:
    for request, path in PATHS.values():
        message = filled(request, path, entries_max(path[-1]))
        as_it_was = message.SerializeToString(deterministic=True)
        cut(message)
        assert message.SerializeToString(deterministic=True) == as_it_was


def test_the_remaining_entries_of_a_map_keep_their_values() -> None:
    request = memory_pb2.CreateMemoryRequest()
    for number in range(200):
        request.memory.metadata[f"k{number}"].int_value = number
    request.memory.content = "Ada likes tea."
    cut(request)
    assert len(request.memory.metadata) == 65
    assert all(value.int_value == int(key[1:]) for key, value in request.memory.metadata.items())
    assert request.memory.content == "Ada likes tea."


def test_each_item_of_many_is_truncated_by_itself() -> None:
    request = facts_pb2.BulkPutFactsRequest()
    for count in (3, 200):
        fact = request.requests.add().fact
        for number in range(count):
            fact.metadata[f"k{number}"].int_value = number
    cut(request)
    assert [len(item.fact.metadata) for item in request.requests] == [3, 65]


def test_requests_without_lists_or_maps_are_unchanged() -> None:
    for request in (tools_pb2.GetProtocolStatsRequest(), archive_pb2.ExportRecordsRequest()):
        cut(request)
        assert request == type(request)()
