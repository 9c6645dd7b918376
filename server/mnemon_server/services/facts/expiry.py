"""Removes expired facts about once a minute; to whoever reads they are gone since they expired."""

import asyncio
import logging
from types import TracebackType
from typing import Self

from mnemon_server.domain.errors import MnemonError
from mnemon_server.services.facts.store import FactStore

INTERVAL_S = 60.0

log = logging.getLogger(__name__)


class FactExpiry:
    """Sweeps a store of facts in the background. An async context manager; belongs to one event loop."""

    def __init__(self, facts: FactStore, *, interval_s: float = INTERVAL_S) -> None:
        """Removes nothing yet.

        Args:
            facts: whose facts.
            interval_s: seconds between two sweeps; the first one comes at once.
        """
        self._facts = facts
        self._interval_s = interval_s
        self._task: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        self._task = asyncio.create_task(self._run())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])

    async def _run(self) -> None:
        while True:
            try:
                if count := await self._facts.sweep():
                    log.info("%s expired facts were removed", f"{count:,}")
            except MnemonError as error:
                # They stay hidden, and until a later sweep succeeds they stay.
                log.warning("expired facts could not be removed: %s", error)
            except Exception:
                log.exception("expired facts could not be removed")
            await asyncio.sleep(self._interval_s)
