"""Fixtures of the services' tests."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.support.fact_stores import OpenedFacts, open_facts
from tests.support.memory_stores import ENGINES, Opened, open_memories


@pytest.fixture(params=ENGINES)
async def opened(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Opened]:
    """A memory store over either kind of vault."""
    async with open_memories(request.param, tmp_path / "vault") as opened:
        yield opened


@pytest.fixture(params=ENGINES)
async def facts(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[OpenedFacts]:
    """A fact store over either kind of vault."""
    async with open_facts(request.param, tmp_path / "vault") as facts:
        yield facts
