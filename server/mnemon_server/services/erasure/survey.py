"""Finds what an erasure will remove: names for tombstones, marks for the check of files, and counts. It blocks."""

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from mnemon_server.domain.collections import SEMANTIC
from mnemon_server.domain.documents import Document
from mnemon_server.domain.events import Event
from mnemon_server.domain.filters import AnyOf, Condition, Operator, RecordFilter
from mnemon_server.domain.kinds import VERSIONED, RecordKind, versions_of
from mnemon_server.domain.records import MetadataValue
from mnemon_server.engines.promises.events import Sequences
from mnemon_server.engines.promises.marks import runs_of
from mnemon_server.engines.promises.records import DocumentReader
from mnemon_server.engines.promises.vault import Vault
from mnemon_server.services.bridge.reconciliation import all_matching
from mnemon_server.services.erasure.selection import ERASED_KINDS, PAGE, Selection, pages_of, pages_of_events
from mnemon_server.services.semantic.decisions import ABOUT
from mnemon_server.services.semantic.filters import among
from mnemon_server.services.writing.tombstones import Names
from mnemon_server.wire.events import decode

MARKS_MAX = 50_000
PROBES_MAX = 32
"""Vectors of each kind that are searched for afterwards."""
OWN_CHARACTERS_MIN = 16
VECTORS, UNMARKED = "vector", "unmarked"

Probes = dict[RecordKind, list[NDArray[np.float32]]]


class Sample:
    """Every run, or evenly chosen ones if there are more than MARKS_MAX."""

    def __init__(self) -> None:
        self.runs: list[bytes] = []
        self._every = 1
        self._seen = 0

    def add(self, runs: Iterable[bytes]) -> None:
        """Adds runs."""
        for run in runs:
            self._seen += 1
            if self._seen % self._every == 0:
                self.runs.append(run)
        if len(self.runs) > MARKS_MAX:
            self._every *= 2
            self.runs = self.runs[::2]


@dataclass(slots=True)
class Survey:
    """The result of the survey."""

    keys: dict[bytes, None] = field(default_factory=dict)
    counts: Counter[str] = field(default_factory=Counter)
    runs: Sample = field(default_factory=Sample)
    probes: Probes = field(default_factory=dict)


class Surveyor:
    """Reads the records of a selection once."""

    def __init__(self, vault: Vault, names: Names, *, marks: bool) -> None:
        """With `marks`, it also makes the marks and the probes."""
        self._vault = vault
        self._names = names
        self._marks = marks
        self.found = Survey()

    def run(self, selection: Selection) -> Iterator[int]:
        """Yields how many records it has read so far."""
        for kind in ERASED_KINDS:
            for page in selection.documents(kind, vectors=self._marks):
                if kind is RecordKind.SEMANTIC:
                    self._add_statements(page)
                else:
                    self._add(kind, page)
                yield self.found.counts.total()
        for event in events_of(self._vault, selection.events()):
            self.found.keys[self._names.record(RecordKind.EVENT, event.event_id)] = None
            self.found.counts[RecordKind.EVENT] += 1
            if self._marks:
                texts = event.event_id, event.content, event.context, event.scope.user
                self._mark_texts([*texts, *_texts(event.metadata.values())])
            yield self.found.counts.total()

    def _add_statements(self, page: list[Document]) -> None:
        """Statements with those that fall with them, and the decisions about them."""
        fallen = falling(self._vault.collection(SEMANTIC), page, vectors=self._marks)
        self._add(RecordKind.SEMANTIC, fallen.values())
        about = AnyOf(tuple(Condition(field, Operator.IN, tuple(fallen)) for field in ABOUT))
        if fallen:
            for decisions in pages_of(self._vault, RecordKind.DECISION, RecordFilter(expression=about, hidden=None)):
                self._add(RecordKind.DECISION, decisions)

    def _add(self, kind: RecordKind, documents: Iterable[Document]) -> None:
        added = []
        for document in documents:
            key = self._names.record(kind, document.doc_id)
            if key in self.found.keys:
                continue
            added.append(document.doc_id)
            self.found.keys[key] = None
            self.found.counts[kind] += 1
            self.found.counts[VECTORS] += len(document.passages)
            if self._marks:
                self._mark(kind, document)
        for start in range(0, len(added) if kind in VERSIONED else 0, PAGE):
            where = versions_of(kind, added[start : start + PAGE])
            for page in pages_of(self._vault, RecordKind.VERSION, where, vectors=self._marks):
                self._add(RecordKind.VERSION, page)

    def _mark(self, kind: RecordKind, document: Document) -> None:
        fields = [*document.metadata.values(), *document.fields.values()]
        user = document.scope.user
        self._mark_texts([document.doc_id, document.content, user, *_texts(fields)])
        for passage in document.passages:
            if passage.embedding is None:
                continue
            vector = np.array(passage.embedding, np.float32)
            for form in self._vault.forms_of(vector):
                self.found.runs.add(runs_of(form))
            probes = self.found.probes.setdefault(kind, [])
            if len(probes) < PROBES_MAX and not document.hidden:
                probes.append(vector)

    def _mark_texts(self, texts: Iterable[str]) -> None:
        for text in texts:
            if not text:
                continue
            runs = runs_of(text.encode("utf-8", "surrogatepass"))
            self.found.runs.add(runs)
            self.found.counts[UNMARKED] += not runs


def falling(semantic: DocumentReader, asked: Iterable[Document], *, vectors: bool = False) -> dict[str, Document]:
    """Statements, with those that were merged from them, and those that gave way to any of these.

    The other part of a merged statement does not fall: it takes its place again.
    """
    fallen: dict[str, Document] = {}
    newest = {one.doc_id: one for one in asked}
    while newest:
        fallen |= newest
        holders = {str(one.fields.get("superseded_by") or ""): one.doc_id for one in newest.values()}
        found = [one for one in semantic.get_documents([each for each in holders if each], vectors=vectors) if one]
        # A replacement has the words of a statement only if it was merged from it.
        further = [one for one in found if fallen.keys() & set(merged_from(one))]
        behind = all_matching(semantic, among("superseded_by", newest, hidden=True), vectors=vectors)
        further += [one for one in behind if one.doc_id not in _parts_of_holder(one, fallen)]
        newest = {one.doc_id: one for one in further if one.doc_id not in fallen}
    return fallen


def merged_from(statement: Document) -> tuple[str, ...]:
    """The ids of the parts of a merged statement."""
    parts = statement.fields.get("merged_from")
    return parts if isinstance(parts, tuple) else ()


def events_of(vault: Vault, sequences: Sequences) -> Iterator[Event]:
    """The events with these sequences."""
    return (decode(one.body) for page in pages_of_events(vault, sequences) for one in page)


def _parts_of_holder(statement: Document, fallen: dict[str, Document]) -> tuple[str, ...]:
    return merged_from(fallen[str(statement.fields["superseded_by"])])


def _texts(values: Iterable[MetadataValue | None]) -> Iterator[str]:
    """Texts that are long enough to be somebody's own, rather than one of a few names or words."""
    for value in values:
        texts = (value,) if isinstance(value, str) else value if isinstance(value, tuple) else ()
        yield from (text for text in texts if len(text) >= OWN_CHARACTERS_MIN)
