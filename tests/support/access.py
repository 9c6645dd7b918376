"""Servers with authentication, and channels of callers with keys."""

from collections.abc import AsyncIterator, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

from google.protobuf.descriptor import MethodDescriptor
from google.protobuf.message_factory import GetMessageClass
from grpc import aio
from mnemon_server.logs import configure_logging
from mnemon_server.transport.server import DESCRIPTORS as SERVICES

from tests.support.server import Connection, whole_server
from tests.support.server_command import run


def make_key(folder: Path, role: str, *flags: str, tenant: str = "default") -> str:
    """The secret of a new key, made by the command on the data folder. Operators belong to no tenant."""
    whose = () if role == "operator" else ("--tenant", tenant)
    words = ("keys", "create", "a test", "--role", role, *whose, "--data-dir", folder, *flags)
    with ThreadPoolExecutor(1) as apart:  # the command starts an event loop, and the caller may have one
        made = apart.submit(run, *words).result()
    assert made.returncode == 0, made.stderr
    return made.stdout.strip()


def key_id(secret: str) -> str:
    """The id of the key with this secret."""
    return secret.split("_")[1]


@asynccontextmanager
async def guarded_server(folder: Path, **settings: Any) -> AsyncIterator[Connection]:
    """A complete server that only serves callers with a key."""
    async with whole_server(folder, authentication=("api_key",), **settings) as connection:
        yield connection


@contextmanager
def every_event_logged() -> Iterator[None]:
    """Servers in this process log what they log by default. Otherwise, tests only show errors."""
    configure_logging(log_format="json", level="info")
    try:
        yield
    finally:
        configure_logging(log_format="json", level="error")


def bearer(secret: str) -> tuple[tuple[str, str], ...]:
    """The header of a call with this secret."""
    return (("authorization", f"Bearer {secret}"),)


def methods() -> Iterator[MethodDescriptor]:
    """Every method that the server serves."""
    for service in SERVICES:
        yield from service.methods


def path_of(method: MethodDescriptor) -> str:
    """The path of a method, as in a call."""
    return f"/{method.containing_service.full_name}/{method.name}"


def open_call(channel: aio.Channel, method: MethodDescriptor, secret: str) -> Any:
    """A call whose request is never sent: only the headers arrive."""
    response = GetMessageClass(method.output_type)
    make = channel.stream_stream(path_of(method), bytes, response.FromString)
    return make(metadata=bearer(secret) if secret else None)
