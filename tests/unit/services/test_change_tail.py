"""Following the log from its end: no change is missed between a look at the log and the tail's first look."""

import asyncio
import threading
from typing import Any, cast

from mnemon_server.domain.changes import ChangeLogState
from mnemon_server.domain.collections import DOCUMENTS
from mnemon_server.engines.promises.change_log import ChangeLog
from mnemon_server.services.background.offload import Offload
from mnemon_server.services.feed.tail import ChangeTail

from tests.contract.vault_suite import DIMENSION, ManualClock, write
from tests.support.server import WAIT_S, until
from tests.support.vaults import temporary_vault


class LateLog:
    """A log that says late where it ends."""

    def __init__(self, log: ChangeLog) -> None:
        self._log = log
        self.is_asked = False
        self.gate = threading.Event()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._log, name)

    def state(self) -> ChangeLogState:
        """See ChangeLog."""
        self.is_asked = True
        assert self.gate.wait(WAIT_S)
        return self._log.state()


async def test_a_change_that_comes_before_the_first_look_wakes_those_who_read_the_log_before() -> None:
    offload = Offload(1, "tail")
    with temporary_vault(ManualClock(), dimension=DIMENSION) as vault:
        log = LateLog(vault.changes)
        tail = ChangeTail(cast("ChangeLog", log), vault.subscribe, offload)
        with tail.followed():
            news = tail.news
            await until(lambda: log.is_asked)
            assert not tail.covers(0)
            vault.collection(DOCUMENTS).put_document(write("d")).result()
            log.gate.set()
            await asyncio.wait_for(news.wait(), WAIT_S)

            assert not tail.covers(0)
        tail.close()
        offload.close()
