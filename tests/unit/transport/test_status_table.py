"""The table from errors to statuses is complete and reveals nothing secret."""

import json
from collections.abc import Iterator
from typing import Any

import grpc
import pytest
from google.rpc import error_details_pb2, status_pb2
from mnemon.v1 import errors_pb2
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
from mnemon_server.domain.errors import ErrorReason, FieldViolation, MnemonError
from mnemon_server.domain.history import VersionNotFoundError
from mnemon_server.domain.origins import Provenance
from mnemon_server.services.bridge.ledger import ChangedError
from mnemon_server.services.extraction.extractor import BudgetSpentError, ExtractorAwayError
from mnemon_server.services.limits.outbox import SlowReaderError
from mnemon_server.services.search.embedded_passages import TextMovedError
from mnemon_server.transport import errors as transport_errors
from mnemon_server.transport.status import DETAILS_BYTES_MAX, STATUS_CODES, Failure

from tests.support.repository import ROOT

# Base classes of the errors below them, never raised themselves.
ABSTRACT = {MnemonError, errors.NotFoundError, errors.MergeRuleError, errors.KnowledgeStoreError}
WITHIN_TRANSACTIONS = {ChangedError, TextMovedError}
"""They end in a transaction that is then repeated."""

PUBLISHED = {row["reason"]: row for row in json.loads((ROOT / "protos/errors.json").read_text("utf-8"))["errors"]}
"""What `make generate` writes of errors.proto, for clients in every language."""

SAMPLES = [
    errors.InvalidArgumentError.of("top_k", "must be a number"),
    errors.InvalidPageTokenError.of("page_token", "is damaged"),
    errors.InvalidCursorError.of("cursor", "is forged"),
    errors.DocumentNotFoundError("note-1"),
    errors.MemoryNotFoundError("0b1c"),
    errors.RuleNotFoundError("household"),
    errors.DecisionNotFoundError("0b1c"),
    errors.EventNotFoundError("lunch-1"),
    errors.FactNotFoundError("seat"),
    errors.ToolNotFoundError("weather", ["manage_memory"]),
    VersionNotFoundError("0b1c"),
    KeyNotFoundError("1f3a5c7e9b0d2f46"),
    GrantNotFoundError("a571dfa6af20756e2197c4c1494ccf63"),
    QuarantineNotFoundError(Provenance("web", "evil.example")),
    errors.UnauthenticatedError("send a key"),
    errors.PermissionDeniedError("not with this role"),
    errors.IdTakenError("m-1"),
    TenantSuspendedError("unpaid"),
    TenantNotFoundError("acme"),
    TenantExistsError("acme"),
    errors.EventExistsError("e-1"),
    ConversationNotFoundError("trip"),
    MessageNotFoundError("m-1"),
    MessageExistsError("m-1"),
    errors.FactExistsError("seat"),
    errors.MemoryExistsError("m-1"),
    errors.ToolUnreachableError("it does not answer"),
    ExtractorAwayError("it does not answer"),
    BudgetSpentError("it is used up", 60.0),
    errors.ToolFailedError("it failed"),
    errors.CursorExpiredError("too old"),
    errors.RequestIdReusedError("another request had it"),
    errors.RuleExistsError("household"),
    errors.RuleInUseError("household", ["guests"]),
    errors.CircularInheritanceError(["household", "guests"]),
    errors.UnknownBaseRuleError("household", "home"),
    errors.InvalidOperationError("not now"),
    errors.ConfigurationError("not so"),
    BackupError("manifest.json is damaged"),
    errors.EmbeddingModelMismatchError("another model's"),
    errors.RevisionMismatchError("note-1", 3, 4),
    errors.TooManyRequestsError("later", 0.25),
    errors.TooManyVaultsError("all in use"),
    SlowReaderError("too slow"),
    errors.AnswerFullError("no room"),
    errors.ThrottledError("held back", 2.0),
    errors.QuotaExceededError("tenant:acme", "open_streams", limit=2, used=2, retry_after_s=0.5),
    errors.StorageFullError("full"),
    errors.StorageFailedError("failed"),
    errors.RecordDamagedError("memory", "0b1c"),
    PageDamagedError("records.db", [17]),
    CommitsLostError(3, 5),
    VaultDamagedError("gone"),
    errors.NotServingError("shutting down"),
    transport_errors.NotBegunError("starting"),
    errors.IndexWarmingError("half way", 0.5),
    errors.BackendConnectionError("unreachable"),
    errors.EmbeddingUnavailableError("the endpoint is away"),
    errors.IndexingError("at /secret"),
    errors.SearchError("at /secret"),
    errors.EmbeddingError("at /secret"),
    transport_errors.MalformedMessageError("no message"),
    transport_errors.MessageTooLargeError("too large"),
    transport_errors.DeadlineExceededError("too long"),
    transport_errors.UnimplementedError("no method"),
]


def test_every_error_that_can_be_raised_has_a_row() -> None:
    # The errors of the library never reach the transport; another test of the process may have imported them.
    raised = {each for each in _all_errors() if each.__module__ != "mnemon_server.knowledge_store"}
    assert raised - ABSTRACT - WITHIN_TRANSACTIONS == set(STATUS_CODES)
    assert {type(sample) for sample in SAMPLES} == set(STATUS_CODES)


def test_reasons_are_the_published_ones() -> None:
    published = {name.removeprefix("ERROR_REASON_") for name in errors_pb2.ErrorReason.keys()}  # noqa: SIM118
    assert {reason.value for reason in ErrorReason} == published - {"UNSPECIFIED"} == set(PUBLISHED)


def test_channels_and_proxies_are_told_when_to_send_a_call_again_of_which_nothing_was_done() -> None:
    told = {type(error).__name__: dict(Failure.of(error).trailers()).get("grpc-retry-pushback-ms") for error in SAMPLES}
    assert {name: text for name, text in told.items() if text} == {"NotBegunError": "1000", "IndexWarmingError": "500"}


def test_code_and_reason_agree_with_what_the_proto_says_of_the_reason() -> None:
    for error in SAMPLES:
        failure = Failure.of(error)
        assert PUBLISHED[failure.reason]["code"] == failure.code.name, error


@pytest.mark.parametrize(
    "error",
    [
        errors.IndexingError("at /secret"),
        errors.SearchError("at /secret"),
        errors.EmbeddingError("at /secret"),
        errors.KnowledgeStoreError("at /secret"),
        MnemonError("at /secret"),
        ValueError("at /secret"),
        KeyError("at /secret"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_texts_not_meant_for_clients_are_replaced_by_an_incident_id(error: Exception) -> None:
    failure = Failure.of(error)
    assert failure.code is grpc.StatusCode.INTERNAL
    assert "secret" not in failure.message
    assert b"secret" not in failure.trailers()[0][1]
    assert "secret" not in str(failure.to_item_error())
    assert failure.incident_id in failure.message
    assert failure.incident_id != Failure.of(error).incident_id


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (errors.DocumentNotFoundError("note-1"), "Document"),
        (errors.MemoryNotFoundError("note-1"), "Memory"),
        (errors.RuleNotFoundError("note-1"), "MergeRuleConfig"),
        (errors.DecisionNotFoundError("note-1"), "Decision"),
        (errors.EventNotFoundError("note-1"), "EpisodicEvent"),
        (errors.FactNotFoundError("note-1"), "Fact"),
        (errors.ToolNotFoundError("note-1", ["manage_memory"]), "Tool"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_a_missing_record_is_named(error: MnemonError, kind: str) -> None:
    resource = _detail(error, error_details_pb2.ResourceInfo)
    assert (resource.resource_type, resource.resource_name) == (f"mnemon.{kind}", "note-1")


def test_a_stale_revision_is_reported_with_both_revisions() -> None:
    info = _detail(errors.RevisionMismatchError("note-1", 3, 4), error_details_pb2.ErrorInfo)
    assert dict(info.metadata) == {"expected_revision": "3", "actual_revision": "4"}


@pytest.mark.parametrize(
    "error",
    [
        errors.TooManyRequestsError("later", 0.25),
        errors.ThrottledError("held back", 0.25),
        errors.IndexWarmingError("half way", 0.25),
    ],
    ids=lambda error: type(error).__name__,
)
def test_a_retry_delay_is_kept_to_the_millisecond(error: MnemonError) -> None:
    assert _detail(error, error_details_pb2.RetryInfo).retry_delay.ToMilliseconds() == 250
    assert Failure.of(error).to_item_error().retry_delay.ToMilliseconds() == 250


def test_only_errors_published_as_retryable_may_be_retried() -> None:
    for error in SAMPLES:
        failure = Failure.of(error)
        has_hint = bool(_details(failure, error_details_pb2.RetryInfo))
        may_be_retried = has_hint or failure.reason is ErrorReason.DEADLINE_EXCEEDED
        assert PUBLISHED[failure.reason]["retry"] == may_be_retried, error


def test_an_item_has_the_metadata_of_the_single_call() -> None:
    for error in SAMPLES:
        failure = Failure.of(error)
        [info] = _details(failure, error_details_pb2.ErrorInfo)
        assert (info.domain, info.reason) == ("mnemon", failure.reason), error
        assert dict(failure.to_item_error().metadata) == dict(info.metadata), error


def test_an_item_of_a_bulk_stream_fails_with_the_error_of_the_single_call() -> None:
    item = Failure.of(errors.InvalidArgumentError.of("document.doc_id", "must be set")).to_item_error()
    assert item.code == grpc.StatusCode.INVALID_ARGUMENT.value[0]
    assert item.reason == errors_pb2.ERROR_REASON_INVALID_ARGUMENT
    assert [(v.field, v.description) for v in item.violations] == [("document.doc_id", "must be set")]


@pytest.mark.parametrize("letter", ["x", "é", "語", "🦉"])
def test_long_texts_are_cut_between_characters_and_never_lose_the_reason(letter: str) -> None:
    violations = [FieldViolation(letter * 10_000, letter * 10_000) for _ in range(100)]
    failure = Failure.of(errors.InvalidArgumentError(violations))
    assert failure.message.rstrip("…:; ").strip(letter) == ""
    [(_, packed)] = failure.trailers()
    assert len(packed) <= DETAILS_BYTES_MAX
    assert _detail(errors.InvalidArgumentError(violations), error_details_pb2.ErrorInfo).reason == "INVALID_ARGUMENT"
    assert len(_detail(errors.InvalidArgumentError(violations), error_details_pb2.BadRequest).field_violations) >= 5


def test_a_document_id_of_the_maximum_length_still_fits() -> None:
    error = errors.DocumentNotFoundError("語" * 170)
    assert _detail(error, error_details_pb2.ErrorInfo).reason == "DOCUMENT_NOT_FOUND"
    assert _detail(error, error_details_pb2.ResourceInfo).resource_name == "語" * 170


def _all_errors(kind: type[MnemonError] = MnemonError) -> Iterator[type[MnemonError]]:
    yield kind
    for child in kind.__subclasses__():
        # Errors that engines, or the parts of a module, raise to each other end in them. Any that escapes is INTERNAL.
        is_inner = child.__module__.startswith("mnemon_server.engines.") or child.__name__.startswith("_")
        if child.__module__.startswith("mnemon_server.") and not is_inner:
            yield from _all_errors(child)


def _detail(error: MnemonError, kind: type[Any]) -> Any:
    [found] = _details(Failure.of(error), kind)
    return found


def _details(failure: Failure, kind: type[Any]) -> list[Any]:
    status = status_pb2.Status.FromString(failure.trailers()[0][1])
    return [kind.FromString(packed.value) for packed in status.details if packed.Is(kind.DESCRIPTOR)]
