"""The quality of a ranking, with confidence intervals."""

import math
from collections.abc import Sequence, Set
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

METRICS = ("recall@5", "recall@10", "recall@20", "nDCG@10")
BOOTSTRAP_ROUNDS = 2_000


@dataclass(frozen=True, slots=True)
class Estimate:
    """A mean over questions, and its 95 % bootstrap interval over conversations."""

    mean: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.mean:.3f} [{self.low:.3f}, {self.high:.3f}]"


def recall(ranking: Sequence[str], relevant: Set[str], depth: int) -> float:
    """The fraction of the relevant items among the first `depth`."""
    return len(relevant & set(ranking[:depth])) / len(relevant)


def ndcg(ranking: Sequence[str], relevant: Set[str], depth: int) -> float:
    """Discounted gain of the first `depth`, each relevant item worth 1, relative to the best possible order."""
    gain = sum(1 / math.log2(place + 2) for place, item in enumerate(ranking[:depth]) if item in relevant)
    return gain / sum(1 / math.log2(place + 2) for place in range(min(depth, len(relevant))))


def measure(ranking: Sequence[str], relevant: Set[str]) -> tuple[float, ...]:
    """One value for each of `METRICS`."""
    return (*(recall(ranking, relevant, depth) for depth in (5, 10, 20)), ndcg(ranking, relevant, 10))


def estimate(
    by_conversation: Sequence[Sequence[tuple[float, ...]]], *, names: Sequence[str] = METRICS, seed: int = 0
) -> dict[str, Estimate]:
    """Means over all questions. The intervals resample conversations, because questions of one are dependent."""
    groups = [np.array(values) for values in by_conversation if len(values)]
    sums = np.array([group.sum(axis=0) for group in groups])
    counts = np.array([len(group) for group in groups])
    drawn = np.random.default_rng(seed).integers(len(groups), size=(BOOTSTRAP_ROUNDS, len(groups)))
    means: NDArray[np.float64] = sums[drawn].sum(axis=1) / counts[drawn].sum(axis=1, keepdims=True)
    low, high = np.percentile(means, [2.5, 97.5], axis=0)
    mean = sums.sum(axis=0) / counts.sum()
    return {name: Estimate(*map(float, bounds)) for name, *bounds in zip(names, mean, low, high, strict=True)}
