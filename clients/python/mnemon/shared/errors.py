"""Every error that a call can raise.

MnemonError                             code, reason, request_id
├── InvalidArgumentError                a field is wrong; `violations` names each one (also a ValueError)
│   ├── InvalidCursorError              of another vault, damaged or forged
│   └── InvalidPageTokenError
├── NotFoundError
│   ├── ConversationNotFoundError
│   ├── DecisionNotFoundError
│   ├── DocumentNotFoundError
│   ├── EventNotFoundError              of the timeline
│   ├── FactNotFoundError
│   ├── GrantNotFoundError
│   ├── KeyNotFoundError                of an API key
│   ├── MemoryNotFoundError
│   ├── MessageNotFoundError            of a conversation
│   ├── QuarantineNotFoundError         of a source
│   ├── RuleNotFoundError
│   ├── TenantNotFoundError
│   ├── ToolNotFoundError
│   └── VersionNotFoundError            of a record
├── AlreadyExistsError
│   ├── EventExistsError
│   ├── FactExistsError
│   ├── MemoryExistsError
│   ├── MessageExistsError              of a conversation
│   ├── RequestIdReusedError            the same request_id, another request
│   ├── RuleExistsError
│   └── TenantExistsError               or its files are still being removed
├── ClientClosedError                   the client is closed, or belongs to the parent of a forked process
├── FailedPreconditionError             the state of the resource, or the configuration, forbids it
│   ├── CircularInheritanceError        merge rules that would inherit from each other
│   ├── ConfigurationError              such as an unfilled namespace, or a vault that cannot be opened
│   ├── EmbeddingModelMismatchError
│   ├── IncompleteArchiveError          an archive that was cut off; what was there is imported
│   ├── IncompleteBackupError           a backup that was cut off; nothing of it is kept
│   ├── InvalidOperationError           such as reinforcing what cannot be reinforced
│   ├── RuleInUseError                  other merge rules extend it
│   ├── ToolFailedError                 the endpoint of an operator's tool answers with an error
│   └── UnknownBaseRuleError            a merge rule extends one that is not there
├── AbortedError
│   └── RevisionMismatchError           changed since it was read
├── OutOfRangeError                     past what is there
│   └── CursorExpiredError              older than the events that are kept
├── ResourceExhaustedError              come back after `retry_after` seconds, where it is not None
│   ├── MessageTooLargeError
│   ├── QuotaExceededError              a quota of the tenant or of the caller is used up; the message names it
│   ├── StorageFullError
│   ├── ThrottledError                  writes are held back, by capacity or by how long they take
│   └── TooManyVaultsError              all vaults that may be open at once are in use
├── UnavailableError                    try again later
│   ├── ServerUnreachableError          no server answers at the address
│   ├── BackendUnreachableError         the server's vector database does not answer
│   ├── IndexWarmingError               an index is being loaded or built
│   └── ToolUnreachableError            the endpoint of an operator's tool does not answer
├── DataLossError                       what is stored was damaged
│   └── RecordDamagedError              that of one record; others are not concerned
├── DeadlineExceededError               no answer in time
├── CallCancelledError
├── UnauthenticatedError
├── PermissionDeniedError
│   └── TenantSuspendedError            an operator suspended the caller's tenant, or deletes it
├── UnimplementedError                  the server has no such method
└── InternalError                       the server's fault; `incident_id` leads to its log
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self


@dataclass(frozen=True, slots=True)
class FieldViolation:
    """The problem with one field, and a valid value."""

    field: str
    description: str


class MnemonError(Exception):
    """Base of all errors of a call.

    `code` is the name of the gRPC status, such as "NOT_FOUND"; `reason` the name of the published reason, such as
    "DOCUMENT_NOT_FOUND", empty if the server gave none; `request_id` the id of the call in the server's log, if known.
    """

    code = "UNKNOWN"

    def __init__(
        self,
        message: str,
        *,
        code: str = "",
        reason: str = "",
        request_id: str = "",
        violations: Sequence[FieldViolation] = (),
        retry_after: float | None = None,
        incident_id: str = "",
    ) -> None:
        super().__init__(message)
        self.message = message
        self.code = code or type(self).code
        self.reason = reason
        self.request_id = request_id
        self.violations = tuple(violations)
        self.retry_after = retry_after
        self.incident_id = incident_id

    def to_dict(self) -> dict[str, Any]:
        """The error as a value for `json`, without empty fields."""
        found = {
            "code": self.code,
            "reason": self.reason,
            "message": self.message,
            "violations": [{"field": each.field, "description": each.description} for each in self.violations],
            "retry_after_s": self.retry_after,
            "request_id": self.request_id,
            "incident_id": self.incident_id,
        }
        return {key: value for key, value in found.items() if value not in ("", [], None)}


class InvalidArgumentError(MnemonError, ValueError):
    """One or more fields of a request are wrong; `violations` names each one and says what would be valid."""

    code = "INVALID_ARGUMENT"

    @classmethod
    def of(cls, field: str, description: str) -> Self:
        """An error about a single field, found before anything is sent."""
        violations = [FieldViolation(field, description)]
        return cls(f"{field}: {description}", reason="INVALID_ARGUMENT", violations=violations)


class InvalidPageTokenError(InvalidArgumentError):
    """The page token is damaged, or belongs to another query."""


class InvalidCursorError(InvalidArgumentError):
    """The cursor is damaged, forged, or was issued by another vault."""


class NotFoundError(MnemonError):
    """There is no record with this id."""

    code = "NOT_FOUND"


class DocumentNotFoundError(NotFoundError):
    """No document has this id."""


class EventNotFoundError(NotFoundError):
    """No event of the timeline has this id, or it was pruned."""


class ConversationNotFoundError(NotFoundError):
    """The user has no conversation with this id."""


class MessageNotFoundError(NotFoundError):
    """The conversation has no message with this id."""


class MemoryNotFoundError(NotFoundError):
    """No memory has this id, or it was deleted."""


class TenantNotFoundError(NotFoundError):
    """No tenant has this id."""


class KeyNotFoundError(NotFoundError):
    """The tenant has no API key with this id."""


class GrantNotFoundError(NotFoundError):
    """The caller sees no grant with this id."""


class RuleNotFoundError(NotFoundError):
    """No merge rule has this name."""


class QuarantineNotFoundError(NotFoundError):
    """The source is not in quarantine."""


class DecisionNotFoundError(NotFoundError):
    """No decision has this id, or it was removed with its statements."""


class FactNotFoundError(NotFoundError):
    """The namespace has no fact with this key, or the fact has expired."""


class ToolNotFoundError(NotFoundError):
    """No tool has this name."""


class VersionNotFoundError(NotFoundError):
    """The record has no version with this id, or it is no longer kept."""


class AlreadyExistsError(MnemonError):
    """The record already exists."""

    code = "ALREADY_EXISTS"


class RequestIdReusedError(AlreadyExistsError):
    """The request_id was used within its lifetime for a different request."""


class RuleExistsError(AlreadyExistsError):
    """A merge rule has this name already."""


class MemoryExistsError(AlreadyExistsError):
    """A memory has this id already; it may be deleted and not purged."""


class TenantExistsError(AlreadyExistsError):
    """A tenant has this id already, or its files are still being removed."""


class EventExistsError(AlreadyExistsError):
    """An event of another user has this id."""


class MessageExistsError(AlreadyExistsError):
    """The conversation has a message with this id that says something else."""


class FactExistsError(AlreadyExistsError):
    """The namespace has a fact with this key already."""


class FailedPreconditionError(MnemonError):
    """The state of the resource, or the server's configuration, forbids the operation."""

    code = "FAILED_PRECONDITION"


class EmbeddingModelMismatchError(FailedPreconditionError):
    """The stored vectors were made by another embedding model than the configured one."""


class InvalidOperationError(FailedPreconditionError):
    """The state of the record forbids the operation, such as reinforcing a memory whose policy does not allow it."""


class CircularInheritanceError(FailedPreconditionError):
    """The merge rules would inherit from each other in a circle; nothing was changed."""


class UnknownBaseRuleError(FailedPreconditionError):
    """A merge rule extends one that does not exist; nothing was changed."""


class RuleInUseError(FailedPreconditionError):
    """Other merge rules extend this one; `force` removes it anyway."""


class IncompleteArchiveError(FailedPreconditionError):
    """The imported archive was cut off. Everything before the end was imported."""


class IncompleteBackupError(FailedPreconditionError):
    """The backup did not arrive completely. Nothing of it was kept."""


class ConfigurationError(FailedPreconditionError):
    """The configuration does not allow it: it leaves a namespace unfilled, or `Mnemon` cannot open the vault."""


class ToolFailedError(FailedPreconditionError):
    """The endpoint of an operator's tool answered with an error or an invalid answer."""


class ClientClosedError(MnemonError, RuntimeError):
    """The client is closed, or belongs to the parent of this process; nothing was sent."""

    code = "FAILED_PRECONDITION"


class AbortedError(MnemonError):
    """Another change came first."""

    code = "ABORTED"


class RevisionMismatchError(AbortedError):
    """The record changed since the expected revision was read; read it again."""


class OutOfRangeError(MnemonError):
    """The request is beyond the existing data."""

    code = "OUT_OF_RANGE"


class CursorExpiredError(OutOfRangeError):
    """The cursor is older than the events that are kept."""


class ResourceExhaustedError(MnemonError):
    """A limit was reached. `retry_after` says after how many seconds to retry, if that helps."""

    code = "RESOURCE_EXHAUSTED"


class MessageTooLargeError(ResourceExhaustedError):
    """The request is larger than a message may be."""


class QuotaExceededError(ResourceExhaustedError):
    """A quota of the tenant or of the caller is used up; waiting helps if `retry_after` is not None."""


class StorageFullError(ResourceExhaustedError):
    """The server's disk is full; reads and deletes still work."""


class TooManyVaultsError(ResourceExhaustedError):
    """All vaults that may be open at once are in use; retry after `retry_after` seconds."""


class ThrottledError(ResourceExhaustedError):
    """The server limits writes: the capacity is reached, or they take too long; reads still work."""


class UnavailableError(MnemonError):
    """The server cannot answer now; the call may be retried."""

    code = "UNAVAILABLE"


class ServerUnreachableError(UnavailableError):
    """No server answers at the address, or the connection was lost."""


class BackendUnreachableError(UnavailableError):
    """The server's vector database cannot be reached; nothing acknowledged is lost."""


class IndexWarmingError(UnavailableError):
    """The semantic index, or that of the timeline, is being loaded; retry after `retry_after` seconds."""


class ToolUnreachableError(UnavailableError):
    """The endpoint of an operator's tool cannot be reached, or did not answer in time."""


class DataLossError(MnemonError):
    """Stored data was damaged and cannot be read."""

    code = "DATA_LOSS"


class RecordDamagedError(DataLossError):
    """Stored data of one record is damaged, as the message says; other records are not affected."""


class DeadlineExceededError(MnemonError):
    """There was no answer in time; a write may still have happened."""

    code = "DEADLINE_EXCEEDED"


class CallCancelledError(MnemonError):
    """The call was cancelled."""

    code = "CANCELLED"


class UnauthenticatedError(MnemonError):
    """The server does not know who is calling."""

    code = "UNAUTHENTICATED"


class PermissionDeniedError(MnemonError):
    """The caller may not do this."""

    code = "PERMISSION_DENIED"


class TenantSuspendedError(PermissionDeniedError):
    """An operator has suspended the caller's tenant, or deletes it; the message gives the reason."""


class UnimplementedError(MnemonError):
    """The server has no such method."""

    code = "UNIMPLEMENTED"


class InternalError(MnemonError):
    """Something went wrong inside the server; `incident_id` leads to its log."""

    code = "INTERNAL"


class IgnoredFilterWarning(UserWarning):
    """A filter was ignored, because no document has its key."""


class UnmatchedFilterWarning(UserWarning):
    """A filter found nothing, because documents have its key only with values of other types."""


class IncompleteHistoryWarning(UserWarning):
    """Something that was known at the moment asked about may be missing, because it was removed for good since."""
