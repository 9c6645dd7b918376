"""Restarts the lifetimes of facts."""

import json
from collections.abc import Sequence

from mnemon_server.domain.clock import from_microseconds, to_microseconds
from mnemon_server.domain.errors import FactNotFoundError
from mnemon_server.domain.facts import FactRenewal, RenewalReceipt
from mnemon_server.engines.promises.vault import Vault, VaultTransaction
from mnemon_server.services.facts.names import Name
from mnemon_server.services.facts.writes import renew
from mnemon_server.services.shared.engine_futures import completion
from mnemon_server.services.shared.writes import request_key


async def renew_facts(vault: Vault, names: Sequence[Name], *, request_id: str) -> RenewalReceipt:
    """Restarts the ttl of facts, in one transaction; one result for each name, in their order."""
    each = list(dict.fromkeys(names))

    def program(tx: VaultTransaction) -> str:
        return json.dumps([_to_stored(renewal) for renewal in renew(tx, each)])

    identity = request_key(request_id, "renew facts", names)
    receipt = await completion(vault.transact(program, request=identity))
    stored = dict(zip(each, json.loads(receipt.answer), strict=True))
    return RenewalReceipt(tuple(_from_stored(name, stored[name]) for name in names), receipt.replayed)


def _to_stored(renewal: FactRenewal | None) -> int | None:
    """The expire time in microseconds; 0 if the fact does not expire, None if the fact does not exist."""
    if renewal is None:
        return None
    return to_microseconds(renewal.expires_at) if renewal.expires_at else 0


def _from_stored(name: Name, stored: int | None) -> FactRenewal | FactNotFoundError:
    if stored is None:
        return FactNotFoundError(name[1])
    return FactRenewal(from_microseconds(stored) if stored else None)
