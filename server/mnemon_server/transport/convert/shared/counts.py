"""How many entries the lists and maps of requests may have, so that no one goes through what is refused anyway.

A message of some megabytes can hold a million of them. To read them all, only to say that they are too many, would keep
every other call waiting. So a list or map that is too long is cut to one entry more than it may have, before anything
looks at it. The check of its field then refuses it in its own words, in a request as in one item of many.
"""

from collections.abc import Mapping
from functools import lru_cache
from itertools import islice
from typing import Any, NamedTuple

from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message import Message

from mnemon_server.domain.access.bounds import ENTRIES_MAX as BOUNDS_MAX
from mnemon_server.domain.archive import RECORDS_MAX
from mnemon_server.domain.changes import RECORD_IDS_MAX
from mnemon_server.domain.conversations import MESSAGES_MAX as CONVERSATION_MESSAGES_MAX
from mnemon_server.domain.conversations import TOOL_CALLS_MAX
from mnemon_server.domain.events import EVENT_TYPES_MAX, EVENTS_PER_MESSAGE_MAX, IDS_MAX
from mnemon_server.domain.feed import TYPES_MAX
from mnemon_server.domain.filters import PARTS_MAX
from mnemon_server.domain.namespaces import LABELS_MAX
from mnemon_server.domain.origins import Origin
from mnemon_server.domain.recall import MESSAGES_MAX, RECALLED
from mnemon_server.domain.records import METADATA_KEYS_MAX
from mnemon_server.domain.rules import RULES_MAX
from mnemon_server.domain.semantic import IDS_MAX as MEMORY_IDS_MAX
from mnemon_server.domain.semantic import LISTS as STATEMENT_LISTS
from mnemon_server.services.facts.checks import NAMES_MAX
from mnemon_server.services.facts.texts import PATHS_MAX
from mnemon_server.services.rules.schema import ENTRIES_MAX
from mnemon_server.services.tools.memory_tools import ACTIONS_MAX
from mnemon_server.services.writing.field_masks import MASK_PATHS_MAX
from mnemon_server.transport.convert.archive import KINDS_MAX
from mnemon_server.transport.convert.shared.reader import BULK_REQUESTS_MAX

VECTOR_MAX = 65_536
"""Numbers of a vector: more than those of any model."""
FIELDS_MAX, PASSAGES_MAX = 64, 16_384
"""The most of an archived record. Its collection has fewer fields; vectors of more passages fit into no message."""

_BY_NAME: Mapping[str, int] = {
    **dict.fromkeys(("metadata", "filters", "set_metadata", "remove_metadata"), METADATA_KEYS_MAX),
    **dict.fromkeys(("embedding", "vector", "values"), VECTOR_MAX),
    **dict.fromkeys(("namespace", "labels", "prefix", "suffix"), LABELS_MAX),
    **dict.fromkeys(("users", "personas", "sources", "origins", "source_priority"), ENTRIES_MAX),
    **dict.fromkeys(("signals", "required_signals"), ENTRIES_MAX),
    **dict.fromkeys(("kinds", "counts"), KINDS_MAX),
    **STATEMENT_LISTS,
    "actions_permitted": ACTIONS_MAX,
    "embeddings": 0,
    "event_ids": IDS_MAX,
    "event_types": EVENT_TYPES_MAX,
    "fields": FIELDS_MAX,
    "memory_ids": MEMORY_IDS_MAX,
    "message_ids": CONVERSATION_MESSAGES_MAX,
    "messages": MESSAGES_MAX,
    "names": NAMES_MAX,
    "passages": PASSAGES_MAX,
    "paths": PATHS_MAX,
    "record_ids": RECORD_IDS_MAX,
    "records": RECORDS_MAX,
    "requests": BULK_REQUESTS_MAX,
    "rules": RULES_MAX,
    "tool_calls": TOOL_CALLS_MAX,
    "types": TYPES_MAX,
    "versions": 0,
}
"""By the name of a field; 0 for a field that only the server sets, which is not read."""
_BY_FULL_NAME: Mapping[str, int] = {
    **dict.fromkeys(("mnemon.v1.CreateKeyRequest.users", "mnemon.v1.CreateKeyRequest.namespaces"), BOUNDS_MAX),
    "mnemon.v1.CreateKeyRequest.origins": len(Origin),
    "google.protobuf.FieldMask.paths": MASK_PATHS_MAX,
    "mnemon.v1.AppendMessagesRequest.messages": CONVERSATION_MESSAGES_MAX,
    "mnemon.v1.BulkRecordEventsRequest.requests": EVENTS_PER_MESSAGE_MAX,
    "mnemon.v1.FilterList.filters": PARTS_MAX,
    "mnemon.v1.RecallRequest.kind_filters": len(RECALLED),
}
COUNTED_ELSEWHERE = frozenset(("google.protobuf.Struct", "mnemon.v1.Filter", "mnemon.v1.MetadataValue"))
"""Messages whose own readers count them: `json_values.py` and `filters.py` beside this, and `wire/values.py`."""


class _Field(NamedTuple):
    """A field that is cut, that has others inside of it, or both; `most` is None if it is not a list or map."""

    name: str
    most: int | None
    is_map: bool
    inner: tuple["_Field", ...]


def entries_max(field: FieldDescriptor) -> int:
    """How many entries a list or map may have. Raises KeyError if that was never decided."""
    return _BY_FULL_NAME[field.full_name] if field.full_name in _BY_FULL_NAME else _BY_NAME[field.name]


def entries_read_max(field: FieldDescriptor) -> int | None:
    """How many entries of a list or map are read, the last of which may be too much; None: all, for its own reader."""
    return entries_max(field) + 1 if _is_counted(field.containing_type) else None


def _is_counted(descriptor: Any) -> bool:
    """Whether the entries of its lists and maps are counted here."""
    return not (descriptor.full_name in COUNTED_ELSEWHERE or descriptor.file.package.startswith("google."))


def cut(message: Message) -> None:
    """Cuts every list and map of a request that is longer than it may be to one entry more."""
    _cut(message, _fields(message.DESCRIPTOR))


def cut_own(message: Any) -> None:
    """Cuts its own lists and maps in that way, but none of the messages inside of it."""
    for name, most, is_map in _own(message.DESCRIPTOR):
        if len(getattr(message, name)) > most + 1:
            _shorten(message, name, most + 1, is_map=is_map)


@lru_cache(maxsize=256)
def _own(descriptor: Descriptor) -> tuple[tuple[str, int, bool], ...]:
    """The name of each list and map of a message, how many entries it may have, and whether it is a map."""
    if not _is_counted(descriptor):
        return ()
    return tuple((field.name, entries_max(field), _is_map(field)) for field in descriptor.fields if field.is_repeated)


@lru_cache(maxsize=256)
def _fields(descriptor: Descriptor) -> tuple[_Field, ...]:
    found = (_field(field) for field in descriptor.fields)
    return tuple(field for field in found if field.most is not None or field.inner)


def _field(field: FieldDescriptor) -> _Field:
    kind, is_map = field.message_type, _is_map(field)
    inner = () if kind is None or is_map or kind.full_name in COUNTED_ELSEWHERE else _fields(kind)
    return _Field(field.name, entries_max(field) if field.is_repeated else None, is_map, inner)


def _is_map(field: FieldDescriptor) -> bool:
    return field.message_type is not None and field.message_type.GetOptions().map_entry


def _cut(message: Any, fields: tuple[_Field, ...]) -> None:
    for name, most, is_map, inner in fields:
        if most is None:
            if message.HasField(name):
                _cut(getattr(message, name), inner)
            continue
        entries = getattr(message, name)
        if len(entries) > most + 1:
            _shorten(message, name, most + 1, is_map=is_map)
        if inner:
            for entry in entries:
                _cut(entry, inner)


def _shorten(message: Any, name: str, most: int, *, is_map: bool) -> None:
    entries = getattr(message, name)
    if not is_map:
        del entries[most:]
        return
    kept = type(message)(**{name: {key: entries[key] for key in islice(entries, most)}})
    message.ClearField(name)
    message.MergeFrom(kept)
