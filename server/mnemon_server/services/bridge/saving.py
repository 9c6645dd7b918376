"""Saves events of the timeline as statements: many in one transaction, together with the state of the bridge."""

from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import Any

from mnemon_server.domain.bridge import RoutingPolicy
from mnemon_server.domain.collections import SEMANTIC
from mnemon_server.domain.conflicts import ArbitrationAction, ArbitrationSide, Decision
from mnemon_server.domain.errors import InvalidArgumentError, MnemonError, ThrottledError
from mnemon_server.domain.events import Event
from mnemon_server.domain.origins import may_settle
from mnemon_server.domain.records import Scope
from mnemon_server.domain.semantic import SaveSemantic, SemanticMemory
from mnemon_server.engines.promises.vault import VaultTransaction
from mnemon_server.services.bridge.pending import PendingWrites, StoredMessage
from mnemon_server.services.bridge.routing import Skip, statement_of
from mnemon_server.services.bridge.state import State
from mnemon_server.services.semantic.event_linking import add_links
from mnemon_server.services.semantic.event_links import is_bridged
from mnemon_server.services.semantic.saving import SaveProgram
from mnemon_server.services.semantic.store import SemanticStore
from mnemon_server.services.writing.tombstones import erased_events

PROBE = SaveSemantic(memory=SemanticMemory("", "whether anything can be saved", scope=Scope(user="nobody")))


@dataclass(frozen=True, slots=True)
class Item:
    """An event to handle: one to save, or the reason why it is skipped."""

    progress: Mapping[str, Any]
    """The fields of the state after it was handled."""
    event: Event | None = None
    skip: Skip | None = None
    message: StoredMessage | None = None
    """An event that waits for the extractor instead of being saved. If there is none of the three, it was handled
    before, and is not counted again.
    """


@dataclass(slots=True)
class Tally:
    """The results for the items of a batch."""

    routed: int = 0
    linked: int = 0
    queued: int = 0
    skipped: dict[str, int] = field(default_factory=dict)
    progress: dict[str, Any] = field(default_factory=dict)
    handled: int = 0
    """How many items were handled, from the first on."""

    def skip(self, reason: Skip) -> None:
        """Counts an event that did not become a statement."""
        self.skipped[reason] = self.skipped.get(reason, 0) + 1

    def applied(self, state: State) -> State:
        """The state after the batch."""
        counted = state.counted(routed=self.routed, linked=self.linked, skipped=self.skipped)
        counted = counted.extracting(waiting=self.queued)
        handled = max(state.timeline_sequence, self.progress.get("timeline_sequence", 0))
        return replace(counted, **self.progress | {"timeline_sequence": handled})


@dataclass(frozen=True, slots=True)
class Batch:
    """Items whose statements are embedded. Room is reserved for them as long as they are prepared."""

    items: Sequence[Item]
    programs: Sequence[SaveProgram | MnemonError]
    """One for each item with an event."""

    def save(self, tx: VaultTransaction, shown: VaultTransaction, pending: PendingWrites) -> Tally:
        """Saves the items in their order, up to the first for which there is no room; adds messages to `pending`.
        `shown` has the records of the transaction that are not in quarantine.

        Raises:
            ThrottledError: there was no room for the first one.
        """
        tally, programs = Tally(), iter(self.programs)
        erased = iter(erased_events(tx, [item.event for item in self.items if item.event is not None]))
        for number, item in enumerate(self.items):
            try:
                if item.message is not None:
                    pending.add(item.message)
                    tally.queued += 1
                else:
                    _handle(shown, item, programs, tally, erased)
            except ThrottledError:
                # It refuses before it writes, so there is nothing to undo.
                if not number:
                    raise
                break
            tally.progress.update(item.progress)
            tally.handled += 1
        return tally


@asynccontextmanager
async def prepared(semantic: SemanticStore, items: Sequence[Item], policy: RoutingPolicy) -> AsyncIterator[Batch]:
    """Yields the batch that saves the items; its transaction must end before the block does.

    Raises:
        EmbeddingError: a text cannot be embedded.
        ThrottledError, IndexWarmingError: see SemanticStore.
    """
    statements = [statement_of(item.event, policy) for item in items if item.event is not None]
    requests = [SaveSemantic(memory=each, conflict_policy=policy.conflict_policy) for each in statements]
    if not requests:
        yield Batch(items, ())
        return
    async with semantic.prepared(requests) as programs:
        for program in programs:
            if isinstance(program, MnemonError) and not isinstance(program, InvalidArgumentError):
                raise program
        yield Batch(items, programs)


async def can_save(semantic: SemanticStore) -> bool:
    """Whether a harmless text can be prepared; nothing is saved."""
    async with semantic.prepared([PROBE]) as [program]:
        return isinstance(program, SaveProgram)


def _handle(
    tx: VaultTransaction,
    item: Item,
    programs: Iterator[SaveProgram | MnemonError],
    tally: Tally,
    erased: Iterator[bool],
) -> None:
    if item.event is None:
        if item.skip is not None:
            tally.skip(item.skip)
        return
    program = next(programs)
    if next(erased):
        # It was erased while its statement was being prepared.
        tally.skip(Skip.GONE)
        return
    if isinstance(program, MnemonError):
        tally.skip(Skip.INVALID)
        return
    save_statement(tx, program, [item.event], tally)


def save_statement(tx: VaultTransaction, program: SaveProgram, sources: Sequence[Event], tally: Tally) -> None:
    """Saves the statement that these events are the sources of, and counts what became of it."""
    saved = program.save(tx)
    if saved.duplicate and saved.memory is not None:
        _link(tx, saved.memory.memory_id, sources, tally)
    elif saved.memory is None:
        tally.skip(Skip.REJECTED)
    elif equal_id := _superseded_equal(saved.decision, program.memory.memory_id):
        _link(tx, equal_id, sources, tally)
    else:
        tally.routed += 1


def _superseded_equal(decision: Decision | None, memory_id: str) -> str:
    """The id of the superseded statement with the same content, if nothing new was stored because of it."""
    if decision is None or decision.arbitration.action is ArbitrationAction.MERGE:
        return ""
    lost_again = decision.arbitration.winner is ArbitrationSide.EXISTING and decision.candidate_id != memory_id
    return decision.candidate_id if lost_again else ""


def _link(tx: VaultTransaction, memory_id: str, sources: Sequence[Event], tally: Tally) -> None:
    """Links a known statement to the events that may confirm it, unless a caller saved it directly: that one stands on
    its own.
    """
    [known] = tx.collection(SEMANTIC).get_documents([memory_id])
    if known is None or not is_bridged(known.metadata):
        tally.skip(Skip.KNOWN)
        return
    confirming = [each for each in sources if may_settle(each.scope, known.scope)]
    if not confirming:
        tally.skip(Skip.KNOWN)
        return
    importance = max((each.importance for each in confirming if each.importance is not None), default=None)
    add_links(tx, known, [each.event_id for each in confirming], importance)
    tally.linked += 1
