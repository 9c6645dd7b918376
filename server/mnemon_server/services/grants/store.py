"""The grants service: who may see and change records of others, and who lets them."""

import asyncio
from collections import defaultdict
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Self

from mnemon_server.domain.access import Principal
from mnemon_server.domain.access.bounds import Bounds
from mnemon_server.domain.access.errors import GrantNotFoundError
from mnemon_server.domain.access.grants import (
    GRANTS_MAX,
    GRANTS_PER_SUBJECT_MAX,
    PENDING_MAX,
    Grant,
    end_violations,
    grant_violations,
    is_manager,
    owns,
    subjects_of,
)
from mnemon_server.domain.clock import system_clock
from mnemon_server.domain.collections import GRANTS
from mnemon_server.domain.errors import InvalidOperationError, MnemonError, PermissionDeniedError
from mnemon_server.domain.filters import AllOf, Condition, NoneOf, Operator, RecordFilter
from mnemon_server.domain.kinds import RecordKind
from mnemon_server.domain.records import PageOf
from mnemon_server.domain.validation import refuse
from mnemon_server.engines.promises.records import RecordTransaction
from mnemon_server.engines.promises.values import DocumentWrite
from mnemon_server.engines.promises.vault import Vault, VaultTransaction
from mnemon_server.services.background.offload import transacted
from mnemon_server.services.background.periodic import Periodic
from mnemon_server.services.grants.stored_form import to_document, to_grant
from mnemon_server.services.writing.tombstones import names_of

REFRESH_S = 1.0
"""How soon grants that were imported or erased take effect, or end."""

_Placed = Mapping[int, Grant]


class GrantStore(Periodic):
    """The grants of a vault, all of them in memory. An async context manager; belongs to one event loop.

    A grant that has expired does not exist any more.
    """

    def __init__(self, vault: Vault) -> None:
        """The vault belongs to the caller."""
        super().__init__("grants could not be read", interval_s=REFRESH_S)
        self._vault = vault
        self._records = vault.collection(GRANTS)
        self._sequence = -1
        self._grants: _Placed = {}
        """By position, in the order of their creation."""
        self._of_subject: Mapping[str, list[Grant]] = {}

    async def __aenter__(self) -> Self:
        # Even without grants, callers can use their own records. The next turn tries again, and logs the error.
        with suppress(MnemonError):
            await self._refresh()
        return await super().__aenter__()

    def sharing(self, bounds: Bounds) -> Bounds:
        """A caller's bounds with what was granted to it."""
        if not self._of_subject:
            return bounds
        now = system_clock()
        found = [
            grant.share
            for subject in subjects_of(bounds.holder, bounds)
            for grant in self._of_subject.get(subject, ())
            if grant.accepted_at is not None and not grant.has_ended(now)
        ]
        return bounds.sharing(found, bounds.holder) if found else bounds

    async def list(self, caller: Principal, *, after: int, limit: int) -> PageOf[Grant]:
        """The grants to the caller and of the caller's records, after a position; for an admin, all of the tenant."""
        await self._turn()
        seen = [
            (position, grant)
            for position, grant in self._grants.items()
            if position > after and self._is_seen(caller, grant)
        ]
        page = seen[:limit]
        return PageOf(tuple(grant for _, grant in page), page[-1][0] if len(seen) > limit else None)

    async def create(self, caller: Principal, grant: Grant) -> Grant:
        """Grants something, or replaces the time and the rights of the grant of the same records to the same subject.

        Args:
            caller: an admin, or the owner of all shared records.
            grant: what to grant; its creation and acceptance are set here. An admin's takes effect at once, any other
                when a caller to whom it is granted accepts it.

        Raises:
            InvalidArgumentError: the grant is not valid.
            InvalidOperationError: there are too many grants.
            PermissionDeniedError: the caller may not grant that.
        """
        _check_may_manage(caller)
        now = system_clock()
        grant = replace(grant, created_at=now, granted_by=caller.subject)
        refuse([*grant_violations(grant), *end_violations(grant.expires_at, now)])
        if not is_manager(caller) and not owns(caller.bounds, grant.share):
            raise PermissionDeniedError("only an admin can grant this: your credential is not bound to all of it")

        def program(tx: VaultTransaction) -> None:
            records = tx.collection(GRANTS)
            ended = Condition("expire_time", Operator.LTE, (now,))
            records.delete_documents(RecordFilter(expression=ended), change=None)
            [stored] = records.get_documents([grant.grant_id])
            accepted = to_grant(stored).accepted_at if stored is not None else None
            made = replace(grant, accepted_at=accepted or (now if is_manager(caller) else None))
            _check_room(records, made)
            records.put_document(DocumentWrite(document=to_document(made), passages=(), change=None))

        await self._write(program)
        return self._found(caller, grant.grant_id)[1]

    async def accept(self, caller: Principal, grant_id: str) -> Grant:
        """Puts a grant into effect for all callers to whom it was granted. Accepting it again changes nothing.

        Raises:
            GrantNotFoundError: the caller sees no such grant.
            PermissionDeniedError: it was not granted to the caller.
        """
        _check_may_manage(caller)
        await self._turn()
        _, known = self._found(caller, grant_id)
        if not is_manager(caller) and not _is_to(caller, known):
            raise PermissionDeniedError("only a caller to whom it was granted can accept it, or an admin")

        def program(tx: VaultTransaction) -> None:
            records = tx.collection(GRANTS)
            [stored] = records.get_documents([grant_id])
            if stored is None:
                raise GrantNotFoundError(grant_id)
            grant = to_grant(stored)
            if grant.accepted_at is None:
                accepted = replace(grant, accepted_at=system_clock())
                _check_room(records, accepted)
                records.put_document(DocumentWrite(document=to_document(accepted), passages=(), change=None))

        await self._write(program)
        return self._found(caller, grant_id)[1]

    async def revoke(self, caller: Principal, grant_id: str, *, allow_missing: bool = False) -> None:
        """Ends a grant that the caller sees: the one who granted it, and the one to whom it was granted, both may.

        Raises:
            GrantNotFoundError: the caller sees no such grant, and `allow_missing` is false.
        """
        _check_may_manage(caller)
        await self._turn()
        try:
            self._found(caller, grant_id)
        except GrantNotFoundError:
            if allow_missing:
                return
            raise

        def program(tx: VaultTransaction) -> None:
            tx.collection(GRANTS).delete_document(grant_id, change=None)
            # An older archive must not bring it back.
            tx.entomb([names_of(tx).record(RecordKind.GRANT, grant_id)], tx.now)

        await self._write(program)

    def _found(self, caller: Principal, grant_id: str) -> tuple[int, Grant]:
        for position, grant in self._grants.items():
            if grant.grant_id == grant_id and self._is_seen(caller, grant):
                return position, grant
        raise GrantNotFoundError(grant_id)

    def _is_seen(self, caller: Principal, grant: Grant) -> bool:
        if grant.has_ended(system_clock()):
            return False
        return (
            is_manager(caller)
            or _is_to(caller, grant)
            or (caller.bounds.is_narrow and owns(caller.bounds, grant.share))
        )

    async def _write(self, program: Callable[[VaultTransaction], None]) -> None:
        await transacted(self._vault, program)
        await self._refresh()

    async def _turn(self) -> float | None:
        if self._records.stats().sequence != self._sequence:
            await self._refresh()
        return None

    async def _refresh(self) -> None:
        async with self._unstoppable:
            self._sequence, self._grants = await asyncio.to_thread(self._read)
            of_subject = defaultdict[str, list[Grant]](list)
            for grant in self._grants.values():
                of_subject[grant.subject].append(grant)
            self._of_subject = dict(of_subject)

    def _read(self) -> tuple[int, _Placed]:
        # Before the documents, so that a grant written in between is read with the next refresh.
        sequence = self._records.stats().sequence
        rows = self._records.list_documents(RecordFilter(), limit=GRANTS_MAX)
        return sequence, {position: to_grant(document) for position, document in rows}


def _is_to(caller: Principal, grant: Grant) -> bool:
    return grant.subject in subjects_of(caller.subject, caller.bounds)


def _check_may_manage(caller: Principal) -> None:
    """Raises PermissionDeniedError if the caller may manage no grants at all."""
    if caller.bounds.origins:
        known = ", ".join(map(repr, map(str, caller.bounds.origins)))
        raise PermissionDeniedError(f"a credential that is limited to origins ({known}) cannot manage grants")
    if not caller.bounds.is_narrow and not is_manager(caller):
        raise PermissionDeniedError("grants of the whole tenant are managed by admins; your credential is a writer")


def _check_room(records: RecordTransaction, grant: Grant) -> None:
    """Raises InvalidOperationError if the limit of grants is reached. Pending grants count for the
    caller who made them, so that one caller cannot use up the room of others.
    """
    other = NoneOf((Condition("id", Operator.EQ, (grant.grant_id,)),))
    is_accepted = Condition("accept_time", Operator.EXISTS, (grant.accepted_at is not None,))
    by, name = ("granted_by", grant.granted_by) if grant.accepted_at is None else ("subject", grant.subject)
    limit = PENDING_MAX if grant.accepted_at is None else GRANTS_PER_SUBJECT_MAX
    same = RecordFilter(expression=AllOf((other, is_accepted, Condition(by, Operator.EQ, (name,)))))
    if records.count_documents(same) >= limit:
        what = "you have made" if grant.accepted_at is None else "the subject has"
        more = " that were not accepted yet" if grant.accepted_at is None else ""
        raise InvalidOperationError(f"{what} {limit:,} grants{more}, the most there can be; revoke one first")
    if records.count_documents(RecordFilter(expression=other)) >= GRANTS_MAX:
        raise InvalidOperationError(f"the tenant has {GRANTS_MAX:,} grants, the most it can have; revoke one first")
