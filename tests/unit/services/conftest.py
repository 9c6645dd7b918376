"""Fixtures of the services' tests."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.support.bridge_stores import BridgedStores, open_bridged
from tests.support.fact_stores import OpenedFacts, open_facts
from tests.support.memory_stores import Opened, open_memories


@pytest.fixture
async def opened(tmp_path: Path) -> AsyncIterator[Opened]:
    """A memory store."""
    async with open_memories(tmp_path / "vault") as opened:
        yield opened


@pytest.fixture
async def facts(tmp_path: Path) -> AsyncIterator[OpenedFacts]:
    """A fact store."""
    async with open_facts(tmp_path / "vault") as facts:
        yield facts


@pytest.fixture
async def stores(tmp_path: Path) -> AsyncIterator[BridgedStores]:
    """Stores with a bridge between them."""
    async with open_bridged(tmp_path / "vault") as stores:
        yield stores
