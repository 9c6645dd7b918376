"""The bridge's work after a gap in the log: its entries were dropped too early, or it is another log than before.

The bridge then reads the timeline itself. It reconciles the statements whose events are gone, and handles the events
that were saved since the last one that it handled, in their order.
"""

import logging
from collections.abc import Iterable
from dataclasses import dataclass, replace

import numpy as np

from mnemon_server.domain.bridge import LINK_KEY
from mnemon_server.domain.collections import SEMANTIC
from mnemon_server.domain.documents import Document
from mnemon_server.domain.events import EventSelection
from mnemon_server.domain.filters import Condition, Operator, RecordFilter
from mnemon_server.domain.records import Scope
from mnemon_server.engines.promises.events import Sequences
from mnemon_server.engines.promises.vault import Vault
from mnemon_server.services.background.offload import Offload
from mnemon_server.services.bridge.feed import items_of_timeline
from mnemon_server.services.bridge.ledger import BridgeLedger
from mnemon_server.services.bridge.reconciliation import LINKS_FIELD
from mnemon_server.services.bridge.state import CatchUp
from mnemon_server.services.bridge.steps import READ_MAX, BridgeSteps
from mnemon_server.services.quarantine.store import QuarantineStore
from mnemon_server.services.semantic.event_links import links_of

IDS_MAX = 1_000
LINKED = RecordFilter(expression=Condition(LINKS_FIELD, Operator.EXISTS, (True,)), hidden=None)
Dangling = dict[Scope, list[str]]
"""Ids of events that are gone, by the scopes (user and persona) of the statements linked to them."""

log = logging.getLogger(__name__)


@dataclass(eq=False, repr=False, slots=True)
class BridgeCatchUp:
    """Closes a gap in steps; after a restart, it continues with the interrupted step."""

    _vault: Vault
    _ledger: BridgeLedger
    _steps: BridgeSteps
    _quarantine: QuarantineStore
    _offload: Offload
    _missed: Sequences | None = None

    async def begin(self) -> None:
        """Stores that there is a gap, and where it ends."""
        version, before = self._ledger.version, self._ledger.state
        head, through = await self._offload(self._ends)
        catch_up = CatchUp(through=through)
        await self._ledger.commit(
            version, lambda _, state: replace(state, position=head, ahead=0, ahead_pruned=0, catch_up=catch_up)
        )
        self._missed = None
        log.info(
            "bridge: the event log has a gap after %d; saved and pruned events of the gap are read from the timeline",
            before.position,
        )

    async def step(self) -> bool:
        """Does one step; returns whether there may be another one now."""
        version, state = self._ledger.version, self._ledger.state
        catch_up = state.catch_up
        if catch_up is None:
            return True
        if catch_up.links_after is not None:
            await self._compare(version, catch_up, catch_up.links_after)
            return True
        if state.suspension is not None:
            return False
        await self._take(version, catch_up)
        return True

    def _ends(self) -> tuple[int, int]:
        """The head of the log, and the newest event of the timeline, which the log may not name yet."""
        head = self._vault.changes.state().head
        sequences = self._vault.events.sequences(EventSelection())
        return head, int(sequences[-1]) if len(sequences) else 0

    async def _compare(self, version: int, catch_up: CatchUp, after: int) -> None:
        """Compares some linked statements with the timeline."""
        position, dangling = await self._offload(self._dangling, after)
        done = replace(catch_up, links_after=position)
        for scope, event_ids in dangling.items():
            await self._steps.take_back(version, event_ids, scope)
        await self._ledger.commit(version, lambda _, state: replace(state, catch_up=done))

    def _dangling(self, after: int) -> tuple[int | None, Dangling]:
        """The links of the next statements to events that are gone; the position is None after the last statement."""
        records = self._vault.collection(SEMANTIC)
        if not records.has_metadata_key(LINK_KEY):
            return None, {}
        rows = records.list_documents(LINKED, after=after, limit=READ_MAX)
        if not rows:
            return None, {}
        documents = [document for _, document in rows]
        gone = self._gone({link for document in documents for link in links_of(document.metadata)})
        return rows[-1][0], _by_scope(documents, gone)

    def _gone(self, event_ids: Iterable[str]) -> set[str]:
        ids = sorted(event_ids)
        gone: set[str] = set()
        for start in range(0, len(ids), IDS_MAX):
            some = ids[start : start + IDS_MAX]
            found = zip(some, self._vault.events.get(some), strict=True)
            gone.update(event_id for event_id, stored in found if stored is None)
        return gone

    async def _take(self, version: int, catch_up: CatchUp) -> None:
        """Handles some events of the timeline that the log no longer names."""
        handled = self._ledger.state.timeline_sequence
        if self._missed is None:
            self._missed = await self._offload(self._vault.events.sequences, EventSelection())
        first, end = np.searchsorted(self._missed, [handled, catch_up.through], side="right").tolist()
        sequences = self._missed[first : min(end, first + READ_MAX)].tolist()
        if not sequences:
            through = max(catch_up.through, handled)
            await self._ledger.commit(version, lambda _, state: replace(state, catch_up=None, taken_through=through))
            self._missed = None
            return
        policy = self._ledger.policy
        stored = await self._offload(self._vault.events.read, sequences)
        segment_count = self._vault.events.status().segment_count
        items = await self._offload(
            items_of_timeline, stored, policy, self._quarantine.hides, segment_count=segment_count
        )
        if await self._steps.save(version, items, policy):
            # Events that are gone by now are skipped.
            self._ledger.move(timeline_sequence=sequences[-1])


def _by_scope(documents: Iterable[Document], gone: set[str]) -> Dangling:
    dangling: Dangling = {}
    for document in documents:
        if lost := [link for link in links_of(document.metadata) if link in gone]:
            scope = Scope(user=document.scope.user, persona=document.scope.persona)
            known = dangling.setdefault(scope, [])
            known += [link for link in lost if link not in known]
    return dangling
