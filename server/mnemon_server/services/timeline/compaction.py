"""One compaction at a time, and any number of callers who follow it."""

import asyncio
import json
import logging
from collections.abc import AsyncGenerator
from contextlib import suppress
from contextvars import Context
from dataclasses import asdict

from mnemon_server.domain.episodic import CompactionProgress, PruneReason
from mnemon_server.domain.errors import NotServingError
from mnemon_server.domain.records import RequestKey
from mnemon_server.engines.promises.timeline import Timeline
from mnemon_server.services.shared.completions import completion
from mnemon_server.services.shared.offload import Offload

REPORT_EVERY_S = 1.0

log = logging.getLogger(__name__)


class _Run:
    """A compaction that is under way."""

    def __init__(self, timeline: Timeline) -> None:
        self.progress = CompactionProgress()
        self.changed = asyncio.Event()
        self.requests: list[RequestKey] = []
        """Those that asked for it, whose answer is kept when it ends."""
        self._timeline = timeline
        self._loop = asyncio.get_running_loop()
        # In a context of its own: it goes on without the caller who began it. No thread of readers is taken for it.
        self.task = asyncio.create_task(self._compact(), context=Context())
        self.task.add_done_callback(_log_failure)

    async def _compact(self) -> CompactionProgress:
        last = await asyncio.to_thread(self._timeline.compact, self._report)
        answer = json.dumps(asdict(last))
        # The list may grow meanwhile: whoever asks until the last answer is kept is still served by this run.
        for request in self.requests:
            # The timeline keeps answers together with prunings; this one prunes nothing.
            await completion(self._timeline.prune((), PruneReason.REQUESTED, answer=lambda: answer, request=request))
        return last

    def serves(self, request: RequestKey | None) -> bool:
        """Whether a caller with this request gets this run: it goes on, or it ended well and was theirs."""
        if not self.task.done():
            return True
        return request in self.requests and not self.task.cancelled() and self.task.exception() is None

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

    def __init__(self, timeline: Timeline, offload: Offload, *, report_every_s: float = REPORT_EVERY_S) -> None:
        """Begins nothing; reads with `offload`, and reports after so many seconds even where nothing is new."""
        self._timeline = timeline
        self._offload = offload
        self._report_every_s = report_every_s
        self._run: _Run | None = None

    async def follow(self, request: RequestKey | None = None) -> AsyncGenerator[CompactionProgress]:
        """How far it is, again and again, and at the end once with `done`; raises what it raised."""
        if request and (answer := await self._offload(self._timeline.kept_answer, request)) is not None:
            yield CompactionProgress(**{**json.loads(answer), "replayed": True})
            return
        # The run that this request asked for may have ended after the look above, and is not to be run again.
        if self._run is None or not self._run.serves(request):
            self._run = _Run(self._timeline)
        run = self._run
        if request and request not in run.requests:
            run.requests.append(request)
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
