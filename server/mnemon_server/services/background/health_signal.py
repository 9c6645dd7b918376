"""Writes warnings about a part of a vault to its change log: when a problem begins, changes and ends."""

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
from mnemon_server.services.background.offload import Offload, completion

LOOK_EVERY_S = 1.0
CRITICAL, WARNING, INFO = "critical", "warning", "info"

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Problem:
    """Something that is wrong."""

    key: str
    """The kind of problem; one that follows another of the same kind is not reported again."""
    message: str
    remedy: str
    severity: str = WARNING


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """The subject of the warnings, and how they are recorded."""

    name: str
    """The name in the log of the server."""
    record_id: str
    state_key: str
    """The key under which the vault stores the last state, so that recovery is reported even after a restart."""
    warning: ChangeType
    healthy: ChangeType
    recovered: str
    """The message when all problems have ended."""


class HealthSignal:
    """Reports problems to the change log of a vault. Belongs to one event loop.

    The report and the stored state are one transaction, which is retried until it is committed. So a full disk is
    reported once there is room again, although it is no longer full then. A task runs only while something is wrong,
    and until the log says that it no longer is.
    """

    def __init__(
        self,
        vault: Vault,
        subject: Subject,
        problems: Callable[[], Sequence[Problem]],
        *,
        offload: Offload,
    ) -> None:
        """`problems` returns the current problems; it must be quick."""
        self._vault = vault
        self._subject = subject
        self._problems = problems
        self._offload = offload
        self._reported: str | None = None
        self._unreported: tuple[Problem, ...] = ()
        """Problems that could not be reported while they lasted."""
        self._task: asyncio.Task[None] | None = None

    @property
    def told(self) -> frozenset[str]:
        """The kinds of problems that the log reports now; empty until it was read."""
        return frozenset(filter(None, (self._reported or "").split(",")))

    @property
    def tells_nothing(self) -> bool:
        """Whether the log was read, and reports no problem."""
        return self._reported == ""

    def notice(self) -> None:
        """Brings the log up to date; call it whenever the problems may have changed."""
        problems = tuple(self._problems())
        if self._task is None and (self._reported is None or self._reported != _state(problems)):
            self._unreported = problems
            # In a context of its own, since the task does not belong to the current request.
            self._task = asyncio.create_task(self._report(), context=Context())

    async def aclose(self) -> None:
        """Ends the task."""
        if self._task is not None:
            self._task.cancel()
            with suppress(asyncio.CancelledError):
                await self._task

    async def _report(self) -> None:
        has_failed = False
        try:
            while True:
                try:
                    if not await self._report_change():
                        return
                    has_failed = False
                except MnemonError:
                    if not has_failed:
                        log.warning("%s: its health could not be recorded", self._subject.name, exc_info=True)
                    has_failed = True
                await asyncio.sleep(LOOK_EVERY_S)
        finally:
            self._task = None

    async def _report_change(self) -> bool:
        """Reports a change to the log, if there is one; returns whether something is wrong."""
        if self._reported is None:
            self._reported = await self._offload(self._vault.value, self._subject.state_key) or ""
        problems = tuple(self._problems()) or self._unreported
        state = _state(problems)
        if state != self._reported:
            self._unreported = problems
            await completion(self._vault.transact(lambda tx: self._note(tx, state, problems)))
            self._reported = state
            message = joined_messages(problems) or self._subject.recovered
            log.log(logging.WARNING if state else logging.INFO, "%s: %s", self._subject.name, message)
        self._unreported = ()
        return bool(state)

    def _note(self, tx: VaultTransaction, state: str, problems: Sequence[Problem]) -> str:
        """Records the state, unless it is recorded already."""
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
    """The problem, as a sentence; empty without one."""
    return "; ".join(problem.message for problem in problems)


def _state(problems: Sequence[Problem]) -> str:
    return ",".join(sorted({problem.key for problem in problems}))


def _severity(problems: Sequence[Problem]) -> str:
    severities = {problem.severity for problem in problems}
    return next((severity for severity in (CRITICAL, WARNING) if severity in severities), INFO)
