"""Fixtures of the tests of conflicts."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.support.conflict_stores import OpenedConflicts, open_conflicts


@pytest.fixture
async def conflicts(tmp_path: Path) -> AsyncIterator[OpenedConflicts]:
    """A conflict store."""
    async with open_conflicts(tmp_path / "vault") as opened:
        yield opened
