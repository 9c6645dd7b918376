"""Addresses, plaintext, deadlines and retries of the client's channel."""

import json
import time

import grpc
import mnemon
import pytest
from mnemon._channel import SERVICE_CONFIG, is_local, resolve_address
from mnemon.v1 import knowledge_store_pb2 as pb
from mnemon.v1 import knowledge_store_pb2_grpc

from tests.support import command, server_command
from tests.support.repository import ROOT
from tests.unit.client.scripted_server import UNAVAILABLE, failing, found, receipts, scripted_server

SERVICE_CONFIG_FILE = ROOT / "protos/service_config.json"


@pytest.mark.parametrize(
    ("given", "dialled"),
    [
        ("127.0.0.1:7", "127.0.0.1:7"),
        ("localhost", "localhost:50051"),
        ("[::1]", "[::1]:50051"),
        ("[::1]:7", "[::1]:7"),
        ("unix:/run/mnemon.sock", "unix:/run/mnemon.sock"),
        ("dns:///memory.example:7", "dns:///memory.example:7"),
    ],
)
def test_an_address_with_a_port_is_dialled_as_given(given: str, dialled: str) -> None:
    assert resolve_address(given) == dialled


def test_the_address_comes_from_the_environment_unless_it_is_given(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MNEMON_ADDRESS", "127.0.0.1:7")

    assert resolve_address(None) == "127.0.0.1:7"
    assert resolve_address("127.0.0.1:8") == "127.0.0.1:8"
    monkeypatch.delenv("MNEMON_ADDRESS")
    assert resolve_address(None) == "127.0.0.1:50051"


@pytest.mark.parametrize("wrong", ["http://127.0.0.1:50051", "::1", "localhost:65536", "localhost:0", "localhost:x"])
def test_an_invalid_address_is_refused_with_a_valid_example(wrong: str) -> None:
    with pytest.raises(ValueError, match="50051"):
        resolve_address(wrong)


@pytest.mark.parametrize(
    ("address", "local"),
    [
        ("127.0.0.1:7", True),
        ("127.8.0.1:7", True),
        ("localhost:7", True),
        ("[::1]:7", True),
        ("unix:/s", True),
        ("dns:///localhost:7", True),
        ("ipv4:127.0.0.1:7", True),
        ("ipv4:127.0.0.1:7,10.0.0.1:7", False),
        ("10.0.0.1:7", False),
        ("localhost.example:7", False),
        ("127.0.0.1.example:7", False),
        ("dns://8.8.8.8/localhost:7", False),
    ],
)
def test_only_this_machine_is_local(address: str, *, local: bool) -> None:
    assert is_local(address) is local


def test_plaintext_to_another_machine_must_be_requested() -> None:
    with pytest.raises(ValueError, match=r"tls=True .* insecure=True"):
        mnemon.Client("memory.example:50051")
    with mnemon.Client("memory.example:50051", insecure=True) as client:
        assert client.address == "memory.example:50051"
    with mnemon.Client("memory.example:50051", tls=True):
        pass


def test_tls_and_plaintext_at_once_are_refused() -> None:
    with pytest.raises(ValueError, match="contradicts"):
        mnemon.Client("memory.example:50051", tls=True, insecure=True)


def test_a_read_is_retried_while_the_server_is_unavailable() -> None:
    with (
        scripted_server(UNAVAILABLE, UNAVAILABLE, found) as (address, store),
        mnemon.Client(address) as client,
    ):
        assert client.documents.get("a").content == "text"

    assert len(store.requests) == 3


def test_a_call_cut_off_by_a_server_shutdown_is_retried() -> None:
    with (
        scripted_server(failing(grpc.StatusCode.CANCELLED), found) as (address, store),
        mnemon.Client(address) as client,
    ):
        assert client.documents.get("a").content == "text"

    assert len(store.requests) == 2


def test_a_write_is_retried_with_the_same_request_id() -> None:
    def receipt(request: pb.IndexDocumentRequest, context: grpc.ServicerContext) -> pb.IndexDocumentResponse:
        answer = receipts(pb.BulkIndexDocumentsRequest(requests=[request]), context)
        return pb.IndexDocumentResponse(receipt=answer.results[0].receipt)

    with scripted_server(UNAVAILABLE, receipt) as (address, store), mnemon.Client(address) as client:
        assert client.documents.put("a", "text").outcome == mnemon.WriteOutcome.CREATED
        client.documents.put("a", "text", request_id="mine")

    ids = [request.request_id for request in store.requests]
    assert ids[0] == ids[1] != ""
    assert ids[2] == "mine"


def test_retries_end_after_four_attempts() -> None:
    with (
        scripted_server(UNAVAILABLE) as (address, store),
        mnemon.Client(address) as client,
        pytest.raises(mnemon.UnavailableError, match="starting"),
    ):
        client.documents.get("a")

    assert len(store.requests) == 4


def test_other_failures_are_not_retried() -> None:
    with (
        scripted_server(failing(grpc.StatusCode.ABORTED, reason="REVISION_MISMATCH")) as (address, store),
        mnemon.Client(address) as client,
        pytest.raises(mnemon.RevisionMismatchError),
    ):
        client.documents.put("a", "text", expected_revision=1)

    assert len(store.requests) == 1


def test_grpc_accepts_the_published_service_config_unchanged() -> None:
    options = [("grpc.service_config", SERVICE_CONFIG_FILE.read_text("utf-8"))]
    with (
        scripted_server(UNAVAILABLE, found) as (address, store),
        grpc.insecure_channel(address, options) as channel,
    ):
        stub = knowledge_store_pb2_grpc.KnowledgeStoreServiceStub(channel)
        assert stub.GetDocument(pb.GetDocumentRequest(doc_id="a")).document.content == "text"

    assert len(store.requests) == 2


def test_the_client_uses_the_published_service_config_with_its_own_deadlines() -> None:
    published = json.loads(SERVICE_CONFIG_FILE.read_text("utf-8"))
    limits = [each.pop("timeout") for each in published["methodConfig"]]

    assert set(limits) == {"60s", "600s"}
    assert published == SERVICE_CONFIG


def test_the_largest_answer_of_a_server_arrives() -> None:
    size = (4 << 20) - 100  # four mebibytes are the most that a message has, with its other fields

    def large(request: pb.GetDocumentRequest, context: grpc.ServicerContext) -> pb.GetDocumentResponse:
        return pb.GetDocumentResponse(document=pb.Document(doc_id="a", content="x" * size))

    with scripted_server(large) as (address, _), mnemon.Client(address) as client:
        assert len(client.documents.get("a").content) == size


def test_a_closed_client_says_so() -> None:
    client = mnemon.Client("127.0.0.1:1")
    client.close()
    client.close()

    with pytest.raises(RuntimeError, match="closed"):
        client.documents.get("a")


async def test_a_closed_asyncio_client_says_so() -> None:
    async with mnemon.AsyncClient("127.0.0.1:1") as client:
        pass

    with pytest.raises(RuntimeError, match="closed"):
        await client.documents.get("a")


def test_an_asyncio_client_can_be_made_before_there_is_an_event_loop() -> None:
    assert mnemon.AsyncClient("127.0.0.1:1").address == "127.0.0.1:1"
    assert knowledge_store_pb2_grpc.KnowledgeStoreServiceStub is not None


def test_waiting_for_a_missing_server_ends_in_time_and_says_what_was_seen() -> None:
    started = time.monotonic()
    with (
        mnemon.Client("127.0.0.1:1") as client,
        pytest.raises(mnemon.DeadlineExceededError, match=r"127\.0\.0\.1:1 was not ready within 0\.3 s"),
    ):
        client.wait_until_ready(timeout=0.3)

    assert 0.3 <= time.monotonic() - started < 30


@pytest.mark.parametrize("timeout", [float("nan"), 0, -1.0], ids=str)
def test_a_timeout_that_no_call_could_keep_is_refused_by_name(timeout: float) -> None:
    told = r"timeout: must be more than 0 seconds, not "
    with pytest.raises(mnemon.InvalidArgumentError, match=told):
        mnemon.Client("127.0.0.1:1", timeout=timeout)
    with mnemon.Client("127.0.0.1:1") as client:
        for call in (
            lambda: client.documents.get("a", timeout=timeout),
            lambda: client.wait_until_ready(timeout),
            lambda: next(client.archive.export(timeout=timeout)),
            lambda: list(client.documents.put_many([("a", "b")], timeout=timeout)),
        ):
            with pytest.raises(mnemon.InvalidArgumentError, match=told):
                call()


@pytest.mark.parametrize("seconds", ["nan", "inf", "-inf", "-1"])
@pytest.mark.parametrize("option", ["--timeout", "--wait"])
def test_options_take_only_a_number_of_seconds(option: str, seconds: str) -> None:
    done = command.run("127.0.0.1:1", option, seconds, "whoami")
    assert done.returncode == 2
    assert f"Invalid value for '{option}'" in done.stderr
    if option == "--timeout":
        done = server_command.run("health", option, seconds)
        assert done.returncode == 2
        assert f"Invalid value for '{option}'" in done.stderr
