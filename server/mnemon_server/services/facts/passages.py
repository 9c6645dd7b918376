"""The passages of facts, with their vectors; the passages of many facts are embedded together."""

from collections.abc import Sequence

from mnemon_server.domain.errors import MnemonError
from mnemon_server.domain.facts import PutFact, filterable
from mnemon_server.domain.validation import normalised_metadata
from mnemon_server.embedding.batcher import EmbeddingBatcher
from mnemon_server.engines.promises.values import PassageInput
from mnemon_server.ranking.heads import Heads
from mnemon_server.services.facts.texts import IndexedTexts
from mnemon_server.services.search.embedded_passages import PlacedText, embed_passages, given_or_made, whole_passage


async def fact_passages(
    embedder: EmbeddingBatcher, heads: Heads, requests: Sequence[PutFact], texts: Sequence[IndexedTexts]
) -> list[list[PassageInput] | MnemonError]:
    """The passages of each fact. The facts without a given vector are embedded, or fail, together."""
    facts = list(zip(requests, texts, strict=True))
    wanted = [placed_texts(request, each, heads) for request, each in facts if request.embedding is None]
    given = [
        None if request.embedding is None else whole_passage(each.content, request.embedding) for request, each in facts
    ]
    return await given_or_made(given, lambda: embed_passages(embedder, wanted))


def placed_texts(request: PutFact, texts: IndexedTexts, heads: Heads) -> list[PlacedText]:
    """The searched texts of a fact, with the head that its record gets."""
    metadata = normalised_metadata(filterable(request.value, request.metadata)) if heads.keys else {}
    return texts.headed(metadata, heads)
