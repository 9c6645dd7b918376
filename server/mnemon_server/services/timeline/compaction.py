"""One compaction at a time, and any number of callers who follow it."""

import asyncio
import logging
from collections.abc import AsyncGenerator
from contextlib import suppress
from contextvars import Context

from mnemon_server.domain.episodic import CompactionProgress
from mnemon_server.domain.errors import NotServingError
from mnemon_server.engines.promises.timeline import Timeline

REPORT_EVERY_S = 1.0

log = logging.getLogger(__name__)


class _Run:
    """A compaction that is under way."""

    def __init__(self, timeline: Timeline) -> None:
        self.progress = CompactionProgress()
        self.changed = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        # In a context of its own: it goes on without the caller who began it. No thread of readers is taken for it.
        self.task = asyncio.create_task(asyncio.to_thread(timeline.compact, self._report), context=Context())
        self.task.add_done_callback(_log_failure)

    def _report(self, progress: CompactionProgress) -> None:
        """Any thread may call it."""
        # A loop that has ended has nobody left to tell.
        with suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._take, progress)

    def _take(self, progress: CompactionProgress) -> None:
        self.progress = progress
        self.changed.set()
        self.changed = asyncio.Event()


def _log_failure(task: "asyncio.Task[CompactionProgress]") -> None:
    """Nobody may be left who follows it."""
    error = None if task.cancelled() else task.exception()
    # That the vault is closed ends it in good order: what was not rewritten is left for the next time.
    if error is not None and not isinstance(error, NotServingError):
        log.warning("the timeline could not be compacted: %s", error)


class SharedCompaction:
    """Compacts a timeline. Whoever asks while one is under way follows that one. Belongs to one event loop."""

    def __init__(self, timeline: Timeline, *, report_every_s: float = REPORT_EVERY_S) -> None:
        """Begins nothing; reports after so many seconds even where nothing is new."""
        self._timeline = timeline
        self._report_every_s = report_every_s
        self._run: _Run | None = None

    async def follow(self) -> AsyncGenerator[CompactionProgress]:
        """How far it is, again and again, and at the end once with `done`; raises what it raised."""
        if self._run is None or self._run.task.done():
            self._run = _Run(self._timeline)
        run = self._run
        while not run.task.done():
            if not run.progress.done:
                yield run.progress
            await self._next(run)
        yield run.task.result()

    async def _next(self, run: _Run) -> None:
        """Returns with news, or when it is time to say how it is."""
        news = asyncio.create_task(run.changed.wait())
        try:
            await asyncio.wait([run.task, news], timeout=self._report_every_s, return_when=asyncio.FIRST_COMPLETED)
        finally:
            news.cancel()
