"""Values of all kinds of record: scope, metadata, write receipts, acknowledgement, search modes and diagnostics."""

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any, Generic, TypeVar

MetadataValue = str | int | float | bool | tuple[str, ...] | datetime
"""A typed value: 5, 5.0, True and "5" are four different values; filters treat 5 and 5.0 as equal. Times
are aware, in UTC, to the microsecond.
"""

FilterValue = str | int | float | bool

METADATA_KEY = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]{0,63}")
METADATA_KEYS_MAX = 64
METADATA_TEXT_BYTES_MAX = 65_536
METADATA_LIST_MAX = 256
METADATA_BYTES_MAX = 1 << 20
"""Maximum size of all metadata texts together. With content of the maximum size, a record and its answer still fit into
messages of 4 MiB.
"""
INT64_MIN, INT64_MAX = -(2**63), 2**63 - 1
WHOLE_MAX = 2**53
"""Doubles hold all whole numbers up to this one, positive or negative. Numbers of JSON are doubles."""
WHOLE_PROBLEM = "must be within 2^53, either way; write a larger whole number as text"
COUNT_MAX = 2**31 - 1
"""Maximum of a counter field in a message."""
DURATION_MAX = timedelta(seconds=315_576_000_000)
"""Ten thousand years: the maximum of a protobuf duration."""


@dataclass(frozen=True, slots=True)
class Scope:
    """The owner of a record, its subject, and where it comes from. In a filter, only fields that are set are
    compared.
    """

    user: str = ""
    household: str = ""
    persona: str = ""
    agent: str = ""
    project: str = ""
    origin: str = ""
    """An Origin; empty if the writer did not say."""
    origin_name: str = ""
    """Which tool, file or site; only together with `origin`."""


class SearchMode(StrEnum):
    """How a search text is matched against records."""

    VECTOR = "vector"
    KEYWORD = "keyword"
    HYBRID = "hybrid"


class View(StrEnum):
    """How much of each record a search returns."""

    IDS = "ids"
    STANDARD = "standard"
    FULL = "full"
    """Also returns embeddings."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TextQuery:
    """A search by a text, by a vector of the model's dimension, or by both."""

    text: str = ""
    vector: Sequence[float] | None = None
    of_model: bool = False
    """For a recall: the server's model made `vector`, which counts like the text's; the answer tells how near the
    nearest are.
    """
    mode: SearchMode | None = None
    """None: hybrid, or by meaning alone if there is only a vector."""
    view: View = View.STANDARD

    @property
    def chosen_mode(self) -> SearchMode:
        """The mode of the search."""
        if self.mode is not None:
            return self.mode
        return SearchMode.HYBRID if self.vector is None or self.text.strip() else SearchMode.VECTOR

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to compare, so that it finds nothing."""
        return not self.text.strip() and (self.vector is None or self.mode is SearchMode.KEYWORD)


class AckLevel(StrEnum):
    """The stage of a write at which it is acknowledged."""

    DURABLE = "durable"
    SEARCHABLE = "searchable"


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordUpdate:
    """An update of the fields in `mask` and of single metadata keys; see `UpdateDocumentRequest`."""

    mask: tuple[str, ...] = ()
    set_metadata: Mapping[str, MetadataValue] = field(default_factory=dict)
    remove_metadata: tuple[str, ...] = ()
    expected_revision: int | None = None
    request_id: str = ""
    ack: AckLevel = AckLevel.DURABLE


class WriteOutcome(StrEnum):
    """The effect of a write."""

    CREATED = "created"
    REPLACED = "replaced"
    UNCHANGED = "unchanged"
    DELETED = "deleted"
    MISSING = "missing"


@dataclass(frozen=True, slots=True)
class WriteReceipt:
    """The confirmation of one write. Its promises hold once a caller has it."""

    id: str
    outcome: WriteOutcome
    revision: int
    commit_time: datetime
    replayed: bool = False
    sequence: int = 0
    """Position of the change in commit order. An index that has applied this position contains the change."""


Item_co = TypeVar("Item_co", covariant=True)


@dataclass(frozen=True, slots=True)
class PageOf(Generic[Item_co]):
    """A part of a list, in its order."""

    items: tuple[Item_co, ...]
    next_position: int | None
    """Where the next page begins; None after the last one."""


@dataclass(frozen=True, slots=True)
class BulkDeleteReceipt:
    """The result of a delete by filter."""

    deleted_count: int
    replayed: bool = False
    sequence: int = 0


@dataclass(frozen=True, slots=True)
class RequestKey:
    """The identity of a mutation: the client's request id, and a digest of the request's content."""

    request_id: str
    digest: bytes
    owner: str = ""
    """Tells apart requests of callers who must not learn of each other's; empty for callers who see everything."""
    earlier_digest: bytes | None = None
    """Another digest under which the answer may be stored."""

    @property
    def stored_id(self) -> str:
        """The id under which the answer is stored."""
        return f"{self.owner}:{self.request_id}" if self.owner else self.request_id


@dataclass(frozen=True, slots=True)
class FilterNote:
    """A note for the caller about one of the filters."""

    key: str
    reason: str


@dataclass(frozen=True, slots=True)
class FilterNotes:
    """Filters that did not work as the caller may expect."""

    ignored: tuple[FilterNote, ...] = ()
    """Not applied: the key is invalid, or does not occur in any record."""
    unmatched: tuple[FilterNote, ...] = ()
    """Applied, so nothing was found: the key occurs only with values of other types."""


NEAREST_MAX = 200
"""How many of the nearest passages a recall looks at to learn how near unrelated ones are."""


@dataclass(frozen=True, slots=True)
class Relevance:
    """How well the best match of a query fits it, 0 to 1."""

    best: float
    """Before a minimum left out any; 0 if nothing was found."""
    floor: float | None
    """The relevance below which matches are mostly unrelated to the query; None if unknown."""
    is_near: bool = False
    """Whether the best match is relevant by its meaning alone, though its relevance may be below the floor."""
    nearest: tuple[float, ...] = ()
    """For a recall: the highest cosines, descending, of at most NEAREST_MAX passages."""

    @property
    def is_low(self) -> bool:
        """Whether nothing relevant was found."""
        return self.best <= 0.0 or (self.floor is not None and self.best < self.floor and not self.is_near)


@dataclass(frozen=True, slots=True)
class RelevanceFloors:
    """The floors of a search."""

    score: float | None
    """The relevance below which matches are mostly unrelated to the query; None if unknown."""
    cosine: float = math.inf
    """The cosine from which on a match is relevant, whatever its words; infinite if that does not count."""

    def relevance(self, best: float, cosine: float | None = None) -> Relevance:
        """The relevance of the best match, given its score and its cosine; None or NaN if that was not computed."""
        return Relevance(best, self.score, is_near=cosine is not None and cosine >= self.cosine)


NO_FLOORS = RelevanceFloors(None)
NOTHING_RELEVANT = NO_FLOORS.relevance(0.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchDiagnostics:
    """How a search was carried out."""

    mode: SearchMode
    exact: bool
    total_candidates: int = 0
    scanned: int = 0
    pending: int = 0
    degraded: str = ""
    duration_s: float = 0.0
    relevance: Relevance | None = None
    """None without a query."""


def metadata_key_problem(key: object) -> str | None:
    """The problem with a metadata key; None if it is valid."""
    if not isinstance(key, str):
        return "a key must be text"
    if not METADATA_KEY.fullmatch(key):
        return 'must be 1 to 64 characters, a letter or "_" first, then letters, digits, "_", "-" and "."'
    return None


def metadata_value_problem(value: object) -> str | None:
    """The problem with a metadata value; None if it is valid."""
    match value:
        case bool() | datetime():
            return None
        case int():
            return None if INT64_MIN <= value <= INT64_MAX else "must fit into 64 bits"
        case float():
            return None if math.isfinite(value) else "must be a finite number"
        case str():
            return _text_problem(value)
        case tuple() | list():
            if len(value) > METADATA_LIST_MAX:
                return f"must contain at most {METADATA_LIST_MAX} texts"
            problems = (_text_problem(item) if isinstance(item, str) else "must contain only texts" for item in value)
            return next((problem for problem in problems if problem), None)
    return "must be text, a whole number, a number, a boolean, a list of texts or a time; null is not a value"


def metadata_bytes(metadata: Mapping[Any, Any]) -> int:
    """The size of all texts in the metadata, in bytes of UTF-8. Invalid values count as 0."""
    size = 0
    # A loop: every write with metadata pays for this, and generators take twice as long.
    for value in metadata.values():
        if isinstance(value, str):
            size += len(value.encode("utf-8", "surrogatepass"))
        elif isinstance(value, tuple | list):
            size += sum(len(text.encode("utf-8", "surrogatepass")) for text in value if isinstance(text, str))
    return size


def value_type(value: MetadataValue) -> type:
    """The type of a value as filters distinguish it: float for all numbers."""
    if isinstance(value, bool):
        return bool
    return float if isinstance(value, int | float) else type(value)


def filter_value_problem(value: object) -> str | None:
    """The problem with a filter's value; None if it is valid."""
    if isinstance(value, str | int | float):
        return metadata_value_problem(value)
    return "must be text, a whole number, a number or a boolean"


def _text_problem(text: str) -> str | None:
    if "\0" in text:
        return "must not contain U+0000"
    if len(text.encode("utf-8", "surrogatepass")) > METADATA_TEXT_BYTES_MAX:
        return f"must be at most {METADATA_TEXT_BYTES_MAX:,} bytes of UTF-8"
    return None
