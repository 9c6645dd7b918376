"""Fixtures for tests with a real server."""

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from tests.support.server import Connection, whole_server


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def shared(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Connection]:
    """One server for the cases of a module that are refused, or that ask only for their own records.

    Tests with it run in its loop: `@pytest.mark.asyncio(loop_scope="module")`.
    """
    async with whole_server(tmp_path_factory.mktemp("shared")) as connected:
        yield connected
