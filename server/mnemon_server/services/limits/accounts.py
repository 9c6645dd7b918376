"""The use of tenants and callers, their quotas, and the slots that they share."""

import math
import time
from collections import OrderedDict
from collections.abc import Callable, Hashable
from dataclasses import dataclass, replace

from mnemon_server.domain.access.quotas import UNLIMITED, Quotas
from mnemon_server.domain.errors import QuotaExceededError, TooManyRequestsError

RETRY_AFTER_S = 0.5
CALLERS_MAX = 10_000
"""Callers whose use is remembered; those that have not called for longest, and have no call open, are forgotten."""
MIB = 1 << 20

Clock = Callable[[], float]


@dataclass(slots=True)
class Usage:
    """The use of a tenant or a caller. Totals are counted since the server was started."""

    calls: int = 0
    """Calls that began, single ones and streams."""
    refused_calls: int = 0
    """Calls that were refused because of a quota."""
    concurrent_calls: int = 0
    """Single calls that are not answered yet."""
    open_streams: int = 0
    request_bytes: int = 0
    """Memory for requests that are being answered."""
    answer_bytes: int = 0
    """Memory for large answers that are being made."""
    unread_bytes: int = 0
    """Memory for large messages that were sent and that clients have not taken yet."""
    embedding_seconds: float = 0.0
    """For how long the embedding model ran."""
    records: int | None = None
    """Records of all kinds, as last counted; None as long as the vault was not opened."""
    disk_bytes: int | None = None
    """Size of the vault's files, as last measured; None as long as the vault was not opened."""

    @property
    def bytes_in_flight(self) -> int:
        """Memory for requests and answers in progress."""
        return self.request_bytes + self.answer_bytes + self.unread_bytes


class Bucket:
    """Allows a rate on average: what is not used is saved up to `size`; what is used in advance is waited for."""

    __slots__ = ("_filled_at", "_left", "_now", "_rate", "_size")

    def __init__(self, rate: float | None, size: float, *, now: Clock) -> None:
        """Is full. `rate` is per second; None: no limit."""
        self._rate, self._size, self._now = rate, size, now
        self._left, self._filled_at = size, now()

    @property
    def rate(self) -> float:
        """The rate, per second; infinite without a limit."""
        return math.inf if self._rate is None else self._rate

    @property
    def is_full(self) -> bool:
        """Whether nothing is in use."""
        return self._rate is None or self._fill() >= self._size

    def wait_s(self, amount: float) -> float:
        """Seconds until this much may be used; 0 if it may be used now."""
        if self._rate is None:
            return 0.0
        missing = amount - self._fill()
        return missing / self._rate if missing > 0 else 0.0

    def spend(self, amount: float) -> None:
        """Uses this much, even if it is more than there is."""
        if self._rate is not None:
            self._left -= amount

    def _fill(self) -> float:
        """Adds the amount that has accrued since the last call, and returns the amount that is left."""
        assert self._rate is not None  # noqa: S101 - otherwise, nothing is asked
        now = self._now()
        self._left = min(self._size, self._left + self._rate * (now - self._filled_at))
        self._filled_at = now
        return self._left


class Account:
    """The use of a tenant, or of a caller, and its quotas. Belongs to one event loop."""

    __slots__ = ("_all", "_calls", "_embedding", "_now", "_quotas", "parent", "subject", "usage")

    def __init__(self, subject: str, quotas: Quotas, *, parent: "Account | None" = None, now: Clock) -> None:
        """Has used nothing yet.

        `subject` says whose it is, such as "tenant:acme". A caller's account has the tenant's as its parent, and the
        quotas of both hold. `now` is the time in seconds.
        """
        self.subject, self.parent, self.usage = subject, parent, Usage()
        self._all: tuple[Account, ...] = (self,) if parent is None else (parent, self)
        self._now = now
        self._limit(quotas)

    @property
    def quotas(self) -> Quotas:
        """The most that may be used. May be set at any time; what is in use stays."""
        return self._quotas

    @quotas.setter
    def quotas(self, quotas: Quotas) -> None:
        if quotas != self._quotas:
            self._limit(quotas)

    @property
    def of_tenant(self) -> "Account":
        """The account of the tenant."""
        return self if self.parent is None else self.parent

    @property
    def is_idle(self) -> bool:
        """Whether no call is open, and the account would be the same if it were made anew."""
        usage = self.usage
        return not (usage.concurrent_calls or usage.open_streams or usage.bytes_in_flight) and self._calls.is_full

    def begin(self, *, single: bool, stores: bool = False) -> None:
        """Counts a call that begins, and whether it stores something; `end` must follow.

        Raises:
            QuotaExceededError: a quota of the caller or of the tenant is used up. Then nothing is counted as used.
        """
        try:
            for account in self._all:
                if account._quotas is not UNLIMITED:
                    account._require_call(single=single)
            if stores:
                self.require_space()
        except QuotaExceededError:
            for account in self._all:
                account.usage.refused_calls += 1
            raise
        for account in self._all:
            account._calls.spend(1)
            usage = account.usage
            usage.calls += 1
            if single:
                usage.concurrent_calls += 1
            else:
                usage.open_streams += 1

    def end(self, *, single: bool, held: int = 0) -> None:
        """Counts a call that has ended, with the bytes that it held until now."""
        for account in self._all:
            usage = account.usage
            if single:
                usage.concurrent_calls -= 1
            else:
                usage.open_streams -= 1
            usage.request_bytes -= held

    def hold(self, size: int) -> None:
        """Counts bytes that a call holds in memory, until `give` or `end`.

        Raises:
            QuotaExceededError: with them, it would be more than the quota. What comes alone always passes.
        """
        for account in reversed(self._all):
            limit, used = account._quotas.mib_in_flight, account.usage.bytes_in_flight
            if limit is not None and used and used + size > limit * MIB:
                raise account._exceeded("mib_in_flight", limit, (used + size) / MIB, RETRY_AFTER_S)
        self.give(-size)

    def give(self, size: int) -> None:
        """Counts bytes that are no longer held."""
        for account in self._all:
            account.usage.request_bytes -= size

    @property
    def limits_space(self) -> bool:
        """Whether what is stored has a quota."""
        return self._quotas.records is not None or self._quotas.disk_mib is not None

    def require_space(self) -> None:
        """Raises QuotaExceededError if nothing more may be stored for the tenant. Any thread may call it."""
        tenant = self.of_tenant
        quotas, usage = tenant._quotas, tenant.usage
        if quotas.records is not None and usage.records is not None and usage.records >= quotas.records:
            raise tenant._exceeded("records", quotas.records, usage.records, None)
        if quotas.disk_mib is not None and usage.disk_bytes is not None and usage.disk_bytes >= quotas.disk_mib * MIB:
            raise tenant._exceeded("disk_mib", quotas.disk_mib, round(usage.disk_bytes / MIB, 3), None)

    def count_answer(self, size: int) -> None:
        """Counts memory that an answer takes, or gives back if it is negative. For one thread at a time."""
        for account in self._all:
            account.usage.answer_bytes += size

    def count_unread(self, size: int) -> None:
        """Counts memory that a message takes which is sent, or gives back if it is negative."""
        for account in self._all:
            account.usage.unread_bytes += size

    def require_embedding(self) -> None:
        """Raises QuotaExceededError if the model has run as long as it may for now. Any thread may call it."""
        if wait_s := self._embedding.wait_s(0):
            limit = 60 * self._embedding.rate
            raise self._exceeded("embedding_seconds_per_minute", limit, limit, wait_s)

    def note_embedding(self, seconds: float) -> None:
        """Counts seconds for which the model ran. For one thread at a time."""
        self.usage.embedding_seconds += seconds
        self._embedding.spend(seconds)

    def _require_call(self, *, single: bool) -> None:
        quotas, usage = self._quotas, self.usage
        name, used = ("concurrent_calls", usage.concurrent_calls) if single else ("open_streams", usage.open_streams)
        limit = quotas.concurrent_calls if single else quotas.open_streams
        if limit is not None and used >= limit:
            raise self._exceeded(name, limit, used, RETRY_AFTER_S)
        if quotas.mib_in_flight is not None and usage.bytes_in_flight >= quotas.mib_in_flight * MIB:
            raise self._exceeded("mib_in_flight", quotas.mib_in_flight, usage.bytes_in_flight / MIB, RETRY_AFTER_S)
        if wait_s := self._calls.wait_s(1):
            raise self._exceeded("calls_per_second", self._calls.rate, self._calls.rate, wait_s)

    def _limit(self, quotas: Quotas) -> None:
        self._quotas = quotas
        rate, per_minute = quotas.calls_per_second, quotas.embedding_seconds_per_minute
        self._calls = Bucket(rate, max(1.0, quotas.calls_burst or rate or 0), now=self._now)
        self._embedding = Bucket(None if per_minute is None else per_minute / 60, per_minute or 0, now=self._now)

    def _exceeded(self, quota: str, limit: float, used: float, retry_after_s: float | None) -> QuotaExceededError:
        return QuotaExceededError(self.subject, quota, limit=limit, used=used, retry_after_s=retry_after_s)


class Accounts:
    """The accounts of all tenants and callers. Belongs to one event loop, except for what the embedder asks.

    Callers have accounts only if the settings limit callers.
    """

    def __init__(
        self, per_tenant: Quotas = UNLIMITED, per_caller: Quotas = UNLIMITED, *, now: Clock = time.monotonic
    ) -> None:
        """`per_tenant` are the quotas of a tenant that has no others; `per_caller` those of each caller."""
        self._per_tenant, self._per_caller, self._now = per_tenant, per_caller, now
        self._own: dict[str, Quotas] = {}
        self._tenants: dict[str, Account] = {}
        self._callers: OrderedDict[tuple[str, str], Account] = OrderedDict()

    def of(self, tenant: str, caller: str) -> Account:
        """The account that a call of this caller is counted in."""
        if self._per_caller is UNLIMITED:
            return self._tenants.get(tenant) or self.of_tenant(tenant)
        key = (tenant, caller)
        account = self._callers.get(key)
        if account is None:
            self._forget_idle()
            account = Account(f"caller:{caller}", self._per_caller, parent=self.of_tenant(tenant), now=self._now)
            self._callers[key] = account
        else:
            self._callers.move_to_end(key)
        return account

    def of_tenant(self, tenant: str) -> Account:
        """The account of a tenant."""
        account = self._tenants.get(tenant)
        if account is None:
            # In one step, since the embedder asks from its threads.
            account = self._tenants.setdefault(
                tenant, Account(f"tenant:{tenant}", self.quotas_of(tenant), now=self._now)
            )
        return account

    def quotas_of(self, tenant: str) -> Quotas:
        """The quotas of a tenant: its own over the defaults of the settings."""
        own = self._own.get(tenant)
        return self._per_tenant if own is None else own.over(self._per_tenant)

    def set_quotas(self, own: dict[str, Quotas]) -> None:
        """Gives tenants quotas of their own, and all others those of the settings. Calls in progress go on."""
        self._own = dict(own)
        for tenant, account in self._tenants.items():
            account.quotas = self.quotas_of(tenant)

    def require(self, tenant: str, *, stored: bool) -> None:
        """For the embedder: see `require_embedding`, and for texts to be stored `require_space`, of Account."""
        account = self.of_tenant(tenant)
        account.require_embedding()
        if stored:
            account.require_space()

    def note(self, tenant: str, seconds: float) -> None:
        """For the embedder: see `Account.note_embedding`."""
        self.of_tenant(tenant).note_embedding(seconds)

    def usages(self) -> dict[str, Usage]:
        """The current use of each tenant that has called, in the order of their first calls."""
        return {tenant: account.usage for tenant, account in self._tenants.items()}

    def usage_of(self, tenant: str) -> Usage:
        """The current use of a tenant, as a copy."""
        account = self._tenants.get(tenant)
        return Usage() if account is None else replace(account.usage)

    def _forget_idle(self) -> None:
        """Forgets up to two callers, of those that have not called for longest, so that one more has room."""
        for _ in range(2 if len(self._callers) >= CALLERS_MAX else 0):
            key, account = self._callers.popitem(last=False)
            if not account.is_idle:
                self._callers[key] = account


HELD_PER_FREE = 7
"""A holder may have at most seven times as many slots as are free: one alone 7/8 of all, two 7/15 each, and so on."""


class Budget:
    """A number of slots; as a context manager, takes one for the length of the block. Belongs to one event loop."""

    def __init__(self, size: int, what: str) -> None:
        """`size` is the number of slots; `what` says what they are for, in the plural, for error messages."""
        self.size, self._what = size, what
        self.used = 0

    def take(self, count: int = 1) -> None:
        """Takes slots until they are released; raises TooManyRequestsError if too few are free."""
        if self.used + count > self.size:
            raise TooManyRequestsError(f"{self.size} {self._what} are already in progress", RETRY_AFTER_S)
        self.used += count

    def give_back(self, count: int = 1) -> None:
        """Gives back slots that were taken."""
        self.used -= count

    def __enter__(self) -> None:
        self.take()

    def __exit__(self, *exception: object) -> None:
        self.give_back()


class SharedBudget:
    """Slots that are shared fairly among several holders, so that one of them cannot take all.

    The fewer slots are free, the fewer a single holder may have. So some slots are left for the next holder, and
    holders that all want more end up with equally many. A slot that was taken is never revoked.

    Holders may be in groups, such as the callers of a tenant: groups share the slots, and holders that of their group.
    """

    def __init__(self, size: int, what: str) -> None:
        """`size` is the number of slots; `what` says what they are for, in the plural, for error messages."""
        self._slots, self._what = Budget(size, what), what
        self._held: dict[Hashable, int] = {}
        self.listeners: list[Callable[[], None]] = []
        """Called after slots were given back."""

    @property
    def used(self) -> int:
        """The number of slots that are taken."""
        return self._slots.used

    def room(self, *holder: Hashable) -> int:
        """How many slots the holder may take now; see `take`."""
        least = room = self._slots.size - self._slots.used
        for each in holder:
            room = HELD_PER_FREE * room - self._held.get(each, 0)
            least = min(least, room)
        return max(0, least)

    def take(self, *holder: Hashable, count: int = 1) -> None:
        """Takes slots until they are released.

        Args:
            holder: who takes them, after the groups that it belongs to, the outermost first.
            count: how many.

        Raises:
            TooManyRequestsError: too few are free, or the holder or a group has its share.
        """
        # While half of the slots are free, every share has room.
        used, size = self._slots.used, self._slots.size
        if size < 2 * used < 2 * size and self.room(*holder) < count:
            raise TooManyRequestsError(
                f"this caller already has its share of the {self._slots.size} {self._what} allowed at once",
                RETRY_AFTER_S,
            )
        self._slots.take(count)
        for each in holder:
            self._held[each] = self._held.get(each, 0) + count

    def give_back(self, *holder: Hashable, count: int = 1) -> None:
        """Gives back slots that were taken."""
        self._slots.give_back(count)
        for each in holder:
            if held := self._held[each] - count:
                self._held[each] = held
            else:
                del self._held[each]
        for changed in self.listeners:
            changed()
