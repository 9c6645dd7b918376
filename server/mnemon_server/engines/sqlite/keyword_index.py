"""The keyword index of passages: an FTS5 table that is read term by term, and BM25 computed from its rows.

FTS5's MATCH and bm25() return rows one by one. Reading the rows of each term as one text in a single statement, and
scoring them as arrays, takes less than half the time. It also keeps the formula in this module, allows a filter to
select rows before scoring, and avoids a query language with special characters.

A row's id combines the passage's id with the passage's length in its low bits, so that scoring needs no second look-up.

An index has one of two forms. The form without texts removes a passage at once, but needs the passage's text for that.
The form with texts stores them itself, and adds or removes many passages in one statement.
"""

import json
import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import cast

import apsw
import numpy as np
from numpy.typing import NDArray

from mnemon_server.engines.sqlite.query import fetch, id_array
from mnemon_server.ranking.keyword_context import CONTEXT_WEIGHT, Matches
from mnemon_server.ranking.keyword_context import scores as context_scores
from mnemon_server.ranking.keywords import analyze, query_terms

# ruff: noqa: S608 - table and column names are constants; all input is bound

_LENGTH_BITS = 8
_LENGTH_STEPS = 16
"""Steps per doubling of the length. 255 steps reach 60,000 words, each within 2.2 % of the true length."""

_TOKENIZER = "porter unicode61 remove_diacritics 2"

_SATURATION, _LENGTH_WEIGHT = 0.9, 0.4
"""BM25's k1 and b, with values that are usual for short passages. The values 1.2 and 0.75 find less in
conversations.
"""

Floats = NDArray[np.float64]
PassageIds = NDArray[np.int64]


class KeywordTables:
    """The table names of one keyword index, and its statements."""

    def __init__(self, collection: str) -> None:
        """`collection` is the name of a collection, a constant of the program."""
        self.index = f"{collection}_fts"
        self.terms = f"{collection}_terms"
        self.insert = f"INSERT INTO {self.index}(rowid, text) SELECT value ->> 0, value ->> 1 FROM json_each(?)"
        self.delete = f"INSERT INTO {self.index}({self.index}, rowid, text) VALUES('delete', ?, ?)"
        self.delete_many = f"DELETE FROM {self.index} WHERE rowid IN (SELECT value FROM carray(?))"
        self.optimize = f"INSERT INTO {self.index}({self.index}) VALUES('optimize')"
        self.rows = f"SELECT id FROM {self.index}_docsize WHERE id BETWEEN ? AND ?"
        # One statement, so that totals and rows are consistent.
        self.read = f"""
            SELECT (SELECT block FROM {self.index}_data WHERE id = 1),
                   (SELECT group_concat(doc) FROM {self.terms} WHERE term = word.value)
            FROM json_each(?) AS word ORDER BY word.key
        """


def create_statements(tables: KeywordTables) -> list[str]:
    """The statements that create the tables."""
    return [
        f"CREATE VIRTUAL TABLE {tables.index} USING fts5(text, content='', tokenize='{_TOKENIZER}')",
        # Deletions take effect in the file at once, not with a later merge.
        f"INSERT INTO {tables.index}({tables.index}, rank) VALUES('secure-delete', 1)",
        create_terms(tables),
    ]


def create_with_texts(tables: KeywordTables) -> list[str]:
    """The statements that create the tables of an index with texts."""
    return [
        f"CREATE VIRTUAL TABLE {tables.index} USING fts5(text, tokenize='{_TOKENIZER}')",
        create_terms(tables),
    ]


def drop_statements(tables: KeywordTables) -> list[str]:
    """The statements that remove the tables."""
    return [f"DROP TABLE {tables.terms}", f"DROP TABLE {tables.index}"]


def create_terms(tables: KeywordTables) -> str:
    """The statement that creates the table that lists the index term by term."""
    return f"CREATE VIRTUAL TABLE {tables.terms} USING fts5vocab('{tables.index}', 'instance')"


def insert(connection: apsw.Connection, tables: KeywordTables, texts: Mapping[int, str]) -> None:
    """Adds passages."""
    # A single statement releases the interpreter lock for its whole duration.
    words_of = _tokenizer(connection)
    rows = [_row(words_of, passage_id, text) for passage_id, text in texts.items()]
    connection.execute(tables.insert, (json.dumps(rows, ensure_ascii=False),))


def delete(connection: apsw.Connection, tables: KeywordTables, passage_id: int, text: str) -> None:
    """Removes a passage. The text must be the one that was inserted; otherwise the index is damaged."""
    connection.execute(tables.delete, _row(_tokenizer(connection), passage_id, text))


def remove_many(connection: apsw.Connection, tables: KeywordTables, passage_ids: PassageIds) -> None:
    """Removes the given passages, as far as they exist, from an index with texts, and rewrites the index.

    No row of the index contains removed text afterwards. Removing the words one by one would take about 3 ms per
    passage; rewriting takes about 5 us per remaining passage.
    """
    if not len(passage_ids):
        return
    rows = _stored_rows(connection, tables, int(passage_ids.min()), int(passage_ids.max()))
    removed = rows[np.isin(rows >> _LENGTH_BITS, passage_ids)]
    if len(removed):
        connection.execute(tables.delete_many, (id_array(removed),))
        connection.execute(tables.optimize)


def stored_ids(connection: apsw.Connection, tables: KeywordTables, first: int, last: int) -> PassageIds:
    """The passages with ids from `first` to `last`, ascending."""
    ids: PassageIds = _stored_rows(connection, tables, first, last) >> _LENGTH_BITS
    return ids


def search(
    connection: apsw.Connection,
    tables: KeywordTables,
    query: str,
    among: PassageIds | None = None,
    *,
    context_weight: float = CONTEXT_WEIGHT,
) -> tuple[PassageIds, Floats]:
    """Like `search_parts`, for a single index."""
    return search_parts(connection, [tables], query, among, context_weight=context_weight)


def search_parts(
    connection: apsw.Connection,
    parts: Sequence[KeywordTables],
    query: str,
    among: PassageIds | None = None,
    *,
    context_weight: float = CONTEXT_WEIGHT,
) -> tuple[PassageIds, Floats]:
    """Ascending ids, and scores, of the passages that share a word with the query; only those in `among`, if given,
    which must ascend.

    A score is BM25 relative to the score of the query's own text, 0 to 1. The weights of words come from the searched
    passages only, so passages outside the search do not affect scores. Neighbours are adjacent passages among the
    searched ones, see `keyword_context`.
    """
    words_of = _tokenizer(connection)
    own_words = Counter(words_of(analyze(query)))
    terms = list(dict.fromkeys(words_of(" ".join(query_terms(query)))))
    found = [_read(connection, tables, terms) for tables in parts]
    of_terms = zip(*(rows for _, rows in found), strict=True)
    occurrences = _occurrences([",".join(filter(None, rows)) for rows in of_terms], among)
    if not occurrences.rows.size:
        return np.empty(0, np.int64), np.empty(0, np.float64)
    stored_count, mean_length = _totals([averages for averages, _ in found])
    passage_count = stored_count if among is None else len(among)
    weights = _weights(occurrences, len(terms), passage_count)
    own_counts = np.array([own_words[term] for term in terms])
    own_row = np.int64(_row_id(0, own_words.total()))
    own_score = float(np.sum(weights * _saturate(own_counts, own_row, mean_length)))
    gains = weights[occurrences.terms] * _saturate(occurrences.counts, occurrences.rows, mean_length)
    rows, places = np.unique(occurrences.rows, return_inverse=True)
    passage_ids = rows >> _LENGTH_BITS
    matches = Matches(
        positions=passage_ids if among is None else np.searchsorted(among, passage_ids),
        passage_count=passage_count,
        terms=occurrences.terms,
        places=places,
        gains=gains,
        weights=weights,
    )
    return passage_ids, np.minimum(context_scores(matches, context_weight) / max(own_score, 1e-9), 1.0)


def _read(connection: apsw.Connection, tables: KeywordTables, terms: Sequence[str]) -> tuple[bytes, list[str | None]]:
    found = connection.execute(tables.read, (json.dumps(terms, ensure_ascii=False),)).fetchall()
    averages = cast("bytes", found[0][0]) if found else b""
    return averages, [cast("str | None", rows) for _, rows in found]


@dataclass(frozen=True, slots=True)
class _Occurrences:
    """Which rows contain which term, and how often: three arrays of equal length."""

    rows: PassageIds
    terms: NDArray[np.int64]
    counts: NDArray[np.int64]


def _occurrences(rows_of_terms: Sequence[str], among: PassageIds | None) -> _Occurrences:
    of_terms = [np.fromstring(rows, np.int64, sep=",") for rows in rows_of_terms]
    rows = np.concatenate([np.empty(0, np.int64), *of_terms])
    terms = np.repeat(np.arange(len(of_terms)), [len(rows) for rows in of_terms])
    if among is not None:
        kept = np.isin(rows >> _LENGTH_BITS, among)
        rows, terms = rows[kept], terms[kept]
    starts = np.flatnonzero(np.concatenate(([True], (rows[1:] != rows[:-1]) | (terms[1:] != terms[:-1])))[: len(rows)])
    return _Occurrences(rows[starts], terms[starts], np.diff(np.append(starts, len(rows))))


def _weights(occurrences: _Occurrences, term_count: int, passage_count: int) -> Floats:
    """The weight of each term: BM25's idf in the form that is always positive, so that small stores find by keyword
    too.
    """
    holding = np.bincount(occurrences.terms, minlength=term_count)
    weights: Floats = np.log1p((passage_count - holding + 0.5) / (holding + 0.5))
    return weights


def _saturate(counts: NDArray[np.int64], rows: PassageIds | np.int64, mean_length: float) -> Floats:
    lengths = np.exp2((rows & ((1 << _LENGTH_BITS) - 1)) / _LENGTH_STEPS) - 1
    norms = 1 - _LENGTH_WEIGHT + _LENGTH_WEIGHT * lengths / mean_length
    saturated: Floats = counts * (_SATURATION + 1) / (counts + _SATURATION * norms)
    return saturated


def _row(words_of: Callable[[str], list[str]], passage_id: int, text: str) -> tuple[int, str]:
    analyzed = analyze(text)
    return _row_id(passage_id, len(words_of(analyzed))), analyzed


def _stored_rows(connection: apsw.Connection, tables: KeywordTables, first: int, last: int) -> PassageIds:
    bounds = first << _LENGTH_BITS, (last + 1 << _LENGTH_BITS) - 1
    return np.array([row for (row,) in fetch(connection, tables.rows, bounds)], np.int64)


def _row_id(passage_id: int, length: int) -> int:
    return passage_id << _LENGTH_BITS | min(round(_LENGTH_STEPS * math.log2(length + 1)), (1 << _LENGTH_BITS) - 1)


def _tokenizer(connection: apsw.Connection) -> Callable[[str], list[str]]:
    """A function that splits a text into words."""
    tokenize = connection.fts5_tokenizer("porter", ["unicode61", "remove_diacritics", "2"])

    def words_of(text: str) -> list[str]:
        words = tokenize(
            text.encode(), apsw.FTS5_TOKENIZE_DOCUMENT, None, include_offsets=False, include_colocated=False
        )
        return cast("list[str]", words)

    return words_of


def _totals(of_parts: Sequence[bytes]) -> tuple[int, float]:
    """The number of passages, and the mean number of words in one. Reads FTS5's own records, which are two varints
    each.
    """
    passage_count = word_count = 0
    for averages in of_parts:
        passages, rest = _varint(averages)
        words, _ = _varint(rest)
        passage_count += passages
        word_count += words
    return passage_count, max(word_count, 1) / max(passage_count, 1)


def _varint(encoded: bytes) -> tuple[int, bytes]:
    value = 0
    for i, byte in enumerate(encoded[:8]):
        value = value << 7 | byte & 0x7F
        if byte < 0x80:
            return value, encoded[i + 1 :]
    return value << 8 | encoded[8], encoded[9:]
