"""Finding events by their words, by reading all that are asked about."""

import numpy as np

from mnemon_server.domain.records import SearchMode
from mnemon_server.engines.in_memory import keywords
from mnemon_server.engines.segments.codec import decode
from mnemon_server.engines.sqlite.timeline_reads import BODIES_AT_ONCE, Reads
from mnemon_server.engines.timeline import Sequences, TextScores


def search_text(reads: Reads, query: str, among: Sequences) -> TextScores:
    """See Timeline.search_text."""
    words = {
        stored.sequence: keywords.words(decode(stored.body).content)
        for start in range(0, len(among), BODIES_AT_ONCE)
        for stored in reads.read(among[start : start + BODIES_AT_ONCE].tolist())
    }
    scores = sorted(keywords.search(query, words, None).items())
    relevance = np.array([score for _, score in scores], np.float64)
    return TextScores(
        np.array([sequence for sequence, _ in scores], np.int64),
        relevance,
        similarity=np.full(len(scores), np.nan),
        keyword=relevance,
        mode=SearchMode.KEYWORD,
        pending=0,
    )
