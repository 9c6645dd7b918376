"""The local vector store and ChromaDB keep the same contract."""

from pathlib import Path
from typing import Any

import pytest
from mnemon_server.domain.errors import ConfigurationError
from mnemon_server.vector_store import ChromaVectorStore, LocalVectorStore, VectorStore, get_vector_store

from tests.contract.vector_store import PETS, VectorStoreContract, ids, until_heartbeat
from tests.support.chroma_server import ChromaServer


class TestLocalVectorStore(VectorStoreContract):
    uses_chroma = False

    @classmethod
    def options(cls, folder: Path) -> dict[str, Any]:
        return {}


class TestLocalVectorStoreProposingCandidates(VectorStoreContract):
    """Every search asks the graph first, if there is one, as searches of large stores do."""

    uses_chroma = False

    @classmethod
    def options(cls, folder: Path) -> dict[str, Any]:
        return {"exact_scan_passages_max": 0}


class TestChromaVectorStore(VectorStoreContract):
    uses_chroma = True
    chroma: ChromaServer

    @pytest.fixture(autouse=True, scope="class")
    @classmethod
    def _use(cls, chroma: ChromaServer) -> None:
        cls.chroma = chroma

    @classmethod
    def options(cls, folder: Path) -> dict[str, Any]:
        return {
            "chroma_host": "127.0.0.1",
            "chroma_port": cls.chroma.port,
            "collection": f"vectors-{folder.name}",
            "exact_scan_passages_max": 0,
        }


def test_backend_is_unreachable(tmp_path: Path) -> None:
    with ChromaServer(tmp_path / "server") as chroma:
        path = tmp_path / "data"
        with ChromaVectorStore(path, host="127.0.0.1", port=chroma.port, embedding_model="hashing") as store:
            until_heartbeat(store, is_there=True)
            store.store("cats", PETS["cats"])
            chroma.hang()
            assert not store.heartbeat()
            chroma.go_on()
            until_heartbeat(store, is_there=True)
            chroma.stop()
            assert not store.heartbeat()
            store.store("dogs", PETS["dogs"])
            assert ids(store.search(PETS["dogs"], 1)) == ["dogs"]
            chroma.start()
            until_heartbeat(store, is_there=True)
            assert sorted(ids(store.search(f"{PETS['cats']} {PETS['dogs']}"))) == ["cats", "dogs"]


def test_an_unreachable_chroma_server_breaks_neither_the_constructor_nor_use(tmp_path: Path) -> None:
    with ChromaServer(tmp_path / "server") as chroma:
        port = chroma.port
    with ChromaVectorStore(tmp_path / "data", host="127.0.0.1", port=port, embedding_model="hashing") as store:
        assert not store.heartbeat()
        store.store("cats", PETS["cats"])
        assert ids(store.search("cats")) == ["cats"]
        assert not store.heartbeat()


def test_a_store_that_cannot_be_opened_has_no_heartbeat(tmp_path: Path) -> None:
    with LocalVectorStore(tmp_path, embedding_model="hashing") as first:
        assert first.heartbeat()
        second = LocalVectorStore(tmp_path, embedding_model="hashing")
        assert not second.heartbeat()
        with pytest.raises(ConfigurationError):
            second.count()


def test_stored_documents_stay_when_the_backend_is_changed(tmp_path: Path, chroma: ChromaServer) -> None:
    with LocalVectorStore(tmp_path, embedding_model="hashing") as store:
        store.store("cats", PETS["cats"], {"kind": "pet"})
    changed = {"port": chroma.port, "collection": f"changed-{tmp_path.name}", "embedding_model": "hashing"}
    with ChromaVectorStore(tmp_path, host=chroma.host, **changed) as store:
        until_heartbeat(store, is_there=True)
        assert ids(store.search("cats", where={"kind": "pet"})) == ["cats"]
    with ChromaVectorStore(tmp_path, embedding_model="hashing") as store:
        assert ids(store.search("cats", where={"kind": "pet"})) == ["cats"]


def test_the_factory_gives_one_store_per_configuration(tmp_path: Path) -> None:
    first = get_vector_store(path=tmp_path, embedding_model="hashing")
    assert isinstance(first, LocalVectorStore)
    assert isinstance(first, VectorStore)
    assert get_vector_store("local", path=tmp_path, embedding_model="hashing") is first
    assert get_vector_store(path=tmp_path / "other", embedding_model="hashing") is not first
    assert isinstance(get_vector_store("chromadb", path=tmp_path, host="127.0.0.1"), ChromaVectorStore)
    with pytest.raises(ConfigurationError, match="local, chromadb"):
        get_vector_store("pinecone")
