"""Vectors that callers give: what is refused, however large or small the numbers are."""

import math

import numpy as np
import pytest
from mnemon_server.services.search.embedded_passages import unit_vector
from mnemon_server.services.writing.writes import vector_violations


@pytest.mark.parametrize("number", [1.0, -1e-200, 5e-324, 1e200, 1.7e308])
def test_a_vector_with_a_direction_is_accepted_whatever_its_length(number: float) -> None:
    assert list(vector_violations([0.0, number, 0.0], 3, "vector")) == []


@pytest.mark.parametrize("number", [1.0, -1e-150, 1e-200, 5e-324, 1e200, 1.7e308])
def test_a_vector_keeps_its_direction_whatever_its_length(number: float) -> None:
    unit = unit_vector([0.0, number, -number])

    np.testing.assert_allclose(unit, np.array([0.0, 1.0, -1.0]) * math.copysign(math.sqrt(0.5), number), rtol=1e-6)


@pytest.mark.parametrize(
    ("vector", "problem"),
    [
        ([1.0, math.nan, 0.0], "finite"),
        ([1.0, math.inf, 0.0], "finite"),
        ([1e200, -math.inf, 0.0], "finite"),
        ([0.0, -0.0, 0.0], "zeros"),
        ([1.0, 2.0], "3 numbers"),
    ],
)
def test_a_vector_without_a_direction_is_refused(vector: list[float], problem: str) -> None:
    [violation] = vector_violations(vector, 3, "vector")

    assert violation.field == "vector"
    assert problem in violation.description
