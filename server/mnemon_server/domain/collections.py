"""Collections: the kinds of document in a vault, each with its own typed fields."""

import re
from dataclasses import dataclass
from enum import StrEnum

_INDEX_NAME = re.compile(r"(?!.*\.\.)(?!\d+(\.\d+){3}$)[a-zA-Z0-9][a-zA-Z0-9._-]{1,510}[a-zA-Z0-9]")


class FieldType(StrEnum):
    """The type of a field. A missing text is "", a missing list of texts is (), any other missing value is None."""

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
    """Whether the field has an index for exact look-ups of text. Long texts and texts with few distinct values do not.
    """


@dataclass(frozen=True, slots=True)
class RelatedFields:
    """The fields that relate documents to each other; see RelatedQuery."""

    terms: str
    """A field of type TEXTS."""
    time: str
    number: str


@dataclass(frozen=True, slots=True)
class UsualText:
    """The value of a text field in most documents. The others have an index with `compared`.

    A filter on these fields that holds for the usual value, whatever the compared fields are, reads no documents.
    """

    field: str
    value: str
    compared: tuple[str, ...]
    """Fields that filters combine with this one; names of COMMON_FIELDS are allowed."""


@dataclass(frozen=True, slots=True)
class Collection:
    """A kind of document, with its own ids, keyword index, vectors and order of changes."""

    name: str
    fields: tuple[Field, ...] = ()
    related: RelatedFields | None = None
    words: bool = True
    """Whether keyword search covers its documents. Removing a document from a keyword index costs more than storing it.
    """
    heads_embedded: bool = True
    """Whether vectors are made of texts with their heads; see `heads`. The keyword index has them in any case."""
    expires: str = ""
    """The field with the expiry time of a document, if the collection has one. Few stored documents have expired at any
    moment.
    """
    index_folder: str = ""
    """The folder of its graph snapshots, relative to the vault's folder. If empty: the collection's name in index/."""
    usual: UsualText | None = None
    keeps_versions: bool = False
    """Whether a changed or removed document stays as a document of VERSIONS."""

    def __hash__(self) -> int:
        # Every write looks up collections by hash. Their names are unique.
        return hash(self.name)


DOCUMENTS = Collection("document", keeps_versions=True)
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
    # Nearly every search leaves out memories that have faded, and most memories never fade.
    usual=UsualText("decay_policy", "stable", ("create_time", "reinforce_time")),
    keeps_versions=True,
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
    # Conflicts are decided by these vectors, and not by who said something.
    heads_embedded=False,
    index_folder="semantic-index",
    keeps_versions=True,
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
    keeps_versions=True,
)
VERSIONS = Collection(
    "version",
    (
        Field("kind", FieldType.TEXT, indexed=False),
        Field("record_id", FieldType.TEXT),
        Field("namespace", FieldType.TEXT),
        Field("record", FieldType.TEXT, indexed=False),
        Field("created", FieldType.TIME),
        Field("since", FieldType.TIME),
        Field("until", FieldType.TIME),
        Field("ending", FieldType.TEXT, indexed=False),
        Field("principal", FieldType.TEXT, indexed=False),
        Field("door", FieldType.TEXT, indexed=False),
        Field("request", FieldType.TEXT, indexed=False),
    ),
    words=False,
    expires="until",
)
"""Earlier states of the documents of other collections; see domain/history.py. All of them are hidden."""
GRANTS = Collection(
    "grant",
    (
        Field("subject", FieldType.TEXT),
        Field("namespace", FieldType.TEXT),
        Field("may_write", FieldType.BOOLEAN),
        Field("granted_by", FieldType.TEXT, indexed=False),
        Field("expire_time", FieldType.TIME),
        Field("accept_time", FieldType.TIME),
    ),
    words=False,
)
COLLECTIONS = (DOCUMENTS, MEMORIES, SEMANTIC, DECISIONS, RULES, FACTS, VERSIONS, GRANTS)

COMMON_FIELDS = (
    "id",
    "content",
    *("user", "household", "persona", "agent", "project", "origin", "origin_name"),
    "create_time",
    "update_time",
)
"""Fields that a filter can name in every collection, in addition to the collection's own fields and the metadata."""


def index_name_problem(name: str) -> str:
    """The ChromaDB rule that a collection name violates, as the end of a sentence; empty if the name is valid."""
    if _INDEX_NAME.fullmatch(name):
        return ""
    return (
        "must be 3 to 512 letters without accents, digits, '.', '_' and '-', beginning and ending with a letter or "
        "digit, without two periods in a row, and not an IP address"
    )
