"""How facts begin their lifetimes anew."""

import json
from collections.abc import Sequence

from mnemon_server.domain.clock import from_microseconds, to_microseconds
from mnemon_server.domain.errors import FactNotFoundError
from mnemon_server.domain.facts import FactRenewal, RenewalReceipt
from mnemon_server.domain.namespaces import Namespace
from mnemon_server.engines.promises.vault import Vault, VaultTransaction
from mnemon_server.services.facts.writes import renew
from mnemon_server.services.shared.engine_futures import completion
from mnemon_server.services.shared.writes import request_key

Name = tuple[Namespace, str]


async def renew_facts(vault: Vault, names: Sequence[Name], *, request_id: str) -> RenewalReceipt:
    """Lets the ttl of facts begin anew, in one transaction; one result for each name, in their order."""
    each = list(dict.fromkeys(names))

    def program(tx: VaultTransaction) -> str:
        return json.dumps([_noted(renewal) for renewal in renew(tx, each)])

    identity = request_key(request_id, "renew facts", names)
    receipt = await completion(vault.transact(program, request=identity))
    noted = dict(zip(each, json.loads(receipt.answer), strict=True))
    return RenewalReceipt(tuple(_told(name, noted[name]) for name in names), receipt.replayed)


def _noted(renewal: FactRenewal | None) -> int | None:
    """Microseconds; 0 for what never ends, None for what is not there."""
    if renewal is None:
        return None
    return to_microseconds(renewal.expires_at) if renewal.expires_at else 0


def _told(name: Name, noted: int | None) -> FactRenewal | FactNotFoundError:
    if noted is None:
        return FactNotFoundError(name[1])
    return FactRenewal(from_microseconds(noted) if noted else None)
