"""Searches for statements return and count the same as comparing every statement."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from pathlib import Path

import numpy as np
import pytest
from mnemon_server.domain.collections import SEMANTIC
from mnemon_server.domain.errors import InvalidArgumentError
from mnemon_server.domain.filters import AllOf, AnyOf, Condition, Expression, NoneOf, Operator
from mnemon_server.domain.records import Relevance, Scope, SearchMode
from mnemon_server.domain.semantic import (
    SavedSemantic,
    SemanticFilter,
    SimilarAnswer,
    SimilarityDiagnostics,
    SimilarQuery,
)
from mnemon_server.engines.hnsw.settings import GraphSettings
from mnemon_server.ranking.fusion import DEFAULT_FUSION, VECTOR_FLOOR, relevance_floors
from mnemon_server.services.search.passage_search import PassageSearch
from mnemon_server.services.search.settings import SearchSettings
from mnemon_server.services.semantic.search import SemanticSearch
from numpy.typing import NDArray

from tests.support.memory_stores import NOON, fields_of
from tests.support.semantic_stores import ADA, OpenedSemantic, contents, eventually, open_semantic, statement
from tests.support.vaults import DIMENSION

COUNT, LARGE_COUNT = 400, 3_000
HOUR = timedelta(hours=1)
GRAPH = GraphSettings(graph_min=1_000, tail_max=64)

BEYOND_500 = SearchSettings(exact_scan_max=500)


@dataclass(frozen=True, slots=True)
class Said:
    """A statement as the oracle knows it. Its content is its own number."""

    number: int
    scope: Scope
    time: datetime
    rank: int
    vector: NDArray[np.float64]


def make_statements(count: int, seed: int) -> list[Said]:
    """Statements of seven users, around 12 topics, an hour apart."""
    rng = np.random.default_rng(seed)
    topics = rng.normal(size=(12, DIMENSION))
    vectors = topics[rng.integers(12, size=count)] + 0.5 * rng.normal(size=(count, DIMENSION))
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    return [
        Said(
            number,
            Scope(user=f"u{number % 7}", household=f"h{number % 3}", persona="p" if number % 2 else ""),
            NOON + number * HOUR,
            int(rng.integers(10)),
            vectors[number],
        )
        for number in range(count)
    ]


async def save(opened: OpenedSemantic, said: list[Said]) -> None:
    """Saves statements with their vectors."""
    requests = [
        statement(
            str(one.number),
            scope=one.scope,
            create_time=one.time,
            metadata={"rank": one.rank},
            embedding=one.vector.tolist(),
        )
        for one in said
    ]
    results = await opened.store.save_many(requests)
    assert all(isinstance(result, SavedSemantic) for result in results)


def is_in_scope(scope: Scope, asked: Scope) -> bool:
    """Whether the requested fields are equal."""
    return (
        asked.user in ("", scope.user)
        and asked.household in ("", scope.household)
        and asked.persona in ("", scope.persona)
    )


def expected(
    said: list[Said], query: SimilarQuery, ranks: frozenset[int] | None
) -> tuple[list[tuple[str, float]], SimilarityDiagnostics]:
    """The expected result, computed statement by statement. `ranks` are those that the expression selects."""
    where = query.where
    context = [one for one in said if is_in_scope(one.scope, where.scope) and (ranks is None or one.rank in ranks)]
    window = [
        one
        for one in context
        if (where.created_from is None or one.time >= where.created_from)
        and (where.created_to is None or one.time <= where.created_to)
    ]
    vector = np.array(query.vector) / np.linalg.norm(query.vector or ())
    cosines = np.array([one.vector for one in window]).reshape(-1, DIMENSION) @ vector
    ranked = [(str(window[row].number), max(float(cosines[row]), 0.0)) for row in np.argsort(-cosines, kind="stable")]
    least = 0.7 if query.min_similarity is None else query.min_similarity
    matched = [(number, similarity) for number, similarity in ranked if similarity >= least]
    diagnostics = SimilarityDiagnostics(
        mode=SearchMode.VECTOR,
        total_candidates=len(said),
        filtered_by_context=len(said) - len(context),
        filtered_by_window=len(context) - len(window),
        filtered_by_threshold=len(window) - len(matched),
        matched_count=len(matched),
        filtered_count=len(said) - len(matched),
        returned=min(query.top_k, len(matched)),
        relevance=Relevance(
            pytest.approx(ranked[0][1] if ranked else 0.0, abs=2e-6), query.min_similarity or VECTOR_FLOOR
        ),
    )
    return matched[: query.top_k], diagnostics


def make_query(said: list[Said], rng: np.random.Generator) -> tuple[SimilarQuery, frozenset[int] | None]:
    """A search near some statement, with random filters, and the ranks that its expression selects."""
    near = said[int(rng.integers(len(said)))].vector + 0.3 * rng.normal(size=DIMENSION)
    scope = Scope(
        user=f"u{rng.integers(8)}" if rng.random() < 0.5 else "",
        household=f"h{rng.integers(3)}" if rng.random() < 0.3 else "",
        persona="p" if rng.random() < 0.3 else "",
    )
    bounds = [said[int(rng.integers(len(said)))].time if rng.random() < 0.4 else None for _ in range(2)]
    start, end = bounds if None in bounds else sorted(filter(None, bounds))
    expression, ranks = make_expression(rng) if rng.random() < 0.5 else (None, None)
    query = SimilarQuery(
        vector=(near * rng.uniform(0.1, 10)).tolist(),
        top_k=int(rng.choice([1, 3, 10, 100])),
        min_similarity=float(rng.choice([0.0, 0.3, 0.7, 0.9])),
        where=SemanticFilter(scope=scope, created_from=start, created_to=end, expression=expression),
    )
    return query, ranks


def make_expression(rng: np.random.Generator) -> tuple[Expression, frozenset[int]]:
    """An expression about the rank, and the ranks that it selects."""
    bound, other = int(rng.integers(10)), int(rng.integers(10))
    at_least, same = (
        Condition("metadata.rank", Operator.GTE, (bound,)),
        Condition("metadata.rank", Operator.EQ, (other,)),
    )
    return [
        (at_least, frozenset(range(bound, 10))),
        (NoneOf((at_least,)), frozenset(range(bound))),
        (AnyOf((at_least, same)), frozenset((*range(bound, 10), other))),
        (AllOf((at_least, NoneOf((same,)))), frozenset(range(bound, 10)) - {other}),
    ][int(rng.integers(4))]


def told(answer: SimilarAnswer) -> list[tuple[str, float]]:
    """The results in the form of the oracle."""
    return [(match.memory.content, pytest.approx(match.similarity, abs=2e-6)) for match in answer.results]


@pytest.fixture
async def opened(tmp_path: Path) -> AsyncIterator[OpenedSemantic]:
    """A store."""
    async with open_semantic(tmp_path / "vault") as opened:
        yield opened


async def test_searches_with_any_filters_agree_with_comparing_everything(opened: OpenedSemantic) -> None:
    said = make_statements(COUNT, seed=3)
    await save(opened, said)
    rng = np.random.default_rng(4)
    found = 0
    for _ in range(200):
        query, ranks = make_query(said, rng)
        answer = await opened.store.search(query)
        results, diagnostics = expected(said, query, ranks)
        assert results == told(answer)
        assert replace(answer.diagnostics, duration_s=0.0) == diagnostics
        assert answer.diagnostics.duration_s > 0.0
        found += len(results)
    assert found > 500


async def test_a_graph_search_agrees_with_comparing_everything(tmp_path: Path) -> None:
    said = make_statements(LARGE_COUNT, seed=5)
    async with open_semantic(tmp_path / "vault", graph=GRAPH, search=BEYOND_500) as opened:
        for start in range(0, LARGE_COUNT, 1_000):
            await save(opened, said[start : start + 1_000])
        records = opened.vault.collection(SEMANTIC)

        async def is_built() -> bool:
            return records.vector_usage().graph_count >= LARGE_COUNT - GRAPH.tail_max

        await eventually(is_built)
        rng = np.random.default_rng(6)
        by_graph = right = wanted = 0
        for _ in range(40):
            query, ranks = make_query(said, rng)
            answer = await opened.store.search(query)
            results, diagnostics = expected(said, query, ranks)
            if answer.diagnostics.exact:
                assert results == told(answer)
                assert replace(answer.diagnostics, duration_s=0.0) == diagnostics
                continue
            by_graph += 1
            wanted += len(results)
            right += len({number for number, _ in results} & set(contents(answer.results)))
            assert len(answer.results) == len(results) or query.min_similarity
            check_counts(answer, diagnostics)
        assert by_graph > 7
        assert right >= 0.99 * wanted


def check_counts(answer: SimilarAnswer, exact: SimilarityDiagnostics) -> None:
    """If a graph proposed the candidates, only those it omitted are counted differently: as below the threshold."""
    got = answer.diagnostics
    assert got.total_candidates == exact.total_candidates
    assert (got.filtered_by_context, got.filtered_by_window) == (exact.filtered_by_context, exact.filtered_by_window)
    assert got.matched_count <= exact.matched_count
    assert got.filtered_by_context + got.filtered_by_window + got.filtered_by_threshold == got.filtered_count
    assert got.matched_count + got.filtered_count == got.total_candidates
    assert got.returned == len(answer.results)


async def test_a_filter_finds_its_match_however_distant(tmp_path: Path) -> None:
    """Statements of Carl's and one of Bob's, behind thousands of nearer ones of Ada's."""
    rng = np.random.default_rng(8)
    query, aside, further = np.eye(DIMENSION)[:3]
    async with open_semantic(tmp_path / "vault", graph=GRAPH, search=BEYOND_500) as opened:

        async def fill(user: str, count: int, around: NDArray[np.float64]) -> None:
            vectors = around + 0.01 * rng.normal(size=(count, DIMENSION))
            requests = [
                statement(f"{user} {i}", scope=Scope(user=user), embedding=vector.tolist())
                for i, vector in enumerate(vectors)
            ]
            await opened.store.save_many(requests)

        await fill("ada", 2_000, query)
        await fill("carl", 1_000, query + 0.5 * aside)
        await fill("bob", 1, query + further)
        not_ada = SemanticFilter(expression=NoneOf((Condition("user", Operator.EQ, ("ada",)),)))
        similar = SimilarQuery(vector=query.tolist(), top_k=3, min_similarity=0.6, where=not_ada)
        answer = await opened.store.search(similar)
        assert [content.split()[0] for content in contents(answer.results)] == ["carl"] * 3
        assert (answer.diagnostics.matched_count, answer.diagnostics.exact) == (1_001, True)
        answer = await opened.store.search(replace(similar, where=SemanticFilter(scope=Scope(user="bob"))))
        assert contents(answer.results) == ["bob 0"]
        assert answer.results[0].similarity == pytest.approx(0.5**0.5, abs=0.05)


async def test_the_threshold_is_inclusive(opened: OpenedSemantic) -> None:
    vector = np.zeros(DIMENSION)
    vector[:2] = 3.0, 4.0
    await opened.store.save(statement("at", embedding=vector.tolist()))
    query = np.eye(DIMENSION)[0].tolist()
    for bound, expected_count in ((0.6, 1), (0.599999, 1), (0.600002, 0)):
        answer = await opened.store.search(SimilarQuery(vector=query, min_similarity=bound))
        assert len(answer.results) == expected_count
        assert answer.diagnostics.filtered_by_threshold == 1 - expected_count


async def test_a_statement_has_the_highest_similarity_to_itself(opened: OpenedSemantic) -> None:
    rng = np.random.default_rng(9)
    for number in range(50):
        vector = rng.normal(size=DIMENSION).tolist()
        await opened.store.save(statement(str(number), embedding=vector))
        answer = await opened.store.search(SimilarQuery(vector=vector, min_similarity=1.0))
        assert contents(answer.results) == [str(number)]
        assert answer.results[0].similarity == 1.0


async def test_an_opposite_statement_has_no_similarity(opened: OpenedSemantic) -> None:
    vector = np.eye(DIMENSION)[0]
    await opened.store.save(statement("opposite", embedding=(-vector).tolist()))
    answer = await opened.store.search(SimilarQuery(vector=vector.tolist(), min_similarity=0.0))
    assert [(match.memory.content, match.similarity) for match in answer.results] == [("opposite", 0.0)]
    assert not (await opened.store.search(SimilarQuery(vector=vector.tolist(), min_similarity=1e-6))).results


@pytest.mark.parametrize("mode", [SearchMode.HYBRID, SearchMode.KEYWORD])
async def test_filters_and_threshold_hide_no_match_of_a_text(opened: OpenedSemantic, mode: SearchMode) -> None:
    """The answer has the best of all that pass the filters, and the counts say why the others are left out."""
    rng, words = np.random.default_rng(11), ("oslo", "tea", "chess", "snow", "river", "lamp", "goat", "violin")
    said = make_statements(90, seed=12)
    texts = [" ".join(rng.choice(words, size=rng.integers(1, 5))) for _ in said]
    for one, text in zip(said, texts, strict=True):
        await opened.say(f"{text} n{one.number}", scope=one.scope, create_time=one.time, metadata={"rank": one.rank})
    found = 0
    for _ in range(60):
        like, ranks = make_query(said, rng)
        least = None if mode is SearchMode.KEYWORD else like.min_similarity
        query = replace(like, vector=None, text=" ".join(rng.choice(words, size=3)), mode=mode, min_similarity=least)
        everything = await opened.store.search(replace(query, top_k=100, min_similarity=None))
        matched = [each for each in everything.results if least is None or (each.similarity or 0.0) >= least]
        answer = await opened.store.search(query)
        assert contents(answer.results) == contents(matched[: query.top_k])
        assert [each.score for each in answer.results] == sorted((each.score for each in matched), reverse=True)[
            : query.top_k
        ]
        _, filtered = expected(said, replace(like, min_similarity=0.0), ranks)
        left_out = filtered.filtered_by_context + filtered.filtered_by_window
        assert replace(answer.diagnostics, duration_s=0.0) == replace(
            filtered,
            mode=mode,
            filtered_by_threshold=len(said) - left_out - len(matched),
            matched_count=len(matched),
            filtered_count=len(said) - len(matched),
            returned=min(query.top_k, len(matched)),
            relevance=relevance_floors(DEFAULT_FUSION, query.text, mode).relevance(
                pytest.approx(matched[0].score if matched else 0.0), matched[0].similarity if matched else None
            ),
        )
        found += len(answer.results)
    assert found > 100


async def test_a_graph_finds_by_words_and_meaning_what_comparing_everything_finds(tmp_path: Path) -> None:
    said = make_statements(LARGE_COUNT, seed=13)
    async with open_semantic(tmp_path / "vault", graph=GRAPH, search=BEYOND_500) as opened:
        for start in range(0, LARGE_COUNT, 1_000):
            await save(opened, said[start : start + 1_000])
        records = opened.vault.collection(SEMANTIC)

        async def is_built() -> bool:
            return records.vector_usage().graph_count >= LARGE_COUNT - GRAPH.tail_max

        await eventually(is_built)
        passages = PassageSearch(records, lambda _: None)
        everything = SemanticSearch(passages, dimension=DIMENSION)
        rng, by_graph = np.random.default_rng(14), 0
        for _ in range(15):
            like, _ = make_query(said, rng)
            # Any number may be the word of a distant statement.
            query = replace(like, text=str(rng.integers(LARGE_COUNT)), mode=SearchMode.HYBRID, top_k=10)
            answer, exact = await opened.store.search(query), everything.find(query)
            by_graph += not answer.diagnostics.exact
            assert told(answer) == [(each.memory.content, each.similarity) for each in exact.results]
            assert all(each.similarity >= query.min_similarity for each in answer.results)
        assert by_graph > 2
        passages.close()


async def test_statements_are_found_once_saved_and_no_longer_once_deleted(opened: OpenedSemantic) -> None:
    query = SimilarQuery(text="alpha", top_k=100, min_similarity=0.0, where=SemanticFilter(scope=ADA))
    for number in range(20):
        memory = await opened.known(f"alpha {number}")
        found = {
            match.memory.memory_id for match in (await opened.store.search(replace(query, min_similarity=0.0))).results
        }
        assert memory.memory_id in found
        if number % 2:
            await opened.store.delete([memory.memory_id])
            answer = await opened.store.search(query)
            assert memory.memory_id not in {match.memory.memory_id for match in answer.results}
            assert answer.diagnostics.total_candidates == (number + 1) // 2


async def test_searches_during_deletions_return_as_many_results_as_there_are(opened: OpenedSemantic) -> None:
    """Statements deleted during a search make room for the next."""
    for number in range(80):
        await opened.say(f"alpha {number}")
    query = SimilarQuery(text="alpha", mode=SearchMode.VECTOR, top_k=30, min_similarity=0.1)
    answer = await opened.store.search(query)
    nearest = [match.memory.memory_id for match in answer.results]

    async def delete_them() -> None:
        for memory_id in nearest:
            await opened.store.delete([memory_id])

    deleting = asyncio.create_task(delete_them())
    searched = 0
    while not deleting.done():
        found = await opened.store.search(query)
        assert len(found.results) == 30
        searched += 1
    await deleting
    assert searched > 0


async def test_errors_in_a_search_are_named(opened: OpenedSemantic) -> None:
    cases = [
        (SimilarQuery(vector=[1.0]), "vector"),
        (SimilarQuery(vector=[0.0] * DIMENSION), "vector"),
        (SimilarQuery(vector=[float("nan")] * DIMENSION), "vector"),
        (SimilarQuery(text="x" * 65_537), "query"),
        (SimilarQuery(text="x", top_k=0), "limit"),
        (SimilarQuery(text="x", top_k=101), "limit"),
        (SimilarQuery(text="x", min_similarity=-0.1), "min_score"),
        (SimilarQuery(text="x", min_similarity=1.1), "min_score"),
        (SimilarQuery(text="x", min_similarity=float("nan")), "min_score"),
        (SimilarQuery(text="x", min_similarity=0.5, mode=SearchMode.KEYWORD), "min_score"),
        (SimilarQuery(text="x", where=SemanticFilter(scope=Scope(user="a\0"))), "filter.scope.user"),
    ]
    for query, field in cases:
        with pytest.raises(InvalidArgumentError) as refusal:
            await opened.store.search(query)
        assert fields_of(refusal.value) == [field]
