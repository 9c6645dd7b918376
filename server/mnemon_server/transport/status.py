"""Errors as a client sees them: one table from error to status code, and the details that go with it."""

import secrets
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import grpc
from google.protobuf.any_pb2 import Any as AnyMessage
from google.rpc import error_details_pb2, status_pb2
from mnemon.v1 import common_pb2, errors_pb2

from mnemon_server.domain import errors
from mnemon_server.domain.access.errors import (
    GrantNotFoundError,
    KeyNotFoundError,
    TenantExistsError,
    TenantNotFoundError,
    TenantSuspendedError,
)
from mnemon_server.domain.access.quarantine import QuarantineNotFoundError
from mnemon_server.domain.backup import BackupError
from mnemon_server.domain.conversations import ConversationNotFoundError, MessageExistsError, MessageNotFoundError
from mnemon_server.domain.damage import CommitsLostError, PageDamagedError, VaultDamagedError
from mnemon_server.domain.history import VersionNotFoundError
from mnemon_server.services.extraction.extractor import BudgetSpentError, ExtractorAwayError
from mnemon_server.services.limits.outbox import SlowReaderError
from mnemon_server.transport import errors as transport_errors
from mnemon_server.wire.values import duration_to_pb

ERROR_DOMAIN = "mnemon"
"""Without the version of the API, since a reason means the same in every version."""
DETAILS_KEY = "grpc-status-details-bin"
PUSHBACK_KEY = "grpc-retry-pushback-ms"
"""When to retry a call that the server has not begun (https://github.com/grpc/proposal/blob/master/A6-client-retries.md).
Channels of gRPC and proxies read it; they do not read details."""
VIOLATIONS_MAX = 20
# Clients accept 8 KiB of trailers for certain. A message is percent-encoded (up to three times longer) and repeated in
# the details, which travel in base64.
MESSAGE_BYTES_MAX = 512
DETAILS_BYTES_MAX = 4096
_FIELD_CHARACTERS_MAX, _DESCRIPTION_CHARACTERS_MAX = 128, 200

STATUS_CODES: Mapping[type[errors.MnemonError], grpc.StatusCode] = {
    errors.InvalidArgumentError: grpc.StatusCode.INVALID_ARGUMENT,
    errors.InvalidPageTokenError: grpc.StatusCode.INVALID_ARGUMENT,
    errors.InvalidCursorError: grpc.StatusCode.INVALID_ARGUMENT,
    errors.DocumentNotFoundError: grpc.StatusCode.NOT_FOUND,
    errors.MemoryNotFoundError: grpc.StatusCode.NOT_FOUND,
    errors.RuleNotFoundError: grpc.StatusCode.NOT_FOUND,
    errors.DecisionNotFoundError: grpc.StatusCode.NOT_FOUND,
    errors.EventNotFoundError: grpc.StatusCode.NOT_FOUND,
    ConversationNotFoundError: grpc.StatusCode.NOT_FOUND,
    MessageNotFoundError: grpc.StatusCode.NOT_FOUND,
    errors.FactNotFoundError: grpc.StatusCode.NOT_FOUND,
    errors.ToolNotFoundError: grpc.StatusCode.NOT_FOUND,
    VersionNotFoundError: grpc.StatusCode.NOT_FOUND,
    KeyNotFoundError: grpc.StatusCode.NOT_FOUND,
    GrantNotFoundError: grpc.StatusCode.NOT_FOUND,
    QuarantineNotFoundError: grpc.StatusCode.NOT_FOUND,
    errors.UnauthenticatedError: grpc.StatusCode.UNAUTHENTICATED,
    errors.PermissionDeniedError: grpc.StatusCode.PERMISSION_DENIED,
    errors.IdTakenError: grpc.StatusCode.PERMISSION_DENIED,
    TenantSuspendedError: grpc.StatusCode.PERMISSION_DENIED,
    TenantNotFoundError: grpc.StatusCode.NOT_FOUND,
    TenantExistsError: grpc.StatusCode.ALREADY_EXISTS,
    errors.EventExistsError: grpc.StatusCode.ALREADY_EXISTS,
    MessageExistsError: grpc.StatusCode.ALREADY_EXISTS,
    errors.FactExistsError: grpc.StatusCode.ALREADY_EXISTS,
    errors.MemoryExistsError: grpc.StatusCode.ALREADY_EXISTS,
    errors.ToolUnreachableError: grpc.StatusCode.UNAVAILABLE,
    ExtractorAwayError: grpc.StatusCode.UNAVAILABLE,
    BudgetSpentError: grpc.StatusCode.RESOURCE_EXHAUSTED,
    errors.ToolFailedError: grpc.StatusCode.FAILED_PRECONDITION,
    errors.CursorExpiredError: grpc.StatusCode.OUT_OF_RANGE,
    errors.RequestIdReusedError: grpc.StatusCode.ALREADY_EXISTS,
    errors.RuleExistsError: grpc.StatusCode.ALREADY_EXISTS,
    errors.RuleInUseError: grpc.StatusCode.FAILED_PRECONDITION,
    errors.CircularInheritanceError: grpc.StatusCode.FAILED_PRECONDITION,
    errors.UnknownBaseRuleError: grpc.StatusCode.FAILED_PRECONDITION,
    errors.InvalidOperationError: grpc.StatusCode.FAILED_PRECONDITION,
    errors.ConfigurationError: grpc.StatusCode.FAILED_PRECONDITION,
    BackupError: grpc.StatusCode.FAILED_PRECONDITION,
    errors.EmbeddingModelMismatchError: grpc.StatusCode.FAILED_PRECONDITION,
    errors.RevisionMismatchError: grpc.StatusCode.ABORTED,
    errors.TooManyRequestsError: grpc.StatusCode.RESOURCE_EXHAUSTED,
    SlowReaderError: grpc.StatusCode.RESOURCE_EXHAUSTED,
    errors.AnswerFullError: grpc.StatusCode.RESOURCE_EXHAUSTED,
    errors.TooManyVaultsError: grpc.StatusCode.RESOURCE_EXHAUSTED,
    errors.ThrottledError: grpc.StatusCode.RESOURCE_EXHAUSTED,
    errors.QuotaExceededError: grpc.StatusCode.RESOURCE_EXHAUSTED,
    errors.StorageFullError: grpc.StatusCode.RESOURCE_EXHAUSTED,
    errors.StorageFailedError: grpc.StatusCode.UNAVAILABLE,
    errors.RecordDamagedError: grpc.StatusCode.DATA_LOSS,
    PageDamagedError: grpc.StatusCode.DATA_LOSS,
    VaultDamagedError: grpc.StatusCode.DATA_LOSS,
    CommitsLostError: grpc.StatusCode.DATA_LOSS,
    errors.NotServingError: grpc.StatusCode.UNAVAILABLE,
    transport_errors.NotBegunError: grpc.StatusCode.UNAVAILABLE,
    errors.IndexWarmingError: grpc.StatusCode.UNAVAILABLE,
    errors.BackendConnectionError: grpc.StatusCode.UNAVAILABLE,
    errors.IndexingError: grpc.StatusCode.INTERNAL,
    errors.SearchError: grpc.StatusCode.INTERNAL,
    errors.EmbeddingError: grpc.StatusCode.INTERNAL,
    errors.EmbeddingUnavailableError: grpc.StatusCode.UNAVAILABLE,
    transport_errors.MalformedMessageError: grpc.StatusCode.INVALID_ARGUMENT,
    transport_errors.MessageTooLargeError: grpc.StatusCode.RESOURCE_EXHAUSTED,
    transport_errors.DeadlineExceededError: grpc.StatusCode.DEADLINE_EXCEEDED,
    transport_errors.UnimplementedError: grpc.StatusCode.UNIMPLEMENTED,
}
"""Every error that may reach a client, by class. The text of one that is missing or INTERNAL stays secret."""

_RETRY_AFTER_S: Mapping[type[errors.MnemonError], float] = {
    errors.StorageFullError: 30.0,
    errors.StorageFailedError: 5.0,
    SlowReaderError: 1.0,
    errors.NotServingError: 1.0,
    transport_errors.NotBegunError: 1.0,
    errors.BackendConnectionError: 1.0,
    errors.EmbeddingUnavailableError: 1.0,
}


@dataclass(frozen=True, slots=True)
class Failure:
    """An error as a client may see it; `incident_id` is set if the text must stay in the log."""

    code: grpc.StatusCode
    message: str
    reason: errors.ErrorReason
    metadata: Mapping[str, str]
    violations: tuple[errors.FieldViolation, ...] = ()
    retry_after_s: float | None = None
    has_begun: bool = True
    """False if the call has certainly not begun, and a retry will soon succeed."""
    resource: tuple[str, str] | None = None
    """Type and id of what was not found."""
    quota: tuple[str, str] | None = None
    """The owner of the quota that is used up, and which one, in words."""
    incident_id: str = ""

    @classmethod
    def of(cls, error: BaseException) -> "Failure":
        """The one translation of errors; an error without a row in the table is INTERNAL."""
        code = next((STATUS_CODES[kind] for kind in type(error).__mro__ if kind in STATUS_CODES), None)
        if not isinstance(error, errors.MnemonError) or code in (None, grpc.StatusCode.INTERNAL):
            return _internal(error)
        return cls(
            code=code,
            message=_cut(str(error), MESSAGE_BYTES_MAX),
            reason=error.reason,
            metadata=_metadata(error),
            violations=_violations(error),
            retry_after_s=_retry_after_s(error),
            has_begun=not isinstance(error, transport_errors.NotBegunError | errors.IndexWarmingError),
            resource=_resource(error),
            quota=_quota(error),
        )

    def trailers(self) -> tuple[tuple[str, str | bytes], ...]:
        """The status with its details, in the trailer where every client library looks for it."""
        status = status_pb2.Status(code=self.code.value[0], message=self.message)
        for detail in self._details():
            packed = AnyMessage()
            packed.Pack(detail)
            if status.ByteSize() + packed.ByteSize() <= DETAILS_BYTES_MAX:
                status.details.append(packed)
        details = (DETAILS_KEY, status.SerializeToString())
        if self.has_begun or self.retry_after_s is None:
            return (details,)
        return (details, (PUSHBACK_KEY, str(round(self.retry_after_s * 1000))))

    def to_item_error(self) -> common_pb2.ItemError:
        """The same for one item of a bulk stream."""
        item = common_pb2.ItemError(
            code=self.code.value[0],
            message=self.message,
            reason=errors_pb2.ErrorReason.Value(f"ERROR_REASON_{self.reason}"),
            metadata=self.metadata,
            violations=[common_pb2.FieldViolation(field=v.field, description=v.description) for v in self.violations],
        )
        if self.retry_after_s is not None:
            item.retry_delay.CopyFrom(duration_to_pb(self.retry_after_s))
        return item

    def _details(self) -> Iterator[Any]:
        yield error_details_pb2.ErrorInfo(reason=self.reason, domain=ERROR_DOMAIN, metadata=self.metadata)
        if self.retry_after_s is not None:
            yield error_details_pb2.RetryInfo(retry_delay=duration_to_pb(self.retry_after_s))
        if self.resource is not None:
            kind, name = self.resource
            yield error_details_pb2.ResourceInfo(
                resource_type=f"{ERROR_DOMAIN}.{kind}", resource_name=name, description=self.message
            )
        if self.quota is not None:
            subject, description = self.quota
            failure = error_details_pb2.QuotaFailure()
            failure.violations.add(subject=subject, description=description)
            yield failure
        if self.violations:
            yield _bad_request(self.violations)


def _internal(error: BaseException) -> Failure:
    incident_id = secrets.token_hex(8)
    reason = error.reason if isinstance(error, errors.MnemonError) else errors.ErrorReason.INTERNAL
    return Failure(
        code=grpc.StatusCode.INTERNAL,
        message=f"internal error; the server's log says more under incident {incident_id}",
        reason=reason,
        metadata={"incident_id": incident_id},
        incident_id=incident_id,
    )


_RESOURCES: Mapping[type[errors.NotFoundError | TenantExistsError], str] = {
    errors.DocumentNotFoundError: "Document",
    errors.MemoryNotFoundError: "Memory",
    errors.RuleNotFoundError: "MergeRuleConfig",
    errors.DecisionNotFoundError: "Decision",
    errors.EventNotFoundError: "EpisodicEvent",
    ConversationNotFoundError: "Conversation",
    MessageNotFoundError: "ConversationMessage",
    errors.FactNotFoundError: "Fact",
    errors.ToolNotFoundError: "Tool",
    VersionNotFoundError: "Version",
    KeyNotFoundError: "ApiKey",
    GrantNotFoundError: "Grant",
    QuarantineNotFoundError: "Quarantine",
    TenantNotFoundError: "Tenant",
    TenantExistsError: "Tenant",
}
"""The types of resources that errors are about."""


def _resource(error: errors.MnemonError) -> tuple[str, str] | None:
    if not isinstance(error, errors.NotFoundError | TenantExistsError) or type(error) not in _RESOURCES:
        return None
    return _RESOURCES[type(error)], error.ids[0]


def _quota(error: errors.MnemonError) -> tuple[str, str] | None:
    if not isinstance(error, errors.QuotaExceededError):
        return None
    return _cut(error.subject, _FIELD_CHARACTERS_MAX), f"{error.quota} is {error.limit:.10g}, and {error.usage}"


def _metadata(error: errors.MnemonError) -> Mapping[str, str]:
    if isinstance(error, errors.RevisionMismatchError):
        return {"expected_revision": str(error.expected), "actual_revision": str(error.actual)}
    if isinstance(error, errors.QuotaExceededError):
        return {"quota": error.quota, "limit": f"{error.limit:.10g}", "used": f"{error.used:.10g}"}
    if isinstance(error, errors.RecordDamagedError):
        return {"collection": error.collection, "record_id": error.record_id}
    return {}


def _violations(error: errors.MnemonError) -> tuple[errors.FieldViolation, ...]:
    if not isinstance(error, errors.InvalidArgumentError):
        return ()
    return tuple(
        errors.FieldViolation(
            _cut(violation.field, _FIELD_CHARACTERS_MAX), _cut(violation.description, _DESCRIPTION_CHARACTERS_MAX)
        )
        for violation in error.violations[:VIOLATIONS_MAX]
    )


def _bad_request(violations: tuple[errors.FieldViolation, ...]) -> error_details_pb2.BadRequest:
    """The violations, as far as they fit beside the other details."""
    request = error_details_pb2.BadRequest()
    for violation in violations:
        request.field_violations.add(field=violation.field, description=violation.description)
        if request.ByteSize() > DETAILS_BYTES_MAX - 2 * MESSAGE_BYTES_MAX:
            del request.field_violations[-1]
            break
    return request


def _retry_after_s(error: errors.MnemonError) -> float | None:
    if isinstance(error, errors.TooManyRequestsError | errors.IndexWarmingError | errors.QuotaExceededError):
        return error.retry_after_s
    return _RETRY_AFTER_S.get(type(error))


def _cut(text: str, size: int) -> str:
    """At most `size` bytes of UTF-8, with a mark if something is left out."""
    encoded = text.encode("utf-8", "replace")
    if len(encoded) <= size:
        return encoded.decode()
    return encoded[: size - 3].decode("utf-8", "ignore") + "…"
