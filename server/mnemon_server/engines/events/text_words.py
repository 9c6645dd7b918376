"""The words of events, by sequence, in the file of the timeline's text index.

They are in parts of 65,536 sequences each. Removing an event rewrites only one part, an empty part is dropped, and a
search reads only the parts that it needs. Every function works within the caller's transaction.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TypeAlias

import apsw
import numpy as np
from numpy.typing import NDArray

from mnemon_server.engines.promises.events import Sequences
from mnemon_server.engines.promises.values import NO_SCORES, Scores
from mnemon_server.engines.sqlite.keywords import fts
from mnemon_server.engines.sqlite.keywords.fts import KeywordTables
from mnemon_server.engines.sqlite.keywords.scoring import ID_SHIFT, Found, score
from mnemon_server.engines.sqlite.query import fetch
from mnemon_server.ranking.analysis import STEMMED_WORDS
from mnemon_server.ranking.keyword_context import CONTEXT_WEIGHT

# ruff: noqa: S608 - table names are constants; all input is bound

PART_SEQUENCES = 1 << 16

_FEW = 96
"""Up to this many requested events of a part, reading their texts takes less time than reading where the words are."""

Floats: TypeAlias = NDArray[np.float64]


_PARTS = "compound"
"""The table of parts; the names of each part's tables begin with it. Part n holds the sequences from n * 65,536 on."""
CREATE_STATEMENT = f"CREATE TABLE {_PARTS} (number INTEGER PRIMARY KEY, event_count INTEGER NOT NULL) STRICT"


def _tables(number: int) -> KeywordTables:
    return KeywordTables(f"{_PARTS}_{number}")


def part_counts(connection: apsw.Connection) -> dict[int, int]:
    """The number of events in each part, by ascending number."""
    return dict(fetch(connection, f"SELECT number, event_count FROM {_PARTS} ORDER BY number"))


def stored(connection: apsw.Connection, first: int, last: int) -> Sequences:
    """The sequences from `first` to `last`, within one part, ascending."""
    number = first // PART_SEQUENCES
    if not _has_part(connection, number):
        return np.empty(0, np.int64)
    return fts.stored_ids(connection, _tables(number), first, last)


def stored_among(connection: apsw.Connection, number: int, sequences: Sequences) -> Sequences:
    """The given events of a part that are stored, ascending."""
    if not _has_part(connection, number):
        return np.empty(0, np.int64)
    return fts.stored_among(connection, _tables(number), sequences)


def add(connection: apsw.Connection, texts: Mapping[int, str]) -> None:
    """Adds the words of events in one part, by sequence."""
    number = min(texts) // PART_SEQUENCES
    if not _has_part(connection, number):
        for statement in fts.create_with_texts(_tables(number)):
            connection.execute(statement)
        connection.execute(f"INSERT INTO {_PARTS} VALUES (?, 0)", (number,))
    fts.insert(connection, _tables(number), texts)
    statement = f"UPDATE {_PARTS} SET event_count = event_count + ? WHERE number = ?"
    connection.execute(statement, (len(texts), number))


def remove(connection: apsw.Connection, number: int, sequences: Sequences) -> None:
    """Removes stored events of a part."""
    left = part_counts(connection)[number] - len(sequences)
    if not left:
        drop_part(connection, number)
        return
    fts.remove_many(connection, _tables(number), sequences)
    connection.execute(f"UPDATE {_PARTS} SET event_count = ? WHERE number = ?", (left, number))


def drop_part(connection: apsw.Connection, number: int) -> None:
    """Removes a part with all of its events."""
    for statement in fts.drop_statements(_tables(number)):
        connection.execute(statement)
    connection.execute(f"DELETE FROM {_PARTS} WHERE number = ?", (number,))


def search(
    connection: apsw.Connection | None,
    query: str,
    among: Sequences,
    behind: Mapping[int, str] | None = None,
    *,
    context_weight: float = CONTEXT_WEIGHT,
) -> Scores:
    """The scores, from 0 to 1 and by ascending sequence, of the events that share a word with the query.

    `among` and `behind` ascend. `behind` has the texts of the last events of `among`, which the file may lack; without
    a connection, only these are searched. For `context_weight`, see `scoring.score`.
    """
    words = STEMMED_WORDS.query(query)
    indexed = among[: among.searchsorted(min(behind))] if behind else among
    found = [*_stored_words(connection, words.terms, indexed)] if connection else []
    if behind:
        found.append(fts.in_texts(words.terms, behind))
    if not found:
        return NO_SCORES
    scores = score(words, found, among, context_weight=context_weight)
    return Scores(scores.passage_ids, scores.scores)


def _stored_words(connection: apsw.Connection, terms: Sequence[str], among: Sequences) -> Iterator[Found]:
    for number in part_counts(connection):
        low, high = among.searchsorted((number * PART_SEQUENCES, (number + 1) * PART_SEQUENCES)).tolist()
        if low == high:
            continue
        if high - low <= _FEW:
            yield fts.read_few(connection, _tables(number), terms, among[low:high])
        else:
            yield _up_to(int(among[-1]), fts.read(connection, _tables(number), terms))


def _has_part(connection: apsw.Connection, number: int) -> bool:
    return bool(fetch(connection, f"SELECT count(*) FROM {_PARTS} WHERE number = ?", (number,))[0][0])


def _up_to(last: int, found: Found) -> Found:
    """The occurrences in events up to a sequence. After a step back, words are stored beyond the progress."""
    ends = [each.searchsorted((last + 1) << ID_SHIFT) for each in found.occurrences]
    return replace(found, occurrences=[each[:end] for each, end in zip(found.occurrences, ends, strict=True)])
