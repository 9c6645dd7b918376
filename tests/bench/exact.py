"""Exact search over vectors in this process: the baseline for the server's search."""

from collections.abc import Collection, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray


class ExactSearch:
    """Ranks documents by the cosine similarity of their best passage, comparing every one."""

    def __init__(self, embeddings: Mapping[str, Sequence[Sequence[float]]]) -> None:
        self._doc_ids = list(embeddings)
        self._vectors = np.array([vector for passages in embeddings.values() for vector in passages], np.float32)
        counts = [len(passages) for passages in embeddings.values()]
        self._starts = np.cumsum([0, *counts[:-1]])

    def rank(self, query: NDArray[np.float32], among: Collection[str] | None = None) -> list[tuple[str, float]]:
        """All documents, or those of `among`, with their similarity, best first. Among equals the older comes first."""
        best = np.maximum.reduceat(self._vectors @ query, self._starts)
        order = np.argsort(-best, kind="stable")
        ranked = ((self._doc_ids[row], float(best[row])) for row in order)
        return [(doc_id, score) for doc_id, score in ranked if among is None or doc_id in among]
