"""Removes the records of an erasure, in steps, each with the tombstones of what it removes."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from itertools import groupby

from mnemon_server.domain.bridge import PruneAction, RoutingPolicy
from mnemon_server.domain.collections import SEMANTIC, VERSIONS
from mnemon_server.domain.documents import Document
from mnemon_server.domain.encoding import scope_values
from mnemon_server.domain.events import Event
from mnemon_server.domain.filters import AllOf, AnyOf, Condition, Operator, RecordFilter
from mnemon_server.domain.kinds import COLLECTION_OF, KINDS, VERSIONED, RecordKind, versions_of
from mnemon_server.domain.records import Scope
from mnemon_server.engines.promises.events import Sequences
from mnemon_server.engines.promises.vault import Vault, VaultTransaction
from mnemon_server.services.background.offload import Offload, transacted
from mnemon_server.services.bridge.reconciliation import LINKS_FIELD, linked_to, reconcile, remove_and_restore
from mnemon_server.services.erasure.selection import ERASED_KINDS, PAGE, Selection
from mnemon_server.services.erasure.survey import events_of, falling
from mnemon_server.services.events.pruning import EventPruning
from mnemon_server.services.facts.writes import remove as remove_fact
from mnemon_server.services.semantic.filters import among
from mnemon_server.services.writing.tombstones import Names

ROUNDS_MAX = 20
"""Passes over what is still being written while it is erased."""
REASON = "erased"
_DELETE = RoutingPolicy(on_prune=PruneAction.DELETE)


@dataclass(eq=False, repr=False, slots=True)
class Removal:
    """Removes what a selection finds, until it finds nothing more."""

    _vault: Vault
    _names: Names
    _time: datetime
    """The time of the tombstones."""
    _pruning: EventPruning
    _offload: Offload
    removed: int = 0

    async def run(self, selection: Selection) -> None:
        """Removes everything. Counts the removed records in `removed`."""
        for _ in range(ROUNDS_MAX):
            before = self.removed
            for kind in ERASED_KINDS:
                await self._remove_kind(kind, selection)
            await self._remove_events(selection)
            if self.removed == before:
                return

    async def _remove_kind(self, kind: RecordKind, selection: Selection) -> None:
        pages = selection.documents(kind)
        while page := await self._offload(_next, pages):
            await transacted(self._vault, partial(self._remove, kind=kind, page=page))
            self.removed += len(page)

    def _remove(self, tx: VaultTransaction, kind: RecordKind, page: Sequence[Document]) -> None:
        records = tx.collection(COLLECTION_OF[kind])
        page = [one for one in records.get_documents([one.doc_id for one in page]) if one is not None]
        if kind is RecordKind.SEMANTIC:
            fallen = falling(records, page)
            remove_and_restore(tx, fallen)
            page = [*fallen.values()]
        elif kind is RecordKind.FACT:
            for document in page:
                remove_fact(records, document, REASON)
        elif page:
            records.delete_documents(among("id", [one.doc_id for one in page], hidden=None), change=KINDS[kind].removed)
        self._forget(tx, kind, [one.doc_id for one in page])

    def _forget(self, tx: VaultTransaction, kind: RecordKind, ids: Sequence[str]) -> None:
        """Removes the versions of removed records, and leaves tombstones."""
        versions = tx.collection(VERSIONS)
        for start in range(0, len(ids) if kind in VERSIONED else 0, PAGE):
            some = ids[start : start + PAGE]
            versions.delete_documents(versions_of(kind, some), change=None)
            if kind is RecordKind.SEMANTIC:
                # Other statements once gave way to these.
                named = AnyOf(tuple(Condition("record", Operator.CONTAINS, (each,)) for each in some))
                where = AllOf((Condition("kind", Operator.EQ, (kind.value,)), named))
                versions.delete_documents(RecordFilter(expression=where, hidden=None), change=None)
        self._entomb(tx, kind, ids)

    async def _remove_events(self, selection: Selection) -> None:
        sequences = await self._offload(selection.events)
        for start in range(0, len(sequences), PAGE):
            events = await self._offload(_read, self._vault, sequences[start : start + PAGE])
            ids = [one.event_id for one in events]
            await transacted(self._vault, partial(self._entomb, kind=RecordKind.EVENT, ids=ids))
            for scope, some in _by_scope(events):
                await self._unlink(scope, [one.event_id for one in some])
        self.removed += await self._pruning.erase(sequences)

    async def _unlink(self, scope: Scope, event_ids: Sequence[str]) -> None:
        """Removes the statements that stand only by these events, whatever the bridge's policy would do with them."""
        linked = await self._offload(linked_to, self._vault.collection(SEMANTIC), event_ids, scope.user)
        if not linked:
            return

        def program(tx: VaultTransaction) -> None:
            gone = reconcile(tx, linked, event_ids, scope, _DELETE).memory_ids
            self._forget(tx, RecordKind.SEMANTIC, gone)
            # Statements that stand without the link had it in earlier versions.
            links = AnyOf(tuple(Condition(LINKS_FIELD, Operator.CONTAINS, (each,)) for each in event_ids))
            tx.collection(VERSIONS).delete_documents(RecordFilter(expression=links, hidden=None), change=None)

        await transacted(self._vault, program)

    def _entomb(self, tx: VaultTransaction, kind: RecordKind, ids: Sequence[str]) -> None:
        tx.entomb([self._names.record(kind, each) for each in ids], self._time)


def _next(pages: Iterator[list[Document]]) -> list[Document]:
    return next((page for page in pages if page), [])


def _read(vault: Vault, sequences: Sequences) -> list[Event]:
    return [*events_of(vault, sequences)]


def _by_scope(events: Sequence[Event]) -> Iterator[tuple[Scope, list[Event]]]:
    def key(event: Event) -> tuple[str, ...]:
        return scope_values(event.scope)

    for _, run in groupby(sorted(events, key=key), key=key):
        some = [*run]
        yield some[0].scope, some
