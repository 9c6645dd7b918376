"""Precision, recall and their intervals, compared with values computed by hand."""

import math

import pytest

from tests.bench.classification import Answers, Share


def test_precision_and_recall_are_fractions_of_the_predicted_and_of_the_actual_positives() -> None:
    said = [(True, True)] * 3 + [(True, False)] + [(False, True)] * 2 + [(False, False)] * 4
    answers = Answers.of(said)
    assert (answers.precision.count, answers.precision.of) == (3, 4)
    assert (answers.recall.count, answers.recall.of) == (3, 5)
    assert answers.true_negatives == 4
    assert answers.f1 == pytest.approx(2 * 0.75 * 0.6 / (0.75 + 0.6))


def test_the_interval_is_wilsons() -> None:
    # (p + z²/2n ± z sqrt(p(1-p)/n + z²/4n²)) / (1 + z²/n) with p = 0.8, n = 10, z = 1.96: (0.992 ± 0.3136) / 1.38416
    low, high = Share(8, 10).interval
    assert (low, high) == pytest.approx((0.4902, 0.9433), abs=1e-4)


def test_the_interval_stays_between_0_and_1_at_both_ends() -> None:
    assert Share(0, 10).interval == pytest.approx((0.0, 0.2775), abs=1e-4)
    assert Share(10, 10).interval == pytest.approx((0.7225, 1.0), abs=1e-4)


def test_without_data_there_is_no_value() -> None:
    nothing = Answers.of([(False, False)])
    assert math.isnan(nothing.precision.value) and math.isnan(nothing.recall.value)
    assert str(nothing.recall) == "none"
    assert nothing.f1 == 0.0
