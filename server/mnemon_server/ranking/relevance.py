"""The relevance that tells matches of a query from texts that have nothing to do with it."""

from mnemon_server.domain.records import SearchMode
from mnemon_server.ranking.fusion import Fusion

VECTOR_FLOOR, KEYWORD_FLOOR = 0.44, 0.32
"""The floors of the two parts of a score, chosen on conversations and chats by `tests/bench/relevance.py`."""


def relevance_floor(fusion: Fusion, query: str, mode: SearchMode) -> float | None:
    """The relevance below which matches of a query mostly have nothing to do with it.

    None if their scores depend on the other candidates.
    """
    match mode:
        case SearchMode.KEYWORD:
            return KEYWORD_FLOOR
        case SearchMode.VECTOR:
            # Its scores are plain cosines, which do not count from the model's zero.
            zero = 1.0 - 1.0 / fusion.slope
            return VECTOR_FLOOR + (1.0 - VECTOR_FLOOR) * zero
        case SearchMode.HYBRID:
            weight = fusion.weight(query)
            return weight * VECTOR_FLOOR + (1.0 - weight) * KEYWORD_FLOOR if fusion.is_absolute else None
