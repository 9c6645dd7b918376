"""Tells the audit log of calls that write, that administer, or that are refused."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from operator import attrgetter
from typing import Any, NamedTuple

from google.protobuf import descriptor_pool
from google.protobuf.descriptor import Descriptor

from mnemon_server.domain.access import NO_TENANT, Permission, Principal, Role
from mnemon_server.domain.access.audit import AuditEntry
from mnemon_server.domain.clock import system_ms
from mnemon_server.services.access.audit import AuditLog
from mnemon_server.transport.interceptors.base import Call, Method

REFUSALS = frozenset({"UNAUTHENTICATED", "PERMISSION_DENIED", "RESOURCE_EXHAUSTED"})
ID_FIELDS = (
    "memory_id",
    "doc_id",
    "event_id",
    "key_id",
    "grant_id",
    "tenant",
    "tenant_id",
    "decision_id",
    "conflict_id",
)
PART_FIELDS = {"receipt": ("id", "event_id"), "key": ("key_id",), "grant": ("grant_id",)}
"""The ids in parts of messages."""
UNKNOWN = Principal(NO_TENANT, "", Role.READER)

Record = Callable[[Call, str], None]
"""Called with a call that has ended, and its status."""
ReadIds = Callable[[Any], tuple[str, ...]]
"""Reads the ids in a message; a missing one is empty."""


class IdReaders(NamedTuple):
    """The reader of the ids in a method's messages; None if they have none."""

    of_request: ReadIds | None = None
    of_answer: ReadIds | None = None


NO_IDS = IdReaders()


class Audit:
    """Which calls the audit log gets."""

    def __init__(self, log: AuditLog, permissions: Mapping[str, Permission], *, reads: bool) -> None:
        """With `reads`, also those that only read."""
        self._log = log
        self._permissions = permissions
        self._reads = reads

    def id_readers(self, method: Method) -> IdReaders:
        """The reader of ids for the entries of a method with one request, all of whose calls are recorded."""
        if method.handler.request_streaming or not self._has_all(method) or method.path not in self._permissions:
            return NO_IDS
        found = descriptor_pool.Default().FindMethodByName(method.path[1:].replace("/", "."))
        return IdReaders(_id_reader(found.input_type), _id_reader(found.output_type))

    def of(self, method: Method) -> Record | None:
        """The form of a method's entries; None if its calls are not recorded."""
        if method.exempt:
            return None
        always, record_entry = self._has_all(method), self._log.record
        # The name of a method that does not exist is the client's.
        path = method.path.removeprefix("/") if method.path in self._permissions else "unknown method"

        def record(call: Call, code: str) -> None:
            # Clients may drop calls before their request arrives as often as they like.
            left = call.awaits_request and code == "CANCELLED"
            if (always and not left) or code in REFUSALS:
                who = call.principal if call.is_known else UNKNOWN
                at = system_ms()
                name = who.log_name or who.subject
                record_entry(
                    AuditEntry(at, who.tenant, name, call.connection, path, code, call.request_id, call.records)
                )

        return record

    def _has_all(self, method: Method) -> bool:
        permission = self._permissions.get(method.path)
        return self._reads or (permission is not None and permission.role is not Role.READER)


def _id_reader(descriptor: Descriptor) -> ReadIds | None:
    """Reads the ids in messages of a type, and in their parts; None if it has none."""
    paths = [*_paths(descriptor)]
    if not paths:
        return None
    read: Callable[[Any], Any] = attrgetter(*paths)
    return read if len(paths) > 1 else lambda message: (read(message),)


def _paths(descriptor: Descriptor) -> Iterator[str]:
    yield from _texts(descriptor, ID_FIELDS)
    for part, names in PART_FIELDS.items():
        field = descriptor.fields_by_name.get(part)
        if field is not None and field.message_type is not None:
            yield from (f"{part}.{name}" for name in _texts(field.message_type, names))


def _texts(descriptor: Descriptor, names: Sequence[str]) -> Iterator[str]:
    """The fields that are texts in this type: a tenant may be a message."""
    fields = descriptor.fields_by_name
    return (name for name in names if name in fields and fields[name].default_value == "")
