"""The metrics of the recall benchmark, compared with values computed by hand."""

import math

import numpy as np
import pytest

from tests.bench.exact import ExactSearch
from tests.bench.metrics import estimate, measure, ndcg, recall


def test_recall_is_the_fraction_of_relevant_items_found() -> None:
    assert recall(["a", "b", "c"], {"a", "c", "x", "y"}, 3) == 0.5
    assert recall(["a", "b", "c"], {"c"}, 2) == 0.0


def test_ndcg_is_1_for_the_best_order_and_less_for_a_later_hit() -> None:
    assert ndcg(["a", "b", "c"], {"a", "b"}, 10) == pytest.approx(1)
    assert ndcg(["x", "a"], {"a"}, 10) == pytest.approx(1 / math.log2(3))


def test_means_are_over_questions_and_intervals_over_conversations() -> None:
    found, missed = measure(["a"], {"a"}), measure(["b"], {"a"})
    recall_at_5 = estimate([[found, found, found], [missed]])["recall@5"]
    assert recall_at_5.mean == 0.75
    assert (recall_at_5.low, recall_at_5.high) == (0.0, 1.0)


def test_the_exact_search_ranks_documents_by_their_best_passage() -> None:
    search = ExactSearch({"a": [[0.6, 0.8]], "b": [[0.0, 1.0], [1.0, 0.0]], "c": [[0.8, 0.6]]})
    query = np.array([1.0, 0.0], np.float32)
    assert [doc_id for doc_id, _ in search.rank(query)] == ["b", "c", "a"]
    assert [doc_id for doc_id, _ in search.rank(query, {"a", "c"})] == ["c", "a"]
