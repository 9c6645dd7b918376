"""Every error that the product knows.

MnemonError
├── InvalidArgumentError               a field is wrong; `violations` names each one (also a ValueError)
│   ├── InvalidPageTokenError
│   └── InvalidCursorError
├── NotFoundError
│   ├── DocumentNotFoundError          (also a KnowledgeStoreError)
│   ├── MemoryNotFoundError
│   ├── RuleNotFoundError
│   ├── DecisionNotFoundError
│   ├── EventNotFoundError
│   ├── FactNotFoundError
│   └── ToolNotFoundError
├── FactExistsError
├── MemoryExistsError
├── ToolUnreachableError               an operator's endpoint does not answer
├── ToolFailedError                    an operator's endpoint answers with an error
├── CursorExpiredError                 the events behind it are no longer kept
├── RequestIdReusedError               the same request_id, another request
├── InvalidOperationError              the state of the resource forbids it
├── MergeRuleError                     the rules would not fit together; nothing changed
│   ├── RuleExistsError
│   ├── RuleInUseError                 others extend it
│   ├── CircularInheritanceError
│   └── UnknownBaseRuleError
├── RevisionMismatchError              changed since it was read
├── TooManyRequestsError               come back after `retry_after_s`
│   ├── TooManyVaultsError             all that may be open are in use
│   └── ThrottledError                 writes are held back
├── StorageFullError                   no space left on the disk
├── StorageFailedError                 the disk failed; no more writes until reopened
├── RecordDamagedError                 what is stored of a record is not what was written
├── NotServingError                    starting or shutting down
│   └── IndexWarmingError              come back after `retry_after_s`
├── ConfigurationError
│   └── EmbeddingModelMismatchError    the stored vectors are another model's
└── KnowledgeStoreError
    ├── DocumentNotFoundError
    ├── IndexingError
    ├── SearchError
    ├── EmbeddingError                 no weights, wrong weights, or the model failed
    └── BackendConnectionError         the vector database cannot be reached

The messages of all but IndexingError, SearchError, EmbeddingError and plain KnowledgeStoreError are written for
clients: they hold no path, no stored text and no text of a driver.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum


class ErrorReason(StrEnum):
    """Why a call failed: the names of `mnemon.v1.ErrorReason` without their prefix."""

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


@dataclass(frozen=True, slots=True)
class FieldViolation:
    """What is wrong with one field, and what would be right."""

    field: str
    description: str


class MnemonError(Exception):
    """Base of all errors of the product."""

    reason = ErrorReason.INTERNAL


class InvalidArgumentError(MnemonError, ValueError):
    """One or more fields of a request are wrong."""

    reason = ErrorReason.INVALID_ARGUMENT

    def __init__(self, violations: Sequence[FieldViolation]) -> None:
        self.violations = tuple(violations)
        super().__init__("; ".join(f"{violation.field}: {violation.description}" for violation in self.violations))

    @classmethod
    def of(cls, field: str, description: str) -> "InvalidArgumentError":
        """An error about a single field."""
        return cls([FieldViolation(field, description)])


class InvalidPageTokenError(InvalidArgumentError):
    """The page token is damaged, or belongs to another query."""

    reason = ErrorReason.INVALID_PAGE_TOKEN


class InvalidCursorError(InvalidArgumentError):
    """The cursor is damaged, forged, or was given out by another vault."""

    reason = ErrorReason.INVALID_CURSOR


class CursorExpiredError(MnemonError):
    """The cursor is older than the events that are kept."""

    reason = ErrorReason.CURSOR_EXPIRED


class NotFoundError(MnemonError):
    """There is nothing under this id."""


def _none_has(noun: str, ids: Sequence[str]) -> str:
    more = f"; {len(ids):,} of the ids are missing" if len(ids) > 1 else ""
    return f"no {noun} has the id {' or '.join(map(repr, ids[:5]))}{more}"


class MemoryNotFoundError(NotFoundError):
    """No memory has this id, or one of these, or it was deleted."""

    reason = ErrorReason.MEMORY_NOT_FOUND

    def __init__(self, *memory_ids: str) -> None:
        self.memory_id, self.memory_ids = memory_ids[0], memory_ids
        super().__init__(_none_has("memory", memory_ids))


class RuleNotFoundError(NotFoundError):
    """No merge rule has this name."""

    reason = ErrorReason.RULE_NOT_FOUND

    def __init__(self, name: str) -> None:
        self.name = name
        super().__init__(f"no merge rule has the name {name!r}")


class DecisionNotFoundError(NotFoundError):
    """There is no such decision."""

    reason = ErrorReason.DECISION_NOT_FOUND

    def __init__(self, decision_id: str) -> None:
        self.decision_id = decision_id
        super().__init__(f"no decision has the id {decision_id!r}")


class EventNotFoundError(NotFoundError):
    """The timeline has no event of this id, or of some of these."""

    reason = ErrorReason.EVENT_NOT_FOUND

    def __init__(self, *event_ids: str) -> None:
        self.event_id, self.event_ids = event_ids[0], event_ids
        super().__init__(_none_has("event", event_ids))


class FactNotFoundError(NotFoundError):
    """The namespace has no fact of this key, or it has expired."""

    reason = ErrorReason.FACT_NOT_FOUND

    def __init__(self, key: str) -> None:
        self.key = key
        super().__init__(f"no fact has the key {key!r} in this namespace")


class ToolNotFoundError(NotFoundError):
    """There is no tool of this name."""

    reason = ErrorReason.TOOL_NOT_FOUND

    def __init__(self, name: str, known: Sequence[str]) -> None:
        self.name = name
        super().__init__(f"no tool has the name {name[:80]!r}; the tools are {', '.join(map(repr, known))}")


class MemoryExistsError(MnemonError):
    """There is a memory of this id, deleted or not."""

    reason = ErrorReason.MEMORY_EXISTS

    def __init__(self, memory_id: str) -> None:
        self.memory_id = memory_id
        super().__init__(f"there is a memory with the id {memory_id!r}; update it, or leave the id out for a new one")


class FactExistsError(MnemonError):
    """The namespace has a fact of this key."""

    reason = ErrorReason.FACT_EXISTS

    def __init__(self, key: str) -> None:
        self.key = key
        super().__init__(f"there is a fact with the key {key!r} in this namespace")


class ToolUnreachableError(MnemonError):
    """The endpoint that an operator's tool forwards to cannot be reached, or did not answer in time."""

    reason = ErrorReason.TOOL_UNREACHABLE


class ToolFailedError(MnemonError):
    """The endpoint that an operator's tool forwards to answered with an error, or with what is no answer."""

    reason = ErrorReason.TOOL_FAILED


class MergeRuleError(MnemonError):
    """The merge rules would not fit together; nothing was changed."""

    reason = ErrorReason.INVALID_OPERATION


class RuleExistsError(MergeRuleError):
    """A merge rule of this name is there."""

    reason = ErrorReason.RULE_EXISTS

    def __init__(self, name: str) -> None:
        self.name = name
        super().__init__(f"there is a merge rule {name!r} already; update it, or choose another name")


class RuleInUseError(MergeRuleError):
    """Other merge rules extend this one."""

    reason = ErrorReason.RULE_IN_USE

    def __init__(self, name: str, children: Sequence[str]) -> None:
        self.name, self.children = name, tuple(children)
        named = ", ".join(map(repr, self.children[:5])) + (", ..." if len(self.children) > 5 else "")
        super().__init__(f"the merge rule {name!r} is extended by {named}; delete those first, or set force")


class CircularInheritanceError(MergeRuleError):
    """Merge rules would inherit from each other in a circle."""

    reason = ErrorReason.CIRCULAR_INHERITANCE

    def __init__(self, names: Sequence[str]) -> None:
        self.names = tuple(names)
        shown = self.names if len(self.names) <= 10 else (*self.names[:5], "...", *self.names[-4:])
        super().__init__("these merge rules would extend each other in a circle: " + " -> ".join(shown))


class UnknownBaseRuleError(MergeRuleError):
    """A merge rule extends one that is not there."""

    reason = ErrorReason.UNKNOWN_BASE_RULE

    def __init__(self, name: str, base: str) -> None:
        self.name, self.base = name, base
        super().__init__(f"the merge rule {name!r} extends {base!r}, which is not there; register that one first")


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
    """An answer has no room for what a call among others returned, or would return."""

    reason = ErrorReason.MESSAGE_TOO_LARGE


class TooManyVaultsError(TooManyRequestsError):
    """All vaults that may be open at once are in use."""

    reason = ErrorReason.TOO_MANY_VAULTS


class ThrottledError(TooManyRequestsError):
    """Writes are held back: the capacity is reached, or they take longer than they should."""

    reason = ErrorReason.THROTTLED


class StorageFullError(MnemonError):
    """No space is left on the disk."""

    reason = ErrorReason.STORAGE_FULL


class StorageFailedError(MnemonError):
    """The disk failed, and no more writes are accepted until the records have been reopened."""

    reason = ErrorReason.STORAGE_FAILED


class RecordDamagedError(MnemonError):
    """What is stored of a record cannot be read: its bytes are not what was written. Others are not concerned."""

    reason = ErrorReason.RECORD_DAMAGED

    def __init__(self, collection: str, record_id: str = "") -> None:
        """`collection` is a table of records, or "event" for the log; an id that is not known is empty."""
        self.collection, self.record_id = collection, record_id
        what = f"the record {record_id!r} of {collection!r}" if record_id else f"a record of {collection!r}"
        super().__init__(f"{what} is damaged on disk; restore it from a backup (mnemon-server verify finds all damage)")


class NotServingError(MnemonError):
    """The server is starting or shutting down."""

    reason = ErrorReason.NOT_SERVING


class IndexWarmingError(NotServingError):
    """The index is not warm yet."""

    reason = ErrorReason.INDEX_WARMING

    def __init__(self, message: str, retry_after_s: float = 1.0) -> None:
        self.retry_after_s = retry_after_s
        super().__init__(message)


class ConfigurationError(MnemonError):
    """A setting is wrong; the message names it and what would be right."""

    reason = ErrorReason.CONFIGURATION


class EmbeddingModelMismatchError(ConfigurationError):
    """The stored vectors were made by another embedding model than the configured one."""

    reason = ErrorReason.EMBEDDING_MODEL_MISMATCH


class KnowledgeStoreError(MnemonError):
    """Base of the knowledge store's errors."""


class DocumentNotFoundError(KnowledgeStoreError, NotFoundError):
    """No document has this id."""

    reason = ErrorReason.DOCUMENT_NOT_FOUND

    def __init__(self, doc_id: str) -> None:
        self.doc_id = doc_id
        super().__init__(f"no document has the id {doc_id!r}")


class IndexingError(KnowledgeStoreError):
    """A document could not be indexed."""

    reason = ErrorReason.INDEXING_FAILED


class SearchError(KnowledgeStoreError):
    """A search could not be answered."""

    reason = ErrorReason.SEARCH_FAILED


class EmbeddingError(KnowledgeStoreError):
    """An embedding could not be computed: no weights, wrong weights, or the model failed."""

    reason = ErrorReason.EMBEDDING_FAILED


class BackendConnectionError(KnowledgeStoreError):
    """The vector database cannot be reached."""

    reason = ErrorReason.BACKEND_UNREACHABLE
