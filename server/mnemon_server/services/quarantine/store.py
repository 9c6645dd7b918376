"""Quarantines of a vault: stored in it, and known to all of its callers from the commit on."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from typing import Protocol

from mnemon_server.domain.access.bounds import Bounds
from mnemon_server.domain.access.quarantine import (
    QUARANTINES_MAX,
    REASON_BYTES_MAX,
    Quarantine,
    QuarantineNotFoundError,
    QuarantineReceipt,
    from_text,
    hidden_by,
    to_text,
    with_unnamed,
)
from mnemon_server.domain.clock import system_clock
from mnemon_server.domain.errors import FieldViolation, InvalidOperationError
from mnemon_server.domain.events import EventSelection
from mnemon_server.domain.filters import AllOf, RecordFilter
from mnemon_server.domain.kinds import COLLECTION_OF, RecordKind
from mnemon_server.domain.origins import NAMES, Provenance, any_from, is_origin, not_from
from mnemon_server.domain.records import Scope
from mnemon_server.domain.validation import id_violations, refuse, text_violations
from mnemon_server.engines.promises.vault import TransactionReceipt, Vault, VaultTransaction
from mnemon_server.services.background.offload import Offload, completion

KEY = "quarantines"
"""The key of the stored value."""
COUNTED = (RecordKind.DOCUMENT, RecordKind.MEMORY, RecordKind.SEMANTIC, RecordKind.FACT)
"""The kinds that are counted, besides events."""

Change = Callable[[Sequence[Quarantine]], Sequence[Quarantine]]


class ShownVault(Vault, Protocol):
    """A vault without hidden records."""

    def within(self, tx: VaultTransaction) -> VaultTransaction:
        """A transaction of the whole vault without hidden records. It has no values besides records."""


class QuarantineStore:
    """The quarantines of a vault. Belongs to one event loop."""

    def __init__(self, vault: Vault, within: Callable[[Vault, Bounds], ShownVault], offload: Offload) -> None:
        """Reads what is stored. The vault and the offload belong to the caller."""
        self._vault = vault
        self._within = within
        self._offload = offload
        self._take(from_text(vault.value(KEY)))

    def _take(self, quarantines: Sequence[Quarantine]) -> None:
        self.all = tuple(quarantines)
        """In the order in which they began."""
        self.hidden = hidden_by(self.all)
        """The origins and names of hidden records. A change replaces the tuple."""
        self._bounds = Bounds(hidden=self.hidden)
        self._shown = self._within(self._vault, self._bounds)

    # For the server's own work, which must not use hidden records either

    def hides(self, scope: Scope) -> bool:
        """Whether records with the origin of this scope are hidden."""
        return self._bounds.hides(scope)

    @property
    def shown(self) -> Vault:
        """The vault without hidden records."""
        return self._shown if self.hidden else self._vault

    def shown_in(self, tx: VaultTransaction) -> VaultTransaction:
        """A transaction without hidden records."""
        return self._shown.within(tx) if self.hidden else tx

    # For callers

    async def add(self, source: Provenance, reason: str = "") -> QuarantineReceipt:
        """Hides the records of a source. If it is in quarantine already, only a given reason is stored.

        Raises:
            InvalidArgumentError: no record can have this origin, or a text is not valid.
            InvalidOperationError: too many sources are in quarantine.
        """
        refuse([*source_violations(source), *text_violations(reason, "reason", REASON_BYTES_MAX)])
        added = Quarantine(source, reason, system_clock())
        before, after = await self._change(lambda known: _with(known, added))
        counts = await self._offload(self._counts, source)
        return QuarantineReceipt(_of(source, after), _of(source, before) is not None, counts)

    async def release(self, source: Provenance, *, allow_missing: bool = False) -> QuarantineReceipt:
        """Shows the records of a source again, except for records that another quarantine hides.

        Raises:
            InvalidArgumentError: no record can have this origin.
            QuarantineNotFoundError: the source is not in quarantine, and this is not allowed.
        """
        refuse(source_violations(source))

        def change(quarantines: Sequence[Quarantine]) -> Sequence[Quarantine]:
            left = [each for each in quarantines if each.source != source]
            if len(left) == len(quarantines) and not allow_missing:
                raise QuarantineNotFoundError(source)
            return left

        before, after = await self._change(change)
        known = _of(source, before)
        counts = await self._offload(self._counts, source, but=hidden_by(after)) if known else {}
        return QuarantineReceipt(known, known is not None, counts)

    async def _change(self, change: Change) -> tuple[Sequence[Quarantine], Sequence[Quarantine]]:
        """Returns the quarantines before and after the change."""
        before: Sequence[Quarantine] = ()

        def program(tx: VaultTransaction) -> str:
            nonlocal before
            before = from_text(tx.value(KEY))
            text = to_text(change(before))
            tx.set_value(KEY, text)
            return text

        changed = self._vault.transact(program)
        # Even if this caller leaves. Commits, and so these calls, are in order.
        changed.add_done_callback(self._note)
        after = from_text((await completion(changed)).answer)
        return before, after

    def _note(self, changed: Future[TransactionReceipt]) -> None:
        if not changed.cancelled() and changed.exception() is None:
            self._take(from_text(changed.result().answer))

    def _counts(self, source: Provenance, *, but: tuple[Provenance, ...] = ()) -> Mapping[RecordKind, int]:
        """Numbers of the records from a source, except for those that come from `but`."""
        sources, events = with_unnamed([source]), self._vault.events
        others = not_from(but)
        where = RecordFilter(expression=AllOf((any_from(sources), *([others] if others else []))), hidden=None)
        counts = {kind: self._vault.collection(COLLECTION_OF[kind]).count_documents(where) for kind in COUNTED}
        left = events.count(EventSelection(without=(*sources, *but)))
        return {**counts, RecordKind.EVENT: max(0, events.count(EventSelection(without=but)) - left)}


def source_violations(source: Provenance) -> Iterator[FieldViolation]:
    """The violations in the fields of a request that name a source."""
    if not is_origin(source.origin):
        yield FieldViolation("origin", f"must be one of {NAMES}")
    yield from id_violations(source.name, "origin_name")


def _of(source: Provenance, quarantines: Sequence[Quarantine]) -> Quarantine | None:
    return next((each for each in quarantines if each.source == source), None)


def _with(quarantines: Sequence[Quarantine], added: Quarantine) -> Sequence[Quarantine]:
    for place, known in enumerate(quarantines):
        if known.source == added.source:
            kept = Quarantine(known.source, added.reason or known.reason, known.create_time)
            return [*quarantines[:place], kept, *quarantines[place + 1 :]]
    if len(quarantines) >= QUARANTINES_MAX:
        raise InvalidOperationError(
            f"{QUARANTINES_MAX} sources are in quarantine, the most that can be; release one first, or quarantine a "
            "whole origin by leaving origin_name out"
        )
    return [*quarantines, added]
