"""Chroma keeps the contract of vector indexes, both embedded and as a server."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from mnemon_server.engines.chroma import ChromaIndex, ChromaSettings
from mnemon_server.engines.promises.vector_index import VectorIndex

from tests.contract.vector_index import DIMENSION, MODEL, VectorIndexContract
from tests.support.chroma_server import ChromaServer


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ChromaServer]:
    with ChromaServer(tmp_path_factory.mktemp("chroma") / "data") as server:
        yield server


class TestEmbeddedChroma(VectorIndexContract):
    @classmethod
    def open_index(cls, directory: Path) -> VectorIndex:
        return ChromaIndex(
            ChromaSettings(path=directory / "chroma"), collection="documents", dimension=DIMENSION, model_identity=MODEL
        )


class TestChromaOverHttp(VectorIndexContract):
    server: ChromaServer

    @pytest.fixture(autouse=True, scope="class")
    @classmethod
    def _use(cls, server: ChromaServer) -> None:
        cls.server = server

    @classmethod
    def open_index(cls, directory: Path) -> VectorIndex:
        return ChromaIndex(
            ChromaSettings(host=cls.server.host, port=cls.server.port),
            collection=f"documents-{directory.name}"[:60].rstrip("-_."),
            dimension=DIMENSION,
            model_identity=MODEL,
        )
