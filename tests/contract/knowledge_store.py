"""What every knowledge store must do: the suite behind the `KnowledgeStore` protocol. Subclass it and make a store."""

import asyncio
import json
import re
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from mnemon import IgnoredFilterWarning, UnmatchedFilterWarning
from mnemon_server.config.settings import Settings
from mnemon_server.domain.documents import DocumentFilter
from mnemon_server.knowledge_store import (
    ConfiguredStore,
    Document,
    IndexingError,
    InvalidArgumentError,
    InvalidDocumentError,
    KnowledgeStore,
    KnowledgeStoreError,
    SearchResult,
)

PETS = {
    "cats": "Cats sleep for most of the day and hunt at night",
    "dogs": "Dogs like long walks in the park with their owner",
    "fish": "Goldfish swim quietly through the water of a bowl",
}

INVALID_FILTERS: list[tuple[Any, Any]] = [
    ("$where", "1"), ("", "x"), ("unknown", "x"), ("other", None), ("other", ["a"]), (7, "x"), ("chroma:document", "x"),
]  # fmt: skip
UNMATCHED_FILTERS: list[dict[str, Any]] = [
    {"year": "2020"}, {"year": True}, {"year": None}, {"year": [2020]}, {"ratio": "0.5"}, {"ratio": float("nan")},
    {"done": 1}, {"done": "true"}, {"name": 1}, {"tags": "a"}, {"year": 2020, "done": 1},
]  # fmt: skip

BAD_INPUT: list[tuple[str, str, dict[str, Any], str]] = [
    ("", "text", {}, "document.doc_id"),
    ("a\nb", "text", {}, "document.doc_id"),
    ("d", "  ", {}, "document.content"),
    ("d", "a\0b", {}, "document.content"),
    ("d", "\ud800", {}, "document.content"),
    ("d", "x" * (1 << 20) + "x", {}, "document.content"),
    ("d", "text", {"$bad": 1}, "document.metadata"),
    ("d", "text", {"key": None}, "document.metadata.key"),
    ("d", "text", {"key": float("nan")}, "document.metadata.key"),
    ("d", "text", {"key": 2**63}, "document.metadata.key"),
    ("d", "text", {"key": {"a": 1}}, "document.metadata.key"),
]


def settings(folder: Path, **changes: Any) -> Settings:
    return Settings(data_dir=folder / "data", embedding_model="hashing", **changes)


async def fill(store: KnowledgeStore, documents: dict[str, str], **metadata: Any) -> None:
    for doc_id, content in documents.items():
        assert await store.index_document(doc_id, content, metadata)


async def until_healthy(store: KnowledgeStore, *, healthy: bool = True) -> None:
    """Waits, within a time limit, until the health check reports the expected state."""
    async with asyncio.timeout(120):
        while await store.health_check() is not healthy:  # noqa: ASYNC110 - what changes lies in another process
            await asyncio.sleep(0.05)


def ids(results: list[SearchResult]) -> list[str]:
    return [result.doc_id for result in results]


@pytest.mark.asyncio(loop_scope="class")
class KnowledgeStoreContract(ABC):
    """Every promise of the protocol, as a test."""

    backend: str

    @classmethod
    @abstractmethod
    def make_store(cls, folder: Path) -> ConfiguredStore:
        """A store on this folder. The folder is empty at the first call."""

    @pytest_asyncio.fixture(scope="class", loop_scope="class")
    @classmethod
    async def shared_store(cls, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[ConfiguredStore]:
        async with cls.make_store(tmp_path_factory.mktemp("shared")) as store:
            yield store

    @pytest_asyncio.fixture(loop_scope="class")
    async def store(self, shared_store: ConfiguredStore) -> AsyncIterator[ConfiguredStore]:
        """A store without documents. It is opened once for all tests, because opening a database takes seconds."""
        yield shared_store
        # No search finds every document.
        page = await (await shared_store._opened()).list(where=DocumentFilter(), limit=1_000)
        await asyncio.gather(*(shared_store.delete(document.doc_id) for document in page.documents))

    async def test_it_implements_the_protocol(self, tmp_path: Path) -> None:
        store: KnowledgeStore = self.make_store(tmp_path)
        assert isinstance(store, KnowledgeStore)

    async def test_an_indexed_document_is_retrieved_by_its_id(self, store: ConfiguredStore) -> None:
        metadata = {"title": "Pets", "pages": 3, "rating": 4.5, "draft": False}
        assert await store.index_document("pets", "Cats and dogs", metadata)
        document = await store.get_by_id("pets")
        assert document is not None
        assert (document.doc_id, document.content, document.metadata) == ("pets", "Cats and dogs", metadata)
        assert await store.get_by_id("missing") is None

    async def test_indexing_again_replaces_the_whole_document(self, store: ConfiguredStore) -> None:
        await store.index_document("d", "About zebras in the savanna", {"old": "yes", "kind": "animal"})
        await store.index_document("d", "About trains in the mountains", {"kind": "vehicle"})
        document = await store.get_by_id("d")
        assert document is not None
        assert document.metadata == {"kind": "vehicle"}
        assert ids(await store.search("trains in the mountains")) == ["d"]
        assert ids(await store.search("mountains", filters={"kind": "animal"})) == []
        assert max((hit.score for hit in await store.search("zebras savanna")), default=0) < 0.3

    async def test_the_nearest_document_comes_first(self, store: ConfiguredStore) -> None:
        await fill(store, PETS)
        for doc_id, content in PETS.items():
            results = await store.search(content, top_k=3)
            assert results[0].doc_id == doc_id
            assert [hit.score for hit in results] == sorted((hit.score for hit in results), reverse=True)
            assert all(0.0 <= hit.score <= 1.0 for hit in results)

    async def test_a_documents_own_text_scores_one_and_an_unrelated_text_near_zero(
        self, store: ConfiguredStore
    ) -> None:
        await fill(store, PETS)
        results = await store.search(PETS["cats"], top_k=3)
        assert results[0].score == pytest.approx(1.0, abs=0.02)
        assert results[0].vector_score == pytest.approx(1.0, abs=1e-3)
        unrelated = await store.search("quarterly revenue forecast spreadsheet")
        assert all(hit.score < 0.35 for hit in unrelated)

    async def test_top_k_limits_the_results(self, store: ConfiguredStore) -> None:
        texts = {f"d{i}": f"note number {i} about gardens" for i in range(130)}
        await asyncio.gather(*(store.index_document(doc_id, text, {}) for doc_id, text in texts.items()))
        assert len(await store.search("gardens")) == 5
        assert len(await store.search("gardens", top_k=2)) == 2
        assert len(await store.search("gardens", top_k=1000)) == 100
        assert await store.search("gardens", top_k=0) == []
        assert await store.search("gardens", top_k=-3) == []

    async def test_an_empty_query_finds_nothing(self, store: ConfiguredStore) -> None:
        await fill(store, PETS)
        for query in ("", "   ", "\n\t"):
            assert await store.search(query) == []

    async def test_filters_combine_with_and_and_compare_numbers_by_value(self, store: ConfiguredStore) -> None:
        for i in range(40):
            metadata = {"half": i % 2, "tenth": i % 10 == 0, "name": f"n{i}", "ratio": i / 4}
            await store.index_document(f"d{i}", f"note {i} about gardens", metadata)
        assert sorted(ids(await store.search("gardens", 100, {"tenth": True}))) == ["d0", "d10", "d20", "d30"]
        assert ids(await store.search("gardens", 100, {"half": 1, "name": "n7"})) == ["d7"]
        assert ids(await store.search("gardens", 100, {"half": 0, "name": "n7"})) == []
        assert ids(await store.search("gardens", 100, {"ratio": 2.5})) == ["d10"]
        assert len(await store.search("gardens", 100, {"half": 1})) == 20
        await store.index_document("other", "another note about gardens", {"half": 2.0, "tenth": 2, "name": 1})
        assert ids(await store.search("gardens", 100, {"half": 2})) == ["other"]
        assert ids(await store.search("gardens", 100, {"ratio": 2, "half": 0.0})) == ["d8"]
        assert len(await store.search("gardens", 100, {"half": 1.0})) == 20
        # A boolean and a text are no numbers.
        assert ids(await store.search("gardens", 100, {"tenth": 1})) == []
        assert ids(await store.search("gardens", 100, {"name": "1"})) == []

    async def test_a_filter_of_a_type_that_no_document_has_finds_nothing_and_warns(
        self, store: ConfiguredStore
    ) -> None:
        await fill(store, PETS, year=2020, ratio=0.5, done=True, name="x" * 300, tags=["a"])
        for other in UNMATCHED_FILTERS:
            with pytest.warns(UnmatchedFilterWarning, match=f"'{list(other)[-1]}' finds nothing"):
                assert await store.search("cats dogs goldfish", filters=other) == [], other
        for same in ({"year": 2021}, {"ratio": 2}, {"done": False}, {"name": "y"}):
            assert await store.search("cats dogs goldfish", filters=same) == [], same

    async def test_invalid_filter_keys_are_ignored_with_a_warning(self, store: ConfiguredStore) -> None:
        await fill(store, PETS, topic="pets")
        for key, value in INVALID_FILTERS:
            for filters in ({key: value}, {key: value, "topic": "pets"}):
                with pytest.warns(IgnoredFilterWarning, match=re.escape(f"{str(key)!r} was not applied")):
                    assert len(await store.search("cats dogs goldfish", filters=filters)) == 3, filters

    async def test_a_selective_filter_misses_no_match(self, store: ConfiguredStore) -> None:
        texts = [f"note {i} about gardens and seasons" for i in range(400)]
        await asyncio.gather(
            *(store.index_document(f"d{i}", text, {"rare": i % 200 == 7}) for i, text in enumerate(texts))
        )
        assert sorted(ids(await store.search("seasons", 10, {"rare": True}))) == ["d207", "d7"]

    async def test_a_deleted_document_is_not_found(self, store: ConfiguredStore) -> None:
        await fill(store, PETS)
        assert await store.delete("cats")
        assert await store.get_by_id("cats") is None
        assert "cats" not in ids(await store.search(PETS["cats"], top_k=10))
        assert not await store.delete("cats")

    async def test_the_source_comes_from_the_metadata_or_is_the_backend(self, store: ConfiguredStore) -> None:
        await store.index_document("a", "A wiki page about bees", {"source": "wiki"})
        await store.index_document("b", "A letter about wasps", {"source": 7})
        sources = {hit.doc_id: hit.source for hit in await store.search("bees wasps")}
        assert sources == {"a": "wiki", "b": self.backend}

    async def test_a_long_document_is_found_through_any_passage_and_returned_once(self, store: ConfiguredStore) -> None:
        middle = "The hidden treasure lies under the old lighthouse."
        filler = "Rain fell on the quiet town and nobody went outside. " * 100
        content = f"{filler}{middle} {filler}"
        await store.index_document("long", content)
        await fill(store, PETS)
        results = await store.search("hidden treasure under the lighthouse", top_k=4)
        assert ids(results).count("long") == 1
        assert results[0].doc_id == "long"
        passage = results[0].passage
        assert passage is not None
        assert middle in content[passage.start : passage.end]

    async def test_results_and_documents_are_json(self, store: ConfiguredStore) -> None:
        when = datetime(2024, 5, 1, tzinfo=UTC)
        await store.index_document("d", "Ünïcode 東京 👋", {"when": when, "tags": ("a", "b")})
        [result] = await store.search("Ünïcode 東京")
        shown = json.loads(result.to_json())
        assert (shown["doc_id"], shown["content"]) == ("d", "Ünïcode 東京 👋")
        assert shown["metadata"] == {"when": when.isoformat(), "tags": ["a", "b"]}
        document = await store.get_by_id("d")
        assert isinstance(document, Document)
        assert json.loads(document.to_json())["metadata"] == shown["metadata"]

    async def test_bad_input_is_refused_and_the_field_is_named(self, store: ConfiguredStore) -> None:
        for doc_id, content, metadata, field in BAD_INPUT:
            with pytest.raises(InvalidDocumentError) as caught:
                await store.index_document(doc_id, content, metadata)
            assert [violation.field for violation in caught.value.violations] == [field]
            assert isinstance(caught.value, IndexingError)
            # Programs may catch it as an invalid argument.
            assert isinstance(caught.value, InvalidArgumentError)
        assert await store.search("text") == []
        for call in (store.search("x" * 65_537), store.get_by_id(""), store.delete("")):
            with pytest.raises(KnowledgeStoreError, match=r"^(query|doc_id): ") as refused:
                await call
            assert isinstance(refused.value, InvalidArgumentError)

    async def test_many_concurrent_tasks_agree(self, store: ConfiguredStore) -> None:
        async def work(worker: int) -> None:
            for i in range(6):
                await store.index_document(f"w{worker}-{i}", f"worker {worker} writes note {i}", {"worker": worker})
                await store.search(f"worker {worker}", filters={"worker": worker})
            assert await store.delete(f"w{worker}-0")

        await asyncio.gather(*(work(worker) for worker in range(10)))
        results = await store.search("worker writes note", top_k=100)
        assert sorted(ids(results)) == sorted(f"w{worker}-{i}" for worker in range(10) for i in range(1, 6))

    async def test_a_healthy_store_reports_healthy(self, store: ConfiguredStore) -> None:
        await fill(store, PETS)
        await until_healthy(store)


class PersistentKnowledgeStoreContract(KnowledgeStoreContract):
    """Adds the promises of a store on disk."""

    async def test_documents_are_there_after_closing_and_reopening(self, tmp_path: Path) -> None:
        async with self.make_store(tmp_path) as store:
            await fill(store, PETS)
            await store.delete("dogs")
        async with self.make_store(tmp_path) as store:
            assert sorted(ids(await store.search("cats dogs goldfish"))) == ["cats", "fish"]
