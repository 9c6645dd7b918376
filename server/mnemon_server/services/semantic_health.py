"""Whether writes of statements are held back, why, and that the log says so once."""

import asyncio
import json
import logging
import threading
from collections.abc import Callable
from contextlib import suppress
from contextvars import Context
from enum import Enum, auto

from mnemon_server.domain.errors import MnemonError, ThrottledError
from mnemon_server.domain.events import EventType
from mnemon_server.engines.base import Vault, VaultTransaction
from mnemon_server.services.completions import completion
from mnemon_server.services.offload import Offload
from mnemon_server.services.write_pressure import WritePressure

RECORD_ID = "semantic-index"
STATE_KEY, HELD_BACK = "semantic.writes_held_back", "yes"
"""Where the vault keeps what the log said last, so that the end of a warning is told even after a restart."""

LOOK_EVERY_S = 1.0
FULL_RETRY_AFTER_S = 10.0

log = logging.getLogger(__name__)


class Room(Enum):
    """Whether there is room for what asked for it."""

    AMPLE = auto()
    TIGHT = auto()
    """There may be: it must be counted."""
    NONE = auto()


class Capacity:
    """How many statements there may be. Any thread may call it."""

    def __init__(self, limit: int, count: Callable[[], int]) -> None:
        """`count` says how many there are, at once."""
        self.limit = limit
        self._count = count
        self._lock = threading.Lock()
        self._claimed = 0

    @property
    def is_full(self) -> bool:
        """Whether no further statement is taken."""
        return self._count() >= self.limit

    def claim(self, records: int) -> Room:
        """Room for new statements; unless it is NONE, every one of them must be released once it is stored or not."""
        with self._lock:
            if self.is_full:
                return Room.NONE
            self._claimed += records
            return Room.AMPLE if self._count() + self._claimed <= self.limit else Room.TIGHT

    def release(self, records: int = 1) -> None:
        """Gives back what was claimed."""
        with self._lock:
            self._claimed -= records

    def error(self) -> ThrottledError:
        """What a statement is refused with."""
        return ThrottledError(
            f"the capacity of {self.limit:,} statements is reached; delete some, or raise it", FULL_RETRY_AFTER_S
        )


class SemanticHealth:
    """Says whether writes are held back, and tells the log when that begins and ends. Belongs to one event loop.

    A task runs only while writes are held back, or until the log says that they are not any more.
    """

    def __init__(
        self,
        vault: Vault,
        pressure: WritePressure,
        capacity: Capacity,
        *,
        offload: Offload,
        look_every_s: float = LOOK_EVERY_S,
    ) -> None:
        self._vault = vault
        self._pressure = pressure
        self._capacity = capacity
        self._offload = offload
        self._look_every_s = look_every_s
        self._told: str | None = None
        self._telling: asyncio.Task[None] | None = None

    def problem(self) -> str:
        """Why writes are held back, as a sentence; empty where they are not."""
        return "; ".join(message for message, _ in self._problems())

    def notice(self) -> None:
        """Sees to it that the log says how it is; call it whenever that may have changed."""
        if self._telling is None and (self._told is None or bool(self._told) != bool(self._problems())):
            # In a context of its own: what it does is nobody's request.
            self._telling = asyncio.create_task(self._tell(), context=Context())

    async def aclose(self) -> None:
        """Ends the task."""
        if self._telling is not None:
            self._telling.cancel()
            with suppress(asyncio.CancelledError):
                await self._telling

    def _problems(self) -> list[tuple[str, str]]:
        """What is wrong, each with what helps."""
        found = []
        if self._capacity.is_full:
            limit = f"the capacity of {self._capacity.limit:,} statements is reached"
            found.append((limit, "delete statements, or raise the capacity"))
        if self._pressure.holds_back:
            slow = f"writes take longer than the {self._pressure.target_s:g} s that they should"
            found.append((slow, "write less at the same time, or give the server a faster disk or more cores"))
        return found

    async def _tell(self) -> None:
        has_failed = False
        try:
            while True:
                try:
                    if not await self._tell_change():
                        return
                    has_failed = False
                except MnemonError:
                    if not has_failed:
                        log.warning("the log cannot be told whether writes are held back", exc_info=True)
                    has_failed = True
                await asyncio.sleep(self._look_every_s)
        finally:
            self._telling = None

    async def _tell_change(self) -> bool:
        """Tells the log what it does not say yet; returns whether writes are held back."""
        if self._told is None:
            self._told = await self._offload(self._vault.value, STATE_KEY) or ""
        problems = self._problems()
        state = HELD_BACK if problems else ""
        if state != self._told:
            await completion(self._vault.transact(lambda tx: _note(tx, state, problems)))
            self._told = state
            log.log(logging.WARNING if state else logging.INFO, "semantic index: %s", _message(problems))
        return bool(state)


def _note(tx: VaultTransaction, state: str, problems: list[tuple[str, str]]) -> str:
    """Notes a change of state, unless it was noted before."""
    if (tx.value(STATE_KEY) or "") != state:
        tx.set_value(STATE_KEY, state)
        event = EventType.SEMANTIC_WARNING if state else EventType.SEMANTIC_HEALTHY
        details = {
            "severity": "warning" if state else "info",
            "message": _message(problems),
            "remediation": "; ".join(remedy for _, remedy in problems),
        }
        tx.note_event(event, RECORD_ID, details=json.dumps(details))
    return ""


def _message(problems: list[tuple[str, str]]) -> str:
    return "; ".join(message for message, _ in problems) or "writes are accepted again"
