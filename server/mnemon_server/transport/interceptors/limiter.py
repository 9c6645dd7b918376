"""Limits concurrent calls: further ones are refused with a hint, rather than queued without bound."""

from dataclasses import dataclass

from mnemon_server.services.limits.accounts import Accounts, SharedBudget
from mnemon_server.services.limits.outbox import Outbox
from mnemon_server.transport.interceptors.base import Method, Piece
from mnemon_server.transport.interceptors.turns import GivingWay, Turns


@dataclass(frozen=True, slots=True)
class Limits:
    """The limits of a method: the quotas of whoever calls, and a share of what the server can do at once."""

    accounts: Accounts
    slots: SharedBudget
    outbox: Outbox
    single: bool
    stores: bool
    """Whether it stores records, and is refused where no more may be stored."""
    piece: Piece
    """Around the work for each request of a stream."""


_NOT_RECORDS = ("AccessService", "TenantService", "RulesService", "BridgeService")
_STORING = (
    "Append",
    "Create",
    "Bulk",
    "Save",
    "Put",
    "Index",
    "Record",
    "Import",
    "Update",
    "Undelete",
    "Restore",
    "Merge",
)


def stores_records(path: str) -> bool:
    """Whether a method stores records, or makes them larger, by its path; what tools store is refused as they do so."""
    # A client may name a method that does not exist without any slash.
    service, _, name = path.rpartition("/")
    return name.startswith(_STORING) and service.rpartition(".")[2] not in _NOT_RECORDS


class Limiter:
    """Separate budgets for single calls and for streams; health and reflection are exempt.

    Tenants share each budget, and the callers of a tenant share its part: one that wants all of it leaves room for the
    others. Without authentication, a connection counts as a caller. The runtime's own limit also counts health checks,
    so that a busy server would be taken for a dead one.
    """

    def __init__(self, *, unary_calls_max: int, streams_max: int, accounts: Accounts, outbox: Outbox) -> None:
        self._accounts = accounts
        self._outbox = outbox
        self._calls = SharedBudget(unary_calls_max, "calls")
        self._streams = SharedBudget(streams_max, "streams")
        self._giving_way = GivingWay(self._calls)
        self.large = Turns(per_turn=1)
        """In which large messages are sent: the runtime copies each on the loop, and hundreds may be due at once."""

    @property
    def calls_in_work(self) -> int:
        """Single calls that are not answered yet."""
        return self._calls.used

    def limits(self, method: Method) -> Limits | None:
        """The limits of a method's calls; None if it is exempt."""
        if method.exempt:
            return None
        slots = self._calls if method.single else self._streams
        stores = stores_records(method.path)
        return Limits(self._accounts, slots, self._outbox, method.single, stores, self._giving_way.piece)
