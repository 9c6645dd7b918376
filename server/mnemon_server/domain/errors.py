"""All errors of the product.

MnemonError
├── InvalidArgumentError               a field is wrong; `violations` names each one (also a ValueError)
│   └── InvalidPageTokenError, InvalidCursorError
├── NotFoundError
│   ├── DocumentNotFoundError          (also a KnowledgeStoreError)
│   ├── MemoryNotFoundError, EventNotFoundError, FactNotFoundError
│   ├── ConversationNotFoundError, MessageNotFoundError, MessageExistsError    (in conversations.py)
│   ├── RuleNotFoundError, DecisionNotFoundError, ToolNotFoundError, VersionNotFoundError (in history.py)
│   └── GrantNotFoundError, KeyNotFoundError, QuarantineNotFoundError, TenantNotFoundError    (in access)
├── UnauthenticatedError               the caller has no valid credential
├── PermissionDeniedError              the caller's role does not allow it
│   └── TenantSuspendedError           the caller's tenant is not served for now
├── EventExistsError, FactExistsError, MemoryExistsError, TenantExistsError
├── ToolUnreachableError, ToolFailedError, RevisionMismatchError (changed since it was read)
├── CursorExpiredError                 the log no longer has the changes after it
├── RequestIdReusedError               the request_id was used for another request
├── InvalidOperationError              the state of the resource forbids it
├── MergeRuleError                     the rules would be inconsistent; nothing changed
│   └── RuleExistsError, RuleInUseError, CircularInheritanceError, UnknownBaseRuleError
├── TooManyRequestsError               come back after `retry_after_s`
│   └── TooManyVaultsError, ThrottledError    all open vaults are in use; writes are being limited
├── QuotaExceededError                 the tenant or the caller has used up a quota
├── StorageFullError, StorageFailedError    the disk is full; or it failed, and writes stop
├── RecordDamagedError                 stored bytes are not those written
│   ├── PageDamagedError               (in damage.py) in these pages of a database
│   └── CommitsLostError               (in damage.py) at the end of the write-ahead log
├── NotServingError                    starting or shutting down
│   └── IndexWarmingError              come back after `retry_after_s`
├── ConfigurationError
│   ├── BackupError                    (in backup.py) a backup cannot be used
│   └── EmbeddingModelMismatchError    another model made the stored vectors
└── KnowledgeStoreError
    ├── DocumentNotFoundError
    ├── IndexingError, SearchError
    ├── EmbeddingError                 no weights, wrong weights, or the model failed
    └── BackendConnectionError         a backend that alone could answer cannot be reached
        └── EmbeddingUnavailableError  the endpoint of the model gives no usable vectors (also an EmbeddingError)

The messages of all errors except IndexingError, SearchError, plain EmbeddingError and plain KnowledgeStoreError are
written for clients: they contain no path, no stored text and no text of a driver.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum


class ErrorReason(StrEnum):
    """Why a call failed. The names are those of `mnemon.v1.ErrorReason` without their prefix."""

    INVALID_ARGUMENT = "INVALID_ARGUMENT"
    MALFORMED_MESSAGE = "MALFORMED_MESSAGE"
    INVALID_PAGE_TOKEN = "INVALID_PAGE_TOKEN"
    DOCUMENT_NOT_FOUND = "DOCUMENT_NOT_FOUND"
    REQUEST_ID_REUSED = "REQUEST_ID_REUSED"
    INVALID_OPERATION = "INVALID_OPERATION"
    EMBEDDING_MODEL_MISMATCH = "EMBEDDING_MODEL_MISMATCH"
    CONFIGURATION = "CONFIGURATION"
    REVISION_MISMATCH = "REVISION_MISMATCH"
    TOO_MANY_REQUESTS = "TOO_MANY_REQUESTS"
    MESSAGE_TOO_LARGE = "MESSAGE_TOO_LARGE"
    STORAGE_FULL = "STORAGE_FULL"
    BACKEND_UNREACHABLE = "BACKEND_UNREACHABLE"
    STORAGE_FAILED = "STORAGE_FAILED"
    NOT_SERVING = "NOT_SERVING"
    DEADLINE_EXCEEDED = "DEADLINE_EXCEEDED"
    UNIMPLEMENTED = "UNIMPLEMENTED"
    EMBEDDING_FAILED = "EMBEDDING_FAILED"
    EMBEDDING_UNAVAILABLE = "EMBEDDING_UNAVAILABLE"
    QUOTA_EXCEEDED = "QUOTA_EXCEEDED"
    INDEXING_FAILED = "INDEXING_FAILED"
    SEARCH_FAILED = "SEARCH_FAILED"
    INTERNAL = "INTERNAL"
    SLOW_READER = "SLOW_READER"
    MEMORY_NOT_FOUND = "MEMORY_NOT_FOUND"
    INVALID_CURSOR = "INVALID_CURSOR"
    CURSOR_EXPIRED = "CURSOR_EXPIRED"
    TOO_MANY_VAULTS = "TOO_MANY_VAULTS"
    RULE_NOT_FOUND = "RULE_NOT_FOUND"
    RULE_EXISTS = "RULE_EXISTS"
    CIRCULAR_INHERITANCE = "CIRCULAR_INHERITANCE"
    UNKNOWN_BASE_RULE = "UNKNOWN_BASE_RULE"
    RULE_IN_USE = "RULE_IN_USE"
    DECISION_NOT_FOUND = "DECISION_NOT_FOUND"
    INDEX_WARMING = "INDEX_WARMING"
    THROTTLED = "THROTTLED"
    EVENT_NOT_FOUND = "EVENT_NOT_FOUND"
    FACT_NOT_FOUND = "FACT_NOT_FOUND"
    FACT_EXISTS = "FACT_EXISTS"
    TOOL_NOT_FOUND = "TOOL_NOT_FOUND"
    TOOL_UNREACHABLE = "TOOL_UNREACHABLE"
    TOOL_FAILED = "TOOL_FAILED"
    MEMORY_EXISTS = "MEMORY_EXISTS"
    RECORD_DAMAGED = "RECORD_DAMAGED"
    UNAUTHENTICATED = "UNAUTHENTICATED"
    PERMISSION_DENIED = "PERMISSION_DENIED"
    KEY_NOT_FOUND = "KEY_NOT_FOUND"
    GRANT_NOT_FOUND = "GRANT_NOT_FOUND"
    TENANT_NOT_FOUND = "TENANT_NOT_FOUND"
    TENANT_EXISTS = "TENANT_EXISTS"
    TENANT_SUSPENDED = "TENANT_SUSPENDED"
    EVENT_EXISTS = "EVENT_EXISTS"
    CONVERSATION_NOT_FOUND = "CONVERSATION_NOT_FOUND"
    MESSAGE_NOT_FOUND = "MESSAGE_NOT_FOUND"
    MESSAGE_EXISTS = "MESSAGE_EXISTS"
    VERSION_NOT_FOUND = "VERSION_NOT_FOUND"
    QUARANTINE_NOT_FOUND = "QUARANTINE_NOT_FOUND"


@dataclass(frozen=True, slots=True)
class FieldViolation:
    """The problem with one field, and a valid value."""

    field: str
    description: str


class MnemonError(Exception):
    """Base class of all errors of the product."""

    reason = ErrorReason.INTERNAL


class InvalidArgumentError(MnemonError, ValueError):
    """One or more fields of a request are invalid."""

    reason = ErrorReason.INVALID_ARGUMENT

    def __init__(self, violations: Sequence[FieldViolation]) -> None:
        self.violations = tuple(violations)
        super().__init__("; ".join(f"{violation.field}: {violation.description}" for violation in self.violations))

    @classmethod
    def of(cls, field: str, description: str) -> "InvalidArgumentError":
        """Returns an error about a single field."""
        return cls([FieldViolation(field, description)])


class InvalidPageTokenError(InvalidArgumentError):
    """The page token is damaged, or belongs to another query."""

    reason = ErrorReason.INVALID_PAGE_TOKEN


class InvalidCursorError(InvalidArgumentError):
    """The cursor is damaged, forged, or was issued by another vault."""

    reason = ErrorReason.INVALID_CURSOR


class CursorExpiredError(MnemonError):
    """The log no longer has the changes that follow the cursor."""

    reason = ErrorReason.CURSOR_EXPIRED


class NotFoundError(MnemonError):
    """The requested ids, or names, do not exist."""

    noun = ""
    """The kind of record, in the message."""

    def __init__(self, *ids: str, message: str = "") -> None:
        self.ids = ids
        more = f"; {len(ids):,} of the ids are missing" if len(ids) > 1 else ""
        super().__init__(message or f"no {self.noun} has the id {' or '.join(map(repr, ids[:5]))}{more}")


class MemoryNotFoundError(NotFoundError):
    """No memory has the requested id, or one of them, or it was deleted. `noun` is memory or statement."""

    reason = ErrorReason.MEMORY_NOT_FOUND

    def __init__(self, *memory_ids: str, noun: str = "memory") -> None:
        self.noun = noun
        super().__init__(*memory_ids)


class UnauthenticatedError(MnemonError):
    """The caller has no valid credential."""

    reason = ErrorReason.UNAUTHENTICATED


class PermissionDeniedError(MnemonError):
    """The caller's role does not allow the operation."""

    reason = ErrorReason.PERMISSION_DENIED


class IdTakenError(PermissionDeniedError):
    """A record that the caller does not see has this id."""

    def __init__(self, record_id: str) -> None:
        self.record_id = record_id
        super().__init__(f"the id {record_id!r} is taken; choose another one")


class RuleNotFoundError(NotFoundError):
    """No merge rule has this name."""

    reason = ErrorReason.RULE_NOT_FOUND

    def __init__(self, name: str) -> None:
        super().__init__(name, message=f"no merge rule has the name {name!r}")


class DecisionNotFoundError(NotFoundError):
    """The decision does not exist."""

    reason = ErrorReason.DECISION_NOT_FOUND
    noun = "decision"


class EventNotFoundError(NotFoundError):
    """The timeline has no event with this id, or with some of these ids."""

    reason = ErrorReason.EVENT_NOT_FOUND
    noun = "event"


class FactNotFoundError(NotFoundError):
    """The namespace has no fact with this key, or the fact has expired."""

    reason = ErrorReason.FACT_NOT_FOUND

    def __init__(self, key: str) -> None:
        super().__init__(key, message=f"no fact has the key {key!r} in this namespace")


class ToolNotFoundError(NotFoundError):
    """The tool does not exist."""

    reason = ErrorReason.TOOL_NOT_FOUND

    def __init__(self, name: str, known: Sequence[str]) -> None:
        tools = ", ".join(map(repr, known))
        super().__init__(name, message=f"no tool has the name {name[:80]!r}; the tools are {tools}")


class MemoryExistsError(MnemonError):
    """A memory with this id already exists, or was deleted."""

    reason = ErrorReason.MEMORY_EXISTS

    def __init__(self, memory_id: str) -> None:
        self.memory_id = memory_id
        super().__init__(f"a memory with the id {memory_id!r} already exists; update it, or omit the id for a new one")


class EventExistsError(MnemonError):
    """An event of another user has this id."""

    reason = ErrorReason.EVENT_EXISTS

    def __init__(self, event_id: str) -> None:
        self.event_id = event_id
        super().__init__(f"the event id {event_id!r} is taken; choose another one, or omit it for a new one")


class FactExistsError(MnemonError):
    """The namespace already has a fact with this key."""

    reason = ErrorReason.FACT_EXISTS

    def __init__(self, key: str) -> None:
        self.key = key
        super().__init__(f"a fact with the key {key!r} already exists in this namespace")


class ToolUnreachableError(MnemonError):
    """The endpoint of an operator's tool cannot be reached, or did not answer in time."""

    reason = ErrorReason.TOOL_UNREACHABLE


class ToolFailedError(MnemonError):
    """The endpoint of an operator's tool answered with an error or with an invalid response."""

    reason = ErrorReason.TOOL_FAILED


class MergeRuleError(MnemonError):
    """The merge rules would be inconsistent. Nothing was changed."""

    reason = ErrorReason.INVALID_OPERATION


class RuleExistsError(MergeRuleError):
    """A merge rule with this name already exists."""

    reason = ErrorReason.RULE_EXISTS

    def __init__(self, name: str) -> None:
        self.name = name
        super().__init__(f"a merge rule {name!r} already exists; update it, or choose another name")


class RuleInUseError(MergeRuleError):
    """Other merge rules extend this one."""

    reason = ErrorReason.RULE_IN_USE

    def __init__(self, name: str, children: Sequence[str]) -> None:
        self.name, self.children = name, tuple(children)
        named = ", ".join(map(repr, self.children[:5])) + (", ..." if len(self.children) > 5 else "")
        super().__init__(f"the merge rule {name!r} is extended by {named}; delete those first, or set force")


class CircularInheritanceError(MergeRuleError):
    """The merge rules would inherit from each other in a circle."""

    reason = ErrorReason.CIRCULAR_INHERITANCE

    def __init__(self, names: Sequence[str]) -> None:
        self.names = tuple(names)
        shown = self.names if len(self.names) <= 10 else (*self.names[:5], "...", *self.names[-4:])
        super().__init__("these merge rules would extend each other in a circle: " + " -> ".join(shown))


class UnknownBaseRuleError(MergeRuleError):
    """A merge rule extends a rule that does not exist."""

    reason = ErrorReason.UNKNOWN_BASE_RULE

    def __init__(self, name: str, base: str) -> None:
        self.name, self.base = name, base
        super().__init__(f"the merge rule {name!r} extends {base!r}, which does not exist; register that rule first")


class RequestIdReusedError(MnemonError):
    """The request_id was used for a different request."""

    reason = ErrorReason.REQUEST_ID_REUSED


class InvalidOperationError(MnemonError):
    """The state of the resource forbids the operation."""

    reason = ErrorReason.INVALID_OPERATION


class RevisionMismatchError(MnemonError):
    """The resource changed since it was read."""

    reason = ErrorReason.REVISION_MISMATCH

    def __init__(self, resource_id: str, expected: int, actual: int) -> None:
        self.resource_id, self.expected, self.actual = resource_id, expected, actual
        super().__init__(f"{resource_id!r} has revision {actual}, not {expected}; read it again")


class TooManyRequestsError(MnemonError):
    """Too many calls are in flight."""

    reason = ErrorReason.TOO_MANY_REQUESTS

    def __init__(self, message: str, retry_after_s: float = 1.0) -> None:
        self.retry_after_s = retry_after_s
        super().__init__(message)


class AnswerFullError(MnemonError):
    """The answer has no room for the result of one of several calls."""

    reason = ErrorReason.MESSAGE_TOO_LARGE


class TooManyVaultsError(TooManyRequestsError):
    """The limit of open vaults is reached, and all of them are in use."""

    reason = ErrorReason.TOO_MANY_VAULTS


class ThrottledError(TooManyRequestsError):
    """Writes are being limited: the capacity is reached, or writes take too long."""

    reason = ErrorReason.THROTTLED


class QuotaExceededError(MnemonError):
    """A tenant or a caller has used up one of its quotas; waiting helps if `retry_after_s` is not None."""

    reason = ErrorReason.QUOTA_EXCEEDED

    def __init__(
        self, subject: str, quota: str, *, limit: float, used: float, retry_after_s: float | None = None
    ) -> None:
        """`subject` is whose quota it is, such as "tenant:acme"; `quota` is its name in `domain/access/quotas.py`."""
        self.subject, self.quota, self.limit, self.used = subject, quota, limit, used
        self.retry_after_s = retry_after_s
        super().__init__(f"the quota {quota} of {subject} is {limit:g}, and {self.usage}")

    @property
    def usage(self) -> str:
        """The use, in words."""
        return f"{self.used:.10g} would be used" if self.used > self.limit else f"{self.used:.10g} are used"


class StorageFullError(MnemonError):
    """No space is left on the disk."""

    reason = ErrorReason.STORAGE_FULL


class StorageFailedError(MnemonError):
    """The disk failed. Writes are refused until the vault is reopened."""

    reason = ErrorReason.STORAGE_FAILED


class RecordDamagedError(MnemonError):
    """The stored bytes of a record are not those that were written. Other records are not affected."""

    reason = ErrorReason.RECORD_DAMAGED

    def __init__(self, collection: str, record_id: str = "") -> None:
        """`collection` is a table of records, or "event" for the log. `record_id` is empty if it is not known."""
        self.collection, self.record_id = collection, record_id
        what = f"the record {record_id!r} of {collection!r}" if record_id else f"a record of {collection!r}"
        super().__init__(f"{what} is damaged on disk; restore it from a backup (mnemon-server verify finds all damage)")


class NotServingError(MnemonError):
    """The server is starting or shutting down."""

    reason = ErrorReason.NOT_SERVING


class IndexWarmingError(NotServingError):
    """The index is still loading."""

    reason = ErrorReason.INDEX_WARMING

    def __init__(self, message: str, retry_after_s: float = 1.0) -> None:
        self.retry_after_s = retry_after_s
        super().__init__(message)


class ConfigurationError(MnemonError):
    """A setting is invalid. The message names it and what would be valid."""

    reason = ErrorReason.CONFIGURATION


class EmbeddingModelMismatchError(ConfigurationError):
    """The stored vectors were made by another embedding model than the configured one."""

    reason = ErrorReason.EMBEDDING_MODEL_MISMATCH


class KnowledgeStoreError(MnemonError):
    """Base of the knowledge store's errors."""


class DocumentNotFoundError(KnowledgeStoreError, NotFoundError):
    """No document has this id."""

    reason = ErrorReason.DOCUMENT_NOT_FOUND
    noun = "document"


class IndexingError(KnowledgeStoreError):
    """A document could not be indexed."""

    reason = ErrorReason.INDEXING_FAILED


class SearchError(KnowledgeStoreError):
    """A search could not be answered."""

    reason = ErrorReason.SEARCH_FAILED


class EmbeddingError(KnowledgeStoreError):
    """An embedding could not be computed: weights are missing or wrong, or the model failed."""

    reason = ErrorReason.EMBEDDING_FAILED


class BackendConnectionError(KnowledgeStoreError):
    """The only backend that could answer is unreachable: the vector database, or the endpoint of the model."""

    reason = ErrorReason.BACKEND_UNREACHABLE


class EmbeddingUnavailableError(EmbeddingError, BackendConnectionError):
    """The endpoint that runs the model cannot be reached, or its answer cannot be used. The message says why."""

    reason = ErrorReason.EMBEDDING_UNAVAILABLE
