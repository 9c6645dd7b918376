"""Searches in a single keyword table, with which other forms of the index are compared."""

import apsw
from mnemon_server.engines.promises.values import KeywordScores, PassageIds
from mnemon_server.engines.sqlite.keywords import fts
from mnemon_server.engines.sqlite.keywords.scoring import score
from mnemon_server.ranking.analysis import STEMMED_WORDS
from mnemon_server.ranking.keyword_context import CONTEXT_WEIGHT


def search(
    connection: apsw.Connection,
    tables: fts.KeywordTables,
    query: str,
    among: PassageIds | None = None,
    *,
    context_weight: float = CONTEXT_WEIGHT,
) -> KeywordScores:
    """The passages that share a word with the query, with their scores."""
    words = STEMMED_WORDS.query(query)
    return score(words, [fts.read(connection, tables, words.terms)], among, context_weight=context_weight)
