"""Values of recall: one search over all kinds of records, with a text for a prompt."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, tzinfo
from enum import StrEnum

from mnemon_server.domain.documents import Passage
from mnemon_server.domain.events import WindowDiagnostics
from mnemon_server.domain.filters import Expression
from mnemon_server.domain.kinds import RecordKind
from mnemon_server.domain.origins import Origin, Provenance, less_trusted
from mnemon_server.domain.records import MetadataValue, Relevance, Scope, SearchDiagnostics, View
from mnemon_server.domain.semantic import SimilarityDiagnostics

RECALLED = (RecordKind.DOCUMENT, RecordKind.MEMORY, RecordKind.FACT, RecordKind.SEMANTIC, RecordKind.EVENT)
"""The kinds that are searched, in the order of the diagnostics."""
LIMIT_DEFAULT, LIMIT_MAX = 10, 100
TOKENS_DEFAULT, TOKENS_MAX = 2_000, 1_000_000
MESSAGES_MAX, KINDS_MAX = 64, 64
ROLE_BYTES_MAX = 256


class Tokenizer(StrEnum):
    """How the size of a context is counted, by the names in the API."""

    UTF8 = "utf8/4"
    """One token for each four bytes of UTF-8, rounded up: close for English, and above the truth for most scripts of
    several bytes a character, unlike a count of characters.
    """
    O200K = "o200k_base"
    """The encoding of OpenAI's newer models; see `services/recall/tokenizers.py` for what it needs."""
    CL100K = "cl100k_base"
    """The encoding of their older models."""


@dataclass(frozen=True, slots=True)
class RecallMessage:
    """A turn of a conversation."""

    role: str
    content: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RecallQuery:
    """A question, as a text, a vector or messages, and the records to ask. See `RecallRequest` in the protos."""

    text: str = ""
    vector: Sequence[float] | None = None
    messages: tuple[RecallMessage, ...] = ()
    scope: Scope = Scope()
    namespace: tuple[str, ...] = ()
    subtree: bool = True
    """Whether the facts below the namespace are searched, too."""
    kinds: tuple[RecordKind, ...] = ()
    """Empty: all that can be recalled."""
    filters: tuple[tuple[RecordKind, Expression], ...] = ()
    start: datetime | None = None
    end: datetime | None = None
    limit: int = 0
    """0: LIMIT_DEFAULT, or with `max_tokens` as many as the context has room for."""
    max_tokens: int = 0
    """0: TOKENS_DEFAULT."""
    tokenizer: Tokenizer = Tokenizer.UTF8
    min_relevance: float = 0.0
    min_confidence: float | None = None
    view: View = View.STANDARD
    as_of: datetime | None = None
    """A moment in the past: what was known then. None means now."""
    min_trust: Origin | None = None
    """Leaves out records that come from less trusted origins."""
    time_zone: tzinfo = UTC
    """That of the days in the context."""
    excluded: frozenset[str] = frozenset()
    """Ids of events that are no answer, because the caller has them already."""

    @property
    def has_span(self) -> bool:
        """Whether it is about a span of time."""
        return self.start is not None or self.end is not None

    @property
    def without(self) -> tuple[Provenance, ...]:
        """Where the records do not come from."""
        return less_trusted(self.min_trust) if self.min_trust else ()


@dataclass(frozen=True, slots=True)
class RecordReference:
    """The name of a record: its id, or the key of a fact and its namespace."""

    kind: RecordKind
    id: str
    namespace: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class RecallItem:
    """A record that was found. The scores are 0 to 1; None if that comparison was not made."""

    record: RecordReference
    content: str
    relevance: float
    similarity: float | None
    keyword: float | None
    time: datetime
    """The time of an event; of other records, when they were created."""
    update_time: datetime | None = None
    confidence: float | None = None
    importance: float | None = None
    scope: Scope = Scope()
    type: str = ""
    source: str = ""
    metadata: Mapping[str, MetadataValue] = field(default_factory=dict)
    event_ids: tuple[str, ...] = ()
    """The newest of the events that a statement was made from."""
    passage: Passage | None = None
    """The part of the content that matched best; None if unknown. In an answer: what to show of it."""
    duplicates: tuple[RecordReference, ...] = ()
    conversation: str = ""
    """Of an event: the conversation that it belongs to, if any."""
    sequence: int = 0
    """Of an event: its position in storage order."""
    citation: int = 0
    """Its number in the context; 0 if it is not there."""
    whose: str = ""
    """The user to name in the context; empty if that is clear."""


Diagnostics = SearchDiagnostics | SimilarityDiagnostics | WindowDiagnostics


@dataclass(frozen=True, slots=True)
class KindDiagnostics:
    """How a kind was searched; `search` is None if it was not, and `skipped` says why."""

    kind: RecordKind
    search: Diagnostics | None = None
    skipped: str = ""
    returned: int = 0
    """How many records it found."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RecallAnswer:
    """The items, most relevant first, and the context that is made of them."""

    items: tuple[RecallItem, ...]
    neighbours: tuple[RecallItem, ...] = ()
    """Turns around messages among the items; they are in the context, too. Their relevance is 0."""
    relevance: Relevance
    context: str = ""
    context_tokens: int = 0
    tokenizer: Tokenizer = Tokenizer.UTF8
    kinds: tuple[KindDiagnostics, ...] = ()
    truncated: bool = False
    duration_s: float = 0.0
