"""What every vector store must do: the suite behind the `VectorStore` protocol. Subclass it and name the settings."""

import json
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest
from mnemon_server.config.settings import Settings
from mnemon_server.domain.errors import DocumentNotFoundError, InvalidArgumentError
from mnemon_server.domain.filters import RecordFilter
from mnemon_server.embedding.factory import HashingEmbedder
from mnemon_server.vector_store import ConfiguredVectorStore, Neighbour, StoredText, VectorStore

from tests.support.forks import python

WAIT_S = 60.0
WORDS = ("amber", "birch", "cedar", "delta", "ember", "fjord", "grove", "heath", "inlet", "jetty", "knoll", "meadow")
PETS = {
    "cats": "Cats sleep for most of the day and hunt at night",
    "dogs": "Dogs like long walks in the park with their owner",
    "fish": "Goldfish swim quietly through the water of a bowl",
}

BAD_TEXTS: list[tuple[str, str, dict[str, Any], str]] = [
    ("", "text", {}, "id"),
    ("a\nb", "text", {}, "id"),
    ("d", "  ", {}, "content"),
    ("d", "a\0b", {}, "content"),
    ("d", "text", {"$bad": 1}, "metadata"),
    ("d", "text", {"key": None}, "metadata.key"),
    ("d", "text", {"key": float("nan")}, "metadata.key"),
    ("d", "text", {"key": {"a": 1}}, "metadata.key"),
]

_CHILD = """
import json, sys, time
from pathlib import Path
from mnemon_server.config.settings import Settings
from mnemon_server.vector_store import ConfiguredVectorStore

from tests.support.forks import python
options, uses_chroma = json.loads(sys.argv[1])
options["data_dir"] = Path(options["data_dir"])
store = ConfiguredVectorStore(Settings(**options), uses_chroma=uses_chroma)
for i in range(60):
    store.store(f"t{i}", f"note {i} about gardens", {"i": i})
    if i % 3 == 0:
        store.update_metadata(f"t{i}", {"third": True})
    if i % 5 == 0 and i:
        store.delete(f"t{i - 1}")
    print(i, flush=True)
time.sleep(600)
"""


def ids(found: list[Neighbour]) -> list[str]:
    return [neighbour.id for neighbour in found]


def until_heartbeat(store: VectorStore, *, is_there: bool) -> None:
    """Waits, within a time limit, until the heartbeat has the expected value."""
    deadline = time.monotonic() + WAIT_S
    while store.heartbeat() is not is_there:
        assert time.monotonic() < deadline, f"the heartbeat never became {is_there}"
        time.sleep(0.05)


class VectorStoreContract(ABC):
    """Every promise of the protocol, as a test."""

    uses_chroma: bool

    @classmethod
    @abstractmethod
    def options(cls, folder: Path) -> dict[str, Any]:
        """Settings other than `data_dir` and the model, as in JSON."""

    @classmethod
    def all_options(cls, folder: Path) -> dict[str, Any]:
        return {"data_dir": str(folder / "data"), "embedding_model": "hashing", **cls.options(folder)}

    @classmethod
    def make_store(cls, folder: Path) -> ConfiguredVectorStore:
        """A store on this folder. The folder is empty at the first call."""
        options = cls.all_options(folder)
        settings = Settings(**{**options, "data_dir": Path(options["data_dir"])})
        return ConfiguredVectorStore(settings, uses_chroma=cls.uses_chroma)

    @pytest.fixture(scope="class")
    @classmethod
    def shared_store(cls, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ConfiguredVectorStore]:
        with cls.make_store(tmp_path_factory.mktemp("shared")) as store:
            yield store

    @pytest.fixture
    def store(self, shared_store: ConfiguredVectorStore) -> Iterator[ConfiguredVectorStore]:
        """A store without texts. It is opened once for all tests, because opening a database takes seconds."""
        yield shared_store
        # No search finds every text.
        stored = shared_store._opened()._records.list_documents(RecordFilter(), limit=1_000)
        with ThreadPoolExecutor(16) as threads:
            list(threads.map(shared_store.delete, [document.doc_id for _, document in stored]))
        assert shared_store.count() == 0

    def test_protocol_is_implementable(self, tmp_path: Path) -> None:
        assert isinstance(self.make_store(tmp_path), VectorStore)

    def test_storing_a_document(self, store: ConfiguredVectorStore) -> None:
        store.store(id="abc", content="test memory", metadata={"agent": "claude"})
        assert store.get("abc") is not None
        assert store.count() == 1

    def test_get_existing_document(self, store: ConfiguredVectorStore) -> None:
        metadata = {"agent": "claude", "rank": 3, "ratio": 0.5, "deleted": False}
        store.store("abc", "test memory", metadata)
        assert store.get(id="abc") == StoredText("abc", "test memory", metadata)

    def test_get_non_existent_document(self, store: ConfiguredVectorStore) -> None:
        store.store("abc", "test memory", {"agent": "claude"})
        assert store.get(id="nonexistent") is None

    def test_no_metadata_comes_back_empty(self, store: ConfiguredVectorStore) -> None:
        store.store("a", "one", {})
        store.store("b", "two")
        for text_id in ("a", "b"):
            text = store.get(text_id)
            assert text is not None
            assert text.metadata == {}

    def test_storing_again_replaces_all_text_and_metadata(self, store: ConfiguredVectorStore) -> None:
        store.store("d", "About zebras in the savanna", {"old": "yes", "kind": "animal"})
        store.store("d", "About trains in the mountains", {"kind": "vehicle"})
        assert store.get("d") == StoredText("d", "About trains in the mountains", {"kind": "vehicle"})
        assert store.count() == 1
        assert ids(store.search("trains", where={"kind": "animal"})) == []
        assert ids(store.search("trains", where={"old": "yes"})) == []
        [found] = store.search("zebras in the savanna")
        assert found.content == "About trains in the mountains"
        assert found.similarity < 0.8

    def test_semantic_search(self, store: ConfiguredVectorStore) -> None:
        for text_id, content in PETS.items():
            store.store(text_id, content, {"id": text_id})
        for text_id, content in PETS.items():
            found = store.search(content, n_results=3)
            assert found[0].id == text_id
            assert (found[0].content, found[0].metadata) == (content, {"id": text_id})
            assert found[0].distance == pytest.approx(0.0, abs=1e-5)
            assert found[0].similarity == pytest.approx(1.0, abs=1e-5)
            assert [hit.distance for hit in found] == sorted(hit.distance for hit in found)
            assert all(hit.similarity == pytest.approx(max(0.0, 1.0 - hit.distance)) for hit in found)
        assert len(store.search("the", n_results=2)) == 2
        assert store.search("  ") == []

    def test_filtered_search(self, store: ConfiguredVectorStore) -> None:
        for i in range(40):
            agent = "claude" if i % 2 else "gemini"
            store.store(f"d{i}", f"note {i} about gardens", {"agent": agent, "deleted": i % 10 == 1, "i": i})
        both = {"agent": "claude", "deleted": False}
        assert sorted(ids(store.search("gardens", 100, both))) == sorted(
            f"d{i}" for i in range(40) if i % 2 and i % 10 != 1
        )
        assert ids(store.search("gardens", 100, {"agent": "gemini", "deleted": True})) == []
        assert ids(store.search("gardens", 100, {"i": 7, "agent": "claude"})) == ["d7"]
        assert ids(store.search("gardens", 100, {"i": 7.0})) == ["d7"]
        assert ids(store.search("gardens", 100, {"i": "7"})) == ids(store.search("gardens", 100, {"deleted": 0})) == []
        assert ids(store.search("gardens", 100, {"unknown": "x"})) == []
        assert len(store.search("gardens", 100, {})) == 40

    def test_a_filtered_search_equals_an_exact_search(self, store: ConfiguredVectorStore) -> None:
        random, embedder = Random(7), HashingEmbedder()
        texts = {f"t{i}": " ".join(random.choices(WORDS, k=6)) for i in range(300)}
        metadata = [{"half": i % 2 == 0, "rare": i % 60 == 0} for i in range(300)]
        with ThreadPoolExecutor(16) as threads:
            list(threads.map(store.store, texts, texts.values(), metadata))
        vectors = embedder.embed(list(texts.values()))
        for where in ({}, {"half": True}, {"rare": True}, {"half": False, "rare": True}):
            kept = [i for i in range(300) if where.items() <= metadata[i].items()]
            for query in (" ".join(random.choices(WORDS, k=4)) for _ in range(5)):
                cosines = np.sort(vectors[kept] @ embedder.embed([query])[0])[::-1][:10]
                found = store.search(query, 10, where)
                similar = cosines[cosines > 0.0].tolist()
                assert [1.0 - hit.distance for hit in found] == pytest.approx(similar, abs=1e-5)
                assert {int(hit.id[1:]) for hit in found} <= set(kept)

    def test_delete_existing_document(self, store: ConfiguredVectorStore) -> None:
        for text_id, content in PETS.items():
            store.store(text_id, content)
        assert store.delete("cats")
        assert store.get("cats") is None
        assert "cats" not in ids(store.search(PETS["cats"]))
        assert store.count() == 2
        assert not store.delete("cats")

    def test_update_single_metadata_key(self, store: ConfiguredVectorStore) -> None:
        store.store("abc", "test memory", {"agent": "claude", "deleted": False})
        store.update_metadata("abc", {"deleted": True, "new": 1})
        assert store.get("abc") == StoredText("abc", "test memory", {"agent": "claude", "deleted": True, "new": 1})
        assert ids(store.search("test memory", where={"deleted": True})) == ["abc"]
        assert ids(store.search("test memory", where={"deleted": False})) == []
        with pytest.raises(DocumentNotFoundError, match="unknown"):
            store.update_metadata("unknown", {"deleted": True})

    def test_bad_input_is_refused_and_named(self, store: ConfiguredVectorStore) -> None:
        for text_id, content, metadata, field in BAD_TEXTS:
            with pytest.raises(InvalidArgumentError) as caught:
                store.store(text_id, content, metadata)
            assert [violation.field for violation in caught.value.violations] == [field]
        assert store.count() == 0
        store.store("d", "text", {"kept": 1})
        bad: Any = {"kept": None}
        with pytest.raises(InvalidArgumentError, match=r"metadata\.kept"):
            store.update_metadata("d", bad)
        assert store.get("d") == StoredText("d", "text", {"kept": 1})

    @pytest.mark.parametrize(
        ("where", "field"),
        [
            ({"$or": "x"}, r"where\.\$or"),
            ({"k": None}, r"where\.k"),
            ({"k": ["a"]}, r"where\.k"),
            ({7: "x"}, r"where\.7"),
        ],
    )
    def test_a_bad_condition_is_refused_and_its_key_named(
        self, store: ConfiguredVectorStore, where: dict[Any, Any], field: str
    ) -> None:
        with pytest.raises(InvalidArgumentError, match=field):
            store.search("text", where=where)

    @pytest.mark.parametrize("n_results", [0, -1])
    def test_a_search_for_fewer_than_one_result_is_refused(self, store: ConfiguredVectorStore, n_results: int) -> None:
        with pytest.raises(InvalidArgumentError, match="n_results"):
            store.search("text", n_results)

    def test_quotes_and_wildcards_are_data(self, store: ConfiguredVectorStore) -> None:
        store.store("a'b\"%", "Robert'); DROP TABLE passages;--", {"name": "x' OR '1'='1"})
        assert ids(store.search("robert", where={"name": "x' OR '1'='1"})) == ["a'b\"%"]
        assert ids(store.search("robert", where={"name": "%"})) == []

    def test_ten_concurrent_threads_agree(self, store: ConfiguredVectorStore) -> None:
        def work(worker: int) -> None:
            for i in range(6):
                store.store(f"w{worker}-{i}", f"worker {worker} writes note {i}", {"worker": worker, "n": 0})
                store.update_metadata(f"w{worker}-{i}", {"n": i})
                assert f"w{worker}-{i}" in ids(store.search(f"note {i}", 100, {"worker": worker}))
            assert store.delete(f"w{worker}-0")

        with ThreadPoolExecutor(10) as threads:
            list(threads.map(work, range(10)))
        found = store.search("worker writes note", 1000)
        assert sorted((hit.id, hit.metadata["n"]) for hit in found) == sorted(
            (f"w{worker}-{i}", i) for worker in range(10) for i in range(1, 6)
        )

    def test_backend_is_reachable(self, store: ConfiguredVectorStore) -> None:
        until_heartbeat(store, is_there=True)

    def test_texts_are_there_after_closing_and_opening(self, tmp_path: Path) -> None:
        with self.make_store(tmp_path) as store:
            for text_id, content in PETS.items():
                store.store(text_id, content, {"kept": True})
            store.delete("dogs")
        with self.make_store(tmp_path) as store:
            assert sorted(ids(store.search("the", where={"kept": True}))) == ["cats", "fish"]

    def test_acknowledged_texts_are_there_after_kill_9(self, tmp_path: Path) -> None:
        arguments = json.dumps([self.all_options(tmp_path), self.uses_chroma])
        last = -1
        with python(_CHILD, arguments) as (child, printed):
            while last < 40:
                line = printed.readline()
                assert line, "the child process ended by itself"
                last = int(line)
            child.kill()
            last = max([last, *map(int, printed.read().split())])
        with self.make_store(tmp_path) as store:
            found = {hit.id: hit.metadata for hit in store.search("gardens", 1000)}
            until_heartbeat(store, is_there=True)
        for i in range(last + 1):
            if i % 5 == 4 and i < last:
                assert f"t{i}" not in found, i
            else:
                expected = {"i": i, "third": True} if i % 3 == 0 else {"i": i}
                assert found[f"t{i}"] == expected
