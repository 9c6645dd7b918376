"""Queries of the timeline: the newest events of a time window, or those that match a text best."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from datetime import tzinfo

import numpy as np
from numpy.typing import NDArray

from mnemon_server.domain.clock import Clock
from mnemon_server.domain.events import (
    EventPosition,
    EventScore,
    EventSelection,
    RangeSummary,
    StoredEvent,
    WindowDiagnostics,
    WindowPage,
    WindowQuery,
)
from mnemon_server.domain.records import NOTHING_RELEVANT, Relevance, SearchMode
from mnemon_server.domain.validation import refuse
from mnemon_server.engines.promises.events import EventEngine, TextScores, WindowSlice
from mnemon_server.engines.promises.values import Fits, Vector
from mnemon_server.services.events.checks import limit_violations, selection_violations, window_violations
from mnemon_server.services.events.reranking import READ_BYTES, MessageScores
from mnemon_server.services.events.selections import EVERYTHING, selection, window_selection
from mnemon_server.services.reading.pages import PAGE_BYTES_MAX
from mnemon_server.services.search.embedded_passages import unit_vector
from mnemon_server.services.search.rankings import nearest, timed_search
from mnemon_server.services.search.reranking import DEPTH, Ranker

PAGE_STEP = 50


@dataclass(frozen=True, slots=True)
class _Counts:
    """Counts of events in a query."""

    total: int
    in_context: int
    in_window: int
    rejected: int
    """Events in the window that the expression rejects."""


class EventQueries:
    """Queries the timeline. A query is one blocking call: switching threads would cost more than the query itself."""

    def __init__(
        self, events: EventEngine, embed_query: Callable[[str], Vector], *, ranker: Ranker | None = None, clock: Clock
    ) -> None:
        """`ranker` gives new scores to turns of conversations; None leaves them."""
        self._events = events
        self._ranker = ranker
        self._embed_query = embed_query
        self._clock = clock

    @timed_search
    def window(self, query: WindowQuery, *, fits: Fits | None = None) -> WindowPage:
        """A page of the window, newest first, or its best matches for a text. Empty if `fits` refuses it. Blocks."""
        refuse(window_violations(query))
        where = window_selection(query, self._clock())
        if query.text is None:
            return _if_fits(self._newest(where, query.after, query.limit), fits)
        return _if_fits(self._fitting(where, query.text, query), fits)

    @timed_search
    def recent(
        self, where: EventSelection, after: EventPosition | None, limit: int, *, fits: Fits | None = None
    ) -> WindowPage:
        """A page of the newest events; empty if `fits` refuses it. Blocks."""
        refuse([*limit_violations(limit, "page_size"), *selection_violations(where)])
        return _if_fits(self._newest(selection(where), after, limit), fits)

    def summarize(self, where: EventSelection, zone: tzinfo) -> RangeSummary:
        """Counts of the events that match, by the days of a time zone. Blocks."""
        refuse(selection_violations(where))
        return self._events.summarize(selection(where), zone)

    def _newest(self, where: EventSelection, after: EventPosition | None, limit: int) -> WindowPage:
        return _page_of(self._events.window(where, after=after, limit=limit))

    # By a text

    def _fitting(self, where: EventSelection, text: str, query: WindowQuery) -> WindowPage:
        """The best matches. A page ends with the event that reaches PAGE_BYTES_MAX."""
        mode = query.mode if self._events.has_embeddings else SearchMode.KEYWORD
        sequences = self._events.sequences(where)
        counts = self._counts(where, len(sequences))
        if not text.strip() and (query.vector is None or mode is SearchMode.KEYWORD):
            return WindowPage((), None, replace(_diagnostics(counts, 0, mode), relevance=NOTHING_RELEVANT))
        vector = None
        if mode is not SearchMode.KEYWORD:
            vector = self._embed_query(text) if query.vector is None else unit_vector(query.vector)
        scores = self._events.search_text(text, vector, sequences, mode)
        if (best := next(_best_first(scores, DEPTH), None)) is not None:
            ranker = self._ranker if query.mode is SearchMode.HYBRID else None
            scores = replace(scores, relevance=MessageScores(self._events, scores).of(text, ranker, best))
        events, fits, truncated = self._read_best(scores, query.limit)
        diagnostics = _diagnostics(counts, len(events), scores.mode)
        diagnostics = replace(diagnostics, pending=scores.pending, exact=scores.exact, relevance=_relevance(scores))
        if query.vector is not None and diagnostics.relevance is not None:
            relevance = replace(diagnostics.relevance, nearest=nearest(scores.similarity))
            diagnostics = replace(diagnostics, relevance=relevance)
        return WindowPage(events, None, diagnostics, fits, truncated)

    def _counts(self, where: EventSelection, matching: int) -> _Counts:
        """The counts beside `matching`. An event that is stored between the reads is in all of them, or in none."""
        context = replace(where, expression=None, start=None, end=None)
        in_window = matching if where.expression is None else self._events.count(replace(where, expression=None))
        in_window = max(in_window, matching)
        in_context = max(self._events.count(context), in_window)
        total = max(self._events.count(EVERYTHING), in_context)
        return _Counts(total, in_context, in_window, in_window - matching)

    def _read_best(
        self, scores: TextScores, limit: int
    ) -> tuple[tuple[StoredEvent, ...], tuple[EventScore, ...], bool]:
        """The best events, their scores, and whether further ones do not fit."""
        events: list[StoredEvent] = []
        fits: list[EventScore] = []
        size = 0
        for event, fit in self._read_in_turn(scores, limit):
            size += len(event.body)
            if size > PAGE_BYTES_MAX and events:
                return tuple(events), tuple(fits), True
            events.append(event)
            fits.append(fit)
            if len(events) == limit:
                break
        return tuple(events), tuple(fits), False

    def _read_in_turn(self, scores: TextScores, limit: int) -> Iterator[tuple[StoredEvent, EventScore]]:
        """Yields events, best first, and reads a few at a time. The next event takes the place of one pruned since."""
        for best in _best_first(scores, min(limit, PAGE_STEP)):
            rows = {int(scores.sequences[row]): row for row in best}
            while rows:
                for event in (read := self._events.read(list(rows), bytes_max=READ_BYTES)):
                    yield event, _fit(scores, rows[event.sequence])
                places = list(rows)
                last = places.index(read[-1].sequence) if read else len(places)
                rows = {sequence: rows[sequence] for sequence in places[last + 1 :]}


def _page_of(found: WindowSlice) -> WindowPage:
    counts = _Counts(found.total, found.in_context, found.in_window, found.rejected)
    diagnostics = _diagnostics(counts, len(found.events))
    return WindowPage(found.events, found.next_position, diagnostics, truncated=found.truncated)


def _if_fits(page: WindowPage, fits: Fits | None) -> WindowPage:
    """The page if it fits, or else an empty one. Only its bodies tell how large a page is."""
    if fits is None or not page.events or fits("", sum(len(event.body) for event in page.events)):
        return page
    return replace(page, events=(), scores=())


def _best_first(scores: TextScores, count: int) -> Iterator[NDArray[np.intp]]:
    """The rows with a positive score in groups of `count`, best first; of equal scores, the one stored last first."""
    rest = np.flatnonzero(scores.relevance > 0.0)
    # Mostly the first group is enough, and finding it takes much less time than sorting all.
    if len(rest) > count:
        last = np.partition(scores.relevance, -count)[-count]
        is_first = scores.relevance[rest] >= last
        first, rest = rest[is_first], rest[~is_first]
    else:
        first, rest = rest, rest[:0]
    for some in (first, rest):
        order = some[np.lexsort((-scores.sequences[some], -scores.relevance[some]))]
        for start in range(0, len(order), count):
            yield order[start : start + count]


def _relevance(scores: TextScores) -> Relevance:
    rows = next(_best_first(scores, 1), None)
    if rows is None:
        return scores.floors.relevance(0.0)
    return scores.floors.relevance(float(scores.relevance[rows[0]]), float(scores.similarity[rows[0]]))


def _fit(scores: TextScores, row: np.intp) -> EventScore:
    similarity = float(scores.similarity[row])
    return EventScore(
        float(scores.relevance[row]),
        None if np.isnan(similarity) else similarity,
        None if scores.mode is SearchMode.VECTOR else float(scores.keyword[row]),
    )


def _diagnostics(counts: _Counts, returned: int, mode: SearchMode | None = None) -> WindowDiagnostics:
    return WindowDiagnostics(
        total_scanned=counts.total,
        filtered_by_context=counts.total - counts.in_context + counts.rejected,
        filtered_by_window=counts.in_context - counts.in_window,
        returned=returned,
        mode=mode,
    )
