"""Whether anything that was found has to do with the question.

The relevance of an item is the score of its own search: the mean of meaning and words, each on a scale from 0, which
unrelated texts have, to 1, which the question's own text has. So it is comparable over kinds and questions.

In some collections every text is near to every question: all are of the same two friends, or of one subject. So the
best item must be better than those that are near but most likely unrelated: the nearest ones, without the first ten. By
how much was chosen so that one in twenty questions that the records answer is taken for a foreign one;
`tests/bench/relevance.py` has the curve.
"""

from collections.abc import Iterable

from mnemon_server.domain.records import NEAREST_MAX, Relevance, RelevanceFloors, SearchMode
from mnemon_server.ranking.fusion import Fusion, relevance_floors, vector_part

RELATED_MAX = 10
"""So many of the nearest passages may be related to the question."""
MARGIN = 0.18
"""By how much a relevant item exceeds what meaning gives to unrelated ones."""


def judged(fusion: Fusion, text: str, best: float, nearest: Iterable[float]) -> Relevance:
    """How relevant the best item is to a text; without one, to a vector.

    Args:
        fusion: that of the searches.
        text: the words of the question.
        best: the relevance of the best item, 0 if nothing was found.
        nearest: the cosines of the nearest passages of all kinds.
    """
    if not text.strip():
        return relevance_floors(fusion, text, SearchMode.VECTOR).relevance(best)
    if not fusion.is_absolute:
        return RelevanceFloors(None).relevance(best)
    unrelated = [vector_part(fusion, cosine) for cosine in sorted(nearest, reverse=True)[RELATED_MAX:NEAREST_MAX]]
    # Those that a small collection lacks count as 0: there, nothing is near by chance.
    usual = sum(unrelated) / (NEAREST_MAX - RELATED_MAX)
    return RelevanceFloors(MARGIN + fusion.weight(text) * usual).relevance(best)
