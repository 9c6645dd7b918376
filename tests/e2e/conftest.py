"""Fixtures for tests with a real server."""

from collections.abc import AsyncIterator, Iterator
from itertools import count
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from tests.support.server import Connection, server_process, whole_server

_NUMBERS = count()


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def shared(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Connection]:
    """One server for the cases of a module that are refused, or that ask only for their own records.

    Tests with it run in its loop: `@pytest.mark.asyncio(loop_scope="module")`.
    """
    async with whole_server(tmp_path_factory.mktemp("shared")) as connected:
        yield connected


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a process that serves the module."""
    with server_process(tmp_path_factory.mktemp("data"), "--knowledge-store-backend", "local") as running:
        yield running.address()


@pytest.fixture
def user() -> str:
    """A user of the test's own."""
    return f"user{next(_NUMBERS)}"


@pytest_asyncio.fixture
async def connection(tmp_path: Path) -> AsyncIterator[Connection]:
    """A server on an empty folder."""
    async with whole_server(tmp_path) as connected:
        yield connected


@pytest.fixture
def memories(connection: Connection) -> Any:
    """The stub of its memory service."""
    return connection.memories


@pytest.fixture
def facts(connection: Connection) -> Any:
    """The stub of its fact service."""
    return connection.facts


@pytest.fixture
def semantic(connection: Connection) -> Any:
    """The stub of its semantic memory service."""
    return connection.semantic


@pytest.fixture
def episodic(connection: Connection) -> Any:
    """The stub of its episodic memory service."""
    return connection.episodic
