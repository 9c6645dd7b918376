"""Tells the audit log of calls that write, that administer, or that are refused."""

from collections.abc import Callable, Mapping
from functools import cache
from typing import Any

from mnemon_server.domain.access import Permission, Role
from mnemon_server.domain.access.audit import AuditEntry
from mnemon_server.services.access.audit import AuditLog
from mnemon_server.transport.interceptors.base import Call, Method

REFUSALS = frozenset({"UNAUTHENTICATED", "PERMISSION_DENIED", "RESOURCE_EXHAUSTED"})
ID_FIELDS = ("memory_id", "doc_id", "event_id", "key_id", "tenant", "tenant_id", "decision_id", "conflict_id")
RECEIPT_FIELDS = ("id", "event_id")
RECORDS_MAX = 16
"""Ids in one entry."""

Record = Callable[[Call, str], None]
"""Called with a call that has ended, and its status."""


class Audit:
    """Which calls the audit log gets."""

    def __init__(self, log: AuditLog, permissions: Mapping[str, Permission], *, reads: bool) -> None:
        """With `reads`, also those that only read."""
        self._log = log
        self._permissions = permissions
        self._reads = reads

    def has_all(self, method: Method) -> bool:
        """Whether all calls of a method are told, and not only those that are refused."""
        permission = self._permissions.get(method.path)
        return self._reads or (permission is not None and permission.role is not Role.READER)

    def of(self, method: Method) -> Record | None:
        """What is told of the calls of a method; None if nothing is."""
        if method.exempt:
            return None
        permission, always = self._permissions.get(method.path), self.has_all(method)
        # The name of a method that does not exist is the client's.
        path = method.path.removeprefix("/") if permission is not None else "unknown method"

        def record(call: Call, code: str) -> None:
            # Clients may drop calls before their request arrives as often as they like.
            left = call.awaits_request and code == "CANCELLED"
            if (always and not left) or code in REFUSALS:
                who = call.principal if call.is_known else None
                self._log.record(
                    AuditEntry(
                        time=self._log.now(),
                        tenant=who.tenant if who else "",
                        subject=who.subject if who else "",
                        peer=call.connection,
                        method=path,
                        code=code,
                        request_id=call.request_id,
                        records=call.records,
                    )
                )

        return record


def records_of(*messages: Any) -> tuple[str, ...]:
    """The ids that a request and its answer name, each once."""
    found: list[str] = []
    for message in messages:
        kind: Any = type(message)
        fields, receipt_fields = _fields_of_kind(kind)
        for name in fields:
            value = getattr(message, name)
            if value and isinstance(value, str):
                found.append(value)
        if receipt_fields and message.HasField("receipt"):
            receipt = message.receipt
            found += [value for name in receipt_fields if (value := getattr(receipt, name))]
    return tuple(dict.fromkeys(found))[:RECORDS_MAX]


@cache
def _fields_of_kind(kind: Any) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The fields that contain ids, in messages of a type and in their receipts."""
    # Reading descriptors costs more than the rest of an entry.
    descriptor = getattr(kind, "DESCRIPTOR", None)
    if descriptor is None:
        return (), ()
    receipt = descriptor.fields_by_name.get("receipt")
    kept = receipt.message_type.fields_by_name if receipt is not None else ()
    return (
        tuple(name for name in ID_FIELDS if name in descriptor.fields_by_name),
        tuple(name for name in RECEIPT_FIELDS if name in kept),
    )
