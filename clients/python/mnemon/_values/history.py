"""The values of earlier versions of records."""

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from mnemon._values.documents import Document, JsonValue


class VersionEnding(StrEnum):
    """The change that ended a version."""

    UNKNOWN = "unknown"
    UPDATE = "update"
    DELETE = "delete"
    RESTORE = "restore"
    MERGE = "merge"
    SUPERSEDE = "supersede"
    UNDO = "undo"
    EXPIRE = "expire"


@dataclass(frozen=True, slots=True)
class VersionInfo(JsonValue):
    """When a record was in an earlier state, and who changed that."""

    version_id: str
    start_time: datetime | None
    """When the record became so."""
    end_time: datetime | None
    """When it ceased to be so."""
    ending: VersionEnding = VersionEnding.UNKNOWN
    principal: str = ""
    """Who ended it, as the audit log names callers; empty without authentication, and for the server's own work."""
    method: str = ""
    """The method that ended it, such as "mnemon.v1.MemoryService/UpdateMemory"."""
    call_id: str = ""
    """The `x-request-id` of that call."""


@dataclass(frozen=True, slots=True)
class DocumentVersion(JsonValue):
    """An earlier version of a document."""

    _SPREAD = "document"

    document: Document
    version: VersionInfo


@dataclass(frozen=True, slots=True)
class DocumentVersionPage(JsonValue):
    """A page of versions, newest first; `next_page_token` is empty after the last one."""

    versions: tuple[DocumentVersion, ...]
    next_page_token: str
