"""Fusion: how the score of a hybrid search is computed."""

import numpy as np
import pytest
from mnemon_server.domain.records import SearchMode
from mnemon_server.engines.promises.values import Scores
from mnemon_server.ranking.fusion import DEFAULT_FUSION, Fusion, FusionMethod, relevance_floors
from mnemon_server.services.search.rankings import LeftOut, Ranking, by_both

from tests.support.fixed_model import FixedModel


def scores(values: dict[int, float]) -> Scores:
    return Scores(np.array(list(values), np.int64), np.array(list(values.values()), np.float64))


def fused(
    vector: dict[int, float], keyword: dict[int, float], query: str = "two words", weight: float = 0.5
) -> Ranking:
    return fuse(query, scores(vector), scores(keyword), fusion=Fusion(vector_weight=weight))


def fuse(
    query: str, vector: Scores, keyword: Scores, *, fusion: Fusion = DEFAULT_FUSION, left_out: LeftOut | None = None
) -> Ranking:
    return by_both(query, vector, keyword, fusion=fusion, exact=True, left_out=left_out)


def by_id(answer: Ranking) -> dict[int, float]:
    return dict(sorted(zip(answer.passage_ids.tolist(), answer.scores.tolist(), strict=True)))


def test_the_querys_own_text_scores_1_and_an_unrelated_one_0() -> None:
    assert fused({1: 1.0, 2: 0.0}, {1: 1.0}).scores.tolist() == [1.0, 0.0]


def test_a_score_does_not_depend_on_the_other_results() -> None:
    alone = fused({1: 0.4}, {1: 0.3}).scores[0]
    beside = fused({1: 0.4, 2: 0.9, 3: -0.5}, {1: 0.3, 2: 0.8}).scores[0]
    assert alone == beside == pytest.approx(0.35)


@pytest.mark.parametrize(("coverage", "weight"), [(0.0, 0.02), (0.1, 0.02), (0.5, 0.25), (0.9, 0.5), (1.0, 0.5)])
def test_meaning_counts_as_far_as_the_model_reads_the_query(coverage: float, weight: float) -> None:
    fusion = Fusion(model=FixedModel(covered=coverage))
    assert fusion.weight("two words") == pytest.approx(weight)
    assert fusion.weight("?!") == float(coverage > 0.0), "a query without words has only its vector, if that"
    own_text = fuse("two words", scores({1: 1.0}), scores({1: 1.0}), fusion=fusion)
    assert own_text.scores.tolist() == [pytest.approx(1.0)]


def test_a_passage_found_by_both_halves_beats_one_found_by_one() -> None:
    both, meaning, word = by_id(fused({1: 0.6, 2: 0.7}, {1: 0.6, 3: 0.7})).values()
    assert both > meaning
    assert both > word


@pytest.mark.parametrize("vector", [{3: 0.25, 9: 0.5}, {9: 0.5, 3: 0.25}])
def test_every_passage_of_either_half_is_in_the_result_with_its_parts(vector: dict[int, float]) -> None:
    answer = fused(vector, {9: 0.125, 12: 1.0, 1: 0.75})
    parts = zip(answer.vector_parts.tolist(), answer.keyword_scores.tolist(), strict=True)
    assert dict(zip(answer.passage_ids.tolist(), parts, strict=True)) == {
        1: (0.0, 0.75),
        3: (0.25, 0.0),
        9: (0.5, 0.125),
        12: (0.0, 1.0),
    }


def test_an_opposite_meaning_counts_as_zero() -> None:
    answer = fused({1: -0.8}, {1: 0.5})
    assert answer.vector_parts.tolist() == [0.0]
    assert answer.scores.tolist() == [0.25]
    assert answer.cosines.tolist() == [-0.8]


@pytest.mark.parametrize("method", FusionMethod)
def test_cosines_count_from_the_models_zero(method: FusionMethod) -> None:
    fusion = Fusion(method, model=FixedModel(zero=0.75))
    answer = fuse("two words", scores({1: 1.0, 2: 0.875, 3: 0.75, 4: 0.7}), scores({4: 0.5}), fusion=fusion)
    assert answer.cosines.tolist() == [1.0, 0.875, 0.75, 0.7], "they are shown as they are"
    assert answer.vector_parts[0] == 1.0
    assert 0.0 < answer.vector_parts[1] < 1.0
    assert answer.vector_parts[2:].tolist() == [0.0, 0.0]
    assert answer.scores[2] == 0.0, "it has nothing in common with the query"
    assert answer.scores[3] > 0.0, "it has a word in common"
    if fusion.is_absolute:
        assert answer.scores.tolist() == [0.5, 0.25, 0.0, 0.25]


@pytest.mark.parametrize("model", [None, FixedModel(zero=0.75), FixedModel(covered=0.0)])
def test_a_match_at_the_floors_of_both_parts_is_at_the_floor_of_the_whole(model: FixedModel | None) -> None:
    fusion = Fusion(model=model)
    floor = {mode: relevance_floors(fusion, "two words", mode).score or 0.0 for mode in SearchMode}
    vector, keyword = scores({1: floor[SearchMode.VECTOR]}), scores({1: floor[SearchMode.KEYWORD]})
    assert fuse("two words", vector, keyword, fusion=fusion).scores == pytest.approx([floor[SearchMode.HYBRID]])


@pytest.mark.parametrize(
    ("model", "cosine", "is_low"),
    [
        (None, 0.45, False),
        (None, 0.43, True),
        (FixedModel(zero=0.75), 0.87, False),
        (FixedModel(zero=0.75), 0.85, True),
        (FixedModel(covered=0.7), 0.6, False),
        (FixedModel(covered=0.7), 0.5, True),
        (FixedModel(covered=0.0), 1.0, True),
    ],
)
def test_a_paraphrase_is_relevant_by_its_meaning_as_far_as_the_model_reads_the_query(
    model: FixedModel | None, cosine: float, *, is_low: bool
) -> None:
    fusion = Fusion(model=model)
    [score] = fuse("two words", scores({1: cosine}), scores({}), fusion=fusion).scores.tolist()
    told = relevance_floors(fusion, "two words", SearchMode.HYBRID).relevance(score, cosine)
    assert told.is_low == is_low


def test_scores_stay_between_0_and_1_despite_rounding() -> None:
    assert fused({1: 1.0000001, 2: -1e-9}, {1: 1.0000001}).scores.tolist() == [1.0, 0.0]


def test_a_query_without_words_is_matched_by_meaning_only() -> None:
    assert fused({1: 1.0, 2: 0.25}, {}, query="🎉!").scores.tolist() == [1.0, 0.25]


def test_the_weight_is_the_share_of_meaning() -> None:
    assert by_id(fused({1: 1.0}, {2: 1.0}, weight=0.75)) == {1: 0.75, 2: 0.25}


def test_an_empty_result_is_an_answer() -> None:
    assert fused({}, {}).scores.size == 0


@pytest.mark.parametrize("first", [1, 100])
def test_gaps_between_the_ids_change_no_score(first: int) -> None:
    rng = np.random.default_rng(5)
    ids = np.arange(first, first + 40)
    gapless = Scores(ids, rng.random(40))
    words = {int(passage_id): float(rng.random()) for passage_id in (*ids[::3], first - 1, first + 40, first + 90)}
    whole = fuse("two words", gapless, scores(words))
    gappy = fuse("two words", Scores(np.delete(ids, 7), np.delete(gapless.scores, 7)), scores(words))
    expected = {passage_id: score for passage_id, score in by_id(whole).items() if passage_id != first + 7}
    assert by_id(gappy) == expected
    assert len(by_id(whole)) == len(whole.passage_ids) == 43


def test_weighted_scales_each_half_by_the_compared_scores() -> None:
    fusion = Fusion(FusionMethod.WEIGHTED)
    answer = fuse("two words", scores({1: 0.5, 2: 0.3, 3: 0.1, 4: -0.7}), scores({2: 0.2, 3: 0.1}), fusion=fusion)
    # Scaled: meaning 1, 0.6, 0.2, 0 and words 0, 1, 0.5, 0, all but the zeros into 0.01 to 1. Meaning weighs 0.6.
    assert by_id(answer) == pytest.approx({1: 0.6, 2: 0.7624, 3: 0.3268, 4: 0.0})
    assert answer.cosines.tolist() == [0.5, 0.3, 0.1, -0.7]


def test_ranks_are_fused_whatever_the_scores_are() -> None:
    fusion = Fusion(FusionMethod.RRF, rrf_k=1)
    answer = fuse("two words", scores({1: 0.9, 2: 0.2, 3: 0.2, 4: 0.0}), scores({2: 0.01, 5: 1.0}), fusion=fusion)
    # A rank counts 2 / (1 + rank). Equal scores share their rank. A score of zero has no rank.
    assert by_id(answer) == pytest.approx({1: 0.5, 2: 2 / 3, 3: 1 / 3, 4: 0.0, 5: 0.5})


@pytest.mark.parametrize("method", FusionMethod)
def test_the_best_in_both_halves_scores_1_and_one_with_nothing_in_common_0(method: FusionMethod) -> None:
    answer = fuse("two words", scores({1: 1.0, 2: 0.0}), scores({1: 1.0}), fusion=Fusion(method))
    assert answer.scores.tolist() == [1.0, 0.0]
    nothing = fuse("two words", scores({1: 0.0, 2: -0.5}), scores({}), fusion=Fusion(method))
    assert nothing.scores.tolist() == [0.0, 0.0]
    assert fuse("two words", scores({}), scores({}), fusion=Fusion(method)).scores.size == 0


@pytest.mark.parametrize("method", FusionMethod)
@pytest.mark.parametrize("zero", [0.0, 0.45])
def test_omitted_passages_score_no_higher_than_the_stated_bound(method: FusionMethod, zero: float) -> None:
    rng = np.random.default_rng(3)
    below = 0
    for _ in range(50):
        vector, keyword = (scores(dict(enumerate(rng.random(12).round(1).tolist()))) for _ in range(2))
        fusion = Fusion(method, rrf_k=int(rng.integers(1, 60)), model=FixedModel(zero))
        left_out = LeftOut(round(rng.random(), 1), -np.sort(-rng.random(3).round(1)))
        told = fuse("two words", vector, keyword, fusion=fusion, left_out=left_out)
        for keyword_max, bound in zip(left_out.keyword_scores, told.left_out, strict=True):
            no_nearer = (told.cosines <= left_out.cosine_max) & (told.keyword_scores <= keyword_max)
            assert np.all(told.scores[no_nearer] <= bound + 1e-9)
            below += bound < told.scores.max()
    assert below > 30


@pytest.mark.parametrize("weight", [0.0, 0.3, 0.5, 1.0])
@pytest.mark.parametrize("zero", [0.0, 0.6])
def test_the_needed_keyword_score_is_the_least_that_reaches_a_score(weight: float, zero: float) -> None:
    fusion = Fusion(vector_weight=weight, model=FixedModel(zero))
    for score, cosine in ((0.6, 0.5), (0.9, 0.9), (0.2, 0.9), (1.0, 0.0)):
        needed = fusion.keyword_score_needed("two words", score, cosine)
        reached = fusion.fuse("two words", np.array([cosine]), np.array([needed])).scores[0]
        assert reached >= score - 1e-9 or weight == 1.0
        assert reached <= score + 1e-9 or needed == 0.0


@pytest.mark.parametrize("method", [FusionMethod.WEIGHTED, FusionMethod.RRF])
def test_no_keyword_score_is_needed_where_scores_depend_on_the_others(method: FusionMethod) -> None:
    assert Fusion(method).keyword_score_needed("two words", 0.9, 0.1) == 0.0
