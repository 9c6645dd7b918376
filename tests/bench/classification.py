"""The quality of yes-or-no answers: precision and recall with confidence intervals."""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from statistics import NormalDist

_Z = NormalDist().inv_cdf(0.975)


@dataclass(frozen=True, slots=True)
class Share:
    """A fraction with its 95 % Wilson interval. If `of` is 0, there is no data."""

    count: int
    of: int

    @property
    def value(self) -> float:
        """The fraction, or NaN without data."""
        return self.count / self.of if self.of else math.nan

    @property
    def interval(self) -> tuple[float, float]:
        """The bounds of the interval, 0 and 1 without data."""
        if not self.of:
            return 0.0, 1.0
        spread = _Z * math.sqrt(self.value * (1 - self.value) / self.of + (_Z / (2 * self.of)) ** 2)
        scale = 1 + _Z**2 / self.of
        middle = self.value + _Z**2 / (2 * self.of)
        return max(0.0, (middle - spread) / scale), min(1.0, (middle + spread) / scale)

    def __str__(self) -> str:
        if not self.of:
            return "none"
        low, high = self.interval
        return f"{self.value:.2f} [{low:.2f}, {high:.2f}]"


@dataclass(frozen=True, slots=True)
class Answers:
    """Predictions and the truth."""

    true_positives: int
    false_positives: int
    false_negatives: int
    true_negatives: int

    @classmethod
    def of(cls, answers: Iterable[tuple[bool, bool]]) -> "Answers":
        """From pairs of prediction and truth."""
        counts = {(said, right): 0 for said in (True, False) for right in (True, False)}
        for answer in answers:
            counts[answer] += 1
        return cls(counts[True, True], counts[True, False], counts[False, True], counts[False, False])

    @property
    def precision(self) -> Share:
        """The fraction of the predicted positives that are positive."""
        return Share(self.true_positives, self.true_positives + self.false_positives)

    @property
    def recall(self) -> Share:
        """The fraction of the positives that were predicted."""
        return Share(self.true_positives, self.true_positives + self.false_negatives)

    @property
    def f1(self) -> float:
        """The harmonic mean of precision and recall, or 0 without a right prediction."""
        return 2 * self.true_positives / max(1, 2 * self.true_positives + self.false_positives + self.false_negatives)
