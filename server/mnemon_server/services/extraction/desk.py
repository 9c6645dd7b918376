"""Asks an extractor, within a budget of calls and tokens that all vaults share."""

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime

from mnemon_server.domain.bridge.extraction import Extraction, ExtractionRequest, Turn
from mnemon_server.domain.records import Scope
from mnemon_server.services.extraction.extractor import (
    BudgetSpentError,
    Extractor,
    ExtractorAwayError,
    RefusedError,
    checked,
)
from mnemon_server.services.limits.accounts import Bucket

HOUR_S = 3_600.0

PROBE = ExtractionRequest(
    scope=Scope(user="someone"),
    conversation="probe",
    messages=(
        Turn(message_id="probe", role="user", content="Hello! I like tea.", time=datetime(2026, 1, 1, tzinfo=UTC)),
    ),
    now=datetime(2026, 1, 1, tzinfo=UTC),
    content_max=512,
)
"""A request with which nothing is wrong."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExtractorLimits:
    """The budget of an extractor."""

    calls_max: int = 4
    """Concurrent calls."""
    calls_per_hour: float = 600.0
    tokens_per_hour: float = 1_000_000.0


class ExtractorDesk:
    """Calls an extractor within its limits, and checks its answers. Belongs to one event loop."""

    def __init__(
        self, extractor: Extractor, limits: ExtractorLimits, clock: Callable[[], float] = time.monotonic
    ) -> None:
        """The extractor is closed with it."""
        self.limits = limits
        self._extractor = extractor
        self._turns = asyncio.Semaphore(limits.calls_max)
        self._calls = Bucket(limits.calls_per_hour / HOUR_S, limits.calls_per_hour, now=clock)
        self._tokens = Bucket(limits.tokens_per_hour / HOUR_S, limits.tokens_per_hour, now=clock)

    async def ask(self, request: ExtractionRequest) -> Extraction:
        """The answer, all of which can be saved.

        Raises:
            BudgetSpentError: the budget is used up.
            ExtractorAwayError: the extractor cannot be reached, is late, or is not set up correctly.
            RefusedError: it rejected the request, or its answer cannot be used.
        """
        async with self._turns:
            wait_s = max(self._calls.wait_s(1.0), self._tokens.wait_s(1.0))
            if wait_s:
                raise BudgetSpentError(f"the extractor's budget for this hour is used up for {wait_s:,.0f} s", wait_s)
            self._calls.spend(1.0)
            try:
                answer = await self._extractor.extract(request)
            except RefusedError as error:
                self._tokens.spend(error.tokens)
                raise
            self._tokens.spend(answer.tokens)
        try:
            return checked(answer, request)
        except RefusedError as error:
            error.tokens = answer.tokens
            raise

    async def require_sound(self) -> None:
        """Returns if the extractor answers a harmless request as it should.

        Raises:
            BudgetSpentError, ExtractorAwayError: see `ask`; the latter also if the answer cannot be used.
        """
        try:
            await self.ask(PROBE)
        except RefusedError as error:
            raise ExtractorAwayError(
                f"the extractor's answers cannot be used, not even about a harmless message: {error}"
            ) from error

    async def aclose(self) -> None:
        """Ends calls in progress."""
        await self._extractor.aclose()
