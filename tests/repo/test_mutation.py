"""Checks of access control that are left out are noticed: a sample of what `make test-mutation` tries."""

import random
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

from tests.support.mutation import mutants_of, outcome
from tests.support.mutation_scope import EQUIVALENT, TESTS
from tests.support.repository import ROOT

SAMPLE, SEED = 3, 20261124
QUICK = ("domain/access/bounds.py", "domain/access/__init__.py", "domain/access/tenants.py")


def test_what_is_left_out_exists_and_the_tests_of_each_module_do() -> None:
    assert set(EQUIVALENT) <= {mutant.name for module in TESTS for mutant in mutants_of(module)}
    assert [test for tests in TESTS.values() for test in tests if not (ROOT / test).is_file()] == []


def test_checks_that_are_left_out_are_noticed(tmp_path: Path) -> None:
    mutants = [each for module in QUICK for each in mutants_of(module) if each.name not in EQUIVALENT]
    # In a process of its own: this one may have a fork server already, in which the package is imported.
    with ProcessPoolExecutor(1, get_context("spawn")) as process:
        for mutant in random.Random(SEED).sample(mutants, SAMPLE):
            said = process.submit(outcome, mutant, TESTS[mutant.module][:1], tmp_path / "build").result()
            assert said == "caught", mutant.name
