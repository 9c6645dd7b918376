"""The passages of imported records: unchanged if the same model made their vectors, otherwise recomputed."""

from collections.abc import Iterator, Sequence

import numpy as np

from mnemon_server.domain.collections import FACTS, SEMANTIC, VERSIONS, Collection
from mnemon_server.domain.documents import Document, Passage
from mnemon_server.domain.errors import FieldViolation
from mnemon_server.domain.history import stored_version
from mnemon_server.domain.kinds import COLLECTION_OF, EMBEDDED, RecordKind
from mnemon_server.domain.validation import refuse
from mnemon_server.embedding.batcher import EmbeddingBatcher
from mnemon_server.engines.promises.values import PassageInput
from mnemon_server.ranking.heads import NO_HEADS, Heads
from mnemon_server.services.archive.records import RECORD
from mnemon_server.services.facts.stored_form import to_fact
from mnemon_server.services.facts.texts import IndexedTexts
from mnemon_server.services.search.embedded_passages import PlacedText, embed_passages, placed, unit_vector
from mnemon_server.services.semantic.vectors import mean_vector
from mnemon_server.services.writing.writes import vector_violations

PASSAGES_MAX = 65_536
_UNIT = 1e-5

Passages = list[PassageInput]


def given_passages(kind: RecordKind, document: Document, given: Document, dimension: int) -> Passages:
    """The passages that came with a record, whose document was checked; vectors of unit length stay as they are.

    Raises:
        InvalidArgumentError: they do not fit the content, or a vector cannot be one of the model.
    """
    refuse(_violations(kind, document.content, given.passages, dimension))
    return [PassageInput(each.start, each.end, _unit(each.embedding or ())) for each in given.passages]


async def embedded_passages(
    embedder: EmbeddingBatcher, kind: RecordKind, documents: Sequence[Document], heads: Heads
) -> list[Passages]:
    """The passages of records of one kind, whose texts are embedded together. Errors as EmbeddingBatcher."""
    collection = COLLECTION_OF[kind]
    passages = await embed_passages(embedder, [stored_texts(collection, each, heads) for each in documents])
    return as_stored(collection, documents, passages)


def stored_texts(collection: Collection, document: Document, heads: Heads) -> list[PlacedText]:
    """The texts of a stored document that are embedded; of a version, the texts of its record."""
    collection, document = _record(collection, document)
    if collection is not FACTS:
        return placed(document, heads if collection.heads_embedded else NO_HEADS)
    fact = to_fact(document)
    return IndexedTexts.of(fact.value, fact.index).headed(document.metadata, heads)


def as_stored(collection: Collection, documents: Sequence[Document], passages: Sequence[Passages]) -> list[Passages]:
    """The passages as a collection stores them: statements have a single vector, regardless of their length."""
    return [
        [PassageInput(0, len(document.content), mean_vector([part.vector for part in parts]))]
        if _record(collection, document)[0] is SEMANTIC
        else parts
        for document, parts in zip(documents, passages, strict=True)
    ]


def _record(collection: Collection, document: Document) -> tuple[Collection, Document]:
    """The record of a version, with its collection; otherwise the same."""
    if collection is not VERSIONS:
        return collection, document
    return COLLECTION_OF[RecordKind(str(document.fields["kind"]))], stored_version(document).document


def _violations(
    kind: RecordKind, content: str, passages: Sequence[Passage], dimension: int
) -> Iterator[FieldViolation]:
    if passages and kind not in EMBEDDED:
        yield FieldViolation(f"{RECORD}.passages", "must be empty: records of this kind have no vectors")
        return
    if len(passages) > PASSAGES_MAX:
        yield FieldViolation(f"{RECORD}.passages", f"must be at most {PASSAGES_MAX:,}")
        return
    if kind is RecordKind.SEMANTIC and [(each.start, each.end) for each in passages] != [(0, len(content))]:
        yield FieldViolation(f"{RECORD}.passages", "must be one, of the whole content")
        return
    for number, each in enumerate(passages):
        place = f"{RECORD}.passages[{number}]"
        if not 0 <= each.start < each.end <= len(content):
            yield FieldViolation(place, f"must be a part of the content, which has {len(content):,} code points")
        yield from vector_violations(each.embedding or (), dimension, f"{place}.vector")


def _unit(vector: Sequence[float]) -> np.ndarray[tuple[int, ...], np.dtype[np.float32]]:
    """The vector at length 1; one that has this length already stays the same, bit by bit."""
    exact = np.array(vector, np.float32)
    return exact if abs(float(np.linalg.norm(exact.astype(np.float64))) - 1.0) <= _UNIT else unit_vector(vector)
