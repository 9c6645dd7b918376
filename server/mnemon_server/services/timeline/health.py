"""Whether events can be stored, and soon enough, what else is wrong with the timeline, and that the log says so."""

from collections.abc import Iterable, Mapping
from contextlib import AbstractContextManager

from mnemon_server.domain.changes import ChangeType
from mnemon_server.domain.episodic import EventReceipt
from mnemon_server.domain.errors import MnemonError, StorageFailedError, StorageFullError
from mnemon_server.engines.promises.vault import Vault
from mnemon_server.services.shared.health_signal import (
    CRITICAL,
    LOOK_EVERY_S,
    HealthSignal,
    Problem,
    Subject,
    joined_messages,
)
from mnemon_server.services.shared.offload import Offload
from mnemon_server.services.shared.write_pressure import WriteLatency, WritePressure

SUBJECT = Subject(
    name="timeline",
    record_id="timeline",
    state_key="episodic.warning",
    warning=ChangeType.EPISODIC_WARNING,
    healthy=ChangeType.EPISODIC_HEALTHY,
    recovered="the timeline is healthy again",
)
STORAGE, LATENCY = "storage", "latency"


class TimelineHealth:
    """Tells the log when something is wrong with the timeline, and when nothing is any more.

    It watches the appends itself; others report what they find. What is wrong with an event is its caller's matter, and
    is none of the timeline's. Belongs to one event loop.
    """

    def __init__(
        self,
        vault: Vault,
        *,
        write_latency: WriteLatency,
        offload: Offload,
        reporters: Iterable[str] = (),
        look_every_s: float = LOOK_EVERY_S,
    ) -> None:
        """Knows of nothing wrong.

        Args:
            vault: whose log is told.
            write_latency: what the time until an event is stored should not exceed.
            offload: where the vault is read.
            reporters: who is going to report; what the log told of one before a restart stands until then.
            look_every_s: seconds between two looks at what is wrong, and between two tries to tell it.
        """
        self._pressure = WritePressure(write_latency)
        self._failure: MnemonError | None = None
        self._unheard = set(reporters)
        self._reported: dict[str, Problem] = {}
        self._signal = HealthSignal(vault, SUBJECT, self._problems, offload=offload, look_every_s=look_every_s)

    def append(self, events: int) -> AbstractContextManager[None]:
        """The time in which so many events are stored."""
        return self._pressure.measure(events)

    def note(self, results: Iterable[EventReceipt | MnemonError]) -> None:
        """Takes note of what became of events."""
        for result in results:
            if isinstance(result, EventReceipt):
                self._failure = None
            elif isinstance(result, StorageFullError | StorageFailedError):
                self._failure = result
        self.notice()

    def report(self, reporter: str, problem: Problem | None) -> None:
        """What a reporter finds wrong, under its own name as `key`; None where nothing is."""
        self._unheard.discard(reporter)
        if problem is None:
            self._reported.pop(reporter, None)
        else:
            self._reported[reporter] = problem
        self.notice()

    def problem(self) -> str:
        """What is wrong, as a sentence; empty where nothing is."""
        return joined_messages(self._problems())

    def notice(self) -> None:
        """Sees to it that the log says how it is; call it whenever that may have changed."""
        # Nearly always nothing is wrong, and nothing was.
        is_well = self._failure is None and not self._reported and not self._pressure.holds_back
        if not (is_well and self._signal.tells_nothing):
            self._signal.notice()

    async def aclose(self) -> None:
        """Ends what `notice` began."""
        await self._signal.aclose()

    def _problems(self) -> list[Problem]:
        found = list(self._reported.values())
        found += [
            Problem(reporter, f"{reporter} was stopped, and has yet to be looked at again", "")
            for reporter in self._unheard & self._signal.told
        ]
        if self._failure is not None:
            found.append(
                Problem(STORAGE, f"events cannot be stored: {self._failure}", _remedy(self._failure), CRITICAL)
            )
        if self._pressure.holds_back:
            slow = f"events take longer to be stored than the {self._pressure.target_s:g} s that they should"
            found.append(
                Problem(LATENCY, slow, "give the server a faster disk or more cores, or record less at a time")
            )
        return found


def _remedy(failure: MnemonError) -> str:
    return _REMEDIES[StorageFullError if isinstance(failure, StorageFullError) else StorageFailedError]


_REMEDIES: Mapping[type[MnemonError], str] = {
    StorageFullError: "free space on the disk, or prune events that are not needed any more",
    StorageFailedError: "check the disk; the records are opened anew as soon as it works",
}
