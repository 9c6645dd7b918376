"""Chroma keeps the contract of vector indexes."""

from pathlib import Path

import pytest
from mnemon_server.engines.promises.vector_index import VectorIndex

from tests.contract.vector_index import VectorIndexContract
from tests.support.chroma_index import served
from tests.support.chroma_server import ChromaServer


class TestChroma(VectorIndexContract):
    server: ChromaServer

    @pytest.fixture(autouse=True, scope="class")
    @classmethod
    def _use(cls, chroma: ChromaServer) -> None:
        cls.server = chroma

    @classmethod
    def open_index(cls, directory: Path) -> VectorIndex:
        return served(cls.server, collection=f"index-{directory.name}")
