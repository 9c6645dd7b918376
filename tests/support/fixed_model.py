"""A model for fusions, with coverage and zero chosen by a test."""

from dataclasses import dataclass


@dataclass(frozen=True)
class FixedModel:
    """A model with this zero, whose vocabulary covers so much of every text."""

    zero: float = 0.0
    covered: float = 1.0

    def coverage(self, text: str) -> float:
        """See TextModel."""
        del text
        return self.covered

    def unrelated_cosine(self) -> float:
        """See TextModel."""
        return self.zero
