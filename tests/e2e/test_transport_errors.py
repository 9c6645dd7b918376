"""Traps 1, 2 and 8 to 12 of a server on grpc.aio: what errors a client gets."""

import asyncio
import gc
import io
import json
import logging
import sys
import tomllib
from pathlib import Path
from typing import Any

import grpc
import pytest
from google.rpc import error_details_pb2
from grpc import aio
from grpc_reflection.v1alpha import reflection_pb2
from mnemon.v1 import errors_pb2, knowledge_store_pb2_grpc
from mnemon.v1 import knowledge_store_pb2 as pb
from mnemon_server.logs import configure_logging
from packaging.requirements import Requirement
from packaging.version import Version

from tests.support.handlers import EXCEPTION_TEXT, Misbehaving, method
from tests.support.http2 import raw_connection
from tests.support.server import bare_server, detail, failure_of, reason, stream_end, until, whole_server

ROOT = Path(__file__).parents[2]
CALLS = 100


@pytest.mark.parametrize("name", ["raise_error", "raise_midway"])
async def test_trap_1_exception_text_never_reaches_a_client_and_is_in_the_log(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    configure_logging(log_format="json", level="info")
    async with bare_server(Misbehaving()) as connection:
        call = method(connection.channel, name)(b"")
        error = (await stream_end(call))[1] if name == "raise_midway" else await failure_of(call)
    assert error.code() is grpc.StatusCode.INTERNAL
    assert reason(error) == "INTERNAL"
    assert EXCEPTION_TEXT not in repr(error)
    assert EXCEPTION_TEXT not in repr(error.trailing_metadata())
    assert "ValueError" not in repr(error)
    incident_id = detail(error, error_details_pb2.ErrorInfo).metadata["incident_id"]
    assert incident_id in (error.details() or "")
    lines = _log_lines(capsys.readouterr().err)
    [incident] = [line for line in lines if line["event"] == "incident"]
    assert incident["incident_id"] == incident_id
    assert EXCEPTION_TEXT in incident["exception"]
    [rpc] = [line for line in lines if line["event"] == "rpc"]
    assert (rpc["code"], rpc["incident_id"], rpc["request_id"]) == ("INTERNAL", incident_id, incident["request_id"])


async def test_what_a_refused_call_held_is_free_before_the_next_collection() -> None:
    handlers = Misbehaving()
    gc.disable()
    try:
        async with bare_server(handlers) as connection:
            for _ in range(2):
                error = await failure_of(method(connection.channel, "fail_with_hands_full")(b""))
                assert error.code() is grpc.StatusCode.INVALID_ARGUMENT
                # The client gets its status before the handler's task is over.
                await until(lambda: handlers.held and handlers.held() is None)
    finally:
        gc.enable()


async def test_a_refused_call_leaves_no_more_to_the_garbage_collector_than_one_that_is_answered() -> None:
    gc.disable()
    try:
        async with bare_server(Misbehaving()) as connection:
            echo, refused = (method(connection.channel, name) for name in ("echo", "fail_with_hands_full"))
            left = []
            for refusals in (0, 0, CALLS):
                gc.collect()
                for _ in range(refusals):
                    await failure_of(refused(b""))
                for _ in range(2 * CALLS - refusals):
                    await echo(b"")
                left.append(gc.collect())
    finally:
        gc.enable()
    # The first block pays for what is made once.
    assert left[2] <= left[1] + CALLS


async def test_trap_1_bytes_that_are_no_message_are_an_invalid_argument() -> None:
    async with bare_server() as connection:
        for name in ("SearchDocuments", "CheckHealth"):
            call = connection.channel.unary_unary(f"/mnemon.v1.KnowledgeStoreService/{name}")
            error = await failure_of(call(b"\xff\xff\xff"))
            assert error.code() is grpc.StatusCode.INVALID_ARGUMENT
            assert reason(error) == "MALFORMED_MESSAGE"


async def test_trap_1_bytes_that_are_no_message_end_a_stream_with_an_invalid_argument(tmp_path: Path) -> None:
    async with whole_server(tmp_path) as connection:
        call = connection.channel.stream_stream("/mnemon.v1.KnowledgeStoreService/BulkIndexDocuments")()
        await call.write(b"\xff\xff\xff")
        _, error = await stream_end(call)
    assert error.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert reason(error) == "MALFORMED_MESSAGE"


async def test_trap_2_what_a_handler_aborts_with_is_what_the_client_and_the_log_get(
    capsys: pytest.CaptureFixture[str],
) -> None:
    configure_logging(log_format="json", level="info")
    async with bare_server(Misbehaving()) as connection:
        error = await failure_of(method(connection.channel, "abort")(b""))
    assert (error.code(), error.details()) == (grpc.StatusCode.DATA_LOSS, "as the handler said")
    assert [(line["event"], line.get("code")) for line in _log_lines(capsys.readouterr().err)] == [("rpc", "DATA_LOSS")]


async def test_trap_2_an_unknown_method_is_unimplemented_for_every_kind_of_call() -> None:
    async with bare_server() as connection:
        path = "/mnemon.v1.KnowledgeStoreService/Nothing"
        errors = [
            await failure_of(connection.channel.unary_unary(path)(b"")),
            (await stream_end(connection.channel.unary_stream(path)(b"")))[1],
            (await stream_end(connection.channel.stream_stream(path)()))[1],
            await failure_of(connection.channel.unary_unary("/no.such.Service/Nothing")(b"")),
        ]
    assert {error.code() for error in errors} == {grpc.StatusCode.UNIMPLEMENTED}
    assert {reason(error) for error in errors} == {"UNIMPLEMENTED"}


@pytest.mark.parametrize(
    ("path", "meant"),
    [
        ("KnowledgeStoreService/SearchDocument", "; did you mean /mnemon.v1.KnowledgeStoreService/SearchDocuments?"),
        ("KnowledgeService/SearchDocuments", "; did you mean /mnemon.v1.KnowledgeStoreService/SearchDocuments?"),
        ("memoryservice/creatememory", "; did you mean /mnemon.v1.MemoryService/CreateMemory?"),
        ("Weather/Forecast", ""),
        (f"MemoryService/CreateMemory{'y' * 10_000}", ""),
    ],
    ids=["method", "service", "case", "other", "long"],
)
async def test_an_unknown_method_is_told_the_one_that_may_be_meant(path: str, meant: str) -> None:
    async with bare_server() as connection:
        error = await failure_of(connection.channel.unary_unary(f"/mnemon.v1.{path}")(b""))
    assert error.details() == f"this server has no such method{meant}"


async def test_twenty_kilobytes_of_details_are_cut_to_what_trailers_can_carry() -> None:
    async with bare_server(Misbehaving()) as connection:
        error = await failure_of(method(connection.channel, "many_violations")(b""))
    assert error.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert reason(error) == "INVALID_ARGUMENT"
    violations = detail(error, error_details_pb2.BadRequest).field_violations
    assert 5 <= len(violations) <= 20
    assert violations[0].field.startswith("field0.")
    size = sum(len(key) + len(value) + 32 for key, value in error.trailing_metadata() or ())
    assert size < 6 << 10


async def test_an_answer_that_is_too_large_says_so_and_what_to_do() -> None:
    async with bare_server(
        Misbehaving(), max_message_mib=1, channel_options=(("grpc.max_receive_message_length", -1),)
    ) as connection:
        large = method(connection.channel, "large")
        assert len(await large(b"1000000")) == 1_000_000
        error = await failure_of(large(b"1200000"))
    assert (error.code(), reason(error)) == (grpc.StatusCode.RESOURCE_EXHAUSTED, "MESSAGE_TOO_LARGE")
    assert "1,048,576" in (error.details() or "")


async def test_a_request_that_is_too_large_says_so() -> None:
    async with bare_server(Misbehaving(), max_message_mib=1) as connection:
        echo = method(connection.channel, "echo")
        error = await failure_of(echo(bytes(1_200_000)))
        assert (error.code(), reason(error)) == (grpc.StatusCode.RESOURCE_EXHAUSTED, "MESSAGE_TOO_LARGE")
        far_too_large = await failure_of(echo(bytes(3 << 20)))
    assert far_too_large.code() is grpc.StatusCode.RESOURCE_EXHAUSTED


async def test_a_message_is_as_large_as_any_grpc_client_accepts_by_default() -> None:
    async with bare_server(Misbehaving()) as connection:
        echo = method(connection.channel, "echo")
        assert len(await echo(bytes(4 << 20))) == 4 << 20
        error = await failure_of(echo(bytes((4 << 20) + 1)))
        assert (error.code(), reason(error)) == (grpc.StatusCode.RESOURCE_EXHAUSTED, "MESSAGE_TOO_LARGE")
        assert "4,194,304" in (error.details() or "")


async def test_a_request_id_is_returned_to_the_client_and_logged(capsys: pytest.CaptureFixture[str]) -> None:
    configure_logging(log_format="json", level="info")
    async with bare_server(Misbehaving()) as connection:
        call = method(connection.channel, "echo")(b"x", metadata=(("x-request-id", "my-id.1"),))
        await call
        assert dict(await call.trailing_metadata())["x-request-id"] == "my-id.1"
        failed = await failure_of(
            method(connection.channel, "raise_error")(b"", metadata=(("x-request-id", "my-id.2"),))
        )
        assert dict(failed.trailing_metadata() or ())["x-request-id"] == "my-id.2"
        forged = method(connection.channel, "echo")(b"x", metadata=(("x-request-id", "two words"),))
        await forged
        made = dict(await forged.trailing_metadata())["x-request-id"]
        assert len(made) == 32
    lines = _log_lines(capsys.readouterr().err)
    logged = [(line["request_id"], line["code"]) for line in lines if line["event"] == "rpc"]
    # The line of a failed call is written once its status has been sent, which a busy machine may note late.
    assert sorted(logged) == sorted([("my-id.1", "OK"), ("my-id.2", "INTERNAL"), (made, "OK")])


async def test_a_server_that_has_stopped_has_logged_every_call(capsys: pytest.CaptureFixture[str]) -> None:
    configure_logging(log_format="json", level="info")
    async with bare_server(Misbehaving(), shutdown_grace_s=0.0) as connection:
        error = await failure_of(method(connection.channel, "abort_and_tidy_up")(b""))
    assert error.code() is grpc.StatusCode.DATA_LOSS
    assert [line["event"] for line in _log_lines(capsys.readouterr().err)] == ["rpc"]


class CancellingLog(io.StringIO):
    """A standard error that cancels the call whose incident it gets, as a stop would while the status is sent."""

    def write(self, text: str) -> int:
        if '"incident"' in text:
            task = asyncio.current_task()
            assert task is not None
            task.cancel()
        return super().write(text)


async def test_a_failed_call_that_is_cancelled_while_its_status_is_sent_is_logged_as_failed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    configure_logging(log_format="json", level="info")
    log = CancellingLog()
    monkeypatch.setattr(sys, "stderr", log)
    async with bare_server(Misbehaving()) as connection:
        await failure_of(method(connection.channel, "raise_error")(b""))
    assert [line.get("code") for line in _log_lines(log.getvalue())] == [None, "INTERNAL"]


@pytest.mark.parametrize("log_format", ["console", "json"])
async def test_a_path_that_would_colour_the_terminal_is_escaped_in_the_log(
    log_format: str, capsys: pytest.CaptureFixture[str]
) -> None:
    configure_logging(log_format=log_format, level="info")
    async with bare_server() as connection:
        error = await failure_of(connection.channel.unary_unary("/x\x1b[31mred\x07")(b""))
    assert error.code() is grpc.StatusCode.UNIMPLEMENTED
    log = capsys.readouterr().err
    assert "x1b[31mred" in log
    assert not {"\x1b", "\x07"} & set(log)


async def test_any_name_of_an_unknown_method_is_answered_as_one() -> None:
    async with bare_server() as connection, raw_connection(str(connection.server.address)) as raw:
        for name in ("no-slash", "/", "//", "/mnemon.v1.FactService/../x", "/" + "x" * 9000, "/Create"):
            end = await raw.end_of(await raw.call(name, b""))
            assert end["grpc-status"] == str(grpc.StatusCode.UNIMPLEMENTED.value[0]), (name, end)


async def test_the_log_never_holds_what_users_wrote(capsys: pytest.CaptureFixture[str]) -> None:
    configure_logging(log_format="console", level="debug")
    logging.getLogger("mnemon_server").setLevel(logging.DEBUG)
    async with bare_server() as connection:
        document = pb.Document(doc_id="", content="kumquat pie")
        document.metadata["durian"].SetInParent()
        await failure_of(connection.store.IndexDocument(pb.IndexDocumentRequest(document=document)))
        await failure_of(connection.store.SearchDocuments(pb.SearchDocumentsRequest(query="kumquat", min_score=7)))
    log = capsys.readouterr().err
    assert log.count("INVALID_ARGUMENT") >= 2
    assert "kumquat" not in log
    assert "durian" not in log


def test_trap_11_stubs_import_on_the_oldest_runtimes_that_are_declared() -> None:
    project = tomllib.loads((ROOT / "clients/python/pyproject.toml").read_text())["project"]
    oldest = {}
    for text in project["dependencies"]:
        requirement = Requirement(text)
        oldest[requirement.name] = next(s.version for s in requirement.specifier if s.operator == ">=")
    header = Path(errors_pb2.__file__).read_text()
    generated_for = next(
        line.removeprefix("# Protobuf Python Version: ") for line in header.splitlines() if "Python Version" in line
    )
    assert Version(generated_for) <= Version(oldest["protobuf"])
    assert Version(knowledge_store_pb2_grpc.GRPC_GENERATED_VERSION) <= Version(f"{oldest['grpcio']}.999")


@pytest.mark.parametrize("version", ["v1", "v1alpha"])
async def test_trap_12_reflection_is_served_under_both_of_its_names(version: str) -> None:
    async with bare_server() as connection:
        services = await _services(connection.channel, version)
        for service in services:
            # buf and grpcurl describe each service that they list.
            answer = await _reflect(connection.channel, version, file_containing_symbol=service)
            assert answer.file_descriptor_response.file_descriptor_proto, service
    assert {
        "mnemon.v1.ConflictService",
        "mnemon.v1.RecallService",
        "mnemon.v1.ConversationService",
        "mnemon.v1.ChangeService",
        "mnemon.v1.AccessService",
        "mnemon.v1.TenantService",
        "mnemon.v1.ServerService",
        "mnemon.v1.KnowledgeStoreService",
        "mnemon.v1.MemoryService",
        "mnemon.v1.RulesService",
        "mnemon.v1.EpisodicMemoryService",
        "mnemon.v1.BridgeService",
        "mnemon.v1.FactService",
        "mnemon.v1.ToolService",
        "mnemon.v1.ArchiveService",
        "mnemon.v1.BackupService",
        "mnemon.v1.EraseService",
        "mnemon.v1.QuarantineService",
        "mnemon.v1.SemanticMemoryService",
        "grpc.health.v1.Health",
        "grpc.reflection.v1.ServerReflection",
        "grpc.reflection.v1alpha.ServerReflection",
    } == services


async def test_reflection_can_be_switched_off() -> None:
    async with bare_server(reflection=False) as connection:
        with pytest.raises(aio.AioRpcError, match="UNIMPLEMENTED"):
            await _services(connection.channel, "v1")


def _log_lines(text: str) -> list[dict[str, Any]]:
    """Our lines. The runtime writes its own in between."""
    return [json.loads(line) for line in text.splitlines() if line.startswith("{")]


async def _services(channel: aio.Channel, version: str) -> set[str]:
    answer = await _reflect(channel, version, list_services="")
    return {service.name for service in answer.list_services_response.service}


async def _reflect(channel: aio.Channel, version: str, **request: str) -> Any:
    call = channel.stream_stream(
        f"/grpc.reflection.{version}.ServerReflection/ServerReflectionInfo",
        request_serializer=reflection_pb2.ServerReflectionRequest.SerializeToString,
        response_deserializer=reflection_pb2.ServerReflectionResponse.FromString,
    )()
    await call.write(reflection_pb2.ServerReflectionRequest(**request))
    answer = await call.read()
    assert answer is not aio.EOF
    await call.done_writing()
    return answer
