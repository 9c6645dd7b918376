"""An OpenAI-compatible endpoint that embeds with the word vectors of `tiny_models`."""

import json
from collections.abc import Callable, Sequence
from http.server import BaseHTTPRequestHandler
from typing import Any

import numpy as np
from mnemon_server.embedding.factory import HashingEmbedder

from tests.support.tiny_models import VOCABULARY, word_vectors
from tests.support.tool_endpoints import Answer, RecordingHandler, saying

_WORDS = dict(zip(VOCABULARY, word_vectors().astype(float), strict=True))

Change = Callable[[dict[str, Any]], Any]
Embed = Callable[[Sequence[str]], list[list[float]]]


def embedded(texts: Sequence[str]) -> list[list[float]]:
    """The vector of each text: the mean of its words' vectors, not of unit length."""
    return [np.mean([_WORDS.get(word, _WORDS["[UNK]"]) for word in text.split()], axis=0).tolist() for text in texts]


def hashed_above(cosine: float) -> Embed:
    """Vectors of hashed words, whose cosines are all at least about this."""

    def embed(texts: Sequence[str]) -> list[list[float]]:
        vectors = HashingEmbedder().embed(texts) * np.sqrt(1 - cosine)
        return np.hstack([vectors, np.full((len(texts), 1), np.sqrt(cosine))]).tolist()

    return embed


def answered(texts: Sequence[str], embed: Embed = embedded) -> dict[str, Any]:
    """What the endpoint answers, out of order, as OpenAI allows it."""
    data = [{"object": "embedding", "index": n, "embedding": vector} for n, vector in enumerate(embed(texts))]
    return {"object": "list", "data": data[::-1], "model": "tiny"}


def embedding(change: Change = lambda answer: answer, embed: Embed = embedded) -> Answer:
    """Embeds the texts of each request; `change` gets the answer before it is sent."""

    def answer(handler: BaseHTTPRequestHandler) -> None:
        assert isinstance(handler, RecordingHandler)
        texts = handler.request_received.arguments["input"]
        saying(json.dumps(change(answered(texts, embed))), content_type="application/json")(handler)

    return answer


def settings_for(port: int, **settings: Any) -> dict[str, Any]:
    """Settings of a server that embeds there."""
    return {"embedding_model": "tiny", "embedding_endpoint": f"http://127.0.0.1:{port}/v1", **settings}
