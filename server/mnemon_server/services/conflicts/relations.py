"""How two statements relate to each other, without a language model: a softmax regression over a few features.

`relation_weights.json` has the weights; `python -m tests.bench.train_relations` computes them.
"""

import json
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from mnemon_server.domain.conflicts import DetectionConfig, Relation, RelationType
from mnemon_server.services.conflicts.relation_features import FEATURES, features, read

WEIGHTS_FILE = Path(__file__).with_name("relation_weights.json")

RELATED_ABOVE = DetectionConfig().relation_threshold
_RELATED = tuple(type_ for type_ in RelationType if type_ is not RelationType.UNRELATED)


@dataclass(frozen=True, slots=True)
class RelationModel:
    """Gives the probabilities of the relations."""

    weights: NDArray[np.float64]
    """In the shape (features and the intercept, types)."""

    def probabilities(self, inputs: NDArray[np.float64]) -> NDArray[np.float64]:
        """The probability of each RelationType, in their order, in the shape (pairs, types).

        Args:
            inputs: the features of pairs, in the shape (pairs, features).
        """
        odds = inputs @ self.weights[:-1] + self.weights[-1]
        shares = np.exp(odds - odds.max(axis=1, keepdims=True))
        likely: NDArray[np.float64] = shares / shares.sum(axis=1, keepdims=True)
        return likely

    def relate(self, ours: str, theirs: str, cosine: float, *, related_above: float = RELATED_ABOVE) -> Relation | None:
        """The relation of two texts whose vectors have this cosine; None if a text has no telling words."""
        our_reading, their_reading = read(ours), read(theirs)
        if not (our_reading.words and their_reading.words):
            return None
        [likely] = self.probabilities(np.array([features(our_reading, their_reading, cosine)])).tolist()
        return relation_of(dict(zip(RelationType, likely, strict=True)), related_above=related_above)


def relation_of(likely: dict[RelationType, float], *, related_above: float) -> Relation:
    """The likeliest relation, or UNRELATED unless the others together exceed the threshold of the signal."""
    related = 1.0 - likely[RelationType.UNRELATED]
    is_related = related > related_above
    type_ = max(_RELATED, key=lambda type_: likely[type_]) if is_related else RelationType.UNRELATED
    return Relation(type_, likely[type_], related)


@cache
def default_relations() -> RelationModel:
    """The model with the weights in the file beside this module."""
    stored = json.loads(WEIGHTS_FILE.read_text(encoding="utf-8"))
    rows = [[float(stored[type_][name]) for type_ in RelationType] for name in (*FEATURES, "intercept")]
    return RelationModel(np.array(rows))
