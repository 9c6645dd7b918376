"""The server is killed at random moments while eight clients change memories: no acknowledged change is lost."""

import os
from pathlib import Path

import pytest

from tests.support.memory_crashing import MemoryTrial

ROUNDS = int(os.environ.get("MNEMON_CRASH_ROUNDS", "2"))


@pytest.mark.timeout(1_200)
def test_kill_9_loses_no_acknowledged_change_and_each_one_has_exactly_one_event(tmp_path: Path) -> None:
    trial = MemoryTrial(tmp_path, seed=17)
    try:
        trial.run(ROUNDS, print)
        assert trial.acknowledged > ROUNDS
    finally:
        trial.server.kill()
