"""Statuses of a real gRPC server become exceptions of the client, with all their details."""

import re
from typing import Any

import grpc
import mnemon
import pytest
from google.protobuf import duration_pb2
from google.rpc import error_details_pb2
from mnemon._status import error_from_item
from mnemon.shared import errors as _errors
from mnemon.v1 import common_pb2, errors_pb2, knowledge_store_pb2

from tests.unit.client.scripted_server import failing, scripted_server, silent

AFTER_THE_DEADLINE = error_details_pb2.RetryInfo(retry_delay=duration_pb2.Duration(seconds=61, nanos=500_000_000))
"""A hint with which the client does not repeat the call itself."""

CASES = [
    (grpc.StatusCode.INVALID_ARGUMENT, "INVALID_ARGUMENT", mnemon.InvalidArgumentError),
    (grpc.StatusCode.INVALID_ARGUMENT, "MALFORMED_MESSAGE", mnemon.InvalidArgumentError),
    (grpc.StatusCode.INVALID_ARGUMENT, "INVALID_PAGE_TOKEN", mnemon.InvalidPageTokenError),
    (grpc.StatusCode.INVALID_ARGUMENT, "INVALID_CURSOR", mnemon.InvalidCursorError),
    (grpc.StatusCode.NOT_FOUND, "DOCUMENT_NOT_FOUND", mnemon.DocumentNotFoundError),
    (grpc.StatusCode.NOT_FOUND, "MEMORY_NOT_FOUND", mnemon.MemoryNotFoundError),
    (grpc.StatusCode.ALREADY_EXISTS, "REQUEST_ID_REUSED", mnemon.RequestIdReusedError),
    (grpc.StatusCode.FAILED_PRECONDITION, "INVALID_OPERATION", mnemon.InvalidOperationError),
    (grpc.StatusCode.FAILED_PRECONDITION, "EMBEDDING_MODEL_MISMATCH", mnemon.EmbeddingModelMismatchError),
    (grpc.StatusCode.FAILED_PRECONDITION, "CONFIGURATION", mnemon.ConfigurationError),
    (grpc.StatusCode.ABORTED, "REVISION_MISMATCH", mnemon.RevisionMismatchError),
    (grpc.StatusCode.RESOURCE_EXHAUSTED, "TOO_MANY_REQUESTS", mnemon.ResourceExhaustedError),
    (grpc.StatusCode.RESOURCE_EXHAUSTED, "SLOW_READER", mnemon.ResourceExhaustedError),
    (grpc.StatusCode.RESOURCE_EXHAUSTED, "MESSAGE_TOO_LARGE", mnemon.MessageTooLargeError),
    (grpc.StatusCode.RESOURCE_EXHAUSTED, "STORAGE_FULL", mnemon.StorageFullError),
    (grpc.StatusCode.RESOURCE_EXHAUSTED, "QUOTA_EXCEEDED", mnemon.QuotaExceededError),
    (grpc.StatusCode.RESOURCE_EXHAUSTED, "TOO_MANY_VAULTS", mnemon.TooManyVaultsError),
    (grpc.StatusCode.OUT_OF_RANGE, "CURSOR_EXPIRED", mnemon.CursorExpiredError),
    (grpc.StatusCode.UNAVAILABLE, "BACKEND_UNREACHABLE", mnemon.BackendUnreachableError),
    (grpc.StatusCode.UNAVAILABLE, "STORAGE_FAILED", mnemon.UnavailableError),
    (grpc.StatusCode.UNAVAILABLE, "NOT_SERVING", mnemon.UnavailableError),
    (grpc.StatusCode.DEADLINE_EXCEEDED, "DEADLINE_EXCEEDED", mnemon.DeadlineExceededError),
    (grpc.StatusCode.UNIMPLEMENTED, "UNIMPLEMENTED", mnemon.UnimplementedError),
    (grpc.StatusCode.INTERNAL, "EMBEDDING_FAILED", mnemon.InternalError),
    (grpc.StatusCode.UNAVAILABLE, "EMBEDDING_UNAVAILABLE", mnemon.UnavailableError),
    (grpc.StatusCode.INTERNAL, "INDEXING_FAILED", mnemon.InternalError),
    (grpc.StatusCode.INTERNAL, "SEARCH_FAILED", mnemon.InternalError),
    (grpc.StatusCode.INTERNAL, "INTERNAL", mnemon.InternalError),
    (grpc.StatusCode.NOT_FOUND, "RULE_NOT_FOUND", mnemon.RuleNotFoundError),
    (grpc.StatusCode.ALREADY_EXISTS, "RULE_EXISTS", mnemon.RuleExistsError),
    (grpc.StatusCode.FAILED_PRECONDITION, "CIRCULAR_INHERITANCE", mnemon.CircularInheritanceError),
    (grpc.StatusCode.FAILED_PRECONDITION, "UNKNOWN_BASE_RULE", mnemon.UnknownBaseRuleError),
    (grpc.StatusCode.FAILED_PRECONDITION, "RULE_IN_USE", mnemon.RuleInUseError),
    (grpc.StatusCode.NOT_FOUND, "DECISION_NOT_FOUND", mnemon.DecisionNotFoundError),
    (grpc.StatusCode.UNAVAILABLE, "INDEX_WARMING", mnemon.IndexWarmingError),
    (grpc.StatusCode.RESOURCE_EXHAUSTED, "THROTTLED", mnemon.ThrottledError),
    (grpc.StatusCode.NOT_FOUND, "EVENT_NOT_FOUND", mnemon.EventNotFoundError),
    (grpc.StatusCode.NOT_FOUND, "FACT_NOT_FOUND", mnemon.FactNotFoundError),
    (grpc.StatusCode.ALREADY_EXISTS, "EVENT_EXISTS", mnemon.EventExistsError),
    (grpc.StatusCode.NOT_FOUND, "CONVERSATION_NOT_FOUND", mnemon.ConversationNotFoundError),
    (grpc.StatusCode.NOT_FOUND, "VERSION_NOT_FOUND", mnemon.VersionNotFoundError),
    (grpc.StatusCode.NOT_FOUND, "QUARANTINE_NOT_FOUND", mnemon.QuarantineNotFoundError),
    (grpc.StatusCode.NOT_FOUND, "MESSAGE_NOT_FOUND", mnemon.MessageNotFoundError),
    (grpc.StatusCode.ALREADY_EXISTS, "MESSAGE_EXISTS", mnemon.MessageExistsError),
    (grpc.StatusCode.ALREADY_EXISTS, "FACT_EXISTS", mnemon.FactExistsError),
    (grpc.StatusCode.ALREADY_EXISTS, "MEMORY_EXISTS", mnemon.MemoryExistsError),
    (grpc.StatusCode.NOT_FOUND, "TOOL_NOT_FOUND", mnemon.ToolNotFoundError),
    (grpc.StatusCode.UNAVAILABLE, "TOOL_UNREACHABLE", mnemon.ToolUnreachableError),
    (grpc.StatusCode.FAILED_PRECONDITION, "TOOL_FAILED", mnemon.ToolFailedError),
    (grpc.StatusCode.DATA_LOSS, "RECORD_DAMAGED", mnemon.RecordDamagedError),
    (grpc.StatusCode.DATA_LOSS, "", mnemon.DataLossError),
    (grpc.StatusCode.NOT_FOUND, "KEY_NOT_FOUND", mnemon.KeyNotFoundError),
    (grpc.StatusCode.NOT_FOUND, "GRANT_NOT_FOUND", mnemon.GrantNotFoundError),
    (grpc.StatusCode.UNAUTHENTICATED, "UNAUTHENTICATED", mnemon.UnauthenticatedError),
    (grpc.StatusCode.UNAUTHENTICATED, "", mnemon.UnauthenticatedError),
    (grpc.StatusCode.PERMISSION_DENIED, "PERMISSION_DENIED", mnemon.PermissionDeniedError),
    (grpc.StatusCode.PERMISSION_DENIED, "TENANT_SUSPENDED", mnemon.TenantSuspendedError),
    (grpc.StatusCode.NOT_FOUND, "TENANT_NOT_FOUND", mnemon.TenantNotFoundError),
    (grpc.StatusCode.ALREADY_EXISTS, "TENANT_EXISTS", mnemon.TenantExistsError),
    (grpc.StatusCode.PERMISSION_DENIED, "", mnemon.PermissionDeniedError),
    (grpc.StatusCode.OUT_OF_RANGE, "", mnemon.OutOfRangeError),
    (grpc.StatusCode.UNKNOWN, "", mnemon.InternalError),
    (grpc.StatusCode.NOT_FOUND, "A_REASON_OF_A_LATER_SERVER", mnemon.NotFoundError),
]


def test_each_status_and_reason_has_its_exception() -> None:
    with scripted_server(silent) as (address, store), mnemon.Client(address) as client:
        for code, reason, expected in CASES:
            store.script[:] = [failing(code, "told", reason=reason, details=[AFTER_THE_DEADLINE])]
            with pytest.raises(mnemon.MnemonError) as raised:
                client.documents.get("a")
            assert type(raised.value) is expected
            hint = "; the client sends api_key=, otherwise token=, otherwise the variable MNEMON_API_KEY"
            message = "told" + (hint if code is grpc.StatusCode.UNAUTHENTICATED else "")
            assert (raised.value.code, raised.value.reason, str(raised.value)) == (code.name, reason, message)
            assert raised.value.request_id == "r-1"


def test_the_cases_cover_every_published_reason() -> None:
    published = {
        name.removeprefix("ERROR_REASON_")
        for name in errors_pb2.DESCRIPTOR.enum_types_by_name["ErrorReason"].values_by_name
    } - {"UNSPECIFIED"}

    assert published <= {reason for _, reason, _ in CASES}


def test_an_invalid_argument_is_a_value_error_whoever_detects_it() -> None:
    line = failing(grpc.StatusCode.INVALID_ARGUMENT, "told", reason="INVALID_ARGUMENT")
    with scripted_server(line) as (address, _), mnemon.Client(address) as client:
        with pytest.raises(ValueError, match="told"):
            client.documents.get("a")
        with pytest.raises(ValueError, match="doc_id: must be text, not int"):
            client.documents.get(1)  # type: ignore[arg-type]


async def test_the_asyncio_client_raises_the_same() -> None:
    line = failing(grpc.StatusCode.NOT_FOUND, "no such", reason="DOCUMENT_NOT_FOUND")
    with scripted_server(line) as (address, _):
        async with mnemon.AsyncClient(address) as client:
            with pytest.raises(mnemon.DocumentNotFoundError, match="no such") as raised:
                await client.documents.get("a")

    assert (raised.value.reason, raised.value.request_id) == ("DOCUMENT_NOT_FOUND", "r-1")


def test_violations_name_each_field_and_the_valid_values() -> None:
    violation = error_details_pb2.BadRequest.FieldViolation(field="document.doc_id", description="must not be empty")
    bad = error_details_pb2.BadRequest(field_violations=[violation])
    line = failing(grpc.StatusCode.INVALID_ARGUMENT, reason="INVALID_ARGUMENT", details=[bad])
    with (
        scripted_server(line) as (address, _),
        mnemon.Client(address) as client,
        pytest.raises(mnemon.InvalidArgumentError) as raised,
    ):
        client.documents.get("a")

    assert raised.value.violations == (mnemon.FieldViolation("document.doc_id", "must not be empty"),)


def test_a_throttled_call_says_when_to_retry() -> None:
    line = failing(grpc.StatusCode.RESOURCE_EXHAUSTED, reason="TOO_MANY_REQUESTS", details=[AFTER_THE_DEADLINE])
    with (
        scripted_server(line) as (address, _),
        mnemon.Client(address) as client,
        pytest.raises(mnemon.ResourceExhaustedError) as raised,
    ):
        client.documents.get("a")

    assert raised.value.retry_after == 61.5


def test_an_internal_error_carries_the_incident_id() -> None:
    line = failing(grpc.StatusCode.INTERNAL, reason="INTERNAL", incident_id="i-7")
    with (
        scripted_server(line) as (address, _),
        mnemon.Client(address) as client,
        pytest.raises(mnemon.InternalError) as raised,
    ):
        client.documents.get("a")

    assert raised.value.incident_id == "i-7"
    assert raised.value.to_dict()["incident_id"] == "i-7"


def test_a_call_without_an_answer_in_time_says_how_long_it_waited() -> None:
    with (
        scripted_server(silent) as (address, _),
        mnemon.Client(address, timeout=0.2) as client,
        pytest.raises(mnemon.DeadlineExceededError, match=r"no answer from 127\.0\.0\.1:\d+ within 0\.2 s"),
    ):
        client.documents.get("a")


def test_a_missing_server_is_reported_with_the_address() -> None:
    with mnemon.Client("127.0.0.1:1") as client, pytest.raises(mnemon.ServerUnreachableError) as raised:
        client.documents.get("a")

    assert "127.0.0.1:1" in str(raised.value)


async def test_a_call_dropped_by_a_server_shutdown_may_be_retried() -> None:
    def dropped(request: Any, context: grpc.ServicerContext) -> knowledge_store_pb2.GetDocumentResponse:
        context.cancel()
        return knowledge_store_pb2.GetDocumentResponse()

    with scripted_server(dropped) as (address, _):
        with mnemon.Client(address) as client, pytest.raises(mnemon.ServerUnreachableError, match=address) as told:
            client.documents.get("a")
        async with mnemon.AsyncClient(address) as client_:
            with pytest.raises(mnemon.ServerUnreachableError):
                await client_.documents.get("a")

    assert told.value.code == "CANCELLED"


def test_a_call_ended_by_its_own_client_is_cancelled() -> None:
    client: mnemon.Client

    def closes_its_client(request: Any, context: grpc.ServicerContext) -> knowledge_store_pb2.GetDocumentResponse:
        client.close()
        return knowledge_store_pb2.GetDocumentResponse()

    with scripted_server(closes_its_client) as (address, _):
        client = mnemon.Client(address)
        with pytest.raises(mnemon.CallCancelledError):
            client.documents.get("a")


def test_an_item_of_a_stream_fails_like_the_single_call() -> None:
    error = error_from_item(
        common_pb2.ItemError(
            code=grpc.StatusCode.ABORTED.value[0],
            message="changed",
            reason=errors_pb2.ERROR_REASON_REVISION_MISMATCH,
            retry_delay=duration_pb2.Duration(seconds=2),
            metadata={"incident_id": "0b1c"},
        )
    )

    assert type(error) is mnemon.RevisionMismatchError
    assert (error.code, error.reason, error.retry_after, str(error)) == ("ABORTED", "REVISION_MISMATCH", 2.0, "changed")
    assert error.incident_id == "0b1c"


def test_the_tree_in_the_docstring_matches_the_classes() -> None:
    drawn = re.findall(r"^(?:[│ ]*[├└]── )?(\w+Error)", _errors.__doc__ or "", re.MULTILINE)
    classes = [getattr(mnemon, name) for name in mnemon.__all__ if name.endswith("Error")]

    assert all(issubclass(each, mnemon.MnemonError) for each in classes)
    assert sorted(drawn) == sorted(each.__name__ for each in classes)
