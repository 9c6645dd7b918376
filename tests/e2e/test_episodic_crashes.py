"""The short form of the trial that kills the server while events are recorded, pruned and expire."""

from pathlib import Path

import pytest

from tests.support.episodic_crashing import EpisodicTrial


def test_kill_9_loses_and_duplicates_no_event_and_statements_agree_with_the_timeline(tmp_path: Path) -> None:
    trial = EpisodicTrial(tmp_path, seed=5)
    try:
        trial.run(2, lambda _: None)
    finally:
        trial.server.kill()
    assert trial.acknowledged > 50


@pytest.mark.slow
@pytest.mark.timeout(1_800)
def test_two_hundred_kills_lose_and_duplicate_no_event(tmp_path: Path) -> None:
    trial = EpisodicTrial(tmp_path, seed=6)
    try:
        trial.run(200, lambda _: None)
    finally:
        trial.server.kill()
