"""ChromaDB, the local store and the in-memory store keep the same contract."""

import asyncio
import json
import subprocess
import sys
from pathlib import Path

import pytest
from mnemon_server.domain.errors import ConfigurationError
from mnemon_server.knowledge_store import (
    BackendConnectionError,
    ChromaDBStore,
    ConfiguredStore,
    EmbeddingError,
    InMemoryStore,
    LocalStore,
    get_knowledge_store,
)

from tests.contract.knowledge_store import (
    PETS,
    KnowledgeStoreContract,
    PersistentKnowledgeStoreContract,
    fill,
    ids,
    settings,
    until_healthy,
)
from tests.support.chroma_server import ChromaServer
from tests.support.ports import HeldPort

_READ_COLLECTION = """
import json, sys, chromadb
settings = chromadb.config.Settings(anonymized_telemetry=False)
collection = chromadb.HttpClient("127.0.0.1", int(sys.argv[1]), settings=settings).get_collection("knowledge")
found = collection.get(include=["documents", "metadatas", "embeddings"])
print(json.dumps({id: [text, metadata["topic"], len(vector)] for id, text, metadata, vector
                  in zip(found["ids"], found["documents"], found["metadatas"], found["embeddings"])}))
"""


def read_collection(port: int) -> dict[str, list[object]]:
    """What any client of Chroma sees: text, topic and vector length, by id."""
    command = [sys.executable, "-c", _READ_COLLECTION, str(port)]
    shown = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    return json.loads(shown.splitlines()[-1])  # type: ignore[no-any-return]


class TestInMemoryStore(KnowledgeStoreContract):
    backend = "in_memory"

    @classmethod
    def make_store(cls, folder: Path) -> ConfiguredStore:
        return InMemoryStore(embedding_model="hashing")


class TestLocalStore(PersistentKnowledgeStoreContract):
    backend = "local"

    @classmethod
    def make_store(cls, folder: Path) -> ConfiguredStore:
        return LocalStore(data_dir=folder / "data", embedding_model="hashing")


class TestLocalStoreProposingCandidates(PersistentKnowledgeStoreContract):
    """Every search asks the graph first, as searches of large stores do. Without a host, chromadb is local."""

    backend = "local"

    @classmethod
    def make_store(cls, folder: Path) -> ConfiguredStore:
        return ConfiguredStore(settings(folder, exact_scan_passages_max=0))


class TestChromaDBStore(PersistentKnowledgeStoreContract):
    backend = "chromadb"
    chroma: ChromaServer

    @pytest.fixture(autouse=True, scope="class")
    @classmethod
    def _use(cls, chroma: ChromaServer) -> None:
        cls.chroma = chroma

    @classmethod
    def make_store(cls, folder: Path) -> ConfiguredStore:
        return ConfiguredStore(
            settings(
                folder,
                chroma_host="127.0.0.1",
                chroma_port=cls.chroma.port,
                collection=f"knowledge-{folder.name}",
                exact_scan_passages_max=0,
            )
        )


async def test_a_chroma_server_that_stops_and_comes_back_loses_nothing(tmp_path: Path) -> None:
    with ChromaServer(tmp_path / "server") as chroma:
        options = {"chroma_host": "127.0.0.1", "chroma_port": chroma.port, "exact_scan_passages_max": 0}
        async with ConfiguredStore(settings(tmp_path, **options)) as store:
            await fill(store, PETS, topic="pets")
            await until_healthy(store)

            chroma.hang()
            assert not await store.health_check()
            chroma.go_on()
            await until_healthy(store)
            chroma.stop()
            assert not await store.health_check()
            await store.index_document("birds", "Birds sing in the morning", {"topic": "pets"})
            assert await store.delete("fish")
            assert ids(await store.search("birds sing in the morning"))[0] == "birds"
            assert sorted(ids(await store.search("cats dogs goldfish birds"))) == ["birds", "cats", "dogs"]

            chroma.start()
            await until_healthy(store)
            assert ids(await store.search("birds sing in the morning"))[0] == "birds"
        shown = await asyncio.to_thread(read_collection, chroma.port)
        texts = {key: value for key, value in PETS.items() if key != "fish"} | {"birds": "Birds sing in the morning"}
        assert shown == {doc_id: [text, "pets", 64] for doc_id, text in texts.items()}


async def test_an_unreachable_chroma_server_breaks_neither_start_nor_use(tmp_path: Path) -> None:
    with ChromaServer(tmp_path / "server") as chroma:
        port = chroma.port
    store = ChromaDBStore(host="127.0.0.1", port=port, data_dir=tmp_path / "data", embedding_model="hashing")
    async with store:
        await fill(store, PETS)
        assert ids(await store.search(PETS["dogs"], top_k=1)) == ["dogs"]
        await until_healthy(store, healthy=False)


async def test_the_factory_gives_one_store_per_configuration(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KNOWLEDGE_STORE_BACKEND", "local")
    monkeypatch.setenv("KNOWLEDGE_STORE_EMBEDDING_MODEL", "hashing")
    monkeypatch.setenv("MNEMON_DATA_DIR", str(tmp_path / "one"))
    first = get_knowledge_store()
    assert get_knowledge_store() is first
    async with get_knowledge_store() as store, get_knowledge_store():
        await fill(store, PETS)
        assert ids(await store.search(PETS["dogs"], top_k=1)) == ["dogs"]
    async with get_knowledge_store() as again:
        assert again is first
        assert await again.get_by_id("cats") is not None
    monkeypatch.setenv("MNEMON_DATA_DIR", str(tmp_path / "two"))
    assert get_knowledge_store() is not first


async def test_an_endpoint_that_alone_could_answer_is_a_backend_that_cannot_be_reached(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    silent = HeldPort()
    for name, value in (
        ("ENDPOINT", f"http://{silent.address}/v1"),
        ("DIMENSIONS", "8"),
        ("ENDPOINT_TIMEOUT_S", "1"),
        ("MODEL", "any"),
    ):
        monkeypatch.setenv(f"MNEMON_EMBEDDING_{name}", value)
    monkeypatch.setenv("KNOWLEDGE_STORE_BACKEND", "local")
    monkeypatch.setenv("MNEMON_DATA_DIR", str(tmp_path))
    async with get_knowledge_store() as store:
        with pytest.raises(BackendConnectionError) as raised:
            await store.index_document("d", "text")
        assert isinstance(raised.value, EmbeddingError)
        assert await store.get_by_id("d") is None


@pytest.mark.parametrize(
    ("variable", "value", "sentence"),
    [
        ("KNOWLEDGE_STORE_BACKEND", "pinecone", "chromadb.*local.*in_memory"),
        ("KNOWLEDGE_STORE_PORT", "eight thousand", "KNOWLEDGE_STORE_PORT"),
        ("KNOWLEDGE_STORE_PORT", "70000", "65535|65,535"),
    ],
)
def test_a_wrong_setting_is_named_together_with_the_right_values(
    monkeypatch: pytest.MonkeyPatch, variable: str, value: str, sentence: str
) -> None:
    monkeypatch.setenv(variable, value)
    with pytest.raises(ConfigurationError, match=sentence):
        get_knowledge_store()


def test_the_servers_own_process_never_imports_chromadb(tmp_path: Path, chroma: ChromaServer) -> None:
    script = """
import asyncio, sys
from pathlib import Path
from mnemon_server.knowledge_store import ChromaDBStore

async def main():
    host, port, folder = sys.argv[1:]
    own = {"host": host, "port": int(port), "collection": "imports", "embedding_model": "hashing"}
    async with ChromaDBStore(data_dir=Path(folder), **own) as store:
        await store.index_document("a", "some text")
        print([hit.doc_id for hit in await store.search("text")], await store.health_check())

asyncio.run(main())
print("chromadb" in sys.modules, "torch" in sys.modules)
"""
    command = [sys.executable, "-c", script, chroma.host, str(chroma.port), str(tmp_path / "d")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.stdout.splitlines() == ["['a'] True", "False False"], done.stderr
