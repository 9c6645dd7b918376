"""The thread that feeds the text index of a timeline, with a limited share of processor time."""

import logging
import threading
import time
from collections.abc import Callable, Collection

import apsw

from mnemon_server.domain.errors import MnemonError
from mnemon_server.engines.events.schedule import Schedule
from mnemon_server.engines.events.text_work import TextWork, is_passing
from mnemon_server.engines.turns import next_turn

log = logging.getLogger(__name__)

_BATCH_WAIT_S = 0.02
"""How long a new event waits for others, so that they share a transaction."""
_SHARE_BUSY, _SHARE_IDLE, _SHARE_AWAITED = 0.2, 0.8, 1.0
"""Maximum share of time: while events are being stored, while the timeline is idle, and while a search waits."""
_RETRY_S, _RETRY_S_MAX = 0.1, 60.0
_WARM_S = 0.1


class TextThread:
    """Runs the work on its own thread. Any thread may call any method."""

    def __init__(self, work: TextWork, wait_until_warm: Callable[[float], bool]) -> None:
        """Starts nothing yet. For `wait_until_warm`, see TextIndex."""
        self._work = work
        self._wait_until_warm = wait_until_warm
        self._wake = threading.Event()
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._run, name="timeline-text", daemon=True)
        self._appends = 0
        self._progressed = threading.Condition()
        self._awaited = 0
        """How many searches wait."""
        self._steps = {"words": work.tend, "vectors": work.embed_some}
        self._retries = Schedule(_RETRY_S, _RETRY_S_MAX, time.monotonic)

    def start(self) -> None:
        """Begins."""
        self._thread.start()

    def appended(self) -> None:
        """Must be called after events were stored."""
        self._appends += 1
        self._wake.set()

    def removed(self, sequences: Collection[int]) -> None:
        """Must be called after events were removed."""
        self._work.note_removed(sequences)
        self._wake.set()

    def wake(self) -> None:
        """Wakes the thread for other work."""
        self._wake.set()

    def wait_for(self, sequence: int, timeout_s: float) -> None:
        """Waits until the index contains all events up to this one; stops early on a timeout or a failed attempt."""

        def is_over() -> bool:
            is_running = self._thread.is_alive() and not any(map(self._retries.is_held, self._steps))
            return not is_running or self._work.done >= sequence or self._closing.is_set()

        with self._progressed:
            self._awaited += 1
            self._wake.set()
            self._progressed.wait_for(is_over, timeout_s)
            self._awaited -= 1

    def close(self) -> None:
        """Stops the thread, and closes the file. Further calls have no effect."""
        self._closing.set()
        self._wake.set()
        if self._thread.ident is not None:
            self._thread.join()

    def _run(self) -> None:
        try:
            while not self._closing.is_set() and not self._wait_until_warm(_WARM_S):
                pass
            while next_turn(self._wake, self._closing):
                if not self._turn():
                    self._wake.wait(self._retries.seconds_until_due())
                    self._closing.wait(_BATCH_WAIT_S)
        finally:
            self._work.close()

    def _turn(self) -> bool:
        """Runs one step; returns whether there is more to do now.

        Words go first, because vectors take long, but only those that were behind at the start. So if events keep
        coming, a step for vectors follows each batch of words. The words of older programs are replaced after that.
        """
        started, appends = time.monotonic(), self._appends
        more = any(self._attempt(name, step) for name, step in self._steps.items())
        spent = time.monotonic() - started
        with self._progressed:
            self._progressed.notify_all()
            share = _SHARE_IDLE if appends == self._appends else _SHARE_BUSY
            share = _SHARE_AWAITED if self._awaited else share
        self._closing.wait(spent / share - spent)
        return more

    def _attempt(self, name: str, step: Callable[[], bool]) -> bool:
        """Runs a step, unless it failed recently."""
        if self._retries.is_held(name):
            return False
        self._retries.drop(name)
        try:
            more = step()
        except Exception as error:  # noqa: BLE001 - a damaged file can cause any exception
            self._retries.failed(name)
            self._handle(error)
            return False
        self._retries.succeeded(name)
        return more

    def _handle(self, error: Exception) -> None:
        if isinstance(error, (MnemonError, OSError)) or (isinstance(error, apsw.Error) and is_passing(error)):
            log.warning("the text index of the timeline has to wait: %s", error)
            return
        log.error("the text index of the timeline cannot be written", exc_info=error)
        try:
            self._work.discard()
        except OSError:
            log.exception("the text index of the timeline cannot be deleted")
