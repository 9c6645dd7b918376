"""The steps of the bridge along the log. Each is one transaction, or only reads."""

import json
import logging
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from mnemon_server.domain.bridge import RECOVERED_LAG_S, PruneAction, RoutingPolicy
from mnemon_server.domain.changes import Change, ChangeType
from mnemon_server.domain.collections import SEMANTIC
from mnemon_server.domain.errors import (
    NotServingError,
    StorageFailedError,
    StorageFullError,
    TooManyRequestsError,
)
from mnemon_server.domain.records import Scope
from mnemon_server.engines.promises.vault import Vault, VaultTransaction
from mnemon_server.services.background.offload import Offload
from mnemon_server.services.bridge.feed import FOLLOWED, items_of_log, runs_of, suspension_of
from mnemon_server.services.bridge.ledger import BridgeLedger, ChangedError
from mnemon_server.services.bridge.pending import PendingBatch, PendingBatches
from mnemon_server.services.bridge.reconciliation import Reconciled, linked_to, reconcile
from mnemon_server.services.bridge.routing import Skip
from mnemon_server.services.bridge.saving import Item, Tally, can_save, prepared
from mnemon_server.services.bridge.state import State, Suspension
from mnemon_server.services.feed.identity import details_of
from mnemon_server.services.quarantine.store import QuarantineStore
from mnemon_server.services.semantic.store import SemanticStore

READ_MAX = 256
BATCH_MAX = 64
"""Statements saved in one transaction. Other writes wait meanwhile."""
ATTEMPTS_MAX = 5
RECORD_ID = "bridge"

WAITS_FOR = (ChangedError, TooManyRequestsError, StorageFullError, StorageFailedError, NotServingError)
"""Errors that will pass, however long it takes, and that no event causes."""

log = logging.getLogger(__name__)


@dataclass(eq=False, repr=False, slots=True)
class BridgeSteps:
    """Moves the state of a ledger along the log. One task at a time may call it."""

    _vault: Vault
    _semantic: SemanticStore
    _ledger: BridgeLedger
    _pending: PendingBatches
    _quarantine: QuarantineStore
    _offload: Offload
    _batch_max: int = BATCH_MAX
    _attempts: int = 0

    async def advance(self) -> bool | None:
        """Handles the next changes, in order; returns whether there may be more, or None if the log has a gap.

        Raises:
            ChangedError: a call changed something; the step must be repeated.
            and the errors that prevent the step for now.
        """
        version, position = self._ledger.version, self._ledger.state.position
        found = await self._offload(self._vault.changes.read, position, limit=READ_MAX, where=FOLLOWED)
        if found.floor > position:
            return None
        runs = list(runs_of(found.changes))
        for number, run in enumerate(runs, 1):
            end = run[-1].sequence if number < len(runs) else found.position
            if not await self._handle(version, run, end):
                return True
        if not runs:
            self._ledger.move(position=found.position)
        return not found.caught_up

    async def look_ahead(self) -> bool:
        """Handles warnings and pruned events ahead of their turn; returns whether there may be more to do.

        While the bridge is suspended, it goes up to the change that ends the suspension.
        """
        version = self._ledger.version
        found = await self._offload(self._vault.changes.read, self._ledger.state.seen, limit=READ_MAX, where=FOLLOWED)
        for change in found.changes:
            if change.type is ChangeType.EPISODIC_PRUNED:
                await self._reconcile(version, change, is_ahead=True)
            elif change.type is ChangeType.EPISODIC_WARNING:
                await self._suspend(version, change, ahead=change.sequence)
            elif self._ledger.state.suspension is not None and (healthy := _sign_of_health(change)):
                await self._resume(version, change, healthy)
                return True
            self._ledger.move(ahead=change.sequence)
        self._ledger.move(ahead=found.position)
        return not found.caught_up

    async def save(self, version: int, items: Sequence[Item], policy: RoutingPolicy) -> bool:
        """Saves items in their order, many in one transaction; returns whether all were."""
        start = 0
        while start < len(items):
            batch = _batch(items, start, self._batch_max)
            saved = await self._save_batch(version, batch, policy)
            if saved < len(batch):
                return False
            start += saved
            self._attempts, self._batch_max = 0, min(2 * self._batch_max, BATCH_MAX)
        return True

    async def _handle(self, version: int, run: list[Change], end: int) -> bool:
        """Handles changes of one kind; returns whether the next ones can be handled, without reading again."""
        change, state = run[0], self._ledger.state
        if change.type is ChangeType.EPISODIC_SAVED:
            policy = self._ledger.policy
            through = state.taken_through
            hides = self._quarantine.hides
            items = await self._offload(items_of_log, self._vault.events, run, policy, hides, taken_through=through)
            items[-1] = replace(items[-1], progress={**items[-1].progress, "position": end})
            return await self.save(version, items, policy)
        if change.sequence <= state.ahead:
            pruned = state.ahead_pruned - (change.type is ChangeType.EPISODIC_PRUNED)
            self._ledger.move(position=end, ahead_pruned=max(0, pruned))
        elif change.type is ChangeType.EPISODIC_PRUNED:
            await self._reconcile(version, change)
        elif change.type is ChangeType.EPISODIC_WARNING:
            await self._suspend(version, change, position=change.sequence)
            return False
        self._ledger.move(position=end)
        return True

    async def _save_batch(self, version: int, items: Sequence[Item], policy: RoutingPolicy) -> int:
        """Saves as many items as there is room for, in one transaction; returns how many."""
        try:
            return await self._commit_batch(version, items, policy)
        except WAITS_FOR:
            raise
        except Exception:
            if not await self._is_to_blame(items):
                raise
            event = next(item.event for item in items if item.event is not None)
            log.exception("bridge: the event %r cannot be saved, and is skipped", event.event_id)
            given_up = [item if item.event is None else Item(item.progress, skip=Skip.FAILED) for item in items]
            return await self._commit_batch(version, given_up, policy)

    async def _commit_batch(self, version: int, items: Sequence[Item], policy: RoutingPolicy) -> int:
        tally, changed = Tally(), dict[str, PendingBatch | None]()
        async with prepared(self._semantic, items, policy) as batch:

            def program(tx: VaultTransaction, state: State) -> State:
                nonlocal tally, changed
                pending = self._pending.writes(tx)
                tally, changed = batch.save(tx, self._quarantine.shown_in(tx), pending), pending.changed
                return tally.applied(state)

            await self._ledger.commit(version, program)
        self._pending.apply(changed)
        return tally.handled

    async def _is_to_blame(self, items: Sequence[Item]) -> bool:
        """Whether the only event among the items keeps failing while others can be saved."""
        if sum(item.event is not None for item in items) != 1:
            self._batch_max = 1
            return False
        if await can_save(self._semantic):
            self._attempts += 1
        return self._attempts >= ATTEMPTS_MAX

    async def _reconcile(self, version: int, change: Change, *, is_ahead: bool = False) -> None:
        event_ids = [event_id for event_id, _ in details_of(change)["events"]]
        state = self._ledger.state
        progress = {"position": change.sequence}
        if is_ahead:
            progress = {"ahead": change.sequence, "ahead_pruned": state.ahead_pruned + 1}
        await self.take_back(version, event_ids, change.scope, record_id=change.record_id, **progress)

    async def take_back(
        self, version: int, event_ids: Sequence[str], scope: Scope, *, record_id: str = RECORD_ID, **progress: int
    ) -> None:
        """Reconciles statements with pruned events of one user and persona; `progress` has fields of the state."""
        memory_ids = await self._offload(linked_to, self._vault.collection(SEMANTIC), event_ids, scope.user)
        if not memory_ids:
            self._ledger.move(**progress)
            return
        policy, done = self._ledger.policy, Reconciled(self._ledger.policy.on_prune)

        def program(tx: VaultTransaction, state: State) -> State:
            nonlocal done
            done = reconcile(tx, memory_ids, event_ids, scope, policy)
            if done.event_ids:
                details = json.dumps(_audit(done), ensure_ascii=False)
                tx.note_change(ChangeType.BRIDGE_RECONCILED, record_id, scope=scope, details=details)
            return replace(_counted(state, done), **progress)  # type: ignore[arg-type]

        await self._ledger.commit(version, program)
        log.info(
            "bridge: %d pruned events had links: %d statements %s, %d remain without them, %d are visible again",
            len(done.event_ids),
            len(done.memory_ids),
            _done_to(done),
            len(done.unlinked_ids),
            len(done.restored_ids),
        )

    async def _suspend(self, version: int, change: Change, **progress: int) -> None:
        suspension = suspension_of(change)

        def program(tx: VaultTransaction, state: State) -> State:
            tx.note_change(ChangeType.BRIDGE_SUSPENDED, RECORD_ID, details=json.dumps(asdict(suspension)))
            return replace(state, suspension=suspension, **progress)  # type: ignore[arg-type]

        await self._ledger.commit(version, program)
        log.warning(
            "bridge: suspended by the timeline (%s): %s; %s",
            suspension.severity,
            suspension.message,
            suspension.remediation,
        )

    async def _resume(self, version: int, change: Change, why: str) -> None:
        await self._ledger.commit(version, lambda tx, state: resumed(tx, replace(state, ahead=change.sequence), why))
        log.info("bridge: resumed: %s", why)


def resumed(tx: VaultTransaction, state: State, why: str) -> State:
    """The state without a suspension. If there was one, its end is logged."""
    if state.suspension is not None:
        details = json.dumps(asdict(Suspension("info", why, "")))
        tx.note_change(ChangeType.BRIDGE_RESUMED, RECORD_ID, details=details)
    return replace(state, suspension=None)


def _sign_of_health(change: Change) -> str:
    """Why a change ends a suspension; empty if it does not."""
    if change.type is ChangeType.EPISODIC_HEALTHY:
        return "the timeline is healthy again"
    lag_s = details_of(change)["lag_us"] / 1e6
    return f"an event was saved {lag_s:g} s after it happened" if lag_s <= RECOVERED_LAG_S else ""


def _batch(items: Sequence[Item], start: int, events_max: int) -> Sequence[Item]:
    """The items from `start` on, with at most `events_max` events to save or to add to batches."""
    events = 0
    for end in range(start, len(items)):
        events += items[end].event is not None or items[end].message is not None
        if events > events_max:
            return items[start:end]
    return items[start:]


def _counted(state: State, done: Reconciled) -> State:
    if done.action is PruneAction.DEMOTE:
        return replace(state, demoted=state.demoted + len(done.memory_ids))
    return replace(state, deleted=state.deleted + len(done.memory_ids))


def _done_to(done: Reconciled) -> str:
    return "demoted" if done.action is PruneAction.DEMOTE else "deleted"


def _audit(done: Reconciled) -> dict[str, Any]:
    return {
        "event_ids": done.event_ids,
        "action": _done_to(done),
        "memory_ids": done.memory_ids,
        "unlinked_memory_ids": done.unlinked_ids,
    }
