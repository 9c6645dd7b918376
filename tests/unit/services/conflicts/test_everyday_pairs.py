"""The default rule on everyday statements, with the server's own model."""

from contextlib import closing

import pytest
from mnemon_server.domain.conflicts import ArbitrationConfig, DetectionConfig

from tests.bench.conflict_pairs import EVERYDAY, Half, Label, Outcome, load_written
from tests.bench.conflict_trials import Trial, open_embedder, run_trials


@pytest.fixture(scope="module")
def trials() -> list[Trial]:
    with closing(open_embedder()) as embedder:
        return run_trials(load_written(EVERYDAY), embedder)


def _of(trials: list[Trial], half: Half, label: Label) -> list[Trial]:
    return [trial for trial in trials if trial.pair.half is half and trial.pair.label is label]


@pytest.mark.parametrize("half", Half)
def test_statements_that_can_both_be_true_are_kept(trials: list[Trial], half: Half) -> None:
    compatible = _of(trials, half, Label.UNRELATED)
    lost = [trial for trial in compatible if _outcome(trial) is not Outcome.BOTH]
    assert len(lost) <= len(compatible) / 14, [trial.pair.right.content for trial in lost]


@pytest.mark.parametrize("half", Half)
def test_statements_that_contradict_are_resolved_for_the_newer(trials: list[Trial], half: Half) -> None:
    clashing = _of(trials, half, Label.CONTRADICTION)
    resolved = [trial for trial in clashing if _outcome(trial) is Outcome.RIGHT]
    assert len(resolved) >= 0.8 * len(clashing)


def _outcome(trial: Trial) -> Outcome:
    return trial.outcome(DetectionConfig(), ArbitrationConfig())
