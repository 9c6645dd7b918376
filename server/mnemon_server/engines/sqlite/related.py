"""Related documents, found by a table of terms and by indexes of times and numbers."""

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, TypeAlias

import apsw
import numpy as np
from numpy.typing import NDArray

from mnemon_server.domain.clock import to_microseconds
from mnemon_server.domain.collections import RelatedFields
from mnemon_server.domain.documents import Document
from mnemon_server.domain.records import INT64_MAX, INT64_MIN
from mnemon_server.engines.promises.related import NO_TIME, RelatedDocuments, RelatedQuery
from mnemon_server.engines.promises.values import PassageIds, Scores, Vector
from mnemon_server.engines.sqlite.query import fetch, id_array, ids_from_text, insert_rows
from mnemon_server.engines.sqlite.tables import Tables

# ruff: noqa: S608 - table and column names are constants; all input is bound

ROUNDING = 1e-6
"""Margin by which bounds are widened, so that rounding does not lose a document."""

_MICROSECOND = timedelta(microseconds=1)

_NOTHING = np.empty(0, np.int64)

Scan: TypeAlias = Callable[[apsw.Connection, Vector, PassageIds], Scores]
"""Returns the similarity of passages that a connection sees; see VectorScanner.scan_stored."""

_Row: TypeAlias = tuple[str, str, int, int]
"""User, term, position, and the number of the document's terms."""


@dataclass(frozen=True, slots=True)
class _Near:
    """How similar the user's passages are to the query: two arrays of equal length, best passage last."""

    positions: NDArray[np.int64]
    similarities: NDArray[np.float64]

    def of_documents(self, wanted: NDArray[np.int64]) -> NDArray[np.float64]:
        """The similarity of the best passage of each of these documents, which ascend; NaN if a document has no
        vector.
        """
        best = np.full(len(wanted), np.nan)
        kept = np.isin(self.positions, wanted)
        np.fmax.at(best, np.searchsorted(wanted, self.positions[kept]), self.similarities[kept])
        return best


@dataclass(frozen=True, slots=True)
class _Sharing:
    """The documents that share a term with the query, ascending, with the numbers of shared terms and of all terms."""

    positions: NDArray[np.int64]
    shared: NDArray[np.int64]
    counts: NDArray[np.int64]

    def overlapping(self, query: RelatedQuery) -> NDArray[np.int64]:
        """The documents whose overlap exceeds the query's bound."""
        if query.overlap_above is None or not query.terms:
            return _NOTHING
        smaller = np.minimum(self.counts, len(query.terms))
        return self.positions[self.shared / smaller > query.overlap_above - ROUNDING]

    def of_documents(self, wanted: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """The numbers of shared and of all terms for each of these documents; 0 if it shares none."""
        shared, counts = np.zeros(len(wanted), np.int64), np.zeros(len(wanted), np.int64)
        _, there, here = np.intersect1d(wanted, self.positions, assume_unique=True, return_indices=True)
        shared[there], counts[there] = self.shared[here], self.counts[here]
        return shared, counts


class RelatedTable:
    """The data that relates the documents of one collection. It excludes hidden documents."""

    def __init__(self, tables: Tables, fields: RelatedFields) -> None:
        documents, related = tables.documents, tables.related
        self._terms_field = fields.terms
        self._insert = f"INSERT INTO {related} (user, term, position, term_count) VALUES"
        self._delete = f"DELETE FROM {related} WHERE user = ? AND term = ? AND position = ?"
        self._stored = f'SELECT user, "{fields.terms}" FROM {documents} WHERE position = ? AND hidden = 0'
        # Each statement names its index, because the planner has no statistics to choose by.
        by_time = f"FROM {documents} AS d INDEXED BY {tables.related_time}"
        by_number = f"FROM {documents} AS d INDEXED BY {tables.related_number}"
        visible = "WHERE d.user = ?1 AND d.hidden = 0"
        self._passages = (
            f"SELECT group_concat(p.id), group_concat(p.position) {by_time}"
            f" CROSS JOIN {tables.passages} AS p ON p.position = d.position {visible}"
        )
        self._shared = (
            f"SELECT position, count(*), term_count FROM {related}"
            " WHERE user = ? AND term IN (SELECT value FROM carray(?)) GROUP BY position ORDER BY position"
        )
        self._by_time = f'SELECT d.position {by_time} {visible} AND d."{fields.time}" BETWEEN ?2 AND ?3'
        self._by_number = (
            f'SELECT d.position {by_number} {visible} AND d."{fields.number}" < ?2'
            f' UNION ALL SELECT d.position {by_number} {visible} AND d."{fields.number}" > ?3'
        )
        self._values = (
            f'SELECT d.position, d.id, coalesce(d."{fields.time}", {NO_TIME}), d."{fields.number}"'
            f" FROM carray(?) AS wanted CROSS JOIN {documents} AS d ON d.position = wanted.value"
            " WHERE d.household = ? AND d.persona = ?"
        )

    # Writing

    def insert(self, connection: apsw.Connection, placed: Sequence[tuple[int, Document]]) -> None:
        """Adds documents, each with its position."""
        insert_rows(connection, self._insert, [row for each in placed for row in self._rows(*each)])

    def replace(self, connection: apsw.Connection, position: int, old: Document, new: Document) -> None:
        """Updates the data of a document that replaced another."""
        before, after = self._rows(position, old), self._rows(position, new)
        if before != after:
            connection.executemany(self._delete, [row[:3] for row in before])
            insert_rows(connection, self._insert, after)

    def delete(self, connection: apsw.Connection, position: int) -> None:
        """Removes a document. Call it while the document's row still exists."""
        for user, terms in fetch(connection, self._stored, (position,)):
            connection.executemany(self._delete, [(user, term, position) for term in set(json.loads(terms))])

    def _rows(self, position: int, document: Document) -> list[_Row]:
        if document.hidden:
            return []
        given: Any = document.fields.get(self._terms_field) or ()
        terms = sorted(set(given))
        return [(document.scope.user, term, position, len(terms)) for term in terms]

    # Reading

    def find(self, connection: apsw.Connection, scan: Scan, query: RelatedQuery) -> RelatedDocuments:
        """See RecordEngine.related_documents."""
        near, sharing = self._near(connection, scan, query), self._sharing(connection, query)
        found = [*self._related_by_values(connection, query), sharing.overlapping(query)]
        if near is not None and query.similarity_above is not None:
            found.append(near.positions[near.similarities > query.similarity_above - ROUNDING])
        # The indexes cover only the user; these rows must be read anyway.
        positions = id_array(np.unique(np.concatenate(found)))
        rows = fetch(connection, self._values, (positions, query.household, query.persona))
        if query.without:
            rows = [row for row in rows if row[1] not in query.without]
        places, doc_ids, times, numbers = zip(*rows, strict=True) if rows else ((), (), (), ())
        wanted = np.array(places, np.int64)
        shared, counts = sharing.of_documents(wanted)
        return RelatedDocuments(
            doc_ids,
            wanted,
            near.of_documents(wanted) if near is not None else np.full(len(wanted), np.nan),
            shared,
            counts,
            np.array(times, np.int64),
            np.array(numbers, np.float64),
        )

    def _near(self, connection: apsw.Connection, scan: Scan, query: RelatedQuery) -> _Near | None:
        if query.vector is None:
            return None
        [(ids, positions)] = fetch(connection, self._passages, (query.user,))
        passage_ids, of_documents = ids_from_text(ids), ids_from_text(positions)
        order = np.argsort(passage_ids)
        scores = scan(connection, query.vector, passage_ids[order])
        # Every passage was scored, so both arrays are in the order of passage ids.
        by_id = np.argsort(scores.passage_ids)
        similarities, places = scores.scores[by_id], of_documents[order]
        ascending = np.argsort(similarities)
        return _Near(places[ascending], similarities[ascending])

    def _sharing(self, connection: apsw.Connection, query: RelatedQuery) -> _Sharing:
        rows = []
        if query.terms:
            rows = fetch(connection, self._shared, (query.user, apsw.carray(tuple(query.terms))))
        return _Sharing(*np.array(rows, np.int64).reshape(-1, 3).T)

    def _related_by_values(self, connection: apsw.Connection, query: RelatedQuery) -> Iterator[NDArray[np.int64]]:
        if query.time is not None and query.time_within is not None:
            time, within = to_microseconds(query.time), query.time_within // _MICROSECOND
            bounds = (max(time - within, INT64_MIN), min(time + within, INT64_MAX))
            yield _positions(fetch(connection, self._by_time, (query.user, *bounds)))
        if query.number is not None and query.number_apart is not None:
            apart = query.number_apart - ROUNDING
            beyond = (query.number - apart, query.number + apart)
            yield _positions(fetch(connection, self._by_number, (query.user, *beyond)))


def _positions(rows: list[tuple[int]]) -> NDArray[np.int64]:
    return np.array(rows, np.int64).reshape(-1)
