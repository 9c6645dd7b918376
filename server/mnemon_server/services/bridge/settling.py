"""Ends pending batches: with what was extracted, with a refusal, or because their messages are gone.

Each is one transaction with the counts of the bridge, in the bridge's turn: a message that is pruned before it is seen
here, and the links to one that is pruned later are found when the bridge handles that.
"""

import hmac
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from mnemon_server.domain.bridge.extraction import Extraction, ExtractionRequest
from mnemon_server.domain.clock import system_clock
from mnemon_server.domain.errors import MnemonError
from mnemon_server.domain.events import Event
from mnemon_server.domain.records import Scope
from mnemon_server.engines.promises.events import EventWrite
from mnemon_server.engines.promises.vault import Vault, VaultTransaction
from mnemon_server.services.background.offload import completion
from mnemon_server.services.bridge.conversations import ConversationReader
from mnemon_server.services.bridge.extracted import prepared, summary_event
from mnemon_server.services.bridge.ledger import BridgeLedger
from mnemon_server.services.bridge.pending import PendingBatch, PendingBatches, PendingWrites
from mnemon_server.services.bridge.routing import Skip
from mnemon_server.services.bridge.state import State
from mnemon_server.services.events.pruning import EventPruning, Pruning
from mnemon_server.services.extraction.extractor import RefusedError
from mnemon_server.services.semantic.store import SemanticStore

Program = Callable[[VaultTransaction, State, PendingWrites], State]


class _SettledError(Exception):
    """The batch is not stored any more: an earlier transaction, whose outcome was unknown, had settled it."""


@dataclass(eq=False, repr=False, slots=True)
class BatchSettling:
    """Writes what becomes of batches. The caller has the bridge's turn."""

    _vault: Vault
    _semantic: SemanticStore
    _ledger: BridgeLedger
    _pending: PendingBatches
    _reader: ConversationReader
    _pruning: EventPruning

    async def close(self, batch: PendingBatch) -> PendingBatch:
        """Closes an open batch.

        Raises:
            ChangedError: something else changed the state of the bridge in the meantime.
            and the errors of a transaction.
        """

        def program(tx: VaultTransaction, state: State, pending: PendingWrites) -> State:
            pending.close(batch)
            return state

        await self._write(batch, self._ledger.version, program)
        return replace(batch, is_closed=True)

    async def save(self, batch: PendingBatch, request: ExtractionRequest, answer: Extraction) -> None:
        """Saves the statements and the summary of an answer. Raises as `close` and `SemanticStore.prepared`."""
        version = self._ledger.version
        messages = await self._reader.messages(batch.sequences)
        if not messages:
            await self.drop(batch)
            return
        sources = {event.event_id: event for event in messages}
        is_whole = len(messages) == len(batch.sequences)
        if is_whole and answer.summary:
            await self._record_summary(batch, messages[-1], request.scope, answer.summary)
        is_erased = False

        async with prepared(self._semantic, answer, request, sources) as statements:

            def program(tx: VaultTransaction, state: State, pending: PendingWrites) -> State:
                nonlocal is_erased
                tally, is_erased = statements.save(tx, self._reader.shown_in(tx))
                pending.remove(batch)
                gone: dict[str, int] = {} if is_whole else {Skip.GONE: len(batch.sequences) - len(messages)}
                return state.counted(linked=tally.linked, skipped=gone).extracting(
                    waiting=-len(batch.sequences),
                    messages=len(messages),
                    statements=tally.routed,
                    calls=1,
                    tokens=answer.tokens,
                )

            await self._write(batch, version, program)
        if is_erased or not is_whole:
            await self._remove_summary(batch)

    async def drop(self, batch: PendingBatch) -> None:
        """Removes a batch whose messages are gone. Raises as `close`."""
        # Before a crash, one may have been recorded.
        await self._remove_summary(batch)

        def program(tx: VaultTransaction, state: State, pending: PendingWrites) -> State:
            pending.remove(batch)
            count = len(batch.sequences)
            return state.counted(skipped={Skip.GONE: count}).extracting(waiting=-count)

        await self._write(batch, self._ledger.version, program)

    async def refuse(self, batch: PendingBatch, error: RefusedError, attempts: int, *, gives_up: bool) -> None:
        """Counts a refused answer, and removes the batch if it is given up. Raises as `close`."""
        count = len(batch.sequences)

        def program(tx: VaultTransaction, state: State, pending: PendingWrites) -> State:
            state = state.extracting(refused={error.reason: 1}, calls=1, tokens=error.tokens)
            if not gives_up:
                pending.note_refusal(batch, str(error), attempts)
                return state
            pending.remove(batch)
            return state.counted(skipped={Skip.NOT_EXTRACTED: count}).extracting(waiting=-count)

        await self._write(batch, self._ledger.version, program)

    async def _write(self, batch: PendingBatch, version: int, program: Program) -> None:
        changed: dict[str, PendingBatch | None] = {}

        def run(tx: VaultTransaction, state: State) -> State:
            nonlocal changed
            if tx.value(batch.key) is None:
                raise _SettledError
            pending = self._pending.writes(tx)
            after = program(tx, state, pending)
            changed = pending.changed
            return after

        try:
            await self._ledger.commit(version, run)
        except _SettledError:
            return
        self._pending.apply(changed)

    async def _record_summary(self, batch: PendingBatch, newest: Event, scope: Scope, summary: str) -> None:
        event = summary_event(self._summary_id(batch.sequences), newest, scope, summary, system_clock())
        [receipt] = await completion(self._vault.events.append([EventWrite(event, id_is_new=False)]))
        if isinstance(receipt, MnemonError):
            raise receipt

    async def _remove_summary(self, batch: PendingBatch) -> None:
        event_id = self._summary_id(batch.sequences)
        await self._pruning.prune(Pruning(event_ids=(event_id,), allow_missing=True))

    def _summary_id(self, sequences: Sequence[int]) -> str:
        """The id of the summary's event: always the same for a batch, so that a repetition is a duplicate."""
        return f"summary:{hmac.digest(self._vault.changes.origin, repr(sequences).encode(), 'sha256').hex()[:32]}"
