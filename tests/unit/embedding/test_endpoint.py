"""An embedder behind an endpoint: what it sends, and what it takes as vectors."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from mnemon_server.domain.errors import EmbeddingError, EmbeddingUnavailableError
from mnemon_server.embedding.base import ModelOptions
from mnemon_server.embedding.endpoint import EndpointEmbedder, RequestLimits
from mnemon_server.endpoints.client import EndpointSettings

from tests.support.embedding_endpoint import Change, embedded, embedding
from tests.support.tiny_models import NUMBERS
from tests.support.tool_endpoints import ToolServer, saying, tool_server

USUAL = RequestLimits()


def opened(served: ToolServer, limits: RequestLimits = USUAL, **options: Any) -> EndpointEmbedder:
    settings = EndpointSettings(name="the embedding endpoint", url=f"http://127.0.0.1:{served.port}/v1", timeout_s=20)
    return EndpointEmbedder("tiny", settings, ModelOptions(**options), limits)


def unit(vectors: Any) -> Any:
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


def test_vectors_have_unit_length_and_the_order_of_the_texts() -> None:
    texts = ["the cat", "bread", "the fish in the aquarium", "bread", ""]
    with tool_server(embedding()) as served:
        embedder = opened(served)
        np.testing.assert_allclose(embedder.embed(texts), unit(embedded([*texts[:-1], "."])), atol=1e-6)
        assert embedder.embed([]).shape == (0, NUMBERS)
        embedder.close()
    assert served.received[-1].path == "/v1/embeddings"
    assert served.received[-1].arguments == {"model": "tiny", "input": [*texts[:-1], "."]}


def test_an_endpoint_may_leave_out_the_index() -> None:
    def without_index(answer: dict[str, Any]) -> Any:
        rows = sorted(answer["data"], key=lambda item: item["index"])
        return {"data": [{"embedding": row["embedding"]} for row in rows]}

    with tool_server(embedding(without_index)) as served:
        embedder = opened(served)
        np.testing.assert_allclose(embedder.embed(["cat", "bread"]), unit(embedded(["cat", "bread"])), atol=1e-6)
        embedder.close()


def test_requests_keep_the_limits_of_texts_and_tokens() -> None:
    with tool_server(embedding()) as served:
        embedder = opened(served, RequestLimits(texts_max=3, tokens_max=10), dimension=NUMBERS)
        embedder.embed(["cat"] * 7 + ["cat " * 9, "cat cat"])
        embedder.close()
    assert [len(request.arguments["input"]) for request in served.received] == [3, 3, 2, 1]


def test_long_texts_become_passages_and_are_cut() -> None:
    with tool_server(embedding()) as served:
        embedder = opened(served, RequestLimits(passage_tokens=32), dimension=NUMBERS)
        text = "cat " * 100
        spans = embedder.split(text)
        embedder.embed([text * 10])
        assert (spans[0].start, spans[-1].end) == (0, len(text))
        assert max(len(text[span.start : span.end].split()) for span in spans) == 32
        assert embedder.token_counts([text, "cat"]) == [32, 1]
        embedder.close()
    (request,) = served.received
    assert len(request.arguments["input"][0].split()) == 64


def test_vectors_are_shortened_as_set() -> None:
    with tool_server(embedding()) as served:
        embedder = opened(served, dimension=3)
        np.testing.assert_allclose(embedder.embed(["cat"]), unit(np.array(embedded(["cat"]))[:, :3]), atol=1e-6)
        embedder.close()


def test_the_identity_depends_on_the_passage_prefix_and_not_on_the_place() -> None:
    with tool_server(embedding()) as first, tool_server(embedding()) as second:
        embedders = [opened(first), opened(second), opened(first, query_prefix="q"), opened(first, passage_prefix="p")]
        plain, moved, queried, prefixed = (embedder.model.identity for embedder in embedders)
        for embedder in embedders:
            embedder.close()
    assert plain == moved == queried == f"tiny@endpoint/endpoint/{NUMBERS}"
    assert plain != prefixed


def changed(key: str, value: Any) -> Change:
    """The answer with something else in its first item."""

    def change(answer: dict[str, Any]) -> Any:
        answer["data"][0][key] = value
        return answer

    return change


def shortened(answer: dict[str, Any]) -> Any:
    return {"data": [{**item, "embedding": item["embedding"][:-1]} for item in answer["data"]]}


WRONG: list[tuple[Change, str]] = [
    (lambda _: [], "did not answer as OpenAI's API does"),
    (lambda _: {"data": {}}, "did not answer as OpenAI's API does"),
    (lambda _: {"data": [1, 2]}, "did not answer as OpenAI's API does"),
    (lambda answer: {"data": answer["data"][:1]}, "answered 1 vectors for 2 texts"),
    (lambda answer: {"data": answer["data"] * 2}, "answered 4 vectors for 2 texts"),
    (changed("index", 0), "whose index is not that of a text each"),
    (changed("index", 7), "whose index is not that of a text each"),
    (changed("index", True), "whose index is not that of a text each"),
    (changed("embedding", None), "not lists of numbers, or of different lengths"),
    (changed("embedding", [1.0]), "not lists of numbers, or of different lengths"),
    (changed("embedding", ["1"] * NUMBERS), "not lists of numbers"),
    (changed("embedding", [None] * NUMBERS), "not lists of numbers"),
    (changed("embedding", [[1.0]] * NUMBERS), "not lists of numbers"),
    (changed("embedding", [True] * NUMBERS), "not lists of numbers"),
    (changed("embedding", [10**400] * NUMBERS), "not lists of numbers"),
    (changed("embedding", [float("nan")] * NUMBERS), "zero or not finite"),
    (changed("embedding", [float("inf")] * NUMBERS), "zero or not finite"),
    (changed("embedding", [0] * NUMBERS), "zero or not finite"),
    (shortened, f"vectors of {NUMBERS - 1} numbers instead of at least {NUMBERS}"),
]


@pytest.mark.parametrize(("change", "words"), WRONG)
def test_an_answer_that_is_no_vectors_is_refused(change: Change, words: str) -> None:
    with tool_server(embedding(change)) as served:
        embedder = opened(served, dimension=NUMBERS)
        with pytest.raises(EmbeddingUnavailableError, match=words):
            embedder.embed(["cat", "bread"])
        embedder.close()


def test_another_number_of_numbers_than_before_is_refused() -> None:
    with tool_server(embedding()) as served:
        embedder = opened(served, dimension=2)
        embedder.embed(["cat"])
        served.answer = embedding(shortened)
        with pytest.raises(EmbeddingUnavailableError, match=f"{NUMBERS - 1} numbers instead of {NUMBERS}"):
            embedder.embed(["bread"])
        embedder.close()


def test_a_key_that_others_can_read_by_now_fails_without_the_path(tmp_path: Path) -> None:
    key = tmp_path / "key"
    key.write_text("k")
    key.chmod(0o600)
    with tool_server(embedding()) as served:
        settings = EndpointSettings(name="x", url=served.url, key_file=key)
        embedder = EndpointEmbedder("tiny", settings, ModelOptions(dimension=NUMBERS), RequestLimits())
        key.chmod(0o644)
        with pytest.raises(
            EmbeddingUnavailableError, match="the key of the embedding endpoint cannot be used"
        ) as error:
            embedder.embed(["cat"])
        embedder.close()
    assert str(tmp_path) not in str(error.value)
    assert not served.received


def test_the_endpoint_must_be_there_at_the_start_unless_the_dimension_is_set() -> None:
    with tool_server(saying("{}", 400)) as served:
        with pytest.raises(
            EmbeddingError, match=r"status 400.*With embedding_dimensions, the server starts without it"
        ):
            opened(served)
        opened(served, dimension=NUMBERS).close()


def test_a_closed_embedder_says_so() -> None:
    with tool_server(embedding()) as served:
        embedder = opened(served)
        embedder.close()
        with pytest.raises(EmbeddingError, match="has been closed"):
            embedder.embed(["cat"])
