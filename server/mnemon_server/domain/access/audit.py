"""Entries of the audit log: caller, action and outcome; never written content."""

from dataclasses import dataclass


@dataclass(slots=True)
class AuditEntry:
    """A finished call. It is not frozen because every write creates one: that would cost three times as much."""

    time_ms: int
    """When it ended, in milliseconds since 1970, UTC."""
    tenant: str
    """Whose records the caller works on; empty for an operator, and for a caller who is not known."""
    subject: str
    """The caller, such as "key:1f3a5c7e9b0d2f46"; hashed if it may identify a person; empty if unknown."""
    peer: str
    """The address of the client."""
    method: str
    """Such as "mnemon.v1.MemoryService/CreateMemory"."""
    code: str
    """The status, such as "OK" or "PERMISSION_DENIED"."""
    request_id: str
    """The `x-request-id` of the call, which is in the server's log as well."""
    records: tuple[str, ...] = ()
    """The ids that the request or its answer names, perhaps repeated or empty; the file gets keyed hashes."""


@dataclass(slots=True)
class LeftOut:
    """Says that calls are not in the log because there were too many."""

    time_ms: int
    calls: int
