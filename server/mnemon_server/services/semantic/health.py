"""Tells whether writes of statements are held back, and why; logs that once."""

import threading
from collections.abc import Callable
from enum import Enum, auto

from mnemon_server.domain.changes import ChangeType
from mnemon_server.domain.errors import ThrottledError
from mnemon_server.engines.promises.vault import Vault
from mnemon_server.services.background.health_signal import (
    HealthSignal,
    Problem,
    Subject,
    joined_messages,
)
from mnemon_server.services.background.offload import Offload
from mnemon_server.services.writing.write_pressure import WritePressure

HELD_BACK = "yes"
SUBJECT = Subject(
    name="semantic index",
    record_id="semantic-index",
    state_key="semantic.writes_held_back",
    warning=ChangeType.SEMANTIC_WARNING,
    healthy=ChangeType.SEMANTIC_HEALTHY,
    recovered="writes are accepted again",
)
FULL_RETRY_AFTER_S = 10.0


class Room(Enum):
    """Whether there is room for new statements."""

    AMPLE = auto()
    TIGHT = auto()
    """There may be room: the statements must be counted."""
    NONE = auto()


class Capacity:
    """The limit on the number of statements. Any thread may call it."""

    def __init__(self, limit: int, count: Callable[[], int]) -> None:
        """`count` returns the current number of statements without blocking."""
        self.limit = limit
        self._count = count
        self._lock = threading.Lock()
        self._claimed = 0

    @property
    def is_full(self) -> bool:
        """Whether the limit is reached."""
        return self._count() >= self.limit

    def claim(self, records: int) -> Room:
        """Claims room for new statements. Unless the result is NONE, release each one after it was stored or failed."""
        with self._lock:
            if self.is_full:
                return Room.NONE
            self._claimed += records
            return Room.AMPLE if self._count() + self._claimed <= self.limit else Room.TIGHT

    def release(self, records: int = 1) -> None:
        """Releases claimed room."""
        with self._lock:
            self._claimed -= records

    def error(self) -> ThrottledError:
        """The error for a statement that there is no room for."""
        return ThrottledError(
            f"the capacity of {self.limit:,} statements is reached; delete some, or raise the limit", FULL_RETRY_AFTER_S
        )


class SemanticHealth:
    """Tells whether writes are held back, and logs when that begins and ends. Belongs to one event loop."""

    def __init__(
        self,
        vault: Vault,
        pressure: WritePressure,
        capacity: Capacity,
        *,
        offload: Offload,
    ) -> None:
        self._pressure = pressure
        self._capacity = capacity
        self._signal = HealthSignal(vault, SUBJECT, self._problems, offload=offload)

    def problem(self) -> str:
        """Why writes are held back, as a sentence; empty if they are not."""
        return joined_messages(self._problems())

    def notice(self) -> None:
        """Brings the log up to date; call it whenever the health may have changed."""
        self._signal.notice()

    async def aclose(self) -> None:
        """Ends the work that `notice` started."""
        await self._signal.aclose()

    def _problems(self) -> list[Problem]:
        found = []
        if self._capacity.is_full:
            limit = f"the capacity of {self._capacity.limit:,} statements is reached"
            found.append(Problem(HELD_BACK, limit, "delete statements, or raise the capacity"))
        if self._pressure.holds_back:
            slow = f"a write takes longer than the target of {self._pressure.target_s:g} s"
            remedy = "send fewer writes at the same time, or give the server a faster disk or more cores"
            found.append(Problem(HELD_BACK, slow, remedy))
        return found
