"""Periodic work in the background that goes on after failures."""

import asyncio
import logging
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Self

from mnemon_server.domain.errors import MnemonError

log = logging.getLogger(__name__)


class Periodic(ABC):
    """Does its work at once, and then after each interval. An async context manager; belongs to one event loop.

    After a failure, the work is done again after the next interval. The log has the failure once, and its end.
    """

    def __init__(self, failure: str, *, interval_s: float) -> None:
        """Does nothing yet.

        Args:
            failure: the log message if the work failed, such as "expired facts could not be removed".
            interval_s: seconds from the end of one turn to the beginning of the next.
        """
        self._failure = failure
        self._interval_s = interval_s
        self._task: asyncio.Task[None] | None = None
        self._unstoppable = asyncio.Lock()
        """For work on threads, which cancelling does not stop: leaving the block waits until no one holds it."""

    async def __aenter__(self) -> Self:
        self._task = asyncio.create_task(self._run())
        return self

    async def __aexit__(self, *exception: object) -> None:
        if self._task is not None:
            async with self._unstoppable:
                self._task.cancel()
                await asyncio.wait([self._task])

    @abstractmethod
    async def _turn(self) -> float | None:
        """Does the work; returns the seconds until the next turn, or None for the usual interval."""

    @asynccontextmanager
    async def _tolerating(self, tenant: str) -> AsyncIterator[None]:
        """Logs an expected error in the vault of a tenant, so that the others have their turn."""
        try:
            yield
        except MnemonError as error:
            log.warning("%s, of %s: %s", self._failure, tenant, error)

    async def _run(self) -> None:
        told = ""
        while True:
            wait_s = None
            try:
                wait_s = await self._turn()
                if told:
                    log.info("recovered: %s", self._failure)
                told = ""
            except MnemonError as error:
                # An expected error, such as a full disk: the next turn may succeed.
                if str(error) != told:
                    log.warning("%s: %s", self._failure, error)
                told = str(error)
            except Exception as error:
                if repr(error) != told:
                    log.exception(self._failure)
                told = repr(error)
            await asyncio.sleep(self._interval_s if wait_s is None else min(wait_s, self._interval_s))
