"""The server, its index child and its index files fail at random moments: no acknowledged write is lost."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.crashing import (
    Trial,
    damage_index_files,
    kill_index_child,
    kill_server,
    remove_index_folder,
)

ROUNDS = int(os.environ.get("MNEMON_CRASH_ROUNDS", "2"))


@pytest.fixture
def trial(tmp_path: Path) -> Iterator[Trial]:
    trial = Trial(tmp_path, seed=11)
    yield trial
    trial.server.kill()


@pytest.mark.timeout(600)
def test_kill_9_loses_and_duplicates_no_acknowledged_write(trial: Trial) -> None:
    trial.run(ROUNDS, [kill_server], print)
    assert trial.writes > ROUNDS


@pytest.mark.timeout(600)
def test_the_index_recovers_by_itself_from_any_failure(trial: Trial) -> None:
    trial.run(ROUNDS, [kill_index_child, damage_index_files, remove_index_folder], print)
    assert trial.writes > ROUNDS
