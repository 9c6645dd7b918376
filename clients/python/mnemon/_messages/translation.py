"""Reads values from messages, and builds requests from arguments, field by field as both sides declare them.

A field has the same name on both sides, except for those in `_NAMES`. A length of time is a number of seconds under the
name with the suffix "_s", and the texts of a scope may be fields of the record itself.
"""

from collections.abc import Callable, Hashable, Mapping
from dataclasses import fields, is_dataclass
from datetime import timedelta
from enum import StrEnum
from functools import cache
from operator import attrgetter
from types import NoneType
from typing import Any, TypeVar, cast, get_args, get_origin, get_type_hints

from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.duration_pb2 import Duration
from google.protobuf.field_mask_pb2 import FieldMask
from google.protobuf.message import Message
from google.protobuf.struct_pb2 import Struct
from google.protobuf.timestamp_pb2 import Timestamp

from mnemon._enums import choice, members_by_number, numbers_by_member, value_names, words_by_number
from mnemon._local_time import deadline_of
from mnemon._messages import convert
from mnemon._messages.json import object_from_pb, object_to_pb
from mnemon._messages.rules import field_from_pb, rule_from_pb
from mnemon._status import error_from_item
from mnemon._values.access import GrantAccess, Role
from mnemon._values.archive import RecordKind
from mnemon._values.bridge import ExtractMode, PruneAction, RoutingMode
from mnemon._values.documents import SCOPE_FIELDS, AckLevel, HealthStatus, SearchMode, View
from mnemon._values.facts import PutMode
from mnemon._values.memories import DecayPolicy
from mnemon._values.rules import RuleOrder
from mnemon._values.semantic import ConflictPolicy
from mnemon.shared.tool_definitions import ResponseFormat
from mnemon.v1 import archive_pb2, bridge_pb2, common_pb2, decisions_pb2, rules_pb2

_Value = TypeVar("_Value")
_Message = TypeVar("_Message", bound=Message)
_Read = Callable[..., Any]
_Write = Callable[[str, Any], Any]

_NAMES = {
    **{name: f"scope.{name}" for name in SCOPE_FIELDS},
    "as_of": "as_of_time",
    "by": "by_time",
    "bytes": "memory_bytes",
    "decay": "decay_policy",
    "error": "message",
    "keyword_score": "score.keyword",
    "name": "type",
    "pending": "pending_count",
    "similarity": "score.vector",
    "status": "state",
    "total_scanned": "total_candidates",
    "vector_score": "score.vector",
}
"""The names in messages of fields that have another name in values; they count only if a message lacks the field."""


def read(kind: type[_Value], message: _Message, **more: Any) -> _Value:
    """The value of a message; `more` are fields that are not read from it."""
    reader: Callable[..., _Value] = _reader(cast("Hashable", kind), message.DESCRIPTOR)
    return reader(message, **more)


def request(kind: type[_Message], /, **given: Any) -> _Message:
    """A message with these fields, each checked and converted as its type needs; None leaves a field out.

    A request that has a request_id always gets one.
    """
    known = _writers(cast("Hashable", kind))
    sent = {"request_id": convert.request_id_to_pb(given.pop("request_id", None))} if "request_id" in known else {}
    for name, value in given.items():
        field, write, is_plain_text = known[name]
        # None is no text.
        if value is not None or is_plain_text:
            sent[field] = write(name, value)
    return kind(**sent)


# Reading


@cache
def _reader(kind: type[Any], descriptor: Descriptor) -> _Read:
    hints = get_type_hints(kind)
    plain: dict[str, str] = {}
    others: dict[str, _Read] = {}
    for each in fields(kind):
        if by_hand := _BY_HAND.get(f"{kind.__name__}.{each.name}"):
            others[each.name] = by_hand
        elif path := _path(each.name, hints[each.name], descriptor):
            if reader := _field_reader(path, _field_at(path, descriptor), hints[each.name], each.default):
                others[each.name] = reader
            else:
                plain[each.name] = path
    # All in one step, since a page has a thousand messages; the second attribute makes it a tuple in every case.
    plain_of, names = attrgetter(*plain.values(), *("DESCRIPTOR", "DESCRIPTOR")[len(plain) :]), tuple(plain)
    readers = tuple(others.items())

    def value_of(message: Any, **more: Any) -> Any:
        more.update(zip(names, plain_of(message), strict=False))
        for name, reader in readers:
            if name not in more:
                more[name] = reader(message)
        return kind(**more)

    return value_of


def _path(name: str, hint: Any, descriptor: Descriptor) -> str | None:
    """The path of a value's field in a message; None for a field that answers lack."""
    alias = _NAMES.get(name, name)
    for path in (name, name.removesuffix("_s"), alias, alias.rpartition(".")[2]):
        if (field := _field_at(path, descriptor)) is not None:
            is_score = field.message_type is common_pb2.Score.DESCRIPTOR and _bare(hint) is float
            return f"{path}.relevance" if is_score else path
    return None


def _field_at(path: str, descriptor: Any) -> FieldDescriptor | None:
    first, _, rest = path.partition(".")
    field = descriptor.fields_by_name.get(first)
    return _field_at(rest, field.message_type) if field is not None and rest else field


def _field_reader(path: str, field: FieldDescriptor | None, hint: Any, default: object) -> _Read | None:
    """The function that reads one field; None if the message already has the value."""
    assert field is not None  # noqa: S101 -- the path was found
    owner, _, name = path.rpartition(".")
    owner_of = attrgetter(owner) if owner else None
    may_be_unset = NoneType in get_args(hint) and bool(field.has_presence or owner)
    converted = _several(field, hint) if field.is_repeated else _single(field, hint, default)
    if converted is None and not may_be_unset:
        return None

    def read_field(message: Any) -> Any:
        part = owner_of(message) if owner_of else message
        if may_be_unset and not (part.HasField(name) if field.has_presence else message.HasField(owner)):
            return None
        return converted(getattr(part, name)) if converted else getattr(part, name)

    return read_field


def _several(field: FieldDescriptor, hint: Any) -> _Read:
    """Reads a repeated field: metadata, a mapping, or a tuple."""
    message, bare = field.message_type, _bare(hint)
    if message is not None and message.GetOptions().map_entry:
        is_typed = message.fields_by_name["value"].message_type is not None
        return convert.metadata_from_pb if is_typed else lambda items: dict(sorted(items.items()))
    if message is not None and get_origin(bare) in (Mapping, dict):
        key, value = (each.name for each in message.fields)
        return lambda items: {getattr(each, key): getattr(each, value) for each in items}
    [item, *_] = get_args(bare)
    if field.enum_type is not None:
        known = _members(field, item)
        fallback = _fallback(item)
        return lambda items: tuple(known.get(each, fallback) for each in items if each in known or fallback)
    if message is not None and get_origin(item) is tuple:
        [inner] = message.fields
        inner_of = attrgetter(inner.name)
        return lambda items: tuple(tuple(inner_of(each)) for each in items)
    one = _single(field, item, None)
    return (lambda items: tuple(map(one, items))) if one else tuple


def _single(field: FieldDescriptor, hint: Any, default: object) -> _Read | None:
    """Reads a single value; None if it is the same on both sides."""
    bare = _bare(hint)
    if field.enum_type is not None:
        return _choice_reader(field, hint, default)
    if field.message_type is None:
        return None
    if is_dataclass(bare) and isinstance(bare, type):
        return _reader(bare, field.message_type)
    if field.message_type is Duration.DESCRIPTOR and bare is timedelta:
        return lambda message: message.ToTimedelta()
    return _READERS[field.message_type.full_name]


def _choice_reader(field: FieldDescriptor, hint: Any, default: object) -> _Read:
    """Reads a member of an enumeration. One that a later server adds is UNKNOWN, None, or shown by its number."""
    members = type(default) if isinstance(default, StrEnum) else _bare(hint)
    known, fallback = _members(field, members), _fallback(members)
    is_optional = NoneType in get_args(hint)
    if isinstance(default, StrEnum):
        known = {0: default, **known}

    def member_of(number: int) -> Any:
        if number in known:
            return known[number]
        if is_optional and (fallback is None or not number):
            return None
        return fallback or str(number)

    return member_of


def _members(field: FieldDescriptor, members: Any) -> Mapping[int, Any]:
    assert field.enum_type is not None  # noqa: S101 -- such a field was found
    is_named = issubclass(members, StrEnum)
    return members_by_number(members, field.enum_type) if is_named else words_by_number(field.enum_type)


def _fallback(members: Any) -> Any:
    """The member that stands for what this client does not know, if there is one: always the first."""
    first: object = next(iter(members)) if issubclass(members, StrEnum) else None
    return first if first in ("unknown", "none") else None


def _bare(hint: Any) -> Any:
    """The type without None."""
    given = [each for each in get_args(hint) if each is not NoneType] if NoneType in get_args(hint) else [hint]
    return given[0]


_READERS: Mapping[str, _Read] = {
    Timestamp.DESCRIPTOR.full_name: convert.time_from_pb,
    Duration.DESCRIPTOR.full_name: lambda message: message.ToTimedelta().total_seconds(),
    Struct.DESCRIPTOR.full_name: object_from_pb,
    common_pb2.ItemError.DESCRIPTOR.full_name: error_from_item,
    rules_pb2.MergeRuleConfig.DESCRIPTOR.full_name: rule_from_pb,
}
"""By the messages that are not values of the client."""

_HEALTH = {
    common_pb2.STATE_STARTING: HealthStatus.STARTING,
    common_pb2.STATE_READY: HealthStatus.HEALTHY,
    common_pb2.STATE_DEGRADED: HealthStatus.DEGRADED,
    common_pb2.STATE_UNAVAILABLE: HealthStatus.UNHEALTHY,
}
# Without their vector database, memories are unhealthy for a person; the message says why.
_MEMORY_HEALTH = {**_HEALTH, common_pb2.STATE_DEGRADED: HealthStatus.UNHEALTHY}
_SKIP_REASONS = {number: name.lower() for number, name in value_names(bridge_pb2.SkipReason.DESCRIPTOR).items()}

_KINDS = members_by_number(RecordKind, archive_pb2.RecordKind.DESCRIPTOR)
_REFUSALS = {number: name.lower() for number, name in value_names(bridge_pb2.ExtractionRefusal.DESCRIPTOR).items()}

_BY_HAND: Mapping[str, _Read] = {
    "BridgeStatus.skipped_counts": lambda status: {
        _SKIP_REASONS.get(each.reason, str(each.reason)): each.count for each in status.skipped_counts
    },
    "ConflictSignal.importance_delta": lambda signal: (
        signal.importance_delta if signal.type == decisions_pb2.SIGNAL_TYPE_IMPORTANCE else None
    ),
    "ExtractionPreview.refusal": lambda preview: (
        _REFUSALS.get(preview.refusal, str(preview.refusal)) if preview.refusal else None
    ),
    "ExtractionStatus.refused_counts": lambda status: {
        _REFUSALS.get(each.reason, str(each.reason)): each.count for each in status.refused_counts
    },
    "Fact.index": lambda fact: False if fact.index.off else tuple(fact.index.paths) or None,
    "MemoryStatus.status": lambda status: _MEMORY_HEALTH.get(status.state, HealthStatus.UNKNOWN),
    "QuarantineReceipt.counts": lambda answer: {
        _KINDS.get(each.kind, str(each.kind)): each.count for each in answer.counts
    },
    "ResolvedRule.origins": lambda answer: {field_from_pb(each.field): each.rule for each in answer.origins},
    "StoreHealth.status": lambda status: _HEALTH.get(status.state, HealthStatus.UNKNOWN),
    "StoredRule.revision": lambda answer: answer.rule.revision,
}
"""The fields that are not read as others are."""


# Writing


@cache
def _writers(kind: type[Message]) -> Mapping[str, tuple[str, _Write, bool]]:
    """By the names of arguments: the fields, how they are written, and whether they are always text."""
    found = {each.name: (each.name, _writer(each), _is_plain_text(each)) for each in kind.DESCRIPTOR.fields}
    return {name: found[alias] for name, alias in _NAMES.items() if alias in found} | found


def _writer(field: Any) -> _Write:
    if field.name in _WRITERS:
        return _WRITERS[field.name]
    if field.enum_type is not None and not field.is_repeated and (members := _CHOICES.get(field.enum_type.name)):
        numbers = numbers_by_member(members, field.enum_type)
        return lambda name, given: numbers[choice(name, given, members)]
    if field.message_type is not None:
        is_map = field.message_type.GetOptions().map_entry
        write = convert.metadata_to_pb if is_map else _MESSAGES.get(field.message_type.full_name, _same)
        return lambda name, given: given if isinstance(given, Message) else write(name, given)
    if field.is_repeated and field.enum_type is None:
        return convert.vector_to_pb if field.cpp_type == FieldDescriptor.CPPTYPE_FLOAT else convert.texts_to_pb
    return _SCALARS.get(field.cpp_type, _same)


def _is_plain_text(field: Any) -> bool:
    return bool(field.type == FieldDescriptor.TYPE_STRING and not field.is_repeated and not field.has_presence)


def _same(name: str, given: Any) -> Any:
    return given


_CHOICES: Mapping[str, type[StrEnum]] = {
    each.__name__: each
    for each in (
        *(AckLevel, ConflictPolicy, DecayPolicy, ExtractMode, PruneAction, PutMode, ResponseFormat),
        *(GrantAccess, RecordKind, Role, RoutingMode, RuleOrder, SearchMode, View),
    )
}
_MESSAGES: Mapping[str, _Write] = {
    common_pb2.Scope.DESCRIPTOR.full_name: convert.scope_to_pb,
    Timestamp.DESCRIPTOR.full_name: convert.moment_to_pb,
    Duration.DESCRIPTOR.full_name: convert.duration_to_pb,
    Struct.DESCRIPTOR.full_name: object_to_pb,
    FieldMask.DESCRIPTOR.full_name: lambda name, given: FieldMask(paths=given),
}
_SCALARS: Mapping[int, _Write] = {
    FieldDescriptor.CPPTYPE_STRING: convert.text,
    FieldDescriptor.CPPTYPE_INT32: convert.int32_to_pb,
}
_WRITERS: Mapping[str, _Write] = {
    **dict.fromkeys(("namespace", "prefix", "suffix"), convert.namespace_to_pb),
    **dict.fromkeys(("event_ids", "memory_ids"), convert.ids_to_pb),
    **dict.fromkeys(("remove_metadata", "users", "namespaces"), convert.keys),
    **dict.fromkeys(("importance", "min_importance", "demoted_importance"), convert.share_to_pb),
    **dict.fromkeys(("expire_time", "by_time"), lambda name, given: convert.moment_to_pb(name, given, deadline_of)),
    "is_global": convert.flag_to_pb,
    "filters": lambda name, given: convert.filters_to_pb(given),
}
"""By the names of fields whose types do not say enough."""
