"""A setting says how meaning and words become one score, and works alike for documents, memories, facts and events."""

from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from mnemon.v1 import common_pb2, episodic_pb2, facts_pb2, memory_pb2
from mnemon.v1 import knowledge_store_pb2 as pb

from tests.support.episodic_messages import happened, record
from tests.support.fact_messages import ADA, fact
from tests.support.memory_messages import create
from tests.support.server import Connection, eventually, whole_server

HYBRID = common_pb2.SEARCH_MODE_HYBRID
TEXTS = ("red apple pie", "green apple pie", "violet")
QUERY = TEXTS[0]
NOW = datetime.now(UTC).replace(microsecond=0)

Scores = dict[str, float]
Search = Callable[[Connection, str], Awaitable[Scores]]


async def documents(server: Connection, query: str) -> Scores:
    """Stores the texts as documents and searches them."""
    for text in TEXTS:
        await server.store.IndexDocument(pb.IndexDocumentRequest(document=pb.Document(doc_id=text, content=text)))
    answer = await server.store.SearchDocuments(pb.SearchDocumentsRequest(query=query, mode=HYBRID))
    return {result.document.doc_id: result.score.relevance for result in answer.results}


async def memories(server: Connection, query: str) -> Scores:
    """The same as memories. Their explanations must add up."""
    for text in TEXTS:
        await server.memories.CreateMemory(create(text))
    request = memory_pb2.SearchMemoriesRequest(query=query, mode=HYBRID, explain=True)
    answer = await server.memories.SearchMemories(request)
    for match in answer.results:
        parts = match.explanation.parts
        assert [part.name for part in parts] == ["vector", "keyword"]
        assert sum(part.contribution for part in parts) == pytest.approx(match.score.relevance)
    return {match.memory.content: match.score.relevance for match in answer.results}


async def facts(server: Connection, query: str) -> Scores:
    """The same as facts."""
    for text in TEXTS:
        await server.facts.PutFact(facts_pb2.PutFactRequest(fact=fact(text, content=text)))
    asked = facts_pb2.SearchFactsRequest(filter=facts_pb2.FactFilter(namespace=ADA), query=query, mode=HYBRID)
    return {match.fact.key: match.score.relevance for match in (await server.facts.SearchFacts(asked)).results}


async def events(server: Connection, query: str) -> Scores:
    """The same as events."""
    await record(server.episodic, *(happened(text, NOW) for text in TEXTS))
    request = episodic_pb2.QueryWindowRequest(last_days=1, query=query, mode=HYBRID)

    async def is_done() -> bool:
        return not (await server.episodic.QueryWindow(request)).diagnostics.pending

    await eventually(is_done)
    answer = await server.episodic.QueryWindow(request)
    return {match.event.content: match.score.relevance for match in answer.results}


SEARCHES: tuple[Search, ...] = (documents, memories, facts, events)


@pytest.mark.parametrize("search", SEARCHES)
async def test_the_setting_can_select_fusion_of_ranks(tmp_path: Path, search: Search) -> None:
    scores = await _searched(tmp_path, search, fusion="rrf", fusion_rrf_k=1)
    # A rank counts 2 / (1 + rank), in both halves.
    assert scores == pytest.approx({TEXTS[0]: 1.0, TEXTS[1]: 2 / 3})


@pytest.mark.parametrize("search", SEARCHES)
async def test_the_setting_can_select_scores_scaled_per_query(tmp_path: Path, search: Search) -> None:
    scores = await _searched(tmp_path, search, query="apple", fusion="weighted")
    # The best results score 1, however little they have in common with the query.
    assert scores == pytest.approx({TEXTS[0]: 1.0, TEXTS[1]: 1.0})


@pytest.mark.parametrize("search", SEARCHES)
async def test_by_default_a_score_says_how_much_there_is_in_common(tmp_path: Path, search: Search) -> None:
    scores = await _searched(tmp_path, search)
    assert scores[TEXTS[0]] == pytest.approx(1.0, abs=1e-3)
    assert 0.2 < scores[TEXTS[1]] < 0.95


@pytest.mark.parametrize("search", SEARCHES)
async def test_the_weight_of_meaning_is_a_setting_too(tmp_path: Path, search: Search) -> None:
    words, meaning = [
        (await _searched(tmp_path / name, search, fusion_vector_weight=weight))[TEXTS[1]]
        for name, weight in (("words", 0.0), ("meaning", 1.0))
    ]
    even = (await _searched(tmp_path / "even", search))[TEXTS[1]]
    assert words != pytest.approx(meaning)
    assert even == pytest.approx((words + meaning) / 2)


@pytest.mark.parametrize("search", SEARCHES)
async def test_what_has_nothing_in_common_with_the_query_is_not_found(tmp_path: Path, search: Search) -> None:
    assert await _searched(tmp_path / "other", search, query="telescope") == {}
    assert (await _searched(tmp_path / "some", search)).keys() == {*TEXTS[:2]}


@pytest.mark.parametrize("fusion", ["rrf", "weighted"])
async def test_scores_that_depend_on_the_other_results_have_no_floor_of_relevance(tmp_path: Path, fusion: str) -> None:
    async with whole_server(tmp_path, fusion=fusion) as server:
        await documents(server, QUERY)
        for query, is_nothing in (("apple", False), ("telescope", True)):
            request = pb.SearchDocumentsRequest(query=query, mode=HYBRID)
            told = (await server.store.SearchDocuments(request)).diagnostics
            assert (told.HasField("relevance_floor"), told.nothing_relevant) == (False, is_nothing)


async def _searched(folder: Path, search: Search, query: str = QUERY, **settings: Any) -> Scores:
    async with whole_server(folder, timeline_embeddings=True, search_context_weight=0.0, **settings) as server:
        return await search(server, query)
