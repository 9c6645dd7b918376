"""The command `mnemon-server` as a process: its output, how it starts, and how signals stop it."""

import asyncio
import json
import os
import platform
import queue
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from mnemon import AsyncClient, Client, DeadlineExceededError, DocumentNotFoundError
from mnemon.v1 import knowledge_store_pb2 as pb
from mnemon.v1 import knowledge_store_pb2_grpc
from mnemon_server import __version__

from tests.support.cases import exhaustive
from tests.support.chroma_server import ChromaServer
from tests.support.forks import start
from tests.support.server import START_S, ServerProcess, clean_environment, run_command, server_process, wait_until

FAST = ("--knowledge-store-backend", "local")


@contextmanager
def channel_to(server: ServerProcess) -> Iterator[grpc.Channel]:
    """A blocking channel to the process."""
    with grpc.insecure_channel(server.address()) as channel:
        yield channel


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    """A separate program that has answered a call, so that the threads which gRPC starts on demand are running."""
    with server_process(tmp_path_factory.mktemp("kept"), *FAST, program=True) as server:
        with channel_to(server) as channel:
            knowledge_store_pb2_grpc.KnowledgeStoreServiceStub(channel).IndexDocument(_index("a"))
        yield server


def test_a_start_ends_with_one_line_that_says_where_and_what(program: ServerProcess) -> None:
    [line] = [line for line in program.output.splitlines() if "serving on" in line]
    told = f"mnemon-server is serving on {program.address()}: backend local, model hashing, data in "
    assert line.startswith(told)
    assert Path(line.removeprefix(told), "tenants").is_dir()


_ASKED_FOR_ITS_OBJECTS = """
import gc, sys, threading
from mnemon_server.__main__ import main

def tell():
    sys.stdin.readline()
    print(len(gc.get_objects()), gc.get_freeze_count(), flush=True)

threading.Thread(target=tell, daemon=True).start()
main()
"""


def test_garbage_collection_skips_the_objects_of_the_start(tmp_path: Path) -> None:
    arguments = ["serve", "--listen", "127.0.0.1:0", "--data-dir", str(tmp_path), "--embedding-model", "hashing", *FAST]
    command = [sys.executable, "-c", _ASKED_FOR_ITS_OBJECTS, *arguments]
    with subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=clean_environment(),
    ) as server:
        assert server.stdin and server.stdout and server.stderr
        try:
            assert any("serving on" in line for line in server.stderr)
            server.stdin.write("\n")
            server.stdin.flush()
            looked_through, passed_over = map(int, server.stdout.readline().split())
        finally:
            server.kill()
    assert looked_through < passed_over / 10


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux has the scheduling policy")
def test_threads_of_the_start_do_not_interrupt_the_event_loop_when_they_wake_up(program: ServerProcess) -> None:
    threads = [int(path.name) for path in Path(f"/proc/{program.process.pid}/task").iterdir()]
    may_interrupt = [thread for thread in threads if policy_of(thread) == os.SCHED_OTHER]
    assert program.process.pid in may_interrupt
    assert len(may_interrupt) < len(threads) / 2


def policy_of(thread: int) -> int | None:
    """The scheduling policy of a thread; None if it has ended."""
    try:
        return os.sched_getscheduler(thread)
    except ProcessLookupError:
        return None


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="only glibc has these heaps")
def test_threads_share_two_heaps(program: ServerProcess) -> None:
    threads = len([*Path(f"/proc/{program.process.pid}/task").iterdir()])
    mapped = Path(f"/proc/{program.process.pid}/maps").read_text(encoding="ascii")
    # glibc aligns every heap but the program's own to 64 MiB.
    starts = [int(start, 16) for start in re.findall(r"^(\w+)-\w+ rw-p 0+ 00:00 0 *$", mapped, re.MULTILINE)]
    heaps = [start for start in starts if start % (64 << 20) == 0]
    assert len(heaps) < 3 < threads


def test_a_server_in_the_background_of_a_script_ignores_its_interrupts(tmp_path: Path) -> None:
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        server = ServerProcess(tmp_path, *FAST, program=True)
    finally:
        signal.signal(signal.SIGINT, before)
    try:
        with channel_to(server) as channel:
            server.signal(signal.SIGINT)
            watch = _watch(channel)
            server.signal(signal.SIGTERM)
            assert next(watch).status == health_pb2.HealthCheckResponse.NOT_SERVING
        assert server.wait() == 0
        # The server stops at once at the second signal that it handles, and logs it.
        assert "again" not in server.output
    finally:
        server.end()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_open_streams_with_a_reason_and_the_process_soon_and_cleanly(
    tmp_path: Path, number: signal.Signals
) -> None:
    flags = (*FAST, "--shutdown-grace-s", "600", "--shutdown-drain-s", "0.1")
    # The terminal's signal goes to a program: copies begin with other handlers.
    is_program = number is signal.SIGINT
    with server_process(tmp_path, *flags, program=is_program) as server, channel_to(server) as channel:
        watches = [_watch(channel) for _ in range(3)]
        streams = [_open_stream(channel) for _ in range(3)]
        started = time.monotonic()
        server.signal(number)
        assert server.wait() == 0
        # Far less than the ten minutes that a single call could take.
        assert time.monotonic() - started < 60.0
        for watch in watches:
            assert next(watch).status == health_pb2.HealthCheckResponse.NOT_SERVING
        for stream in (*watches, *streams):
            with pytest.raises(grpc.RpcError) as ended:
                next(stream)
            assert ended.value.code() is grpc.StatusCode.UNAVAILABLE
        assert "Traceback" not in server.output


def test_a_second_signal_stops_the_server_at_once(tmp_path: Path) -> None:
    with server_process(tmp_path, *FAST, "--shutdown-drain-s", "600") as server:
        server.address()
        server.signal(signal.SIGTERM)
        wait_until(lambda: "shutting down" in server.output)
        started = time.monotonic()
        server.signal(signal.SIGTERM)
        assert server.wait() == 128 + signal.SIGTERM
        # Far less than the ten minutes that the shutdown could have taken.
        assert time.monotonic() - started < 60.0


def test_during_the_drain_a_server_says_not_serving_and_still_serves(tmp_path: Path) -> None:
    with server_process(tmp_path, *FAST, "--shutdown-drain-s", "600") as server, channel_to(server) as channel:
        store = knowledge_store_pb2_grpc.KnowledgeStoreServiceStub(channel)
        store.IndexDocument(_index("a"))
        server.signal(signal.SIGTERM)
        wait_until(lambda: "shutting down" in server.output)
        health = health_pb2_grpc.HealthStub(channel)
        assert health.Check(health_pb2.HealthCheckRequest()).status == health_pb2.HealthCheckResponse.NOT_SERVING
        assert store.GetDocument(pb.GetDocumentRequest(doc_id="a")).document.content == "text of a"


def test_a_stop_before_the_vector_index_is_open_logs_no_warning(tmp_path: Path, chroma: ChromaServer) -> None:
    flags = ("--chroma-host", chroma.host, "--chroma-port", str(chroma.port), "--collection", tmp_path.name)
    with server_process(tmp_path, *flags) as server:
        server.address()
        server.signal(signal.SIGTERM)
        assert server.wait() == 0
        assert warnings(server) == []


def test_usual_calls_log_no_warning(tmp_path: Path) -> None:
    with server_process(tmp_path, *FAST) as server, Client(server.address()) as client:
        client.semantic.add("Ada lives in Bern.", user="ada")
        client.semantic.create_snapshot(request_id="a snapshot")
        client.erasures.run(user="ada", request_id="an erasure")
        with pytest.raises(DocumentNotFoundError):
            client.documents.get("unknown")
        server.signal(signal.SIGTERM)
        assert server.wait() == 0
        assert warnings(server) == []


async def test_calls_that_meet_and_calls_that_are_left_log_no_warning(tmp_path: Path) -> None:
    with server_process(tmp_path, *FAST) as server:
        async with AsyncClient(server.address()) as client:
            memory = await client.memories.add("Ada likes tea.")
            await client.documents.put("a", "Ada likes tea.")

            async def write(number: int) -> None:
                await client.memories.update(memory.memory_id, set_metadata={"title": f"title {number}"})
                await client.memories.update(memory.memory_id, content=f"Ada likes {number}.")
                await client.documents.update("a", set_metadata={"title": f"title {number}"})
                await client.documents.update("a", content=f"Ada likes {number}.")
                await client.timeline.add("task", f"Ada counts {number}.", user="ada", importance=0.9)
                await client.bridge.update_policy(min_importance=number / 100)

            async def leave(number: int) -> None:
                with suppress(DeadlineExceededError):
                    await client.memories.count(timeout=number / 10_000)

            for _ in range(3):
                await asyncio.gather(*map(write, range(30)))
                await asyncio.gather(*map(leave, range(1, 60)))
        server.signal(signal.SIGTERM)
        assert server.wait() == 0
        assert warnings(server) == []


def test_acknowledged_writes_are_there_after_a_restart(tmp_path: Path) -> None:
    with server_process(tmp_path, *FAST) as server, channel_to(server) as channel:
        knowledge_store_pb2_grpc.KnowledgeStoreServiceStub(channel).IndexDocument(_index("a"))
        server.signal(signal.SIGTERM)
        assert server.wait() == 0
    with server_process(tmp_path, *FAST) as server, channel_to(server) as channel:
        store = knowledge_store_pb2_grpc.KnowledgeStoreServiceStub(channel)
        assert store.GetDocument(pb.GetDocumentRequest(doc_id="a")).document.content == "text of a"


def test_a_second_server_on_the_same_port_or_data_is_refused(tmp_path: Path) -> None:
    with server_process(tmp_path / "data", *FAST) as server:
        address = server.address()
        hashing = ("--embedding-model", "hashing")
        same_port = run_command("serve", "--listen", address, "--data-dir", str(tmp_path / "other"), *FAST, *hashing)
        assert (same_port.returncode, same_port.stdout) == (1, "")
        assert same_port.stderr.startswith(f"mnemon-server: cannot listen on {address}: another program")
        assert same_port.stderr.count("\n") == 1
        same_data = run_command(
            "serve", "--listen", "127.0.0.1:0", "--data-dir", str(tmp_path / "data"), *FAST, *hashing
        )
        assert same_data.returncode == 1
        assert "another process" in same_data.stderr
        for refused in (same_port, same_data):
            assert "Traceback" not in refused.stderr


def test_a_log_that_is_no_longer_read_does_not_stop_a_server(tmp_path: Path) -> None:
    reading, writing = os.pipe()
    listen = f"unix:{tmp_path}/socket"
    words = ("--listen", listen, "--data-dir", str(tmp_path), *FAST, "--embedding-model", "hashing")
    with os.fdopen(writing, "wb") as pipe:
        process = start(*words, environment=clean_environment(), out=pipe, err=pipe)
    try:
        with os.fdopen(reading) as output:
            assert "serving on" in _line_with(output, "serving on")
        with grpc.insecure_channel(listen) as channel:
            store = knowledge_store_pb2_grpc.KnowledgeStoreServiceStub(channel)
            for _ in range(3):
                store.IndexDocument(_index("a"), timeout=START_S)
            with pytest.raises(grpc.RpcError) as missing:
                store.GetDocument(pb.GetDocumentRequest(doc_id="b"), timeout=START_S)
            assert missing.value.code() is grpc.StatusCode.NOT_FOUND
        process.send_signal(signal.SIGTERM)
        assert process.wait(START_S) == 0
    finally:
        process.kill()
        process.wait()


def test_an_address_that_others_can_reach_is_refused_with_both_solutions() -> None:
    refused = run_command("--listen", "0.0.0.0:0")
    assert refused.returncode == 1
    assert "tls_certificate" in refused.stderr
    assert "--insecure" in refused.stderr


def test_check_config_prints_every_value_with_its_origin(tmp_path: Path) -> None:
    file = tmp_path / "mnemon.toml"
    file.write_text("streams_max = 7\n")
    printed = run_command("check-config", "--json", "--config", str(file), "--no-reflection", MNEMON_COLLECTION="notes")
    rows = {row["name"]: row for row in json.loads(printed.stdout)}
    assert (rows["streams_max"]["value"], rows["streams_max"]["origin"]) == ("7", f"file {file}")
    assert (rows["reflection"]["value"], rows["reflection"]["origin"]) == ("false", "flag --reflection")
    assert (rows["collection"]["value"], rows["collection"]["origin"]) == ("notes", "environment MNEMON_COLLECTION")
    plain = run_command("check-config", MNEMON_COLLECTION="notes", MNEMON_TYPO="x", MNEMON_API_KEY="mn_")
    assert "notes  (environment MNEMON_COLLECTION)" in plain.stdout
    assert "MNEMON_TYPO is set but is not a setting" in plain.stderr
    assert "MNEMON_API_KEY" not in plain.stderr


def test_data_belongs_to_the_user_and_not_to_the_current_folder(tmp_path: Path) -> None:
    printed = run_command("check-config", "--json", HOME=str(tmp_path), XDG_DATA_HOME="")
    rows = {row["name"]: row for row in json.loads(printed.stdout)}
    folder = Path(rows["data_dir"]["value"])
    assert (folder.name, rows["data_dir"]["origin"]) == ("mnemon", "default")
    assert folder.is_relative_to(tmp_path)


def test_check_config_fails_on_a_wrong_value() -> None:
    failed = run_command("check-config", MNEMON_CHROMA_PORT="many")
    assert failed.returncode == 1
    assert "setting chroma_port (environment MNEMON_CHROMA_PORT): 'many' is invalid" in failed.stderr


def test_a_collection_name_that_chroma_refuses_stops_the_start(tmp_path: Path) -> None:
    flags = ("--data-dir", str(tmp_path), "--chroma-host", "chroma", "--collection", "kb")
    failed = run_command("serve", "--listen", "127.0.0.1:0", *flags)
    assert failed.returncode == 1
    assert "setting collection: 'kb' is invalid; it must be 3 to 512 letters" in failed.stderr
    assert not any(tmp_path.iterdir())


def test_the_version_is_printed() -> None:
    assert run_command("version", program=True).stdout.strip() == __version__


@pytest.mark.parametrize("package", ["click", exhaustive("structlog"), exhaustive("grpc_health"), "apsw"])
def test_without_the_servers_packages_the_command_says_what_to_install(tmp_path: Path, package: str) -> None:
    # A finder in front of all others makes the package appear not installed.
    (tmp_path / "sitecustomize.py").write_text(
        "import sys\n"
        "class Gone:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        f"        if name.partition('.')[0] == {package!r}:\n"
        "            raise ModuleNotFoundError(f'No module named {name!r}', name=name)\n"
        "sys.meta_path.insert(0, Gone())\n"
    )
    path = os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")])
    words = ["serve", "--listen", "127.0.0.1:0", "--data-dir", str(tmp_path)]
    failed = run_command(*words, program=True, PYTHONPATH=path)
    assert failed.returncode == 1
    assert failed.stderr.strip() == (
        f"mnemon-server needs the package {package!r}, which is not installed: pip install mnemon-server"
    )


def warnings(server: ServerProcess) -> list[str]:
    """The lines of its log that tell of trouble."""
    return [line for line in server.output.splitlines() if re.search(r"\[(warning|error|critical) *\]|Traceback", line)]


def _index(doc_id: str) -> pb.IndexDocumentRequest:
    return pb.IndexDocumentRequest(document=pb.Document(doc_id=doc_id, content=f"text of {doc_id}"))


def _watch(channel: grpc.Channel) -> Any:
    """A watch of the server's health, which serves: on a busy machine, it may have to load its indexes first."""
    watch = health_pb2_grpc.HealthStub(channel).Watch(health_pb2.HealthCheckRequest(service="readiness"))
    while next(watch).status != health_pb2.HealthCheckResponse.SERVING:
        pass
    return watch


def _open_stream(channel: grpc.Channel) -> Any:
    """An open bulk stream that has had its first answer."""

    requests: queue.SimpleQueue[pb.BulkIndexDocumentsRequest | None] = queue.SimpleQueue()
    requests.put(pb.BulkIndexDocumentsRequest(requests=[_index("a")]))
    stream = knowledge_store_pb2_grpc.KnowledgeStoreServiceStub(channel).BulkIndexDocuments(iter(requests.get, None))
    stream.add_callback(lambda: requests.put(None))
    assert len(next(stream).results) == 1
    return stream


def _line_with(output: Any, text: str) -> str:
    return next(line for line in output if text in line)
