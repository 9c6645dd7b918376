"""The server and its index fail at random moments: no acknowledged write is lost."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.chroma_server import ChromaServer
from tests.support.crashing import Trial, drop_collection, kill_server, stop_chroma

ROUNDS = int(os.environ.get("MNEMON_CRASH_ROUNDS", "2"))


@pytest.fixture
def trial(tmp_path: Path) -> Iterator[Trial]:
    with ChromaServer(tmp_path / "chroma" / "data") as chroma:
        trial = Trial(tmp_path, chroma, seed=11)
        yield trial
        trial.server.kill()


@pytest.mark.timeout(600)
def test_kill_9_loses_and_duplicates_no_acknowledged_write(trial: Trial) -> None:
    trial.run(ROUNDS, [kill_server], print)
    assert trial.writes > ROUNDS


@pytest.mark.timeout(600)
def test_the_index_recovers_by_itself_from_any_failure(trial: Trial) -> None:
    trial.run(ROUNDS, [stop_chroma, drop_collection], print)
    assert trial.writes > ROUNDS
