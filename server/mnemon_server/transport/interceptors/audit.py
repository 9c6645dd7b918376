"""Tells the audit log of calls that write, that administer, or that are refused."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from operator import attrgetter
from typing import Any

from google.protobuf.descriptor import Descriptor

from mnemon_server.domain.access import NO_TENANT, Permission, Principal, Role
from mnemon_server.domain.access.audit import AuditEntry
from mnemon_server.domain.clock import system_ms
from mnemon_server.services.access.audit import AuditLog
from mnemon_server.transport.interceptors.base import Call, Method

REFUSALS = frozenset({"UNAUTHENTICATED", "PERMISSION_DENIED", "RESOURCE_EXHAUSTED"})
ID_FIELDS = ("memory_id", "doc_id", "event_id", "key_id", "tenant", "tenant_id", "decision_id", "conflict_id")
PART_FIELDS = {"receipt": ("id", "event_id"), "key": ("key_id",)}
"""The ids in parts of messages."""
UNKNOWN = Principal(NO_TENANT, "", Role.READER)

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
                who = call.principal if call.is_known else UNKNOWN
                self._log.record(
                    AuditEntry(
                        system_ms(), who.tenant, who.subject, call.connection, path, code, call.request_id, call.records
                    )
                )

        return record


def records_of(message: Any) -> tuple[str, ...]:
    """The ids in a request or an answer; a missing one is empty."""
    return _ids_of(message.__class__)(message)


@cache
def _ids_of(kind: Any) -> Callable[[Any], tuple[str, ...]]:
    """Reads the ids in messages of a type, and in their parts."""
    # Made once for each type: reading descriptors costs more than the rest of an entry.
    paths = [*_paths(kind.DESCRIPTOR)] if hasattr(kind, "DESCRIPTOR") else []
    if not paths:
        return lambda _: ()
    read: Callable[[Any], Any] = attrgetter(*paths)
    return read if len(paths) > 1 else lambda message: (read(message),)


def _paths(descriptor: Descriptor) -> Iterator[str]:
    yield from _texts(descriptor, ID_FIELDS)
    for part, names in PART_FIELDS.items():
        field = descriptor.fields_by_name.get(part)
        if field is not None and field.message_type is not None:
            yield from (f"{part}.{name}" for name in _texts(field.message_type, names))


def _texts(descriptor: Descriptor, names: Sequence[str]) -> Iterator[str]:
    """Those of the fields that a type has as a text: a tenant may be a message."""
    fields = descriptor.fields_by_name
    return (name for name in names if name in fields and fields[name].default_value == "")
