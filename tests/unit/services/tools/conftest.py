"""Fixtures of the tools' tests."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.support.memory_stores import ENGINES
from tests.support.tool_runners import OpenedTools, open_tools


@pytest.fixture(params=ENGINES)
async def tools(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[OpenedTools]:
    """A tool runner over either kind of vault, without custom tools."""
    async with open_tools(request.param, tmp_path / "vault") as opened:
        yield opened
