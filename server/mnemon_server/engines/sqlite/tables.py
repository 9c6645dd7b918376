"""The tables of a collection: their names, and the statements that create them.

Names of tables and columns come from the constants in `domain/collections.py`, never from input.
"""

import json
from collections.abc import Callable, Mapping
from functools import cached_property, lru_cache
from itertools import chain
from typing import Any

import apsw

from mnemon_server.domain.clock import from_microseconds, to_microseconds
from mnemon_server.domain.collections import COLLECTIONS, Collection, FieldType, RelatedFields, UsualText
from mnemon_server.domain.documents import FieldValue
from mnemon_server.domain.encoding import OWNER_FIELDS, decode_metadata
from mnemon_server.engines.sqlite.keywords.index import KeywordIndex
from mnemon_server.engines.sqlite.query import set_meta, stored_meta
from mnemon_server.ranking.heads import NO_HEADS, Heads

BLOCK_ID_BITS = 7
"""The passages of a block of vectors differ in these bits of their ids."""


class Tables:
    """The names of a collection's tables."""

    def __init__(self, collection: Collection) -> None:
        name = collection.name
        self.collection = collection
        self.documents = name
        """One row per document."""
        self.metadata = f"{name}_metadata"
        """One row per metadata value, for filters."""
        self.passages = f"{name}_passage"
        """One row per passage, with its vector."""
        self.vector_blocks = f"{name}_vector_block"
        """Rounded vectors, in blocks; see vector_blocks.py."""
        self.delete_vector_blocks = f"DELETE FROM {self.vector_blocks} WHERE number IN (SELECT value FROM carray(?))"  # noqa: S608 - a constant
        """The statement that deletes the blocks whose numbers are in an array."""
        self.deletions = f"{name}_deletion"
        """Deleted documents."""
        self.hidden_index = f"{name}_hidden"
        """The index of hidden documents."""
        self.unusual_index = f"{name}_unusual"
        """The index of the documents without the usual text, if the collection has one."""
        self.sequence_key = f"{name}.sequence"
        """The key in `meta` with the position of the newest change."""
        self.related = f"{name}_related"
        """One row per term of a visible document, if the collection has `related` fields."""
        self.related_time = f"{name}_related_time"
        """The index of user and time."""
        self.related_number = f"{name}_related_number"
        """The index of user and number."""

    @cached_property
    def keywords(self) -> KeywordIndex:
        """The keyword index."""
        return KeywordIndex(f"{self.documents}_compound")

    @cached_property
    def counts(self) -> Mapping[bool | None, str]:
        """Statements that count the documents that are hidden (True), visible (False), or either (None).

        SQLite counts a whole table by its pages; with a condition, it looks at each entry of an index.
        """
        every = f"SELECT (SELECT count(*) FROM {self.documents})"  # noqa: S608 - constants
        hidden = f"(SELECT count(*) FROM {self.documents} INDEXED BY {self.hidden_index} WHERE hidden = 1)"  # noqa: S608
        return {None: every, True: f"SELECT {hidden}", False: f"{every} - {hidden}"}

    @cached_property
    def field_columns(self) -> tuple[str, ...]:
        """The columns of the collection's own fields, quoted."""
        return tuple(f'"{field.name}"' for field in self.collection.fields)

    @cached_property
    def indexed_texts(self) -> tuple[str, ...]:
        """The text columns with an index that excludes empty texts. Origins are few."""
        own = self.collection.fields
        return (*OWNER_FIELDS, *(field.name for field in own if field.type is FieldType.TEXT and field.indexed))


def create_statements(collection: Collection) -> list[str]:
    """The statements that create the tables and indexes of a collection."""
    tables = Tables(collection)
    name = tables.documents
    columns = "".join(f',\n  "{field.name}" {COLUMN_TYPES[field.type]}' for field in collection.fields)
    return [
        # position: the order of first indexing, never reused. sequence: the order of newest changes in the vault.
        # metadata: JSON; a time is {"time": microseconds}. digest: see document_digest. Times in microseconds.
        f"""
CREATE TABLE {name} (
  position INTEGER PRIMARY KEY AUTOINCREMENT,
  id TEXT NOT NULL UNIQUE,
  content TEXT NOT NULL,
  metadata TEXT NOT NULL,
  digest BLOB NOT NULL,
  user TEXT NOT NULL,
  household TEXT NOT NULL,
  persona TEXT NOT NULL,
  agent TEXT NOT NULL,
  project TEXT NOT NULL,
  origin TEXT NOT NULL,
  origin_name TEXT NOT NULL,
  revision INTEGER NOT NULL,
  sequence INTEGER NOT NULL,
  create_time INTEGER NOT NULL,
  update_time INTEGER NOT NULL,
  hidden INTEGER NOT NULL DEFAULT 0{columns}
) STRICT""",
        f"CREATE UNIQUE INDEX {name}_sequence ON {name} (sequence)",
        *document_indexes(collection),
        # One row per value, or per item of a list. `type` distinguishes 1, 1.0, true and "1".
        f"""
CREATE TABLE {tables.metadata} (
  key TEXT NOT NULL,
  type TEXT NOT NULL,
  value ANY NOT NULL,
  position INTEGER NOT NULL REFERENCES {name} (position) ON DELETE CASCADE,
  PRIMARY KEY (key, type, value, position)
) STRICT, WITHOUT ROWID""",
        f"CREATE INDEX {tables.metadata}_position ON {tables.metadata} (position)",
        *passage_statements(name, tables.passages, f"{tables.passages}_position"),
        # Deleted documents, kept until every index has applied the deletion.
        f"""
CREATE TABLE {tables.deletions} (
  sequence INTEGER PRIMARY KEY,
  id TEXT NOT NULL UNIQUE
) STRICT""",
        *(_related_statements(tables, collection.related) if collection.related else ()),
    ]


def passage_statements(documents: str, passages: str, index: str) -> list[str]:
    """The statements that create a table of passages with vectors, and its index."""
    return [
        # start and stop count code points of the content. vector: little-endian float32, unit length.
        f"""
CREATE TABLE {passages} (
  id INTEGER PRIMARY KEY AUTOINCREMENT,
  position INTEGER NOT NULL REFERENCES {documents} (position) ON DELETE CASCADE,
  ordinal INTEGER NOT NULL,
  start INTEGER NOT NULL,
  stop INTEGER NOT NULL,
  vector BLOB NOT NULL
) STRICT""",
        f"CREATE UNIQUE INDEX {index} ON {passages} (position, ordinal)",
    ]


def collection_keywords() -> list[KeywordIndex]:
    """The keyword indexes of all collections that have one."""
    return [Tables(collection).keywords for collection in COLLECTIONS if collection.words]


def keyword_statements() -> list[str]:
    """The statements that create the keyword indexes of all collections."""
    return [*chain.from_iterable(each.create_statements() for each in collection_keywords())]


def vector_block_statements() -> list[str]:
    """The statements that create the tables of rounded vectors of all collections.

    Without the index, counting the blocks would read a page for each.
    """
    names = [Tables(collection).vector_blocks for collection in COLLECTIONS]
    return [
        statement
        for name in names
        for statement in (
            f"CREATE TABLE {name} (number INTEGER PRIMARY KEY, content BLOB NOT NULL) STRICT",
            f"CREATE UNIQUE INDEX {name}_number ON {name} (number)",
        )
    ]


def document_indexes(collection: Collection) -> list[str]:
    """The indexes of the most frequent filter fields. They include `hidden`, so that no row is read to check it."""
    name, tables = collection.name, Tables(collection)
    return [
        *(
            f'CREATE INDEX {name}_{text} ON {name} ("{text}", hidden) WHERE "{text}" <> \'\''
            for text in tables.indexed_texts
        ),
        f"CREATE INDEX {name}_create_time ON {name} (create_time) WHERE hidden = 0",
        f"CREATE INDEX {tables.hidden_index} ON {name} (hidden) WHERE hidden = 1",
        *(
            f'CREATE INDEX {name}_{end} ON {name} ("{end}") WHERE "{end}" IS NOT NULL'
            for end in (collection.expires,)
            if end
        ),
        *unusual_indexes(collection),
    ]


def unusual_indexes(collection: Collection) -> list[str]:
    """The index of the documents without the usual text, in the order of their positions, if there is a usual text."""
    if collection.usual is None:
        return []
    columns = ", ".join(f'"{name}"' for name in ("position", collection.usual.field, *collection.usual.compared))
    index = f"{Tables(collection).unusual_index} ON {collection.name} ({columns})"
    return [f"CREATE INDEX {index} WHERE {unusual(collection.usual)}"]


def unusual(usual: UsualText) -> str:
    """The condition of that index, as SQLite must find it in a statement that uses the index."""
    return f"\"{usual.field}\" <> '{usual.value}'"


def _related_statements(tables: Tables, fields: RelatedFields) -> list[str]:
    """The statements for finding related documents of a user."""
    name = tables.documents
    return [
        # No foreign key on position: this table has no index for it, so a deletion would scan every row. The program
        # deletes the rows with their document. term_count: the number of distinct terms in the document.
        f"""
CREATE TABLE {tables.related} (
  user TEXT NOT NULL,
  term TEXT NOT NULL,
  position INTEGER NOT NULL,
  term_count INTEGER NOT NULL,
  PRIMARY KEY (user, term, position)
) STRICT, WITHOUT ROWID""",
        f'CREATE INDEX {tables.related_time} ON {name} (user, "{fields.time}") WHERE hidden = 0',
        f'CREATE INDEX {tables.related_number} ON {name} (user, "{fields.number}") WHERE hidden = 0',
    ]


EVENT_STATEMENTS = (
    # Events: records.db has the unsealed ones, and the file of a sealed segment its own. Hashes: see
    # engines/events/incoming.py. time: microseconds. body: see wire/events.py.
    """
CREATE TABLE timeline_event (
  sequence INTEGER PRIMARY KEY,
  time INTEGER NOT NULL,
  id_hash INTEGER NOT NULL,
  key_hash INTEGER NOT NULL,
  user TEXT NOT NULL,
  household TEXT NOT NULL,
  persona TEXT NOT NULL,
  agent TEXT NOT NULL,
  project TEXT NOT NULL,
  origin TEXT NOT NULL,
  origin_name TEXT NOT NULL,
  type TEXT NOT NULL,
  importance REAL,
  conversation TEXT NOT NULL,
  body BLOB NOT NULL
) STRICT""",
    "CREATE INDEX timeline_event_id ON timeline_event (id_hash)",
    "CREATE INDEX timeline_event_key ON timeline_event (key_hash)",
    "CREATE INDEX timeline_event_time ON timeline_event (time)",
    # With all that a selection compares, so that the events of a user are counted without reading any of them.
    """
CREATE INDEX timeline_event_user ON timeline_event (
  user, time, type, importance, household, persona, agent, project, origin, origin_name
)""",
    # Conversations are listed without reading any of their events.
    """
CREATE INDEX timeline_event_conversation ON timeline_event (
  user, conversation, time, household, persona, agent, project, origin, origin_name, type
) WHERE conversation <> ''""",
)
TIMELINE_STATEMENTS = (
    *EVENT_STATEMENTS,
    # See SegmentRow.
    """
CREATE TABLE timeline_segment (
  segment_id INTEGER PRIMARY KEY,
  generation INTEGER NOT NULL,
  state TEXT NOT NULL,
  last_sequence INTEGER NOT NULL,
  event_count INTEGER NOT NULL,
  byte_count INTEGER NOT NULL,
  create_time INTEGER NOT NULL,
  min_time INTEGER,
  max_time INTEGER,
  runs BLOB NOT NULL
) STRICT""",
    # Removed events that are still in the file of a sealed segment.
    "CREATE TABLE timeline_dead (sequence INTEGER PRIMARY KEY) STRICT",
    # Events that were lost to damage.
    """
CREATE TABLE timeline_lost (
  segment_id INTEGER NOT NULL,
  first_sequence INTEGER NOT NULL,
  last_sequence INTEGER NOT NULL,
  event_count INTEGER NOT NULL,
  notice_time INTEGER NOT NULL,
  PRIMARY KEY (segment_id, first_sequence)
) STRICT, WITHOUT ROWID""",
)


COLUMN_TYPES = {
    FieldType.TEXT: "TEXT NOT NULL DEFAULT ''",
    FieldType.BOOLEAN: "INTEGER",
    FieldType.TIME: "INTEGER",
    FieldType.NUMBER: "REAL",
    FieldType.TEXTS: "TEXT NOT NULL DEFAULT '[]'",
}
"""Times are microseconds. Lists of texts are JSON, encoded so that equal lists have equal texts."""


def encode_texts(texts: Any) -> str:
    """A list of texts as stored in a column."""
    return _LIST_JSON.encode(texts) if texts else "[]"


def _decode_texts(text: str) -> tuple[str, ...]:
    return tuple(json.loads(text)) if text != "[]" else ()


def _nullable(convert: Callable[[Any], Any]) -> Callable[[Any], Any]:
    return lambda value: None if value is None else convert(value)


_LIST_JSON = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"))

ENCODERS: dict[FieldType, Callable[[FieldValue], Any]] = {
    FieldType.TEXT: lambda value: value or "",
    FieldType.BOOLEAN: _nullable(int),
    FieldType.TIME: _nullable(to_microseconds),
    FieldType.NUMBER: _nullable(float),
    FieldType.TEXTS: encode_texts,
}
"""Converts a field's value to its column's."""

DECODERS: dict[FieldType, Callable[[Any], FieldValue]] = {
    FieldType.TEXT: str,
    FieldType.BOOLEAN: _nullable(bool),
    FieldType.TIME: _nullable(from_microseconds),
    FieldType.NUMBER: _nullable(float),
    FieldType.TEXTS: _decode_texts,
}
"""Converts a column's value to its field's."""


KEYS = "head_keys"
"""The key in `meta`; vaults without it have no heads."""


def stored_heads(connection: apsw.Connection) -> Heads:
    """The heads of the vault's records."""
    return _heads(stored_meta(connection, KEYS))


def store_heads(connection: apsw.Connection, heads: Heads) -> None:
    """Sets the heads of the vault's records, all of which must be embedded and indexed with them."""
    set_meta(connection, KEYS, json.dumps(heads.keys))


def passage_text(heads: Heads, content: str, metadata: str, start: int, stop: int) -> str:
    """The text of a passage in its embedded and indexed form; `metadata` has the stored form."""
    return heads.passage({} if start or not heads.keys else decode_metadata(metadata), content, start, stop)


@lru_cache(16)
def _heads(keys: str | None) -> Heads:
    return Heads(tuple(json.loads(keys))) if keys else NO_HEADS
