"""A Chroma server that takes connections and never answers does as little harm as one that is not there.

The limits of calls are far below the minute after which a request to Chroma is given up.
"""

import signal
import socket
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from mnemon import AckLevel, BackendUnreachableError, Client, HealthStatus, SearchMode

from tests.support.chroma_server import ChromaServer
from tests.support.server import ServerProcess, server_process, wait_until

CALL_S = 10.0
DOCUMENTS = 40
SOUND = HealthStatus.HEALTHY, HealthStatus.HEALTHY
AWAY = HealthStatus.DEGRADED, HealthStatus.UNHEALTHY
"""The memory service knows no degraded state."""


@contextmanager
def serving(folder: Path, port: int) -> Iterator[ServerProcess]:
    """A server with documents and memories in Chroma, which every search by meaning asks."""
    chroma = ("--chroma-host", "127.0.0.1", "--chroma-port", str(port), "--memory-backend", "chromadb")
    flags = (*chroma, "--exact-scan-passages-max", "0", "--health-check-interval-s", "0.1")
    with server_process(folder, *flags) as server:
        yield server


@contextmanager
def statuses_of(address: str, service: str) -> Iterator[list[int]]:
    """The statuses that a health watch has reported so far."""
    told: list[int] = []
    with grpc.insecure_channel(address) as channel:
        watch = health_pb2_grpc.HealthStub(channel).Watch(health_pb2.HealthCheckRequest(service=service))

        def note() -> None:
            with suppress(grpc.RpcError):  # the end of the block cancels it
                told.extend(answer.status for answer in watch)

        watching = threading.Thread(target=note)
        watching.start()
        try:
            yield told
        finally:
            watch.cancel()
            watching.join()


def states(client: Client) -> tuple[HealthStatus, HealthStatus]:
    return client.documents.status(timeout=CALL_S).status, client.memories.status(timeout=CALL_S).status


def test_a_chroma_server_that_hangs_slows_nothing_and_is_used_again_once_it_goes_on(tmp_path: Path) -> None:
    with ExitStack() as stack:
        chroma = stack.enter_context(ChromaServer(tmp_path / "chroma" / "data"))
        server = stack.enter_context(serving(tmp_path / "data", chroma.port))
        client = stack.enter_context(Client(server.address()))
        for number in range(DOCUMENTS):
            client.documents.put(f"d{number}", f"number{number} about rivers")
        client.documents.put("last", "the last one", ack=AckLevel.SEARCHABLE)
        wait_until(lambda: states(client) == SOUND)
        told = [stack.enter_context(statuses_of(server.address(), name)) for name in ("", "readiness", "liveness")]

        chroma.hang()
        with ThreadPoolExecutor(16) as threads:
            searches = [
                threads.submit(client.documents.search, f"number{number} about rivers", timeout=CALL_S, limit=1)
                for number in range(16)
            ]
            reads = [threads.submit(client.documents.get, f"d{number}", timeout=CALL_S) for number in range(16)]
            words = [
                threads.submit(client.documents.search, f"number{number}", mode=SearchMode.KEYWORD, timeout=CALL_S)
                for number in range(16)
            ]
            assert [next(iter(search.result())).doc_id for search in searches] == [f"d{i}" for i in range(16)]
            assert [read.result().doc_id for read in reads] == [f"d{i}" for i in range(16)]
            assert all(found.result() for found in words)
        assert states(client) == AWAY
        client.documents.put("new", "written while chroma hangs", timeout=CALL_S)
        client.memories.add("remembered while chroma hangs", timeout=CALL_S)
        with pytest.raises(BackendUnreachableError, match="is stored"):
            client.documents.put("sure", "searchable while chroma hangs", ack=AckLevel.SEARCHABLE, timeout=CALL_S)
        assert client.documents.get("sure", timeout=CALL_S)
        assert states(client) == AWAY

        chroma.go_on()
        wait_until(lambda: states(client) == SOUND and not client.documents.status().pending)
        found = client.documents.search("written while chroma hangs", limit=1)
        assert [result.doc_id for result in found] == ["new"]
        wait_until(lambda: not client.documents.search("searchable while chroma hangs", limit=1).diagnostics.exact)
        serving_ = [health_pb2.HealthCheckResponse.SERVING]
        assert told == [serving_] * 3


@contextmanager
def silent_socket(backlog: int) -> Iterator[int]:
    """The port of a socket that accepts nothing. One with a backlog of 0 is full: it drops what comes."""
    with ExitStack() as stack:
        listening = stack.enter_context(socket.socket())
        listening.bind(("127.0.0.1", 0))
        listening.listen(backlog)
        port = listening.getsockname()[1]
        for _ in range(0 if backlog else 3):
            filling = stack.enter_context(socket.socket())
            filling.setblocking(False)
            filling.connect_ex(("127.0.0.1", port))
        yield port


@pytest.mark.parametrize("backlog", [100, 0], ids=["silent", "full"])
def test_a_server_starts_serves_and_ends_beside_a_chroma_server_that_never_answers(
    tmp_path: Path, backlog: int
) -> None:
    with silent_socket(backlog) as port, serving(tmp_path / "data", port) as server, Client(server.address()) as client:
        client.documents.put("d", "cats sleep all day", timeout=CALL_S)
        client.memories.add("cats sleep all day", timeout=CALL_S)
        assert [found.doc_id for found in client.documents.search("cats", timeout=CALL_S)] == ["d"]
        assert states(client) == AWAY
        health = client.documents.status(timeout=CALL_S)
        assert f"127.0.0.1:{port}" in health.message and "does not answer" in health.message
        assert health.pending == 1
        server.signal(signal.SIGTERM)
        assert server.wait(CALL_S) == 0
