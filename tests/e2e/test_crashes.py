"""The server, its index child and its index files are struck at random moments: nothing acknowledged is lost."""

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
def test_kill_9_loses_and_doubles_no_acknowledged_write(trial: Trial) -> None:
    trial.run(ROUNDS, [kill_server], print)
    assert trial.writes > ROUNDS


@pytest.mark.timeout(600)
def test_whatever_happens_to_the_index_it_comes_back_by_itself(trial: Trial) -> None:
    trial.run(ROUNDS, [kill_index_child, damage_index_files, remove_index_folder], print)
    assert trial.writes > ROUNDS
