"""Reranking: what moves a result and how far, and what it must not change."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from mnemon_server.domain.collections import DOCUMENTS
from mnemon_server.domain.documents import Document, DocumentFilter, Passage, SearchQuery, SearchResult
from mnemon_server.domain.memories import MemoryQuery
from mnemon_server.domain.records import Scope, SearchMode
from mnemon_server.engines.in_memory import InMemoryVault
from mnemon_server.engines.promises.values import DocumentWrite, PassageInput, Vector
from mnemon_server.services.documents.search import DocumentSearch
from mnemon_server.services.search.reranking import (
    FEATURES,
    SHIFT_MAX,
    Candidate,
    Ranker,
    author_of,
    default_ranker,
    features,
)
from mnemon_server.services.search.settings import SearchSettings, VectorBackend

from tests.support.memory_stores import open_memories

WAIT_S = 60.0
QUERY = "When did Anna adopt the dog?"
ASKED = "Ben (8 May): Anna, when did you adopt the dog?"
TOLD = "Anna (8 May): the dog, I could adopt her last week, on Sunday"


def candidate(text: str) -> Candidate:
    return Candidate(text, author_of(text, {}))


def signs(query: str, text: str) -> dict[str, float]:
    return dict(zip(FEATURES, features(query, [candidate(text)])[0].tolist(), strict=True))


def found(texts: Sequence[str], query: str, ranker: Ranker | None, **terms: object) -> list[SearchResult]:
    """Finds documents by word. Each is in the scope of its own user, and all have the same meaning."""
    records = InMemoryVault().collection(DOCUMENTS)
    for i, text in enumerate(texts):
        document = Document(f"d{i}", text, passages=(Passage(0, 0, len(text)),), scope=Scope(user=f"u{i % 2}"))
        vector = np.array([0.6, 0.8], np.float32)
        records.put_document(DocumentWrite(document=document, passages=[PassageInput(0, len(text), vector)])).result(
            WAIT_S
        )

    def embed(_: str) -> Vector:
        return np.array([1.0, 0.0], np.float32)

    search = DocumentSearch(
        records,
        embed,
        VectorBackend("in_memory"),
        settings=SearchSettings(exact_scan_max=1000, ranker=ranker, threads=1),
    )
    answer = search.find(SearchQuery(text=query, **{"top_k": 10, "mode": SearchMode.HYBRID} | terms))
    search.close()
    return list(answer.results)


def test_an_answer_by_the_named_person_beats_a_question_about_them() -> None:
    assert [result.content for result in found([ASKED, TOLD], QUERY, None)] == [ASKED, TOLD]
    assert [result.content for result in found([ASKED, TOLD], QUERY, default_ranker())] == [TOLD, ASKED]


def test_the_features_are_read_from_the_text() -> None:
    assert signs(QUERY, ASKED) | {"length": 0} == {
        "by_named": 0,
        "by_other": 0,
        "ends_asking": 1,
        "asks": 1,
        "length": 0,
        "times_if_when": 2,
        "numbers_if_how_many": 0,
    }
    assert signs(QUERY, TOLD)["by_named"] == 1
    assert signs(QUERY, TOLD)["times_if_when"] == 3
    assert signs("How many dogs has Anna?", "Anna: two dogs")["numbers_if_how_many"] == 1
    assert signs("Which dogs?", "Anna: two dogs, last week")["times_if_when"] == 0


def test_the_author_counts_only_if_the_query_names_someone() -> None:
    both = [candidate(ASKED), candidate(TOLD)]
    by_other = FEATURES.index("by_other")
    assert features(QUERY, both)[:, by_other].tolist() == [1, 0]
    assert features("which dog is it?", both)[:, by_other].tolist() == [0, 0]


@pytest.mark.parametrize(
    ("text", "metadata", "author"),
    [
        ("Ann (8 May, 2023): hello", {}, "ann"),
        ("Ann Lee: hello", {}, "ann lee"),
        ("[8 May] hello", {}, ""),
        ("no author here", {}, ""),
        ("http://example.org", {}, ""),
        ("Bob: said Ann", {"speaker": "Ann"}, "ann"),
        ("", {"author": 7}, ""),
    ],
)
def test_the_author_comes_from_the_metadata_or_the_first_words(
    text: str, metadata: dict[str, object], author: str
) -> None:
    assert author_of(text, metadata) == author


def test_scores_stay_in_range_and_move_by_a_bounded_amount() -> None:
    ranker = Ranker(weights=np.full(len(FEATURES), 100.0), means=np.zeros(len(FEATURES)))
    texts = [candidate(TOLD)] * 4
    scores = ranker.scores(QUERY, texts, np.array([0.0, 0.5, 0.9, 1.0]))
    assert scores[[0, 3]].tolist() == [0.0, 1.0]
    assert scores[1] == pytest.approx(1 / (1 + np.exp(-SHIFT_MAX)))
    assert 0.9 < scores[2] < 1.0


def test_min_score_applies_to_the_new_scores() -> None:
    ranker = default_ranker()
    scores = {result.content: result.score for result in found([ASKED, TOLD], QUERY, ranker)}
    bound = (scores[ASKED] + scores[TOLD]) / 2
    assert [result.content for result in found([ASKED, TOLD], QUERY, ranker, min_score=bound)] == [TOLD]


def test_limits_filters_and_the_other_modes_are_unchanged() -> None:
    texts = [ASKED, TOLD] * 3
    ranker = default_ranker()
    assert len(found(texts, QUERY, ranker, top_k=2)) == 2
    own = found(texts, QUERY, ranker, where=DocumentFilter(scope=Scope(user="u0")))
    assert {result.content for result in own} == {ASKED}
    for mode in (SearchMode.VECTOR, SearchMode.KEYWORD):
        plain = [(result.doc_id, result.score) for result in found(texts, QUERY, None, mode=mode)]
        assert [(result.doc_id, result.score) for result in found(texts, QUERY, ranker, mode=mode)] == plain


def test_an_empty_result_is_an_answer() -> None:
    assert found([], QUERY, default_ranker()) == []


async def test_the_change_by_the_ranker_is_part_of_the_explanation(tmp_path: Path) -> None:
    async with open_memories("in_memory", tmp_path, search=SearchSettings(ranker=default_ranker())) as opened:
        await opened.remember(ASKED)
        await opened.remember(TOLD)
        matches = (await opened.store.search(MemoryQuery(text=QUERY, explain=True))).results
    moved = {}
    for match in matches:
        assert match.explanation is not None
        parts = match.explanation.parts
        assert sum(part.score * part.weight for part in parts) == pytest.approx(match.score)
        assert [part.name for part in parts] == ["vector", "keyword", "ranker"]
        moved[match.memory.content] = parts[-1].score * parts[-1].weight
    assert moved[ASKED] < moved[TOLD]
    assert moved[ASKED] < 0
