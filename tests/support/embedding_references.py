"""Texts of many kinds and languages, and the vectors by sentence-transformers on torch for the first of them.

python -m tests.support.embedding_references writes those vectors again.
"""

import hashlib
import os
import random
from pathlib import Path

import numpy as np
from mnemon_server.embedding.base import Vectors
from mnemon_server.embedding.built_in import MINILM
from mnemon_server.embedding.sentence_transformers import SentenceTransformersEmbedder
from mnemon_server.embedding.weights import package_folder

REFERENCES = Path(__file__).parents[1] / "data" / "embedding_references.npz"
REFERENCE_COUNT = 200
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
    """Unusual texts, single words, then texts of one to sixty sentences in mixed languages and scripts."""
    rng = random.Random(20)
    texts = [*ODD_TEXTS, *rng.sample(sorted(set(" ".join(SENTENCES).split())), 60)]
    while len(texts) < TEXT_COUNT:
        sentences = rng.choices(SENTENCES, k=60 if len(texts) % 50 == 0 else rng.choice((1, 1, 1, 1, 2, 2, 3, 5)))
        text = " ".join(sentences)
        start = rng.randrange(len(text) // 2) if rng.random() < 0.5 else 0
        texts.append(text[start:])
    return texts


def reference_texts() -> list[str]:
    """The texts whose vectors are stored."""
    return made_texts()[:REFERENCE_COUNT]


def references() -> Vectors:
    """The vectors of `reference_texts` computed by torch, of shape (200, 384), rounded to 16 bits."""
    with np.load(REFERENCES) as kept:
        assert kept["sha256"].item() == _digest(reference_texts()), "the texts changed: write the references again"
        return kept["vectors"].astype(np.float32)  # type: ignore[no-any-return]


def _digest(texts: list[str]) -> str:
    return hashlib.sha256("\0".join(texts).encode()).hexdigest()


def main() -> None:
    """Computes the vectors and writes them."""
    os.environ["HF_HUB_OFFLINE"] = "1"
    texts = reference_texts()
    embedder = SentenceTransformersEmbedder(MINILM.name, model_dir=package_folder(MINILM))
    np.savez(REFERENCES, vectors=embedder.embed(texts).astype(np.float16), sha256=_digest(texts))
    embedder.close()


if __name__ == "__main__":
    main()
