"""Marks cases of a test that run in `make test-exhaustive` alone."""

from collections.abc import Iterable
from typing import Any

import pytest

COUNT = 6
"""As many cases of one kind lose few of the mutants that all cases find."""


def ordinary(cases: Iterable[Any], count: int = COUNT) -> list[Any]:
    """The cases for `parametrize`, of which `count` always run: the first, the last and some at even distances between.

    All others are marked `exhaustive`. Use it for cases of one kind: each kind needs a case that always runs.
    """
    every = list(cases)
    last = len(every) - 1
    kept = {round(last * place / max(count - 1, 1)) for place in range(count)}
    return [case if place in kept else exhaustive(case) for place, case in enumerate(every)]


def exhaustive(case: Any) -> Any:
    """The case, marked as `exhaustive`."""
    if type(case).__name__ == "ParameterSet":
        return pytest.param(*case.values, id=case.id, marks=[*case.marks, pytest.mark.exhaustive])
    values = case if isinstance(case, tuple) else (case,)
    return pytest.param(*values, marks=pytest.mark.exhaustive)
