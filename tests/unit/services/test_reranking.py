"""Reranking: what moves a result and how far, and what it must not change."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from mnemon_server.domain.collections import DOCUMENTS
from mnemon_server.domain.documents import Document, DocumentFilter, Passage, SearchQuery, SearchResult
from mnemon_server.domain.memories import MemoryQuery
from mnemon_server.domain.records import MetadataValue, Scope, SearchMode
from mnemon_server.engines.promises.values import DocumentWrite, PassageInput, Vector
from mnemon_server.services.documents.search import DocumentSearch
from mnemon_server.services.search.passage_search import PassageSearch
from mnemon_server.services.search.reranking import (
    DEPTH,
    FEATURES,
    REACH,
    Ranker,
    Turn,
    author_of,
    default_ranker,
    features,
)
from mnemon_server.services.search.settings import SearchSettings

from tests.support.memory_stores import open_memories
from tests.support.vaults import temporary_vault

WAIT_S = 60.0
QUERY = "When did Anna adopt the dog?"
ASKED = "Ben (8 May): Anna, when did you adopt the dog?"
TOLD = "Anna (8 May): the dog, I could adopt her last week, on Sunday"
OTHER = "Ben (8 May): the dog, I could adopt her last week, on Sunday"


def found(texts: Sequence[str], query: str, ranker: Ranker | None, **terms: object) -> list[SearchResult]:
    """Finds documents by word. Each is in the scope of its own user, and all have the same meaning."""
    with temporary_vault(dimension=2) as vault:
        records = vault.collection(DOCUMENTS)
        metadata: dict[str, MetadataValue] = {"speaker": str(terms.pop("speaker"))} if "speaker" in terms else {}
        for i, text in enumerate(texts):
            passages = (Passage(0, 0, len(text)),)
            document = Document(f"d{i}", text, metadata, passages=passages, scope=Scope(user=f"u{i % 2}"))
            vector = np.array([0.6, 0.8], np.float32)
            records.put_document(
                DocumentWrite(document=document, passages=[PassageInput(0, len(text), vector)])
            ).result(WAIT_S)

        def embed(_: str) -> Vector:
            return np.array([1.0, 0.0], np.float32)

        search = PassageSearch(records, embed, settings=SearchSettings(exact_scan_max=1000, ranker=ranker, threads=1))
        asked = SearchQuery(text=query, **{"top_k": 10, "mode": SearchMode.HYBRID} | terms)
        answer = DocumentSearch(search, "local").find(asked)
        search.close()
    return list(answer.results)


def scores(texts: Sequence[str], query: str, ranker: Ranker | None, **terms: object) -> dict[str, float]:
    return {result.doc_id: result.score for result in found(texts, query, ranker, **terms)}


def _toward_query(cosine: float) -> Vector:
    return np.array([cosine, np.sqrt(1 - cosine**2)], np.float32)


def _found_near(
    vectors: dict[str, list[Vector]],
    metadata: dict[str, MetadataValue],
    contents: dict[str, str] | None = None,
    min_score: float = 0.0,
) -> list[str]:
    """The ids of documents with passages of these vectors, best first."""
    with temporary_vault(dimension=2) as vault:
        records = vault.collection(DOCUMENTS)
        for doc_id, of_passages in vectors.items():
            text = (contents or {}).get(doc_id, "the dog")
            passages = [PassageInput(0, len(text), vector) for vector in of_passages]
            records.put_document(DocumentWrite(document=Document(doc_id, text, metadata), passages=passages)).result(
                WAIT_S
            )
        settings = SearchSettings(exact_scan_max=1000, ranker=default_ranker(), threads=1)
        search = PassageSearch(records, lambda _: _toward_query(1.0), settings=settings)
        asked = SearchQuery(text=QUERY, top_k=10, mode=SearchMode.HYBRID, min_score=min_score)
        answer = DocumentSearch(search, "local").find(asked)
        search.close()
    return [result.doc_id for result in answer.results]


def test_an_answer_by_the_named_person_beats_a_question_about_them() -> None:
    assert [result.content for result in found([ASKED, TOLD], QUERY, None)] == [ASKED, TOLD]
    assert [result.content for result in found([ASKED, TOLD], QUERY, default_ranker())] == [TOLD, ASKED]


def test_the_answer_to_a_matching_question_rises() -> None:
    texts = ["Ben: hello", "Anna: the dog is fine", ASKED, "Anna: it was the dog on Sunday"]
    plain, ranked = scores(texts, QUERY, None), scores(texts, QUERY, default_ranker())
    assert ranked["d3"] > plain["d3"]
    assert ranked["d1"] == plain["d1"]


@pytest.mark.parametrize("between", range(REACH + 1))
def test_own_turns_may_be_between_a_question_and_its_answer(between: int) -> None:
    texts = [ASKED, *["Anna: well"] * between, "Anna: it was the dog on Sunday"]
    answer = f"d{between + 1}"
    rises = scores(texts, QUERY, default_ranker())[answer] > scores(texts, QUERY, None)[answer]
    assert rises is (between < REACH)


def test_only_the_last_turn_of_somebody_else_is_answered() -> None:
    for before in ([ASKED, "Ben: well"], [ASKED, "Ben: well, really", "Anna: so"], ["Anna: when did I adopt the dog?"]):
        texts = [*before, "Anna: it was the dog on Sunday"]
        answer = f"d{len(before)}"
        assert scores(texts, QUERY, default_ranker())[answer] == scores(texts, QUERY, None)[answer]


def test_a_question_outside_of_the_search_has_no_answer() -> None:
    texts = [ASKED, "Anna: it was the dog on Sunday"]
    where = DocumentFilter(scope=Scope(user="u1"))
    assert scores(texts, QUERY, default_ranker(), where=where) == scores(texts, QUERY, None, where=where)


@pytest.mark.parametrize(
    "texts",
    [
        ["when did Anna adopt the dog?", "the dog of Anna", "a dog?"],
        ["Note: when did Anna adopt the dog?", "the dog of Anna", "a dog?", "Anna: her dog", "one more dog"],
        # The texts before the best ones tell, too.
        ["chapter one", ASKED, "chapter two", OTHER, "chapter three", TOLD],
    ],
)
def test_texts_that_are_not_turns_keep_their_scores(texts: Sequence[str]) -> None:
    assert scores(texts, QUERY, default_ranker()) == scores(texts, QUERY, None)


def test_the_author_may_be_in_the_metadata() -> None:
    texts = ["when did Anna adopt the dog?", "it was the dog on Sunday"]
    plain, ranked = (scores(texts, QUERY, ranker, speaker="Anna") for ranker in (None, default_ranker()))
    assert ranked["d0"] < plain["d0"]
    assert ranked["d1"] == plain["d1"]


def test_a_message_to_an_assistant_may_end_with_a_question() -> None:
    """Half of the messages that people look for do."""
    texts = ["I adopt the dog Anna on Sunday, when can I?", "Good that you adopt a dog"]
    assert list(scores(texts, QUERY, default_ranker(), speaker="user")) == ["d0", "d1"]


@pytest.mark.parametrize("author", ["user", "Assistant", "Human", "AI agent"])
def test_the_beginning_of_a_message_to_an_assistant_counts_as_much_as_its_best_passage(author: str) -> None:
    """A long answer has many passages, each with a chance to be near any query."""
    near, far, medium = (_toward_query(cosine) for cosine in (0.8, 0.1, 0.6))
    texts = {"long": [far, far, near], "short": [medium]}
    assert _found_near(texts, {}) == ["long", "short"]
    assert _found_near(texts, {"role": author}) == ["short", "long"]
    assert _found_near(texts, {"role": "Ben"}) == ["long", "short"]


def test_meaning_counts_more_among_messages_to_an_assistant() -> None:
    texts = {"worded": [_toward_query(0.4)], "meant": [_toward_query(0.8)]}
    contents = {"worded": "Anna has a dog", "meant": "they have got a puppy"}
    assert _found_near(texts, {}, contents) == ["worded", "meant"]
    assert _found_near(texts, {"role": "assistant"}, contents) == ["meant", "worded"]
    assert _found_near(texts, {}, contents, min_score=0.41) == ["worded"]
    assert _found_near(texts, {"role": "assistant"}, contents, min_score=0.46) == ["meant"]


def test_the_author_counts_only_if_the_query_names_someone() -> None:
    turns = [Turn("ben"), Turn("anna"), Turn("")]
    by_other = FEATURES.index("by_other")
    assert features(QUERY, turns)[:, by_other].tolist() == [1, 0, 0]
    assert features("which dog is it?", turns)[:, by_other].tolist() == [0, 0, 0]
    assert features("Anna and Ben, which dog is it?", turns)[:, by_other].tolist() == [0, 0, 0]


def test_a_name_that_is_a_common_word_needs_its_capital_letter() -> None:
    turns = [Turn("will"), Turn("ann")]
    by_other = FEATURES.index("by_other")
    assert features("when will it rain?", turns)[:, by_other].tolist() == [0, 0]
    assert features("when did Will leave?", turns)[:, by_other].tolist() == [0, 1]


@pytest.mark.parametrize(
    ("text", "metadata", "author"),
    [
        ("Ann (8 May, 2023): hello", {}, "ann"),
        ("Ann Lee: hello", {}, "ann lee"),
        ("[1:56 pm on 8 May] Ann: hello", {}, "ann"),
        ("[8 May] hello", {}, ""),
        ("no author here", {}, ""),
        ("Arguments:\n one", {}, ""),
        ("12: a number", {}, ""),
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
    ranker = default_ranker()
    turns = [Turn("anna", question_score=1.0)] * 4
    new = ranker.scores(QUERY, turns, np.array([0.0, 0.5, 0.9, 1.0]))
    assert new[[0, 3]].tolist() == [0.0, 1.0]
    assert 0.5 < new[1] < 0.9 < new[2] < 1.0


def test_min_score_applies_to_the_new_scores() -> None:
    texts = [ASKED, TOLD]
    ranked = scores(texts, QUERY, default_ranker())
    assert list(scores(texts, QUERY, default_ranker(), min_score=(ranked["d0"] + ranked["d1"]) / 2)) == ["d1"]
    texts = [ASKED, "Anna: it was the dog on Sunday"]
    plain, ranked = scores(texts, QUERY, None), scores(texts, QUERY, default_ranker())
    assert plain["d1"] < ranked["d1"]
    assert "d1" in scores(texts, QUERY, default_ranker(), min_score=(plain["d1"] + ranked["d1"]) / 2)


def test_every_limit_gives_the_same_order() -> None:
    texts = [ASKED, TOLD, OTHER, "Anna: it was the dog on Sunday"] * (DEPTH // 3)
    whole = found(texts, QUERY, default_ranker(), top_k=len(texts))
    assert [result.score for result in whole] == sorted((result.score for result in whole), reverse=True)
    plain = scores(texts, QUERY, None, top_k=len(texts))
    assert [result.doc_id for result in whole[DEPTH:]] == list(plain)[DEPTH:]
    for limit in (1, 3, DEPTH - 1, DEPTH, DEPTH + 1):
        part = found(texts, QUERY, default_ranker(), top_k=limit)
        assert [(each.doc_id, each.score) for each in part] == [(each.doc_id, each.score) for each in whole[:limit]]


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
    async with open_memories(tmp_path, search=SearchSettings(ranker=default_ranker())) as opened:
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
    assert moved[ASKED] < 0 < moved[TOLD]
