"""The results of reading a file of another program: records, skipped parts, and damaged ones."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from mnemon._messages.convert import invalid
from mnemon._values.documents import Document
from mnemon._values.facts import Fact
from mnemon.shared.errors import InvalidArgumentError


@dataclass(frozen=True, slots=True)
class Place:
    """A place in a file."""

    line: int
    """The first line is 1."""
    item: int = 0
    """The position in a list, from 1; 0 outside of a list."""


@dataclass(frozen=True, slots=True)
class Raw:
    """A JSON value of the file, before a form has read it."""

    place: Place
    value: Any


@dataclass(frozen=True, slots=True)
class Item:
    """A record to store."""

    place: Place
    record: Fact | Document
    embedding: tuple[float, ...] | None = None
    """The vector that came with it."""
    ended: str = ""
    """Why it has ended in the other program, such as "expired" or "deleted"; else empty."""
    source: Mapping[str, Any] = field(default_factory=dict)
    """The record as it is in the file, for the labels of a namespace."""

    @property
    def record_id(self) -> str:
        """The id of the document, or the key of the fact."""
        return self.record.doc_id if isinstance(self.record, Document) else self.record.key


@dataclass(frozen=True, slots=True)
class LeftOut:
    """A skipped part of the file; counted by reason."""

    place: Place
    reason: str
    count: int = 1


@dataclass(frozen=True, slots=True)
class Damaged:
    """A part of the file that cannot be read."""

    place: Place
    error: InvalidArgumentError
    record_id: str = ""


Found: TypeAlias = Item | LeftOut | Damaged


def as_object(raw: Raw) -> dict[str, Any]:
    """The JSON object of a value. Raises InvalidArgumentError if it is not one."""
    if not isinstance(raw.value, dict):
        raise invalid("record", f"must be an object, not {str(raw.value)[:40]!r}")
    return raw.value


def damaged(raw: Raw, error: InvalidArgumentError) -> Damaged:
    """A value that its form cannot read, with its id if it has one."""
    names = (raw.value.get(name) for name in ("id", "uuid", "key", "name")) if isinstance(raw.value, Mapping) else ()
    return Damaged(raw.place, error, next((name for name in names if isinstance(name, str)), ""))
