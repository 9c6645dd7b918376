"""Errors name a field by its path in the request, however deep in the request the field is."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.rpc import error_details_pb2
from grpc import aio
from mnemon.v1.common_pb2 import ItemError

from tests.support.rpcs import Rpc, rpcs
from tests.support.server import Connection, detail, whole_server

_BAD_MESSAGES = {
    "mnemon.v1.Scope": {"user": "u" * 1_000},
    "mnemon.v1.Filter": {"condition": {}},
    "google.protobuf.Timestamp": {"nanos": -1},
}
"""Invalid values, by the type of the message."""
_NOT_READ = re.compile(
    r"""
    .*[.]embeddings[.]values                            # only sent by the server
    | .*[.](create|update|record|expire|reinforce|delete)_time    # in most records, only sent by the server
    | .*SaveSemanticMemor(y|ies)[ ](requests[.])?memory[.]embedding   # the request has an embedding of its own
    | RulesService/FindMatchingRule[ ].*                # compares with the statement, whatever it contains
    | KnowledgeStoreService/.*[ ]filters                # what is not understood is ignored, and named in the answer
    """,
    re.VERBOSE,
)
"""Fields that a request ignores, as "Service/Method path"."""
_NOTHING = ItemError()


class BadField(NamedTuple):
    """A field of a request, to which an invalid value is given."""

    rpc: Rpc
    path: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.rpc.name} {'.'.join(self.path)}"

    @property
    def item(self) -> Descriptor:
        """The type of message within which errors name the field: one request of a stream, or the whole request."""
        message = self.rpc.method.input_type
        return message.fields_by_name["requests"].message_type if self.path[0] == "requests" else message

    @property
    def expected(self) -> str:
        """The path that errors should name."""
        return ".".join(self.path[1:] if self.path[0] == "requests" else self.path)

    def request(self) -> Any:
        """A request that is empty but for this field, and for the records that every such request must have."""
        request = message = self.rpc.request()
        for name in self.path[:-1]:
            _require_records(message)
            field = getattr(message, name)
            message = field.add() if message.DESCRIPTOR.fields_by_name[name].is_repeated else field
            message.SetInParent()
        _require_records(message)
        _spoil(message, message.DESCRIPTOR.fields_by_name[self.path[-1]])
        if "update_mask" in request.DESCRIPTOR.fields_by_name:
            request.update_mask.paths.append(self.path[-1])
        return request


def _require_records(message: Any) -> None:
    for name in ("document", "memory", "fact", "event"):
        if (field := message.DESCRIPTOR.fields_by_name.get(name)) is not None and field.message_type is not None:
            getattr(message, name).SetInParent()


def _spoil(message: Any, field: FieldDescriptor) -> None:
    """Gives an invalid value to a field."""
    value = getattr(message, field.name)
    if _is_metadata(field):
        value["key"].SetInParent()
    elif field.message_type is not None:
        bad = _BAD_MESSAGES[field.message_type.full_name]
        value.add(**bad) if field.is_repeated else value.MergeFrom(type(value)(**bad))
    elif field.is_repeated:
        value.append(float("nan"))


def _is_metadata(field: FieldDescriptor) -> bool:
    kind = field.message_type
    if kind is None or not kind.GetOptions().map_entry:
        return False
    entry = kind.fields_by_name["value"].message_type
    return entry is not None and entry.full_name == "mnemon.v1.MetadataValue"


def _paths(message: Descriptor, above: tuple[Descriptor, ...] = ()) -> Iterator[tuple[str, ...]]:
    """The paths of all vectors, metadata, scopes, filters and times of a message."""
    for field in message.fields:
        kind = field.message_type
        if _is_metadata(field) or (field.type == field.TYPE_FLOAT and field.is_repeated):
            yield (field.name,)
        elif kind is None or kind.GetOptions().map_entry:
            continue
        elif kind.full_name in _BAD_MESSAGES:
            yield (field.name,)
        elif kind not in above:
            yield from ((field.name, *rest) for rest in _paths(kind, (*above, kind)))


_FIELDS = [
    BadField(rpc, path)
    for rpc in rpcs()
    if rpc.method.name != "ImportRecords"  # its errors name the fields of a record by its place in the archive
    and rpc.method.containing_service.name != "TenantService"  # it asks for an operator first
    for path in _paths(rpc.method.input_type)
]


async def test_an_invalid_value_is_reported_under_its_path_in_the_request(tmp_path: Path) -> None:
    wrong = {}
    async with whole_server(tmp_path) as server:
        for bad in _FIELDS:
            named = {re.sub(r"\[\d+\]", "", path) for path in await _named_paths(bad, server)}
            unknown = {path for path in named if not _exists(bad.item, path)}
            is_named = any(f"{path}.".startswith(f"{bad.expected}.") for path in named)
            if unknown or not (is_named or _NOT_READ.fullmatch(str(bad))):
                wrong[str(bad)] = named
    assert wrong == {}
    assert len(_FIELDS) > 100


async def _named_paths(bad: BadField, server: Connection) -> list[str]:
    try:
        answers = await bad.rpc.call(server.channel, bad.request())
    except aio.AioRpcError as error:
        return [violation.field for violation in detail(error, error_details_pb2.BadRequest).field_violations]
    results = [result for answer in answers for result in getattr(answer, "results", ())]
    return [violation.field for result in results for violation in getattr(result, "error", _NOTHING).violations]


def _exists(message: Descriptor, path: str) -> bool:
    """Whether a path leads to a field; behind the name of a map, everything is a key."""
    name, _, rest = path.partition(".")
    field = message.fields_by_name.get(name)
    if field is None or not rest:
        return field is not None
    kind = field.message_type
    return kind is not None and (bool(kind.GetOptions().map_entry) or _exists(kind, rest))
