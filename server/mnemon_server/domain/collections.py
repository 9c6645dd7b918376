"""Collections: the kinds of document that a vault keeps apart, each with fields of its own."""

from dataclasses import dataclass
from enum import StrEnum


class FieldType(StrEnum):
    """What a field holds; a text that is not there is empty, several texts are none, anything else is None."""

    TEXT = "text"
    BOOLEAN = "boolean"
    TIME = "time"
    NUMBER = "number"
    TEXTS = "texts"


@dataclass(frozen=True, slots=True)
class Field:
    """A typed field of every document of a collection."""

    name: str
    type: FieldType
    indexed: bool = True
    """Whether a text is looked up by; what is long, or has few values, is not."""


@dataclass(frozen=True, slots=True)
class RelatedFields:
    """The fields by which the documents of a user are related to another one; see RelatedQuery."""

    terms: str
    """Several texts."""
    time: str
    number: str


@dataclass(frozen=True, slots=True)
class Collection:
    """A kind of document: its own ids, words, vectors and order of changes."""

    name: str
    fields: tuple[Field, ...] = ()
    related: RelatedFields | None = None
    words: bool = True
    """Whether its documents are found by word, too: taking one out of a keyword index costs more than storing it."""
    expires: str = ""
    """The field with the time when a document ends, if there is one: few have passed theirs at any moment."""
    index_folder: str = ""
    """Where the snapshots of its graph lie in the vault's folder; empty: in index/, under its name."""

    def __hash__(self) -> int:
        # Collections are looked up with every write, and their names differ.
        return hash(self.name)


DOCUMENTS = Collection("document")
MEMORIES = Collection(
    "memory",
    (
        Field("personality", FieldType.TEXT),
        Field("type", FieldType.TEXT),
        Field("global", FieldType.BOOLEAN),
        Field("decay_policy", FieldType.TEXT, indexed=False),
        Field("reinforce_time", FieldType.TIME),
        Field("delete_time", FieldType.TIME),
    ),
)
SEMANTIC = Collection(
    "semantic",
    (
        Field("summary", FieldType.TEXT, indexed=False),
        Field("source", FieldType.TEXT, indexed=False),
        Field("importance", FieldType.NUMBER),
        Field("keywords", FieldType.TEXTS),
        Field("terms", FieldType.TEXTS),
        Field("time", FieldType.TIME),
        Field("content_hash", FieldType.TEXT),
        Field("superseded_by", FieldType.TEXT),
        Field("merged_from", FieldType.TEXTS),
    ),
    RelatedFields("terms", "time", "importance"),
    words=False,
    index_folder="semantic-index",
)
DECISIONS = Collection(
    "decision",
    (
        Field("candidate_id", FieldType.TEXT),
        Field("existing_id", FieldType.TEXT),
        Field("result_id", FieldType.TEXT),
    ),
    words=False,
)
RULES = Collection("rule", words=False)
FACTS = Collection(
    "fact",
    (
        Field("namespace", FieldType.TEXT),
        Field("fact_key", FieldType.TEXT, indexed=False),
        Field("fact_value", FieldType.TEXT, indexed=False),
        Field("own_metadata", FieldType.TEXT, indexed=False),
        Field("indexing", FieldType.TEXT, indexed=False),
        Field("created_at", FieldType.TIME),
        Field("updated_at", FieldType.TIME),
        Field("ttl_s", FieldType.NUMBER),
        Field("expire_time", FieldType.TIME),
        Field("versions", FieldType.TEXT, indexed=False),
    ),
    expires="expire_time",
)
COLLECTIONS = (DOCUMENTS, MEMORIES, SEMANTIC, DECISIONS, RULES, FACTS)

COMMON_FIELDS = ("id", "content", "user", "household", "persona", "agent", "project", "create_time", "update_time")
"""Fields of every document that a filter may name beside its collection's and its metadata."""
