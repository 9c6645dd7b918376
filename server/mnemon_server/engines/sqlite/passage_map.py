"""Which passages the document at a position has, in memory: searches with a filter would else read it row by row."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

import apsw
import numpy as np
from numpy.typing import NDArray

from mnemon_server.engines.promises.values import PassageIds
from mnemon_server.engines.sqlite.query import ids_from_text
from mnemon_server.engines.sqlite.tables import Tables

# ruff: noqa: S608 - table and column names are constants; all input is bound

CAPACITY_MIN = 1_024
LOAD_ROWS = 100_000
COMPACT_EMPTY_SHARE = 0.25

_COUNT_BITS = 20
_COUNT_MASK = (1 << _COUNT_BITS) - 1

Positions = NDArray[np.int64]


class PassageRun(NamedTuple):
    """The passages of a document: `size` consecutive ids from `first` on. A hidden document has none."""

    position: int
    first: int = 0
    size: int = 0


@dataclass(frozen=True, slots=True)
class _View:
    """The state that readers see. The writer appends behind it, and replaces single runs, each in one step."""

    positions: Positions
    """Ascending."""
    runs: NDArray[np.int64]
    """The first id and, in the low bits, the number of passages; 0 for a document that has none any more."""


class PassageMap:
    """The ids of the passages that searches see, by the position of their document, 16 bytes per document.

    One thread changes it, after each commit; any number of threads read it.
    """

    _view: _View

    def __init__(self, tables: Tables, connection: apsw.Connection) -> None:
        """Loads what the connection sees."""
        self._staged: list[PassageRun] = []
        self._fill(np.empty(0, np.int64), np.empty(0, np.int64), CAPACITY_MIN)
        # In the order of the index that contains position and id. The hidden ones make a set.
        statement = (
            "SELECT group_concat(position), group_concat(first), group_concat(count) FROM"
            f" (SELECT position, min(id) AS first, count(*) AS count FROM {tables.passages}"
            f" WHERE position > ? AND position NOT IN (SELECT position FROM {tables.documents} WHERE hidden = 1)"
            f" GROUP BY position ORDER BY position LIMIT {LOAD_ROWS})"
        )
        after = 0
        while (row := connection.execute(statement, (after,)).fetchone()) and row[0] is not None:
            positions, first, count = map(ids_from_text, row)
            self._append(positions, _packed(first, count))
            after = int(positions[-1])

    def all(self) -> PassageIds:
        """All passages, ascending."""
        # A copy, because the writer may replace a run in the meantime.
        return _ids(self._view.runs.copy())

    def of(self, positions: Positions) -> PassageIds:
        """The passages of the documents at these positions, ascending. Unknown positions have none."""
        view = self._view
        rows = np.searchsorted(view.positions, positions)
        inside = rows < len(view.positions)
        rows, wanted = rows[inside], positions[inside]
        return _ids(view.runs[rows[view.positions[rows] == wanted]])

    def stage(self, runs: Iterable[PassageRun]) -> None:
        """Stages changes of the running transaction, in their order. Call it once the change has succeeded."""
        self._staged += runs

    def publish(self) -> None:
        """Shows the staged changes to readers, after the commit."""
        newest = {run.position: run for run in self._staged}
        self.discard()
        if newest:
            runs = sorted(newest.values(), key=lambda run: run.position)
            self._put(np.array([run.position for run in runs], np.int64), _packed(*_columns(runs)))

    def discard(self) -> None:
        """Discards the staged changes."""
        self._staged = []

    def _put(self, positions: Positions, runs: NDArray[np.int64]) -> None:
        view = self._view
        rows = np.searchsorted(view.positions, positions)
        known = rows < len(view.positions)
        known[known] = view.positions[rows[known]] == positions[known]
        self._replace(rows[known], runs[known])
        self._insert(positions[~known & (runs > 0)], runs[~known & (runs > 0)])

    def _replace(self, rows: NDArray[np.intp], runs: NDArray[np.int64]) -> None:
        view = self._view
        self._empty_count += int(np.count_nonzero(runs == 0)) - int(np.count_nonzero(view.runs[rows] == 0))
        view.runs[rows] = runs
        if self._empty_count > CAPACITY_MIN and self._empty_count > COMPACT_EMPTY_SHARE * len(view.runs):
            self._fill(view.positions[view.runs > 0], view.runs[view.runs > 0])

    def _insert(self, positions: Positions, runs: NDArray[np.int64]) -> None:
        view = self._view
        rows = np.searchsorted(view.positions, positions)
        inside = rows < len(view.positions)
        if inside.any():
            # They are shown again, after they were hidden and left out here.
            rows = rows[inside]
            self._fill(np.insert(view.positions, rows, positions[inside]), np.insert(view.runs, rows, runs[inside]))
        self._append(positions[~inside], runs[~inside])

    def _append(self, positions: Positions, runs: NDArray[np.int64]) -> None:
        start, end = len(self._view.positions), len(self._view.positions) + len(positions)
        if end > len(self._runs):
            self._fill(self._view.positions, self._view.runs, end * 3 // 2)
        self._positions[start:end], self._runs[start:end] = positions, runs
        self._view = _View(self._positions[:end], self._runs[:end])

    def _fill(self, positions: Positions, runs: NDArray[np.int64], capacity: int = 0) -> None:
        """Moves everything into new arrays."""
        count = len(positions)
        self._positions = np.empty(max(count, capacity), np.int64)
        self._runs = np.empty(max(count, capacity), np.int64)
        self._positions[:count], self._runs[:count] = positions, runs
        self._empty_count = int(np.count_nonzero(runs == 0))
        self._view = _View(self._positions[:count], self._runs[:count])


def _columns(runs: list[PassageRun]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    return np.array([run.first for run in runs], np.int64), np.array([run.size for run in runs], np.int64)


def _packed(first: NDArray[np.int64], count: NDArray[np.int64]) -> NDArray[np.int64]:
    packed: NDArray[np.int64] = np.where(count > 0, first << _COUNT_BITS | count, 0)
    return packed


def _ids(runs: NDArray[np.int64]) -> PassageIds:
    runs = np.sort(runs[runs > 0])
    first, counts = runs >> _COUNT_BITS, runs & _COUNT_MASK
    if not len(runs) or counts.max() == 1:
        return first
    ends = np.cumsum(counts)
    ids: PassageIds = np.repeat(first - (ends - counts), counts) + np.arange(ends[-1])
    return ids
