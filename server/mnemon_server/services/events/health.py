"""The health of the timeline: whether events are stored, and fast enough, and what else is wrong. Logs the problems."""

from collections.abc import Iterable
from contextlib import AbstractContextManager

from mnemon_server.domain.changes import ChangeType
from mnemon_server.domain.errors import MnemonError, StorageFailedError, StorageFullError
from mnemon_server.domain.events import EventReceipt
from mnemon_server.engines.promises.vault import Vault
from mnemon_server.services.background.health_signal import (
    CRITICAL,
    HealthSignal,
    Problem,
    Subject,
    joined_messages,
)
from mnemon_server.services.background.offload import Offload
from mnemon_server.services.writing.write_pressure import WriteLatency, WritePressure

SUBJECT = Subject(
    name="timeline",
    record_id="timeline",
    state_key="episodic.warning",
    warning=ChangeType.EPISODIC_WARNING,
    healthy=ChangeType.EPISODIC_HEALTHY,
    recovered="the timeline is healthy again",
)
STORAGE, LATENCY = "storage", "latency"
FREE_SPACE = "free space on the disk, or prune events that are no longer needed"
CHECK_DISK = "check the disk; the records are opened again as soon as it works"


class EventsHealth:
    """Logs when something is wrong with the timeline, and when it is healthy again.

    It watches the appends itself; others report what they find. An invalid event is its caller's problem, not one of
    the timeline. Belongs to one event loop.
    """

    def __init__(
        self,
        vault: Vault,
        *,
        write_latency: WriteLatency,
        offload: Offload,
        reporters: Iterable[str] = (),
    ) -> None:
        """Starts without problems; those in the log from before a restart stand until their reporters report."""
        self._pressure = WritePressure(write_latency)
        self._failure: MnemonError | None = None
        self._unheard = set(reporters)
        self._reported: dict[str, Problem] = {}
        self._signal = HealthSignal(vault, SUBJECT, self._problems, offload=offload)

    def append(self, events: int) -> AbstractContextManager[None]:
        """Measures the time in which this many events are stored."""
        return self._pressure.measure(events)

    def note(self, results: Iterable[EventReceipt | MnemonError]) -> None:
        """Notes the results of appends."""
        for result in results:
            if isinstance(result, EventReceipt):
                self._failure = None
            elif isinstance(result, StorageFullError | StorageFailedError):
                self._failure = result
        self.notice()

    def report(self, reporter: str, problem: Problem | None) -> None:
        """Notes the problem that a reporter found, whose `key` is its name; None if it found nothing."""
        self._unheard.discard(reporter)
        if problem is None:
            self._reported.pop(reporter, None)
        else:
            self._reported[reporter] = problem
        self.notice()

    def problem(self) -> str:
        """The problem, as a sentence; empty without one."""
        return joined_messages(self._problems())

    def notice(self) -> None:
        """Brings the log up to date; call it whenever the health may have changed."""
        # Nearly always, nothing is wrong and nothing was.
        is_well = self._failure is None and not self._reported and not self._pressure.holds_back
        if not (is_well and self._signal.tells_nothing):
            self._signal.notice()

    async def aclose(self) -> None:
        """Ends the work that `notice` started."""
        await self._signal.aclose()

    def _problems(self) -> list[Problem]:
        found = list(self._reported.values())
        found += [
            Problem(reporter, f"{reporter} was stopped, and has not been checked again yet", "")
            for reporter in self._unheard & self._signal.told
        ]
        if self._failure is not None:
            remedy = FREE_SPACE if isinstance(self._failure, StorageFullError) else CHECK_DISK
            found.append(Problem(STORAGE, f"events cannot be stored: {self._failure}", remedy, CRITICAL))
        if self._pressure.holds_back:
            slow = f"storing an event takes longer than the target of {self._pressure.target_s:g} s"
            found.append(
                Problem(LATENCY, slow, "give the server a faster disk or more cores, or record less at a time")
            )
        return found
