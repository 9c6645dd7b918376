"""Fixtures of the tests of conflicts."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.support.conflict_stores import OpenedConflicts, open_conflicts
from tests.support.memory_stores import ENGINES


@pytest.fixture(params=ENGINES)
async def conflicts(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[OpenedConflicts]:
    """A conflict store over either kind of vault."""
    async with open_conflicts(request.param, tmp_path / "vault") as opened:
        yield opened
