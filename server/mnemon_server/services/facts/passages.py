"""The passages of facts, with their vectors; the passages of many facts are embedded together."""

from collections.abc import Sequence

from mnemon_server.domain.errors import MnemonError
from mnemon_server.domain.facts import PutFact
from mnemon_server.embedding.batcher import EmbeddingBatcher
from mnemon_server.engines.promises.values import PassageInput, Vector
from mnemon_server.services.facts.texts import IndexedTexts
from mnemon_server.services.search.embedded_passages import whole_passage

TOGETHER_MAX = 2_048
"""How many passages are handed to the model at once: it limits how many texts may wait."""


async def fact_passages(
    embedder: EmbeddingBatcher, requests: Sequence[PutFact], texts: Sequence[IndexedTexts]
) -> list[list[PassageInput] | MnemonError]:
    """The passages of each fact. The facts without a given vector are embedded, or fail, together."""
    wanted = [each for request, each in zip(requests, texts, strict=True) if request.embedding is None]
    embedded: Sequence[list[PassageInput] | MnemonError]
    try:
        embedded = await _embed(embedder, wanted)
    except MnemonError as error:
        embedded = [error] * len(wanted)
    of_texts = iter(embedded)
    return [
        next(of_texts) if request.embedding is None else whole_passage(each.content, request.embedding)
        for request, each in zip(requests, texts, strict=True)
    ]


async def _embed(embedder: EmbeddingBatcher, facts: Sequence[IndexedTexts]) -> list[list[PassageInput]]:
    spans = iter(await embedder.split([placed.text for fact in facts for placed in fact.texts]))
    cut = [
        [(placed.start + span.start, placed.start + span.end) for placed in fact.texts for span in next(spans)]
        for fact in facts
    ]
    passages = [fact.content[start:end] for fact, places in zip(facts, cut, strict=True) for start, end in places]
    vectors: list[Vector] = []
    for first in range(0, len(passages), TOGETHER_MAX):
        vectors += list(await embedder.embed(passages[first : first + TOGETHER_MAX]))
    of_passages = iter(vectors)
    return [[PassageInput(start, end, next(of_passages)) for start, end in places] for places in cut]
