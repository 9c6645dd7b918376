"""The values of recall: one search over all kinds of records."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime

from mnemon._values.archive import RecordKind
from mnemon._values.documents import Items, JsonValue, MetadataValue, Scope, SearchDiagnostics


@dataclass(frozen=True, slots=True)
class RecordReference(JsonValue):
    """The name of a record."""

    kind: RecordKind
    id: str
    """Of a fact: its key."""
    namespace: tuple[str, ...] = ()
    """Of a fact; otherwise empty."""


@dataclass(frozen=True, slots=True)
class RecallItem(JsonValue):
    """A record that was found. The same text in several records is one item."""

    record: RecordReference
    content: str
    """Its text. Of a fact: its "content" if that is a text, or else its value as JSON."""
    score: float
    """Its relevance, 0 to 1, which is comparable over kinds and queries."""
    similarity: float | None = None
    """Cosine similarity to the question, 0 to 1; None if no vectors were compared."""
    keyword_score: float | None = None
    time: datetime | None = None
    """When it is from: the time of an event; of others, when they were created."""
    update_time: datetime | None = None
    confidence: float | None = None
    """Of a memory, now."""
    importance: float | None = None
    scope: Scope = field(default_factory=Scope)
    type: str = ""
    source: str = ""
    metadata: Mapping[str, MetadataValue] = field(default_factory=dict)
    event_ids: tuple[str, ...] = ()
    """Of a statement: the events that it was made from, at most 10."""
    duplicates: tuple[RecordReference, ...] = ()
    """The other records with the same text."""
    conversation: str = ""
    """Of an event: the conversation that it belongs to, if any."""
    citation: int = 0
    """Its number in the context; 0 if it is not there."""
    passage_start: int = 0
    passage_end: int = 0
    """The passage that fits the question best, in characters of the content, the end excluded; all of a short text."""

    @property
    def kind(self) -> RecordKind:
        """The kind of the record."""
        return self.record.kind

    @property
    def id(self) -> str:
        """The id of the record; of a fact, its key."""
        return self.record.id

    @property
    def passage_text(self) -> str:
        """The passage that fits the question best; the whole content if the server names none."""
        return self.content[self.passage_start : self.passage_end or len(self.content)]


@dataclass(frozen=True, slots=True)
class KindDiagnostics(JsonValue):
    """How one kind was searched."""

    kind: RecordKind
    search: SearchDiagnostics | None = None
    skipped: str = ""
    """Why it was not searched; empty if it was."""


@dataclass(frozen=True, slots=True)
class RecallAnswer(Items[RecallItem]):
    """The records that were found, most relevant first, and a text for a prompt. Also a sequence of the items."""

    results: tuple[RecallItem, ...]
    context: str
    """The items packed for a prompt, oldest first, with their numbers; empty if nothing relevant was found."""
    context_tokens: int
    tokenizer: str
    """How tokens were counted."""
    nothing_relevant: bool
    """Whether nothing was found, or nothing that is likely to have to do with the question."""
    best_relevance: float
    """The relevance of the best item, 0 to 1, before any minimum; 0 if nothing was found."""
    relevance_floor: float | None
    """The relevance below which items are mostly unrelated to the question; None if the server cannot tell."""
    diagnostics: tuple[KindDiagnostics, ...]
    duration_s: float
    truncated: bool = False
    """The answer ended at 3 MiB: not all items fit."""
    neighbours: tuple[RecallItem, ...] = ()
    """Turns around messages among the results, such as replies to questions. They are in the context, with a citation
    and without a score.
    """

    @property
    def _items(self) -> tuple[RecallItem, ...]:
        return self.results
