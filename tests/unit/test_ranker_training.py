"""Training of the ranker: it learns what distinguishes answers from other texts, and its weights can be read back."""

import json
from pathlib import Path

import numpy as np
import pytest
from mnemon_server.services.search.reranking import FEATURES, Turn

from tests.bench.metrics import measure
from tests.bench.train_ranker import Asked, measure_ranker, train, write_weights

RECALL_AT_5 = 0


def asked(seed: int, advantage: float = 0.1) -> Asked:
    """Twenty turns of two people with random scores. The relevant one is by Ann and answers a question."""
    turns = [Turn("ann" if i % 10 == 0 else "ben", i >= 10, question_score=0.5 * (i % 5 == 0)) for i in range(20)]
    scores = np.random.default_rng(seed).uniform(0.3, 0.7, 20)
    scores[0] += advantage
    order = np.argsort(-scores)
    return Asked(
        "What did Ann say?",
        tuple(f"d{i}" for i in order),
        tuple(turns[i] for i in order),
        scores[order],
        frozenset({"d0"}),
    )


def test_it_learns_what_distinguishes_answers() -> None:
    ranker = train([asked(seed) for seed in range(40)])
    weights = dict(zip(FEATURES, ranker.weights.tolist(), strict=True))
    assert weights["by_other"] < 0
    assert weights["asks"] < 0 < weights["answers"]
    others = [asked(seed) for seed in range(100, 140)]
    before = np.mean([measure(each.doc_ids, each.relevant)[RECALL_AT_5] for each in others])
    after = np.mean([values[RECALL_AT_5] for values in measure_ranker(ranker, others)])
    assert after > before + 0.1


def test_uninformative_scores_are_refused() -> None:
    with pytest.raises(ValueError, match="do not tell"):
        train([asked(seed, advantage=-0.25) for seed in range(40)])


def test_the_weights_are_read_as_written(tmp_path: Path) -> None:
    ranker = train([asked(seed) for seed in range(40)])
    file = tmp_path / "weights.json"
    write_weights(ranker, file)
    stored = json.loads(file.read_text())
    assert [stored[name] for name in FEATURES] == pytest.approx(ranker.weights.tolist(), abs=1e-4)
