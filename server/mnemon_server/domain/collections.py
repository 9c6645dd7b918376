"""Collections: the kinds of document that a vault keeps apart, each with fields of its own."""

from dataclasses import dataclass
from enum import StrEnum


class FieldType(StrEnum):
    """What a field holds; a text that is not there is empty, anything else None."""

    TEXT = "text"
    BOOLEAN = "boolean"
    TIME = "time"


@dataclass(frozen=True, slots=True)
class Field:
    """A typed field of every document of a collection."""

    name: str
    type: FieldType


@dataclass(frozen=True, slots=True)
class Collection:
    """A kind of document: its own ids, words, vectors and order of changes."""

    name: str
    fields: tuple[Field, ...] = ()


DOCUMENTS = Collection("document")
MEMORIES = Collection(
    "memory",
    (
        Field("personality", FieldType.TEXT),
        Field("type", FieldType.TEXT),
        Field("global", FieldType.BOOLEAN),
        Field("decay_policy", FieldType.TEXT),
        Field("reinforce_time", FieldType.TIME),
        Field("delete_time", FieldType.TIME),
    ),
)
COLLECTIONS = (DOCUMENTS, MEMORIES)

COMMON_FIELDS = ("id", "content", "user", "household", "persona", "agent", "project", "create_time", "update_time")
"""Fields of every document that a filter may name beside its collection's and its metadata."""
