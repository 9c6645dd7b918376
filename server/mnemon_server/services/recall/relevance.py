"""Whether anything that was found has to do with the question.

The relevance of an item is the score of its own search: the mean of meaning and words, each on a scale from 0, which
unrelated texts have, to 1, which the question's own text has. So it is comparable over kinds and questions.

In some collections every text is near to every question: all are of the same two friends, say, and the question names
one of them. So the best item must be better than texts that are near but most likely unrelated. By how much was chosen
so that about one in twenty questions that the records answer is taken for an unrelated one. Chance matches are weaker
in a small collection, so the margin grows with its size. `tests/bench/relevance.py` has the curve.

A span of time leaves few records, most of which may be about the question. So unrelated texts are looked for among the
records of all times, while the margin depends on how many were searched: what is relevant without the span also is with
it.
"""

import math
from collections.abc import Iterable

import numpy as np

from mnemon_server.domain.records import NEAREST_MAX, Relevance, RelevanceFloors, SearchMode
from mnemon_server.ranking.fusion import Fusion, relevance_floors

RELATED, NEAR = 1 / 20, 1 / 2
"""The shares of the nearest passages that may be related to the question, and that are near to it."""
MARGIN, MARGIN_MIN, PER_DOUBLING = 0.18, 0.03, 0.025
"""By how much a relevant item exceeds what meaning gives to unrelated ones that are near, if there are NEAREST_MAX
passages; the least; and by how much less for half as many passages.
"""


def judged(fusion: Fusion, text: str, best: float, cosines: Iterable[float], searched: int = NEAREST_MAX) -> Relevance:
    """How relevant the best item is to a text; without a text, to a vector.

    `best` is the relevance of the best item, 0 if nothing was found; `cosines` belong to the nearest passages, at most
    NEAREST_MAX of a kind; `searched` is the number of passages that were searched for the best one, if that is less.
    """
    if not text.strip():
        return relevance_floors(fusion, text, SearchMode.VECTOR).relevance(best)
    if not fusion.is_absolute:
        return RelevanceFloors(None).relevance(best)
    nearest = fusion.above_zero(np.array(sorted(cosines, reverse=True)[:NEAREST_MAX]))
    count = max(len(nearest), 1)
    searched = min(max(searched, 1), count)
    unrelated = nearest[max(1, int(count * RELATED)) : max(2, math.ceil(count * NEAR))]
    usual = float(unrelated.mean()) if len(unrelated) else 0.0
    margin = max(MARGIN + PER_DOUBLING * math.log2(searched / NEAREST_MAX), MARGIN_MIN)
    return RelevanceFloors(margin + fusion.weight(text) * usual).relevance(best)
