"""What is wrong with a part of a vault, told to the log of its events when it begins, changes and ends."""

import asyncio
import json
import logging
from collections.abc import Callable, Sequence
from contextlib import suppress
from contextvars import Context
from dataclasses import dataclass

from mnemon_server.domain.changes import ChangeType
from mnemon_server.domain.errors import MnemonError
from mnemon_server.engines.promises.vault import Vault, VaultTransaction
from mnemon_server.services.shared.engine_futures import completion
from mnemon_server.services.shared.offload import Offload

LOOK_EVERY_S = 1.0
CRITICAL, WARNING, INFO = "critical", "warning", "info"

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Problem:
    """Something that is wrong."""

    key: str
    """What sort of problem it is: one that follows another of its sort is not told anew."""
    message: str
    remedy: str
    severity: str = WARNING


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """What the signal is about, and how that is told."""

    name: str
    """For the log of the server."""
    record_id: str
    state_key: str
    """Where the vault keeps what its log said last, so that the end of a warning is told even after a restart."""
    warning: ChangeType
    healthy: ChangeType
    recovered: str
    """What is said at the end."""


class HealthSignal:
    """Tells the log of a vault what is wrong. Belongs to one event loop.

    What is said and the memory of it are one transaction, which is tried until it can be committed: a full disk is told
    of once there is room again, though it is full no more. A task runs only while something is wrong, or until the log
    says that nothing is any more.
    """

    def __init__(
        self,
        vault: Vault,
        subject: Subject,
        problems: Callable[[], Sequence[Problem]],
        *,
        offload: Offload,
        look_every_s: float = LOOK_EVERY_S,
    ) -> None:
        """Asks `problems`, which must be quick, for what is wrong."""
        self._vault = vault
        self._subject = subject
        self._problems = problems
        self._offload = offload
        self._look_every_s = look_every_s
        self._told: str | None = None
        self._untold: tuple[Problem, ...] = ()
        """What could not be told while it lasted."""
        self._telling: asyncio.Task[None] | None = None

    @property
    def told(self) -> frozenset[str]:
        """The sorts of problems that the log tells of, as far as it has been read."""
        return frozenset(filter(None, (self._told or "").split(",")))

    @property
    def tells_nothing(self) -> bool:
        """Whether the log was read, and tells of no problem."""
        return self._told == ""

    def notice(self) -> None:
        """Sees to it that the log says how it is; call it whenever that may have changed."""
        problems = tuple(self._problems())
        if self._telling is None and (self._told is None or self._told != _state(problems)):
            self._untold = problems
            # In a context of its own: what it does is nobody's request.
            self._telling = asyncio.create_task(self._tell(), context=Context())

    async def aclose(self) -> None:
        """Ends the task."""
        if self._telling is not None:
            self._telling.cancel()
            with suppress(asyncio.CancelledError):
                await self._telling

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
                        log.warning("%s: the log cannot be told how it is", self._subject.name, exc_info=True)
                    has_failed = True
                await asyncio.sleep(self._look_every_s)
        finally:
            self._telling = None

    async def _tell_change(self) -> bool:
        """Tells the log what it does not say yet; returns whether something is wrong."""
        if self._told is None:
            self._told = await self._offload(self._vault.value, self._subject.state_key) or ""
        problems = tuple(self._problems()) or self._untold
        state = _state(problems)
        if state != self._told:
            self._untold = problems
            await completion(self._vault.transact(lambda tx: self._note(tx, state, problems)))
            self._told = state
            message = joined_messages(problems) or self._subject.recovered
            log.log(logging.WARNING if state else logging.INFO, "%s: %s", self._subject.name, message)
        self._untold = ()
        return bool(state)

    def _note(self, tx: VaultTransaction, state: str, problems: Sequence[Problem]) -> str:
        """Notes a change of state, unless it was noted before."""
        if (tx.value(self._subject.state_key) or "") != state:
            tx.set_value(self._subject.state_key, state)
            details = {
                "severity": _severity(problems),
                "message": joined_messages(problems) or self._subject.recovered,
                "remediation": "; ".join(problem.remedy for problem in problems if problem.remedy),
            }
            change = self._subject.warning if state else self._subject.healthy
            tx.note_change(change, self._subject.record_id, details=json.dumps(details))
        return ""


def joined_messages(problems: Sequence[Problem]) -> str:
    """What is wrong, as a sentence; empty where nothing is."""
    return "; ".join(problem.message for problem in problems)


def _state(problems: Sequence[Problem]) -> str:
    return ",".join(sorted({problem.key for problem in problems}))


def _severity(problems: Sequence[Problem]) -> str:
    severities = {problem.severity for problem in problems}
    return next((severity for severity in (CRITICAL, WARNING) if severity in severities), INFO)
