"""The parts of a recall that need more than their fields."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from mnemon._enums import numbers_by_member
from mnemon._messages import convert
from mnemon._messages.chat_forms import chat_form
from mnemon._messages.convert import invalid
from mnemon._messages.filters import check_keywords, filter_to_pb
from mnemon._values import filters
from mnemon._values.archive import RecordKind
from mnemon._values.documents import ScopeFields
from mnemon.v1 import archive_pb2, common_pb2, recall_pb2

_NUMBERS = numbers_by_member(RecordKind, archive_pb2.RecordKind.DESCRIPTOR)
_KINDS: Mapping[str, Any] = {
    **{str(kind): number for kind, number in _NUMBERS.items()},
    "statement": archive_pb2.RECORD_KIND_SEMANTIC,
}
RECALLED = ("document", "memory", "fact", "statement", "event")
"""The kinds that can be recalled. Statements are also called by the name of their service, "semantic"."""


def question_to_pb(query: str | None, messages: Sequence[object], vector: Sequence[float] | None) -> str:
    """The text of a question, empty if messages or a vector ask it. Without any of them, nothing is asked."""
    if query is None and not messages and vector is None:
        raise invalid("query", 'must be given, such as "Where does Ada live?"; or else messages, or a vector')
    return "" if query is None else convert.text("query", query)


def kinds_to_pb(given: object) -> list[Any]:
    """Kinds of records by their names."""
    return [_kind("kinds", kind) for kind in convert.texts_to_pb("kinds", given)]


def _kind(field: str, name: object) -> Any:
    if name in (*RECALLED, RecordKind.SEMANTIC):
        return _KINDS[str(name)]
    raise invalid(field, f"must be one of {', '.join(map(repr, RECALLED))}, not {name!r}")


def filters_to_pb(given: Mapping[str, filters.FilterLike]) -> list[recall_pb2.RecallFilter]:
    """Filters by the kind that they are for."""
    if not isinstance(given, Mapping):
        raise invalid("filters", 'must be a mapping of kinds to filters, such as {"event": F("source") == "mail"}')
    return [
        recall_pb2.RecallFilter(kind=_kind("filters", kind), filter=filter_to_pb(filters.as_filter(where)))
        for kind, where in given.items()
    ]


def messages_to_pb(given: Sequence[Mapping[str, Any]]) -> list[recall_pb2.RecallMessage]:
    """The turns of a conversation; other keys than role and content are not sent."""
    if isinstance(given, str | Mapping) or not isinstance(given, Iterable):
        raise invalid("messages", 'must be a list of messages, such as [{"role": "user", "content": "..."}]')
    found = []
    for number, turn in enumerate(map(chat_form, given)):
        if not hasattr(turn, "keys") or not ("content" in turn or turn.get("tool_calls")):
            raise invalid(f"messages[{number}]", 'must be a mapping such as {"role": "user", "content": "..."}')
        role = convert.text(f"messages[{number}].role", turn.get("role", ""))
        content = text_of(f"messages[{number}].content", turn.get("content"))
        found.append(recall_pb2.RecallMessage(role=role, content=content))
    return found


def text_of(field: str, content: object) -> str:
    """The text of a message, which is null beside calls of tools, or has parts, some of which are texts."""
    if content is None:
        return ""
    if isinstance(content, list):
        parts = [part.get("text") if hasattr(part, "get") else part for part in content]
        return "\n".join(convert.text(field, part) for part in parts if part is not None)
    return convert.text(field, content)


def fields_to_pb(given: ScopeFields) -> common_pb2.Scope:
    """The scope that keyword arguments make; None leaves one out. An empty text is refused, as it would mean all.

    Raises TypeError for an argument that is no field of a scope.
    """
    check_keywords(given, ScopeFields.__annotations__)
    return common_pb2.Scope(
        **{name: convert.some_text(name, value) for name, value in given.items() if value is not None}
    )
