"""A keyword index in an FTS5 table that is read term by term, and scored by `scoring`.

FTS5's MATCH and bm25() return rows one by one. Reading the rows of each term as one text in a single statement, and
scoring them as arrays, takes less than half the time. It also keeps the formula in one module, allows a filter to
select rows before scoring, and avoids a query language with special characters.

A row's id combines the passage's id with the passage's length in its low bits, so that scoring needs no second look-up.

An index has one of two forms. The form without texts removes a passage at once, but needs the passage's text for that.
The form with texts stores them itself, and adds or removes many passages in one statement.
"""

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import cast

import apsw
import numpy as np
from numpy.typing import NDArray

from mnemon_server.engines.sqlite.keywords.scoring import (
    COUNT_MAX,
    ID_SHIFT,
    LENGTH_BITS,
    Found,
    Occurrences,
    PassageIds,
    length_code,
)
from mnemon_server.engines.sqlite.query import fetch, id_array
from mnemon_server.ranking.analysis import STEMMED_WORDS

# ruff: noqa: S608 - table and column names are constants; all input is bound

_REWRITTEN_PER_REMOVAL = 700
"""So many passages are rewritten in the time in which one is removed word by word."""


class KeywordTables:
    """The table names of one keyword index, and its statements."""

    def __init__(self, name: str) -> None:
        """`name` begins the names of the tables, a constant of the program."""
        self.index = f"{name}_fts"
        self.terms = f"{name}_terms"
        self.insert = f"INSERT INTO {self.index}(rowid, text) SELECT value ->> 0, value ->> 1 FROM json_each(?)"
        self.delete = f"INSERT INTO {self.index}({self.index}, rowid, text) VALUES('delete', ?, ?)"
        self.delete_many = f"DELETE FROM {self.index} WHERE rowid IN (SELECT value FROM carray(?))"
        self.optimize = f"INSERT INTO {self.index}({self.index}) VALUES('optimize')"
        self.erase_at_once = f"INSERT INTO {self.index}({self.index}, rank) VALUES('secure-delete', ?)"
        self.averages = f"SELECT block FROM {self.index}_data WHERE id = 1"
        self.rows_of = f"""
            SELECT id FROM carray(?) AS wanted CROSS JOIN {self.index}_docsize
            ON id BETWEEN wanted.value << {LENGTH_BITS} AND (wanted.value + 1 << {LENGTH_BITS}) - 1
        """
        self.rows = f"SELECT id FROM {self.index}_docsize WHERE id BETWEEN ? AND ?"
        # One statement, so that totals and rows are consistent.
        self.read = f"""
            SELECT (SELECT block FROM {self.index}_data WHERE id = 1),
                   (SELECT group_concat(doc) FROM {self.terms} WHERE term = word.value)
            FROM json_each(?) AS word ORDER BY word.key
        """
        self.read_few = f"""
            SELECT (SELECT block FROM {self.index}_data WHERE id = 1), json_group_array(json_array(id, c0))
            FROM carray(?) AS wanted CROSS JOIN {self.index}_content
            ON id BETWEEN wanted.value << {LENGTH_BITS} AND (wanted.value + 1 << {LENGTH_BITS}) - 1
        """


def create_statements(tables: KeywordTables) -> list[str]:
    """The statements that create the tables."""
    return [
        f"CREATE VIRTUAL TABLE {tables.index} USING fts5(text, content='', tokenize='{STEMMED_WORDS.tokenizer}')",
        # Deletions take effect in the file at once, not with a later merge.
        f"INSERT INTO {tables.index}({tables.index}, rank) VALUES('secure-delete', 1)",
        create_terms(tables),
    ]


def create_with_texts(tables: KeywordTables) -> list[str]:
    """The statements that create the tables of an index with texts."""
    return [
        f"CREATE VIRTUAL TABLE {tables.index} USING fts5(text, tokenize='{STEMMED_WORDS.tokenizer}')",
        create_terms(tables),
    ]


def drop_statements(tables: KeywordTables) -> list[str]:
    """The statements that drop the tables if they exist."""
    return [f"DROP TABLE IF EXISTS {tables.terms}", f"DROP TABLE IF EXISTS {tables.index}"]


def create_terms(tables: KeywordTables) -> str:
    """The statement that creates the table that lists the index term by term."""
    return f"CREATE VIRTUAL TABLE {tables.terms} USING fts5vocab('{tables.index}', 'instance')"


def insert(connection: apsw.Connection, tables: KeywordTables, texts: Mapping[int, str]) -> None:
    """Adds passages."""
    # A single statement releases the interpreter lock for its whole duration.
    rows = [_row(passage_id, text) for passage_id, text in texts.items()]
    connection.execute(tables.insert, (json.dumps(rows, ensure_ascii=False),))


def delete(connection: apsw.Connection, tables: KeywordTables, passage_id: int, text: str) -> None:
    """Removes a passage. The text must be the one that was inserted; otherwise the index is damaged."""
    connection.execute(tables.delete, _row(passage_id, text))


def remove_many(connection: apsw.Connection, tables: KeywordTables, passage_ids: PassageIds) -> None:
    """Removes the given passages, as far as they exist, from an index with texts.

    No row of the index contains removed text afterwards. A few passages are removed word by word, which takes about
    1.2 ms for each. For many, the index is rewritten, which takes about 1.6 us for each remaining passage.
    """
    removed = _rows_among(connection, tables, passage_ids)
    if not len(removed):
        return
    stored = passage_count(cast("bytes", connection.execute(tables.averages).get or b""))
    is_few = len(removed) * _REWRITTEN_PER_REMOVAL < stored
    connection.execute(tables.erase_at_once, (int(is_few),))
    connection.execute(tables.delete_many, (id_array(removed),))
    if not is_few:
        connection.execute(tables.optimize)


def stored_ids(connection: apsw.Connection, tables: KeywordTables, first: int, last: int) -> PassageIds:
    """The passages with ids from `first` to `last`, ascending."""
    ids: PassageIds = _stored_rows(connection, tables, first, last) >> LENGTH_BITS
    return ids


def stored_among(connection: apsw.Connection, tables: KeywordTables, passage_ids: PassageIds) -> PassageIds:
    """The given passages that an index with texts has, ascending."""
    ids: PassageIds = np.sort(_rows_among(connection, tables, passage_ids) >> LENGTH_BITS)
    return ids


@dataclass(frozen=True, slots=True)
class Passages:
    """All passages of an index without texts: their rows, ascending, and their numbers of words."""

    rows: NDArray[np.int64]
    lengths: NDArray[np.int64]

    def extent(self) -> tuple[int, int]:
        """See `extent`."""
        return len(self.rows), int(self.rows[-1]) if len(self.rows) else -1


def passages(connection: apsw.Connection, tables: KeywordTables) -> Passages:
    """All passages of an index without texts."""
    rows = fetch(connection, f"SELECT id, sz FROM {tables.index}_docsize ORDER BY id")
    lengths = (_varint(size)[0] for _, size in rows)
    return Passages(np.array([row for row, _ in rows], np.int64), np.fromiter(lengths, np.int64, len(rows)))


def extent(connection: apsw.Connection, tables: KeywordTables) -> tuple[int, int]:
    """The number of passages, and the newest row; an empty table has row -1."""
    [(count, newest)] = fetch(connection, f"SELECT count(*), coalesce(max(id), -1) FROM {tables.index}_docsize")
    return count, newest


def next_words(
    connection: apsw.Connection, tables: KeywordTables, after: str, *, bytes_max: int, words_max: int
) -> list[tuple[str, str]]:
    """The words after `after`, ascending, each with the rows of its occurrences, as `occurrences` takes them. The list
    ends with the word that makes it as long as one of the limits, or with the last word.
    """
    statement = f"SELECT term, group_concat(doc) FROM {tables.terms} WHERE term > ? GROUP BY term"
    words: list[tuple[str, str]] = []
    size = 0
    for word, rows in connection.execute(statement, (after,)):
        words.append((cast("str", word), cast("str", rows)))
        size += len(words[-1][1])
        if size >= bytes_max or len(words) >= words_max:
            break
    return words


def empty(connection: apsw.Connection, tables: KeywordTables) -> None:
    """Removes all passages from an index without texts."""
    connection.execute(f"INSERT INTO {tables.index}({tables.index}) VALUES('delete-all')")


def read(connection: apsw.Connection, tables: KeywordTables, terms: Sequence[str]) -> Found:
    """The occurrences of these words in the tables."""
    found = connection.execute(tables.read, (json.dumps(terms, ensure_ascii=False),)).fetchall()
    count = passage_count(cast("bytes", found[0][0])) if found else 0
    joined, numbers = occurrences([cast("str", rows or "") for _, rows in found])
    return Found(count, np.split(joined, np.searchsorted(numbers, np.arange(1, len(found))))[: len(found)])


def read_few(
    connection: apsw.Connection, tables: KeywordTables, terms: Sequence[str], passage_ids: PassageIds
) -> Found:
    """The occurrences of these words in these ascending passages of an index with texts. The count covers all passages.

    Splits the texts into words again, about 15 us for a passage, so its cost does not depend on the size of the index.
    """
    [(averages, listed)] = connection.execute(tables.read_few, (id_array(passage_ids),))
    rows = json.loads(cast("str", listed))
    return Found(passage_count(cast("bytes", averages or b"")), _in_rows(terms, rows))


def in_texts(terms: Sequence[str], texts: Mapping[int, str]) -> Found:
    """The occurrences of these words in passages that no table has yet, by ascending ids."""
    return Found(len(texts), _in_rows(terms, [_row(*each) for each in texts.items()]))


def _in_rows(terms: Sequence[str], rows: Iterable[tuple[int, str]]) -> list[Occurrences]:
    of_terms: dict[str, list[int]] = {term: [] for term in terms}
    for row, prepared in rows:
        words = Counter(STEMMED_WORDS.prepared_terms(prepared))
        base = row >> LENGTH_BITS << ID_SHIFT | row & ((1 << LENGTH_BITS) - 1)
        for term in words.keys() & of_terms.keys():
            of_terms[term].append(base | min(words[term], COUNT_MAX) << LENGTH_BITS)
    return [np.array(found, np.int64) for found in of_terms.values()]


def occurrences(of_words: Sequence[str]) -> tuple[Occurrences, NDArray[np.int64]]:
    """The occurrences of several words, and the number of the word of each.

    For each word, `of_words` has the row of each occurrence, ascending, separated by commas.
    """
    listed = np.fromstring(",".join(filter(None, of_words)), np.int64, sep=",")
    numbers = np.repeat(np.arange(len(of_words)), [rows.count(",") + 1 if rows else 0 for rows in of_words])
    starts = np.flatnonzero((np.diff(listed, prepend=-1) != 0) | (np.diff(numbers, prepend=-1) != 0))
    counts = np.minimum(np.diff(starts, append=len(listed)), COUNT_MAX)
    distinct = listed[starts]
    found: Occurrences = distinct >> LENGTH_BITS << ID_SHIFT
    found |= counts << LENGTH_BITS
    found |= distinct & ((1 << LENGTH_BITS) - 1)
    return found, numbers[starts]


def _row(passage_id: int, text: str) -> tuple[int, str]:
    prepared = STEMMED_WORDS.prepare(text)
    return _row_id(passage_id, len(STEMMED_WORDS.prepared_terms(prepared))), prepared


def _stored_rows(connection: apsw.Connection, tables: KeywordTables, first: int, last: int) -> PassageIds:
    bounds = first << LENGTH_BITS, (last + 1 << LENGTH_BITS) - 1
    return np.array([row for (row,) in fetch(connection, tables.rows, bounds)], np.int64)


def _rows_among(connection: apsw.Connection, tables: KeywordTables, passage_ids: PassageIds) -> PassageIds:
    rows = fetch(connection, tables.rows_of, (id_array(passage_ids),)) if len(passage_ids) else ()
    return np.array([row for (row,) in rows], np.int64)


def _row_id(passage_id: int, length: int) -> int:
    return passage_id << LENGTH_BITS | length_code(length)


def passage_count(averages: bytes) -> int:
    """The number of passages, from FTS5's own record of totals: a varint at its start, or nothing before the first
    passage.
    """
    return _varint(averages)[0] if averages else 0


def _varint(encoded: bytes) -> tuple[int, bytes]:
    value = 0
    for i, byte in enumerate(encoded[:8]):
        value = value << 7 | byte & 0x7F
        if byte < 0x80:
            return value, encoded[i + 1 :]
    return value << 8 | encoded[8], encoded[9:]
