"""Has the pending batches extracted: several conversations at a time, the batches of each one after the other."""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field

from mnemon_server.domain.bridge.extraction import Extraction, ExtractionRequest, ExtractMode
from mnemon_server.domain.clock import system_clock, to_microseconds
from mnemon_server.domain.errors import MnemonError
from mnemon_server.services.bridge.conversations import ContextLimits, ConversationReader
from mnemon_server.services.bridge.ledger import BridgeLedger, ChangedError
from mnemon_server.services.bridge.pending import BatchLimits, PendingBatch, PendingBatches
from mnemon_server.services.bridge.settling import BatchSettling
from mnemon_server.services.extraction.desk import ExtractorDesk
from mnemon_server.services.extraction.extractor import BudgetSpentError, RefusedError

RETRY_MAX_S = 600.0
SETTINGS_OF_MODES: Mapping[ExtractMode, str] = {
    ExtractMode.MODEL: "extract_endpoint",
    ExtractMode.SERVICE: "extract_service",
}
"""The settings without which a mode has no extractor."""

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class ExtractionSettings:
    """How conversations are extracted."""

    batch: BatchLimits = field(default_factory=BatchLimits)
    context: ContextLimits = field(default_factory=ContextLimits)
    attempts_max: int = 5
    """Refused answers after which a batch is given up."""
    retry_first_s: float = 10.0
    """Until the first retry; doubles with each further one, up to ten minutes."""


@dataclass(frozen=True, slots=True)
class Extractors:
    """The extractors of the server, which all vaults share."""

    desks: Mapping[ExtractMode, ExtractorDesk]
    settings: ExtractionSettings = field(default_factory=ExtractionSettings)


NO_EXTRACTORS = Extractors({})


class _StoppedError(Exception):
    """The bridge was paused or suspended, or its policy changed, while a batch was with the extractor."""


@dataclass(eq=False, repr=False, slots=True)
class BridgeExtraction:
    """Extracts as long as `run` runs. Belongs to one event loop."""

    _ledger: BridgeLedger
    _pending: PendingBatches
    _reader: ConversationReader
    _settling: BatchSettling
    _turn: asyncio.Lock
    """Held for every change of the bridge."""
    _extractors: Extractors
    _wake: asyncio.Event = field(default_factory=asyncio.Event)
    _running: dict[str, asyncio.Task[None]] = field(default_factory=dict)
    _answers: dict[str, tuple[ExtractionRequest, Extraction]] = field(default_factory=dict)
    """Answers that could not be saved yet, by the keys of their batches."""
    _not_before: dict[str, float] = field(default_factory=dict)
    _held_until: float = 0.0
    _failures: int = 0
    problem: str = ""
    """Why messages wait longer than until their batch ends; empty if they do not."""

    def wake(self) -> None:
        """Looks for batches again: there are new ones, or the policy changed."""
        self._wake.set()

    def resume(self) -> None:
        """Tries again now."""
        self._held_until = 0.0
        self._not_before.clear()
        self._wake.set()

    async def run(self) -> None:
        """Extracts until it is cancelled."""
        try:
            while True:
                self._wake.clear()
                try:
                    wait_s = await self._start_due()
                except ChangedError:
                    continue
                except Exception as error:  # noqa: BLE001 - the batches are stored
                    wait_s = self._hold(error)
                # Not `wait_for`, which loses a cancellation at the moment in which it is woken (before Python 3.12).
                with suppress(TimeoutError):
                    async with asyncio.timeout(wait_s):
                        await self._wake.wait()
        finally:
            tasks = [*self._running.values()]
            for task in tasks:
                task.cancel()
            if tasks:
                await asyncio.wait(tasks)

    async def _start_due(self) -> float | None:
        """Starts the batches that are due; returns the time until the next one is, or None if something wakes it."""
        async with self._turn:
            await self._ledger.load()
            desk = self._desk()
            if desk is None:
                return None
            if (held_s := self._held_until - time.monotonic()) > 0.0:
                return held_s
            await self._pending.load()
            waits: list[float] = []
            for batch in self._pending.closed_ones():
                if len(self._running) >= desk.limits.calls_max:
                    return None
                if batch.conversation not in self._running and self._is_due(self._delay_left_s(batch), waits):
                    self._begin(desk, batch)
            # Closing one changes which are open.
            while (first := next(self._pending.open_ones(), None)) is not None:
                if len(self._running) >= desk.limits.calls_max:
                    return None
                # One that is still running has just ended, and wakes this.
                if first.conversation in self._running or not self._is_due(self._quiet_left_s(first), waits):
                    break
                self._begin(desk, await self._settling.close(first))
            return min(waits, default=None)

    @staticmethod
    def _is_due(wait_s: float, waits: list[float]) -> bool:
        """Whether there is nothing to wait for; otherwise notes the time."""
        if wait_s > 0.0:
            waits.append(wait_s)
        return wait_s <= 0.0

    def _begin(self, desk: ExtractorDesk, batch: PendingBatch) -> None:
        task = asyncio.create_task(self._extract(desk, batch))
        self._running[batch.conversation] = task

        def end(_: "asyncio.Task[None]") -> None:
            del self._running[batch.conversation]
            self._wake.set()

        task.add_done_callback(end)

    def _desk(self) -> ExtractorDesk | None:
        """The extractor to ask now."""
        mode, state = self._ledger.policy.extract, self._ledger.state
        if mode is ExtractMode.OFF or state.paused or state.suspension is not None:
            self.problem = ""
            return None
        desk = self._extractors.desks.get(mode)
        if desk is None:
            self.problem = f"the server has no {SETTINGS_OF_MODES[mode]}"
        return desk

    def _delay_left_s(self, batch: PendingBatch) -> float:
        """The time until a closed batch may be asked about again; not positive if it may be."""
        return self._not_before.get(batch.key, 0.0) - time.monotonic()

    def _quiet_left_s(self, batch: PendingBatch) -> float:
        """The time until it has been quiet long enough to close a batch; not positive if it has been."""
        passed_s = (to_microseconds(system_clock()) - batch.last_us) / 1e6
        # If the clock was set back, it is not waited for.
        return self._extractors.settings.batch.quiet_s - passed_s if passed_s >= 0.0 else 0.0

    async def _extract(self, desk: ExtractorDesk, batch: PendingBatch) -> None:
        try:
            await self._extract_once(desk, batch)
        except _StoppedError:
            self._answers.pop(batch.key, None)
        except RefusedError as error:
            await self._refuse(desk, batch, error)
        except Exception as error:  # noqa: BLE001 - the batch is stored
            self._hold(error)
        else:
            self._failures, self.problem = 0, ""

    async def _extract_once(self, desk: ExtractorDesk, batch: PendingBatch) -> None:
        if batch.key not in self._answers:
            messages = await self._reader.messages(batch.sequences)
            if not messages:
                await self._in_turn(desk, lambda: self._settling.drop(batch))
                return
            content_max = self._ledger.policy.content_max
            request = await self._reader.request(messages, batch.sequences[0], content_max, batch.refusal)
            if batch.attempts + 1 >= self._extractors.settings.attempts_max:
                # No batch is given up because of an extractor that answers nothing correctly, such as after a wrong
                # setting.
                await desk.require_sound()
            self._answers[batch.key] = request, await desk.ask(request)
        request, answer = self._answers[batch.key]
        await self._in_turn(desk, lambda: self._settling.save(batch, request, answer))
        del self._answers[batch.key]

    async def _refuse(self, desk: ExtractorDesk, batch: PendingBatch, error: RefusedError) -> None:
        """Counts a refused answer; gives the batch up after the last attempt."""
        attempts = batch.attempts + 1
        gives_up = attempts >= self._extractors.settings.attempts_max
        log.warning(
            "bridge: the extractor's answer about %d messages was refused (%s): %s; %s",
            len(batch.sequences),
            error.reason,
            error,
            f"they are given up after {attempts} attempts" if gives_up else f"attempt {attempts}",
        )
        try:
            await self._in_turn(desk, lambda: self._settling.refuse(batch, error, attempts, gives_up=gives_up))
        except _StoppedError:
            return
        except Exception as failure:  # noqa: BLE001 - the batch is stored
            self._hold(failure)
        self._not_before.pop(batch.key, None)
        if not gives_up:
            self._not_before[batch.key] = time.monotonic() + self._delay_s(attempts)

    async def _in_turn(self, desk: ExtractorDesk, settle: Callable[[], Awaitable[None]]) -> None:
        """Settles a batch, unless the bridge may no longer do so."""
        while True:
            async with self._turn:
                await self._ledger.load()
                if self._desk() is not desk:
                    raise _StoppedError
                await self._pending.load()
                with suppress(ChangedError):
                    await settle()
                    return

    def _hold(self, error: Exception) -> float:
        """Starts no more batches for a while; returns how long, in seconds."""
        now = time.monotonic()
        if self._held_until <= now:
            self._failures += 1
            is_known = isinstance(error, MnemonError)
            self.problem = str(error) if is_known else "something failed; the log says what"
            log.warning("bridge: the extraction waits: %s", self.problem, exc_info=None if is_known else error)
            wait_s = error.retry_after_s if isinstance(error, BudgetSpentError) else self._delay_s(self._failures)
            self._held_until = now + min(wait_s, RETRY_MAX_S)
        return self._held_until - now

    def _delay_s(self, failures: int) -> float:
        return min(self._extractors.settings.retry_first_s * 2.0 ** min(failures - 1, 30), RETRY_MAX_S)
