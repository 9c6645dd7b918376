"""The relevance that separates matches of a query from unrelated texts."""

from mnemon_server.domain.records import NO_FLOORS, RelevanceFloors, SearchMode
from mnemon_server.ranking.fusion import Fusion

VECTOR_FLOOR, KEYWORD_FLOOR = 0.44, 0.32
"""The floors of the two parts of a score, chosen on conversations and chats by `tests/bench/relevance.py`."""


def relevance_floors(fusion: Fusion, query: str, mode: SearchMode) -> RelevanceFloors:
    """The floors below which matches are mostly unrelated to the query.

    Empty if the scores depend on the other candidates.
    """
    if mode is SearchMode.KEYWORD:
        return RelevanceFloors(KEYWORD_FLOOR)
    if mode is SearchMode.VECTOR:
        return RelevanceFloors(_cosine(fusion, VECTOR_FLOOR))
    if not fusion.is_absolute:
        return NO_FLOORS
    weight = fusion.weight(query)
    # A paraphrase without a common word can hardly reach the floor of the mean. The less of a query the model reads,
    # the less its meaning alone is evidence.
    by_meaning = _cosine(fusion, VECTOR_FLOOR / fusion.read_share(query))
    return RelevanceFloors(weight * VECTOR_FLOOR + (1.0 - weight) * KEYWORD_FLOOR, by_meaning)


def _cosine(fusion: Fusion, vector_part: float) -> float:
    """The cosine of a vector part, which counts from the model's zero."""
    zero = 1.0 - 1.0 / fusion.slope
    return vector_part + (1.0 - vector_part) * zero
