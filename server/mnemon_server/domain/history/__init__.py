"""Earlier versions of records: what a record was, from when to when, and who ended that.

A version is a document of the collection VERSIONS. It has the content, the metadata, the scope and the vectors of the
record as it was, and in its own fields the rest.
"""

import json
from collections.abc import Mapping
from contextvars import ContextVar
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any

from mnemon_server.domain.changes import ChangeType
from mnemon_server.domain.collections import VERSIONS
from mnemon_server.domain.damage import UNREADABLE, reads
from mnemon_server.domain.documents import Document
from mnemon_server.domain.encoding import decode_metadata, encode_metadata
from mnemon_server.domain.errors import ErrorReason, NotFoundError

_FIELD = "fields."
"""Before the names of the record's own fields."""


class VersionNotFoundError(NotFoundError):
    """The record has no version with this id, or it is no longer kept."""

    reason = ErrorReason.VERSION_NOT_FOUND

    def __init__(self, version_id: str) -> None:
        super().__init__(version_id, message=f"the record has no version {version_id!r}, or it is no longer kept")


class Ending(StrEnum):
    """The change that ended a version."""

    UPDATE = "update"
    DELETE = "delete"
    RESTORE = "restore"
    MERGE = "merge"
    SUPERSEDE = "supersede"
    UNDO = "undo"
    EXPIRE = "expire"


@dataclass(frozen=True, slots=True)
class Author:
    """The origin of a change."""

    principal: str = ""
    """The name of the caller as in the audit log; empty without authentication, and for the server's own work."""
    door: str = ""
    """The method that was called, such as "mnemon.v1.MemoryService/UpdateMemory", or the server's own work."""
    request_id: str = ""
    """The `x-request-id` of the call."""


NO_AUTHOR = Author()
current_author: ContextVar[Author] = ContextVar("current_author", default=NO_AUTHOR)
"""The author of changes in the running task."""


@dataclass(frozen=True, slots=True)
class HistorySettings:
    """How much of the history is kept."""

    versions_max: int = 0
    """Earlier versions of one record; 0 keeps no history."""
    keep_for: timedelta = timedelta(days=90)
    """How long a version is kept after it was ended."""

    def __bool__(self) -> bool:
        """Whether any history is kept."""
        return self.versions_max > 0 and self.keep_for > timedelta(0)


NO_HISTORY = HistorySettings()


@dataclass(frozen=True, slots=True)
class Version:
    """An earlier state of a record."""

    version_id: str
    document: Document
    """The record as it was, with its revision and times."""
    until: datetime
    """When it ceased to be so. It was so from the document's `update_time` on."""
    ending: Ending
    author: Author
    """Who ended it."""
    position: int = 0
    """The position that the record had in its collection."""


def version_document(version: Version, kind: str) -> Document:
    """The stored document of a version."""
    old = version.document
    state: dict[str, Any] = {"revision": old.revision, "hidden": old.hidden, "position": version.position}
    # A fact also has the last few values within itself.
    state |= {f"{_FIELD}{name}": "" if name == "versions" else value for name, value in old.fields.items()}
    return Document(
        version.version_id,
        old.content,
        old.metadata,
        scope=old.scope,
        passages=old.passages,
        fields={
            "kind": kind,
            "record_id": old.doc_id,
            "namespace": str(old.fields.get("namespace") or ""),
            "record": encode_metadata(state),
            "created": old.create_time,
            "since": old.update_time,
            "until": version.until,
            "ending": version.ending.value,
            "principal": version.author.principal,
            "door": version.author.door,
            "request": version.author.request_id,
        },
        hidden=True,
    )


@reads(VERSIONS)
def stored_version(document: Document) -> Version:
    """The version of a stored document."""
    fields: Mapping[str, Any] = document.fields
    state: Mapping[str, Any] = decode_metadata(fields["record"])
    record = replace(
        document,
        doc_id=fields["record_id"],
        fields={name.removeprefix(_FIELD): value for name, value in state.items() if name.startswith(_FIELD)},
        hidden=bool(state["hidden"]),
        revision=int(state["revision"]),
        create_time=fields["created"],
        update_time=fields["since"],
    )
    author = Author(fields["principal"], fields["door"], fields["request"])
    position = int(state["position"])
    return Version(document.doc_id, record, fields["until"], Ending(fields["ending"]), author, position)


PURGES = frozenset({ChangeType.MEMORY_PURGED})
"""Changes that remove a record together with its history."""
_ENDINGS = {
    ChangeType.MEMORY_DELETED: Ending.DELETE,
    ChangeType.KNOWLEDGE_DELETED: Ending.DELETE,
    ChangeType.FACT_DELETED: Ending.DELETE,
    ChangeType.SEMANTIC_PRUNED: Ending.DELETE,
    ChangeType.MEMORY_UNDELETED: Ending.RESTORE,
}
_REASONS = {
    "merged": Ending.MERGE,
    "superseded": Ending.SUPERSEDE,
    "unmerged": Ending.UNDO,
    "expired": Ending.EXPIRE,
}
"""The reasons that the details of a change name."""


def ending_of(change: ChangeType, details: str, *, was_hidden: bool = False) -> Ending:
    """How a change with these details ends the version before it. A statement that was superseded and is visible again
    owes that to an undone decision.
    """
    if change is ChangeType.SEMANTIC_SAVED and was_hidden:
        return Ending.UNDO
    if details:
        try:
            said = json.loads(details)
            reason = said.get("prune_reason") or said.get("reason")
        except UNREADABLE:
            reason = None
        if reason in _REASONS:
            return _REASONS[reason]
    return _ENDINGS.get(change, Ending.UPDATE)
