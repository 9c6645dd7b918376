"""Searching memories: limit and confidence together, modes, relevance, and explanations of scores."""

import numpy as np
import pytest
from mnemon_server.domain.memories import CreateMemory, DecayPolicy, Memory, MemoryFilter, MemoryQuery
from mnemon_server.domain.records import Scope, SearchMode
from mnemon_server.embedding.factory import HashingEmbedder

from tests.support.memory_stores import Opened, contents
from tests.support.vaults import DIMENSION

CONTEXTUAL, REINFORCEABLE = DecayPolicy.CONTEXTUAL, DecayPolicy.REINFORCEABLE


def toward(cosine: float) -> tuple[float, ...]:
    """A vector at this cosine to the first axis."""
    return (cosine, float(np.sqrt(1 - cosine**2)), *(0.0,) * (DIMENSION - 2))


async def remember_at(opened: Opened, cosine: float, content: str, **fields: object) -> Memory:
    memory = Memory("", content, **fields)  # type: ignore[arg-type]
    created = (await opened.store.create(CreateMemory(memory=memory, embedding=toward(cosine)))).memory
    assert created is not None
    return created


async def test_results_come_best_first_with_similarity_and_distance(opened: Opened) -> None:
    for cosine in (-0.5, 0.25, 1.0, 0.75):
        await remember_at(opened, cosine, f"at {cosine}")
    answer = await opened.store.search(MemoryQuery(vector=toward(1.0)))
    assert contents(answer.results) == ["at 1.0", "at 0.75", "at 0.25"]
    assert [match.similarity for match in answer.results] == pytest.approx([1.0, 0.75, 0.25], abs=1e-6)
    assert [match.distance for match in answer.results] == pytest.approx([0.0, 0.25, 0.75], abs=1e-6)
    assert [match.score for match in answer.results] == pytest.approx([1.0, 0.75, 0.25], abs=1e-6)
    assert answer.diagnostics.mode is SearchMode.VECTOR
    assert (answer.diagnostics.exact, answer.diagnostics.total_candidates) == (True, 4)


async def test_faded_memories_make_room_for_the_next(opened: Opened) -> None:
    for i in range(20):
        await remember_at(opened, 0.99 - i / 1000, f"faded {i}", decay_policy=CONTEXTUAL)
    opened.clock.pass_hours(400)
    for i in range(5):
        await remember_at(opened, 0.1 - i / 100, f"fresh {i}", decay_policy=CONTEXTUAL)
    answer = await opened.store.search(MemoryQuery(vector=toward(1.0), limit=3))
    assert contents(answer.results) == ["fresh 0", "fresh 1", "fresh 2"]
    assert all(match.memory.confidence == 1.0 for match in answer.results)
    every = MemoryFilter(min_confidence=0.0)
    everything = await opened.store.search(MemoryQuery(vector=toward(1.0), limit=3, where=every))
    assert contents(everything.results) == ["faded 0", "faded 1", "faded 2"]
    assert everything.results[0].memory.confidence == pytest.approx(0.5 ** (400 / 168))


async def test_a_confidence_equal_to_the_threshold_is_kept(opened: Opened) -> None:
    await opened.remember("half a life", decay_policy=CONTEXTUAL)
    opened.clock.pass_hours(168)
    for bound, found in [(0.5, 1), (np.nextafter(0.5, 1), 0)]:
        query = MemoryQuery(text="half a life", where=MemoryFilter(min_confidence=float(bound)))
        assert len((await opened.store.search(query)).results) == found


async def test_the_minimum_confidence_is_the_filters_or_else_the_default(opened: Opened) -> None:
    await opened.remember("fades", decay_policy=CONTEXTUAL)
    opened.clock.pass_hours(200)
    for least, found in ((None, ["fades"]), (0.3, ["fades"]), (0.9, [])):
        query = MemoryQuery(text="fades", where=MemoryFilter(min_confidence=least))
        assert contents((await opened.store.search(query)).results) == found
    opened.clock.pass_hours(200)
    assert (await opened.store.search(MemoryQuery(text="fades"))).results == ()


async def test_the_mode_is_the_requested_one_or_follows_from_the_query(opened: Opened) -> None:
    await opened.remember("zebra crossing ahead")
    text = "zebra"
    vector = tuple(HashingEmbedder(DIMENSION).embed([text])[0].tolist())
    cases = [
        (MemoryQuery(text=text), SearchMode.HYBRID, {"similarity", "keyword_score"}),
        (MemoryQuery(text=text, vector=vector), SearchMode.HYBRID, {"similarity", "keyword_score"}),
        (MemoryQuery(vector=vector), SearchMode.VECTOR, {"similarity"}),
        (MemoryQuery(text=text, vector=vector, mode=SearchMode.VECTOR), SearchMode.VECTOR, {"similarity"}),
        (MemoryQuery(text=text, mode=SearchMode.VECTOR), SearchMode.VECTOR, {"similarity"}),
        (MemoryQuery(text=text, mode=SearchMode.KEYWORD), SearchMode.KEYWORD, {"keyword_score"}),
    ]
    for query, mode, parts in cases:
        answer = await opened.store.search(query)
        [match] = answer.results
        assert answer.diagnostics.mode is mode
        there = {name for name in ("similarity", "keyword_score") if getattr(match, name) is not None}
        assert there == parts, query
        assert (match.distance is None) == (match.similarity is None)


@pytest.mark.parametrize(
    "query",
    [MemoryQuery(), MemoryQuery(text=" \n"), MemoryQuery(mode=SearchMode.KEYWORD, vector=toward(1.0))],
)
async def test_a_blank_query_finds_nothing(opened: Opened, query: MemoryQuery) -> None:
    await opened.remember("text")
    assert (await opened.store.search(query)).results == ()


async def test_min_score_leaves_out_less_relevant_memories(opened: Opened) -> None:
    for cosine in (0.9, 0.5, 0.1):
        await remember_at(opened, cosine, f"at {cosine}")
    answer = await opened.store.search(MemoryQuery(vector=toward(1.0), min_score=0.5 - 1e-6))
    assert contents(answer.results) == ["at 0.9", "at 0.5"]


async def test_an_answer_tells_how_relevant_its_best_match_is(opened: Opened) -> None:
    for cosine in (0.9, 0.1):
        await remember_at(opened, cosine, f"at {cosine}", scope=Scope(user=f"user {cosine}"))

    async def told(user: str, **fields: object) -> tuple[list[str], float, bool]:
        where = MemoryFilter(scope=Scope(user=user))
        query = MemoryQuery(vector=toward(1.0), where=where, **fields)  # type: ignore[arg-type]
        answer = await opened.store.search(query)
        relevance = answer.diagnostics.relevance
        assert relevance is not None
        return contents(answer.results), round(relevance.best, 6), relevance.is_low

    assert await told("") == (["at 0.9", "at 0.1"], 0.9, False)
    assert await told("user 0.1") == (["at 0.1"], 0.1, True), "it is returned all the same"
    assert await told("user 0.1", min_score=0.05) == (["at 0.1"], 0.1, False), "the caller's floor counts"
    assert await told("", min_score=0.95) == ([], 0.9, True), "the best counts, also if it is left out"
    assert await told("nobody") == ([], 0.0, True)


async def test_a_paraphrase_without_a_common_word_is_relevant_on_every_page(opened: Opened) -> None:
    for cosine in (0.5, 0.1):
        await remember_at(opened, cosine, f"at {cosine}")

    async def told(**fields: object) -> tuple[int, float, bool]:
        query = MemoryQuery(text="a zebra", vector=toward(1.0), **fields)  # type: ignore[arg-type]
        answer = await opened.store.search(query)
        relevance = answer.diagnostics.relevance
        assert relevance is not None and relevance.floor is not None and relevance.best < relevance.floor
        return len(answer.results), round(relevance.best, 6), relevance.is_low

    assert await told() == (2, 0.25, False)
    assert await told(limit=1) == (1, 0.25, False)
    assert await told(min_score=0.3) == (0, 0.25, True), "the caller's floor is strict"


@pytest.mark.parametrize("mode", [SearchMode.HYBRID, SearchMode.VECTOR, SearchMode.KEYWORD])
async def test_an_explanation_adds_up_to_the_score(opened: Opened, mode: SearchMode) -> None:
    await opened.remember("Zebras grazed quietly beside the river", decay_policy=REINFORCEABLE)
    opened.clock.pass_hours(72)
    query = MemoryQuery(text="Are the zebras grazing with lions?", mode=mode, explain=True)
    [match] = (await opened.store.search(query)).results
    explanation = match.explanation
    assert explanation is not None
    assert sum(part.score * part.weight for part in explanation.parts) == pytest.approx(match.score)
    assert sum(part.weight for part in explanation.parts) == 1.0
    expected = {"hybrid": ["vector", "keyword"], "vector": ["vector"], "keyword": ["keyword"]}[mode.value]
    assert [part.name for part in explanation.parts] == expected
    assert explanation.matched_terms == ("zebra", "graze")
    assert "72.0 h after its creation" in explanation.confidence
    assert (await opened.store.search(MemoryQuery(text="zebras"))).results[0].explanation is None


async def test_a_query_without_words_is_explained_by_meaning_only(opened: Opened) -> None:
    await opened.remember("🎉")
    [match] = (await opened.store.search(MemoryQuery(text="🎉", explain=True))).results
    assert match.explanation is not None
    assert [(part.name, part.weight) for part in match.explanation.parts] == [("vector", 1.0), ("keyword", 0.0)]
