"""A vault of which a caller sees only some records. Whatever reads and writes through it cannot reach the others."""

from collections.abc import Callable
from concurrent.futures import Future
from datetime import datetime

from mnemon_server.domain.access.bounds import Bounds
from mnemon_server.domain.collections import FACTS, GRANTS, VERSIONS, Collection
from mnemon_server.domain.namespaces import encode_namespace
from mnemon_server.domain.records import RequestKey
from mnemon_server.domain.rules import RULES_STAMP
from mnemon_server.engines.bound.events import BoundEvents
from mnemon_server.engines.bound.records import BoundRecords, refuse, refused
from mnemon_server.engines.bound.transaction import BoundRecordTransaction
from mnemon_server.engines.past import PastRecords
from mnemon_server.engines.promises.change_log import ChangeLog
from mnemon_server.engines.promises.records import RecordEngine
from mnemon_server.engines.promises.vault import TransactionReceipt, Vault, VaultTransaction


class BoundVault:
    """See Vault. What concerns all records raises PermissionDeniedError."""

    def __init__(self, vault: Vault, bounds: Bounds) -> None:
        """The vault belongs to the caller, who closes it."""
        self._vault = vault
        self._bounds = bounds
        self._owner = bounds.owner(vault.changes.origin)
        self._collections: dict[Collection, BoundRecords] = {}
        self._events = BoundEvents(vault.events, bounds, self._owner)
        self.failure = vault.failure
        """See Vault."""

    @property
    def changes(self) -> ChangeLog:
        """See Vault."""
        raise refused()

    @property
    def events(self) -> BoundEvents:
        """See Vault."""
        return self._events

    def collection(self, collection: Collection) -> BoundRecords:
        """See Vault."""
        if collection == GRANTS:
            raise refused()
        if collection not in self._collections:
            records = self._vault.collection(collection)
            self._collections[collection] = BoundRecords(
                records, collection, self._bounds, self._owner, is_answered=self.is_answered
            )
        return self._collections[collection]

    def past(self, collection: Collection, at: datetime) -> RecordEngine:
        """See Vault."""
        return PastRecords(self.collection(collection), self.collection(VERSIONS), collection, at)

    def misses_history(self, collection: Collection, at: datetime, owner: str = "") -> bool:
        """See Vault. What is missing of others does not count."""
        if owner:
            return self._vault.misses_history(collection, at, owner)
        scopes, spaces = self._bounds.scopes(), self._bounds.spaces()
        owners = None if scopes is None else {each.user for each in scopes}
        if collection == FACTS:
            owners = None if spaces is None else {*map(encode_namespace, spaces)}
        return any(self._vault.misses_history(collection, at, each) for each in (("",) if owners is None else owners))

    def transact(
        self, program: Callable[[VaultTransaction], str], *, request: RequestKey | None = None
    ) -> Future[TransactionReceipt]:
        """See Vault."""
        owned = self._bounds.request(request, self._owner) if request else None
        return self._vault.transact(lambda tx: program(self.within(tx)), request=owned)

    def within(self, tx: VaultTransaction) -> "BoundTransaction":
        """A transaction over the whole vault, limited by the bounds."""
        return BoundTransaction(tx, self._bounds)

    def is_answered(self, request_id: str) -> bool:
        """See Vault."""
        return self._vault.is_answered(RequestKey(request_id, b"", self._owner).stored_id)

    def close(self) -> None:
        """Does nothing: the vault belongs to others."""

    # Refused: these concern all records

    value = values = answers = tombstones = forms_of = scan = discard = refuse
    set_unfinished = subscribe = waiting_writes = is_shadow_current = recover = refuse


class BoundTransaction:
    """See VaultTransaction."""

    def __init__(self, tx: VaultTransaction, bounds: Bounds) -> None:
        self._tx = tx
        self._bounds = bounds
        self.note_change = tx.note_change
        """See VaultTransaction."""

    @property
    def now(self) -> datetime:
        """See VaultTransaction."""
        return self._tx.now

    def collection(self, collection: Collection) -> BoundRecordTransaction:
        """See VaultTransaction."""
        if collection == GRANTS:
            raise refused()
        return BoundRecordTransaction(self._tx.collection(collection), collection, self._bounds)

    def value(self, key: str) -> str | None:
        """See VaultTransaction."""
        if key != RULES_STAMP:
            raise refused()
        return self._tx.value(key)

    set_value = remove_value = entomb = tombstones = forget = refuse
