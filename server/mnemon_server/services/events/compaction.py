"""Runs one compaction at a time, which any number of callers may follow."""

import asyncio
import json
import logging
from collections.abc import AsyncGenerator
from contextlib import suppress
from contextvars import Context
from dataclasses import asdict

from mnemon_server.domain.errors import NotServingError
from mnemon_server.domain.events import CompactionProgress, PruneReason
from mnemon_server.domain.records import RequestKey
from mnemon_server.engines.promises.events import EventEngine
from mnemon_server.services.background.offload import Offload, completion

REPORT_EVERY_S = 1.0

log = logging.getLogger(__name__)


class _Run:
    """A running compaction."""

    def __init__(self, events: EventEngine) -> None:
        self.progress = CompactionProgress()
        self.changed = asyncio.Event()
        self.requests: list[RequestKey] = []
        """The requests for it. Their answers are stored when it ends."""
        self._events = events
        self._loop = asyncio.get_running_loop()
        # In its own context: it continues without the caller that started it. It does not occupy a reader thread.
        self.task = asyncio.create_task(self._compact(), context=Context())
        self.task.add_done_callback(_log_failure)

    async def _compact(self) -> CompactionProgress:
        last = await asyncio.to_thread(self._events.compact, self._report)
        answer = json.dumps(asdict(last))
        # The list may grow meanwhile: this run also serves those who ask before the last answer is stored.
        for request in self.requests:
            # The timeline stores answers with prunings; this one prunes nothing.
            await completion(self._events.prune((), PruneReason.REQUESTED, answer=lambda: answer, request=request))
        return last

    def serves(self, request: RequestKey | None) -> bool:
        """Whether a caller with this request gets this run: it is running, or succeeded and was for this request."""
        if not self.task.done():
            return True
        return request in self.requests and not self.task.cancelled() and self.task.exception() is None

    def _report(self, progress: CompactionProgress) -> None:
        """Any thread may call it."""
        # After the loop has ended, no caller is left to tell.
        with suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._take, progress)

    def _take(self, progress: CompactionProgress) -> None:
        self.progress = progress
        self.changed.set()
        self.changed = asyncio.Event()


def _log_failure(task: "asyncio.Task[CompactionProgress]") -> None:
    """Logs what made a compaction fail; there may be no caller left to get the error."""
    error = None if task.cancelled() else task.exception()
    # Closing the vault ends a compaction cleanly: what was not rewritten is left for the next one.
    if error is not None and not isinstance(error, NotServingError):
        log.warning("the timeline could not be compacted: %s", error)


class SharedCompaction:
    """Compacts a timeline. A caller that asks during a compaction follows that one. Belongs to one event loop."""

    def __init__(self, events: EventEngine, offload: Offload, *, report_every_s: float = REPORT_EVERY_S) -> None:
        """Starts nothing yet. Progress is reported after `report_every_s` seconds even if nothing is new."""
        self._events = events
        self._offload = offload
        self._report_every_s = report_every_s
        self._run: _Run | None = None

    async def follow(self, request: RequestKey | None = None) -> AsyncGenerator[CompactionProgress]:
        """Yields the progress, at the end once with `done`. Raises the error of the compaction."""
        if request and (answer := await self._offload(self._events.kept_answer, request)) is not None:
            yield CompactionProgress(**{**json.loads(answer), "replayed": True})
            return
        # The run for this request may have ended since the look above, and must not be started again.
        if self._run is None or not self._run.serves(request):
            self._run = _Run(self._events)
        run = self._run
        if request and request not in run.requests:
            run.requests.append(request)
        while not run.task.done():
            if not run.progress.done:
                yield run.progress
            await self._next(run)
        yield run.task.result()

    async def _next(self, run: _Run) -> None:
        """Returns when there is news, or when it is time to report."""
        news = asyncio.create_task(run.changed.wait())
        try:
            await asyncio.wait([run.task, news], timeout=self._report_every_s, return_when=asyncio.FIRST_COMPLETED)
        finally:
            news.cancel()
