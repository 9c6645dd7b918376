"""The server is killed at random moments while six clients change facts: no acknowledged change is lost."""

import os
from pathlib import Path

import pytest

from tests.support.fact_crashing import FactTrial

ROUNDS = int(os.environ.get("MNEMON_CRASH_ROUNDS", "2"))


@pytest.mark.timeout(1_200)
def test_kill_9_loses_no_acknowledged_fact_and_each_change_has_exactly_one_event(tmp_path: Path) -> None:
    trial = FactTrial(tmp_path, seed=23)
    try:
        trial.run(ROUNDS, print)
        assert trial.acknowledged > ROUNDS
    finally:
        trial.server.kill()
