"""Short and odd queries: a hybrid search finds at least as much as the better of its halves."""

import json
from collections import Counter, defaultdict
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from itertools import product

import pytest
from mnemon_server.app import open_document_store
from mnemon_server.config.settings import Settings
from mnemon_server.domain.documents import Document, IndexRequest, SearchQuery, SearchResult
from mnemon_server.domain.records import SearchMode
from mnemon_server.services.documents.store import DocumentStore

from tests.support.cases import exhaustive
from tests.support.repository import ROOT

MODELS = ("sentence-transformers/all-MiniLM-L6-v2", "multilingual")
FUSIONS = ("absolute", "weighted", "rrf")
MODES = (SearchMode.HYBRID, SearchMode.VECTOR, SearchMode.KEYWORD)
LAMPS = [*(f"Note {number}: the lamp was sold." for number in range(20)), "She watches television every evening."]
FRUIT = ["red apple", "red car", "green apple", "blue car"]


@asynccontextmanager
async def holding(texts: list[str], model: str = MODELS[0], fusion: str = "absolute") -> AsyncIterator[DocumentStore]:
    settings = replace(Settings(), knowledge_store_backend="in_memory", embedding_model=model, fusion=fusion)
    async with open_document_store(settings, report=lambda _: None) as store:
        for number, text in enumerate(texts):
            await store.index(IndexRequest(document=Document(str(number), text)))
        yield store


async def found(store: DocumentStore, text: str, mode: SearchMode = SearchMode.HYBRID) -> list[SearchResult]:
    answer = await store.search(SearchQuery(text=text, mode=mode))
    return list(answer.results)


@pytest.mark.parametrize("model", [MODELS[0], exhaustive(MODELS[1])])
async def test_hybrid_search_finds_as_much_as_the_better_of_its_halves(model: str) -> None:
    lines = (ROOT / "tests/data/short_queries.jsonl").read_text("utf-8").splitlines()
    rows = [json.loads(line) for line in lines]
    hits: dict[str, Counter[SearchMode]] = defaultdict(Counter)
    async with holding([row["record"] for row in rows], model) as store:
        for number, row in enumerate(rows):
            for kind, queries in row["queries"].items():
                for query in queries:
                    for mode in MODES:
                        results = await found(store, query, mode)
                        hits[kind][mode] += str(number) in [result.doc_id for result in results[:3]]
    # By meaning, the multilingual model finds one time more.
    of_kinds = {kind: counts for kind, counts in hits.items() if (kind, model) != ("time", "multilingual")}
    for counts in (*of_kinds.values(), sum(hits.values(), Counter())):
        assert counts[SearchMode.HYBRID] >= max(counts.values()), hits


@pytest.mark.parametrize(
    ("model", "fusion"),
    [*product(MODELS[:1], FUSIONS), (MODELS[1], FUSIONS[0]), *map(exhaustive, product(MODELS[1:], FUSIONS[1:]))],
)
async def test_an_acronym_that_no_text_has_is_found_by_meaning(model: str, fusion: str) -> None:
    async with holding(LAMPS, model, fusion) as store:
        results = await found(store, "TV")
        assert results[0].doc_id == "20"
        assert results[0].score > 0


@pytest.mark.parametrize("fusion", FUSIONS)
async def test_without_a_common_word_the_nearest_come_first_with_a_score(fusion: str) -> None:
    async with holding(FRUIT, fusion=fusion) as store:
        for query in ("bbbbluuu", "डॉक्टर", "!?"):
            near = await found(store, query, SearchMode.VECTOR)
            results = await found(store, query)
            assert [result.doc_id for result in results] == [result.doc_id for result in near]
            assert [result.score > 0 for result in results] == [result.score > 0 for result in near]


async def test_an_emoji_is_not_another_one() -> None:
    """The default model knows none, so to it all of them are the same."""
    async with holding(["👍", "😂😂😂", "Driving now", "7:30"]) as store:
        assert await found(store, "🚗") == []
        assert [result.doc_id for result in await found(store, "at 7:30")][:1] == ["3"]
