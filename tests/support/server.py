"""Real servers for tests: in this process on a free port, or as their own process."""

import asyncio
import os
import re
import signal
import subprocess
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc
import pytest
from google.rpc import error_details_pb2
from grpc import aio
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_status import rpc_status
from mnemon.v1 import (
    access_pb2_grpc,
    archive_pb2_grpc,
    bridge_pb2_grpc,
    changes_pb2_grpc,
    conflicts_pb2_grpc,
    conversation_pb2_grpc,
    episodic_pb2_grpc,
    erase_pb2_grpc,
    facts_pb2_grpc,
    knowledge_store_pb2_grpc,
    memory_pb2_grpc,
    rules_pb2_grpc,
    semantic_pb2_grpc,
    server_pb2_grpc,
    tools_pb2_grpc,
)
from mnemon_server.config.settings import Settings
from mnemon_server.transport.server import GrpcServer

from tests.support.forks import run_to_end, start

WAIT_S = 60.0
START_S = 120.0

_SERVING, _HTTP = re.compile(r"serving on (\S+):"), re.compile(r"answers HTTP on https?://(\S+)")


@dataclass(frozen=True)
class Connection:
    """A server in this process, with a channel to it."""

    server: GrpcServer
    channel: aio.Channel

    @property
    def store(self) -> Any:
        """The stub of the knowledge store."""
        return knowledge_store_pb2_grpc.KnowledgeStoreServiceStub(self.channel)

    @property
    def access(self) -> Any:
        """The stub of the access service."""
        return access_pb2_grpc.AccessServiceStub(self.channel)

    @property
    def memories(self) -> Any:
        """The stub of the memory service."""
        return memory_pb2_grpc.MemoryServiceStub(self.channel)

    @property
    def semantic(self) -> Any:
        """The stub of the semantic memory service."""
        return semantic_pb2_grpc.SemanticMemoryServiceStub(self.channel)

    @property
    def conflicts(self) -> Any:
        """The stub of the conflict service."""
        return conflicts_pb2_grpc.ConflictServiceStub(self.channel)

    @property
    def rules(self) -> Any:
        """The stub of the rules service."""
        return rules_pb2_grpc.RulesServiceStub(self.channel)

    @property
    def episodic(self) -> Any:
        """The stub of the episodic memory service."""
        return episodic_pb2_grpc.EpisodicMemoryServiceStub(self.channel)

    @property
    def conversations(self) -> Any:
        """The stub of the conversation service."""
        return conversation_pb2_grpc.ConversationServiceStub(self.channel)

    @property
    def bridge(self) -> Any:
        """The stub of the bridge service."""
        return bridge_pb2_grpc.BridgeServiceStub(self.channel)

    @property
    def facts(self) -> Any:
        """The stub of the fact service."""
        return facts_pb2_grpc.FactServiceStub(self.channel)

    @property
    def tools(self) -> Any:
        """The stub of the tool service."""
        return tools_pb2_grpc.ToolServiceStub(self.channel)

    @property
    def archive(self) -> Any:
        """The stub of the archive service."""
        return archive_pb2_grpc.ArchiveServiceStub(self.channel)

    @property
    def erasures(self) -> Any:
        """The stub of the erasure service."""
        return erase_pb2_grpc.EraseServiceStub(self.channel)

    @property
    def changes(self) -> Any:
        """The stub of the event service."""
        return changes_pb2_grpc.ChangeServiceStub(self.channel)

    @property
    def info(self) -> Any:
        """The stub of the service that describes the server."""
        return server_pb2_grpc.ServerServiceStub(self.channel)

    @property
    def health(self) -> Any:
        """The stub of the health service."""
        return health_pb2_grpc.HealthStub(self.channel)


@asynccontextmanager
async def bare_server(
    *handlers: grpc.GenericRpcHandler, channel_options: tuple[tuple[str, Any], ...] = (), **settings: Any
) -> AsyncIterator[Connection]:
    """A server without stores, with additional services."""
    chosen = Settings(**{"listen": "127.0.0.1:0", "request_timeout_s": WAIT_S, **settings})
    async with (
        GrpcServer(chosen, extra_handlers=handlers) as server,
        aio.insecure_channel(str(server.address), channel_options) as channel,
    ):
        yield Connection(server, channel)


@asynccontextmanager
async def whole_server(data_dir: Path, *handlers: grpc.GenericRpcHandler, **settings: Any) -> AsyncIterator[Connection]:
    """A complete server, on a backend without a child process and with an embedder without weights."""
    from mnemon_server.app import running_server
    from mnemon_server.assembly import vault

    defaults = {"listen": "127.0.0.1:0", "data_dir": data_dir, "embedding_model": "hashing"}
    defaults |= {"knowledge_store_backend": "local"}
    # The speed of the machine must neither throttle writes nor cause warnings, nor end requests that arrive slowly.
    defaults |= {"semantic_write_latency_target_ms": 60_000.0, "timeline_write_latency_target_ms": 60_000.0}
    defaults |= {"request_timeout_s": WAIT_S}
    chosen = Settings(**{**defaults, **settings})
    with pytest.MonkeyPatch.context() as patch:
        # Nor refuse the first calls, because a timeline is not loaded in time.
        patch.setattr(vault, "WARM_WAIT_S", WAIT_S)
        async with (
            running_server(chosen, report=lambda _: None, extra_handlers=handlers) as server,
            aio.insecure_channel(str(server.address)) as channel,
        ):
            yield Connection(server, channel)


class ServerProcess:
    """A process of `mnemon-server serve`. Its output is recorded."""

    def __init__(
        self, data_dir: Path, *flags: str, environment: Mapping[str, str] | None = None, program: bool = False
    ) -> None:
        """Starts it, as a program of its own or as a copy of what has imported the server."""
        words = ["serve", "--data-dir", str(data_dir), "--listen", "127.0.0.1:0", "--embedding-model", "hashing"]
        variables = clean_environment() | dict(environment or {})
        self._lines: list[str] = []
        reading, writing = os.pipe()
        self._output = os.fdopen(reading, encoding="utf-8")
        with os.fdopen(writing, "wb") as pipe, Path(os.devnull).open("wb") as nothing:
            self.process = start(*words, *flags, environment=variables, out=nothing, err=pipe, program=program)
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    @property
    def output(self) -> str:
        """Its output so far."""
        return "".join(self._lines)

    def address(self) -> str:
        """Its address. Waits until it serves."""
        wait_until(lambda: _SERVING.search(self.output) or self.process.poll() is not None, START_S)
        if not (found := _SERVING.search(self.output)):
            raise AssertionError(f"the server ended with {self.process.poll()}: {self.output}")
        return found[1]

    def http_address(self) -> str:
        """Where it answers HTTP. Waits until it does."""
        wait_until(lambda: _HTTP.search(self.output) or self.process.poll() is not None, START_S)
        found = _HTTP.search(self.output)
        assert found, f"the server answers no HTTP: {self.output}"
        return found[1]

    def signal(self, number: signal.Signals) -> None:
        """Sends a signal."""
        self.process.send_signal(number)

    def wait(self, timeout_s: float = WAIT_S) -> int:
        """The exit code, once it has ended."""
        code = self.process.wait(timeout_s)
        self._reader.join(timeout_s)
        return code

    def end(self) -> None:
        """Kills it, whatever it is doing."""
        if self.process.poll() is None:
            self.process.kill()
        self.wait()
        self._output.close()

    def _read(self) -> None:
        self._lines.extend(iter(self._output.readline, ""))


@contextmanager
def server_process(
    data_dir: Path, *flags: str, environment: Mapping[str, str] | None = None, program: bool = False
) -> Iterator[ServerProcess]:
    """A server process, stopped afterwards. `environment` is added to that of the test."""
    server = ServerProcess(data_dir, *flags, environment=environment, program=program)
    try:
        yield server
    finally:
        server.end()


def clean_environment() -> dict[str, str]:
    """The environment without settings of the server."""
    return {name: value for name, value in os.environ.items() if not name.startswith(("MNEMON_", "KNOWLEDGE_STORE_"))}


def run_command(*arguments: str, program: bool = False, **environment: str) -> subprocess.CompletedProcess[str]:
    """Runs `mnemon-server` until it ends."""
    environment = clean_environment() | environment
    return run_to_end(start, *arguments, environment=environment, program=program, timeout_s=START_S)


def wait_until(condition: Callable[[], Any], timeout_s: float = WAIT_S) -> None:
    """Waits until the condition holds."""
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, f"not within {timeout_s} s"
        time.sleep(0.01)


async def until(condition: Callable[[], Any], timeout_s: float = WAIT_S) -> None:
    """Waits until the condition holds, while the event loop runs."""
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, f"not within {timeout_s} s"
        await asyncio.sleep(0.005)


async def eventually(condition: Callable[[], Awaitable[Any]], timeout_s: float = WAIT_S) -> None:
    """Repeats the call until it returns true."""
    deadline = time.monotonic() + timeout_s
    while not await condition():
        assert time.monotonic() < deadline, f"not within {timeout_s} s"
        await asyncio.sleep(0.005)


async def failure_of(call: Awaitable[Any]) -> aio.AioRpcError:
    """The error that the call ends with."""
    try:
        answer = await call
    except aio.AioRpcError as error:
        return error
    raise AssertionError(f"the call succeeded: {answer}")


async def stream_end(call: Any) -> tuple[list[Any], aio.AioRpcError]:
    """Everything that a stream returned, and its final error."""
    messages = []
    try:
        while (message := await call.read()) is not aio.EOF:
            messages.append(message)
    except aio.AioRpcError as error:
        return messages, error
    raise AssertionError(f"the stream ended well, after {len(messages)} messages")


def detail(error: aio.AioRpcError, kind: type[Any]) -> Any:
    """The detail of this kind in the error's status, or None."""
    status = rpc_status.from_call(error)
    assert status is not None, "the error carries no details"
    message = kind()
    return next((message for packed in status.details if packed.Unpack(message)), None)


def reason(error: aio.AioRpcError) -> str:
    """The reason of the error."""
    info = detail(error, error_details_pb2.ErrorInfo)
    assert info.domain == "mnemon"
    return str(info.reason)


def violations(error: aio.AioRpcError) -> set[str]:
    """The fields of a request that was refused as invalid; each has a description."""
    assert (error.code(), reason(error)) == (grpc.StatusCode.INVALID_ARGUMENT, "INVALID_ARGUMENT")
    named = detail(error, error_details_pb2.BadRequest).field_violations
    assert all(violation.description for violation in named)
    return {violation.field for violation in named}


async def health_of(connection: Connection, service: str = "readiness") -> str:
    """What the health service reports."""
    answer = await connection.health.Check(health_pb2.HealthCheckRequest(service=service), timeout=WAIT_S)
    return str(health_pb2.HealthCheckResponse.ServingStatus.Name(answer.status))
