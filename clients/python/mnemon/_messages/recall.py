"""The parts of a recall that need more than their fields."""

from collections.abc import Mapping, Sequence

from mnemon._enums import choice, numbers_by_member
from mnemon._messages import convert
from mnemon._messages.convert import invalid
from mnemon._messages.filters import filter_to_pb
from mnemon._values import filters
from mnemon._values.archive import RecordKind
from mnemon._values.documents import ScopeFields
from mnemon.v1 import archive_pb2, common_pb2, recall_pb2

_KINDS = numbers_by_member(RecordKind, archive_pb2.RecordKind.DESCRIPTOR)


def filters_to_pb(given: Mapping[str, filters.FilterLike]) -> list[recall_pb2.RecallFilter]:
    """Filters by the kind that they are for."""
    if not isinstance(given, Mapping):
        raise invalid("filters", 'must be a mapping of kinds to filters, such as {"event": F("source") == "mail"}')
    return [
        recall_pb2.RecallFilter(
            kind=_KINDS[choice("filters", kind, RecordKind)],
            filter=filter_to_pb(filters.as_filter(where)),
        )
        for kind, where in given.items()
    ]


def messages_to_pb(given: Sequence[Mapping[str, str]]) -> list[recall_pb2.RecallMessage]:
    """The turns of a conversation; other keys than role and content are not sent."""
    found = []
    for number, turn in enumerate(given):
        if not hasattr(turn, "keys") or "content" not in turn:
            raise invalid(f"messages[{number}]", 'must be a mapping such as {"role": "user", "content": "..."}')
        role, content = (convert.text(f"messages[{number}].{key}", turn.get(key, "")) for key in ("role", "content"))
        found.append(recall_pb2.RecallMessage(role=role, content=content))
    return found


def fields_to_pb(given: ScopeFields) -> common_pb2.Scope:
    """The scope that keyword arguments make; a text must not be empty, since that would mean all."""
    return common_pb2.Scope(**{name: convert.some_text(name, value) for name, value in given.items()})
