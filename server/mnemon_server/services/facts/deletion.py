"""Removes facts that match a filter or have expired."""

import json
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime

from mnemon_server.domain.collections import FACTS
from mnemon_server.domain.facts import FactFilter
from mnemon_server.domain.filters import RecordFilter
from mnemon_server.domain.namespaces import encode_namespace
from mnemon_server.domain.records import BulkDeleteReceipt
from mnemon_server.engines.promises.records import RecordTransaction
from mnemon_server.engines.promises.vault import Vault, VaultTransaction
from mnemon_server.services.background.offload import completion
from mnemon_server.services.facts.filters import expired, living
from mnemon_server.services.facts.stored_form import has_expired
from mnemon_server.services.facts.writes import EXPIRED, REQUESTED, remove
from mnemon_server.services.writing.writes import request_key

_PAGE = 1_000
_NAME = frozenset({"namespace", "fact_key"})


async def delete_facts(vault: Vault, where: FactFilter, *, request_id: str) -> BulkDeleteReceipt:
    """Removes the facts that match, in one transaction; removes expired ones, too, but does not count them."""
    namespace = where.namespace or ()

    def program(tx: VaultTransaction) -> str:
        records = tx.collection(FACTS)
        deleted = _remove_matching(records, removable(where, living(where, tx.now)), REQUESTED)
        _remove_matching(records, removable(where, expired(tx.now, where)), EXPIRED)
        return json.dumps(deleted)

    identity = request_key(request_id, "delete facts", namespace, where.subtree, repr(where.where))
    receipt = await completion(vault.transact(program, request=identity))
    return BulkDeleteReceipt(json.loads(receipt.answer), receipt.replayed, receipt.sequence)


async def delete_expired(vault: Vault, record_ids: Sequence[str], now: datetime) -> int:
    """Removes the facts among these that have expired by `now`; returns how many it removed."""

    def program(tx: VaultTransaction) -> str:
        records = tx.collection(FACTS)
        ended = [one for one in records.get_documents(record_ids) if one is not None and has_expired(one, now)]
        for document in ended:
            remove(records, document, EXPIRED)
        return json.dumps(len(ended))

    return int(json.loads((await completion(vault.transact(program))).answer))


def removable(where: FactFilter, matching: RecordFilter) -> RecordFilter:
    """The filter for the matching facts that the caller may remove; see RecordFilter."""
    return replace(matching, is_writing=True, namespace=encode_namespace(where.namespace or ()))


def _remove_matching(records: RecordTransaction, where: RecordFilter, reason: str) -> int:
    """Removes the matching facts and returns their number. Reads only their names, so that a damaged value can go."""
    deleted = after = 0
    while found := records.list_documents(where, after=after, limit=_PAGE, fields_only=_NAME):
        for after, document in found:  # noqa: B007 - the last position is where the next page begins
            remove(records, document, reason)
        deleted += len(found)
    return deleted
