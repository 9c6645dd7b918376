"""Fixtures of the tools' tests."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.support.tool_runners import OpenedTools, open_tools


@pytest.fixture
async def tools(tmp_path: Path) -> AsyncIterator[OpenedTools]:
    """A tool runner, without custom tools."""
    async with open_tools(tmp_path / "vault") as opened:
        yield opened
