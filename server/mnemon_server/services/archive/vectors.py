"""The passages of imported records: unchanged if the same model made their vectors, otherwise recomputed."""

from collections.abc import Iterator, Sequence

import numpy as np

from mnemon_server.domain.documents import Document, Passage
from mnemon_server.domain.errors import FieldViolation
from mnemon_server.domain.facts import PutFact
from mnemon_server.domain.kinds import EMBEDDED, RecordKind
from mnemon_server.domain.validation import refuse
from mnemon_server.embedding.batcher import EmbeddingBatcher
from mnemon_server.engines.promises.values import PassageInput
from mnemon_server.services.archive.records import RECORD
from mnemon_server.services.facts.passages import fact_passages
from mnemon_server.services.facts.stored_form import to_fact
from mnemon_server.services.facts.texts import IndexedTexts
from mnemon_server.services.search.embedded_passages import embed_passages, unit_vector
from mnemon_server.services.semantic.vectors import embed_statements
from mnemon_server.services.shared.vectors import vector_violations

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
    embedder: EmbeddingBatcher, kind: RecordKind, documents: Sequence[Document]
) -> list[Passages]:
    """The passages of records of one kind, whose texts are embedded together. Errors as EmbeddingBatcher."""
    contents = [document.content for document in documents]
    if kind is RecordKind.SEMANTIC:
        vectors = await embed_statements(embedder, contents)
        return [[PassageInput(0, len(text), vector)] for text, vector in zip(contents, vectors, strict=True)]
    if kind is not RecordKind.FACT:
        return await embed_passages(embedder, contents)
    facts = [to_fact(document) for document in documents]
    requests = [PutFact(namespace=fact.namespace, value=fact.value, index=fact.index) for fact in facts]
    texts = [IndexedTexts.of(fact.value, fact.index) for fact in facts]
    found = await fact_passages(embedder, requests, texts)
    for each in found:
        if not isinstance(each, list):
            raise each
    return [each for each in found if isinstance(each, list)]


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
