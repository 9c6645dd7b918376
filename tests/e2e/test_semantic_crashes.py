"""The server is killed while eight clients settle conflicts: each change is stored as a whole or not at all."""

import os
from pathlib import Path

import pytest

from tests.support.semantic_crashing import SemanticTrial

ROUNDS = int(os.environ.get("MNEMON_CRASH_ROUNDS", "2"))


@pytest.mark.timeout(1_200)
def test_kill_9_during_resolve_merge_and_unmerge_leaves_all_or_nothing(tmp_path: Path) -> None:
    trial = SemanticTrial(tmp_path, seed=23)
    try:
        trial.run(ROUNDS, print)
        assert trial.acknowledged > ROUNDS
    finally:
        trial.server.kill()
