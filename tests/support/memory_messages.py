"""Short helpers for messages of the memory service."""

from typing import Any

from google.protobuf.field_mask_pb2 import FieldMask
from mnemon.v1 import common_pb2
from mnemon.v1 import memory_pb2 as pb

_KINDS = {str: "string_value", bool: "bool_value", int: "int_value", float: "double_value"}
Plain = str | int | float | bool
_TERMS = ("embedding", "request_id", "ack", "expected_revision", "set_metadata", "remove_metadata")


def value(plain: Plain) -> common_pb2.MetadataValue:
    """A value with its type."""
    return common_pb2.MetadataValue(**{_KINDS[type(plain)]: plain})


def metadata(**values: Plain) -> dict[str, common_pb2.MetadataValue]:
    """Metadata of plain values."""
    return {key: value(plain) for key, plain in values.items()}


def create(content: str = "some text", **fields: Any) -> pb.CreateMemoryRequest:
    """A request to store a memory, with fields of the memory and of the request."""
    terms = {key: fields.pop(key) for key in _TERMS if key in fields}
    return pb.CreateMemoryRequest(memory=pb.Memory(content=content, **fields), **terms)


def update(memory_id: str, *paths: str, **fields: Any) -> pb.UpdateMemoryRequest:
    """A request to change the fields in `paths`, with fields of the memory and of the request."""
    terms = {key: fields.pop(key) for key in _TERMS if key in fields}
    memory = pb.Memory(memory_id=memory_id, **fields)
    return pb.UpdateMemoryRequest(memory=memory, update_mask=FieldMask(paths=paths), **terms)


def compare(field: str, operator: str, *values: Plain) -> common_pb2.Filter:
    """One comparison: `compare("agent", "EQ", "claude")`."""
    number = common_pb2.Comparator.Value(f"COMPARATOR_{operator}")
    condition = common_pb2.Condition(field=field, comparator=number, values=[value(plain) for plain in values])
    return common_pb2.Filter(condition=condition)


def all_of(*parts: common_pb2.Filter) -> common_pb2.Filter:
    """Every part must hold."""
    return common_pb2.Filter(all_of=common_pb2.FilterList(filters=parts))


def any_of(*parts: common_pb2.Filter) -> common_pb2.Filter:
    """At least one part must hold."""
    return common_pb2.Filter(any_of=common_pb2.FilterList(filters=parts))


def none_of(*parts: common_pb2.Filter) -> common_pb2.Filter:
    """No part may hold."""
    return common_pb2.Filter(none_of=common_pb2.FilterList(filters=parts))


def where(*parts: common_pb2.Filter, **fields: Any) -> pb.MemoryFilter:
    """A filter for memories."""
    chosen = {"filter": all_of(*parts)} if parts else {}
    return pb.MemoryFilter(**fields, **chosen)


async def remember(memories: Any, *contents: str, **fields: Any) -> list[pb.Memory]:
    """Stores one memory per content, all with the same fields."""
    return [(await memories.CreateMemory(create(content, **fields))).memory for content in contents]


async def contents_of(memories: Any, chosen: pb.MemoryFilter, **options: Any) -> list[str]:
    """The contents of all memories that match a filter, in order, from one page."""
    page = await memories.ListMemories(pb.ListMemoriesRequest(filter=chosen, page_size=1000, **options))
    assert not page.next_page_token
    return [memory.content for memory in page.memories]
