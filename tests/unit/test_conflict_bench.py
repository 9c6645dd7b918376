"""The conflict benchmark: its results for pairs worked out by hand, and its command from end to end."""

import re
from datetime import UTC, datetime, timedelta
from pathlib import Path

from click.testing import CliRunner, Result
from mnemon_server.domain.conflicts import ArbitrationConfig, DetectionConfig, SignalType
from mnemon_server.domain.records import Scope
from mnemon_server.domain.semantic import SemanticMemory
from mnemon_server.embedding.factory import HashingEmbedder

from tests.bench.conflict_pairs import Half, Label, Outcome, Pair, half_of, load_written
from tests.bench.conflict_report import Thresholds, choose, report
from tests.bench.conflict_trials import Trial, detection_answers, only, run_trials
from tests.bench.conflicts import main

NOON = datetime(2025, 5, 1, 12, tzinfo=UTC)
LATER = timedelta(days=3)
SEMANTIC, KEYWORD = SignalType.SEMANTIC, SignalType.KEYWORD


def _memory(content: str, time: datetime | None = NOON) -> SemanticMemory:
    return SemanticMemory(memory_id="", content=content, scope=Scope(user="somebody"), create_time=time)


def _pair(left: str, right: str, label: Label = Label.PARAPHRASE, *, id: str = "x", delta: timedelta = LATER) -> Pair:  # noqa: A002
    return Pair(id, label, "reworded", "en", _memory(left), _memory(right, NOON + delta), frozenset())


def _trial(left: str, right: str, *, delta: timedelta = LATER) -> Trial:
    [trial] = run_trials([_pair(left, right, delta=delta)], HashingEmbedder())
    return trial


def _outcome(trial: Trial) -> Outcome:
    return trial.outcome(DetectionConfig(), ArbitrationConfig())


def test_the_same_normalised_words_keep_the_known_statement() -> None:
    trial = _trial("Likes tea.", "  Likes  tea. ")
    assert trial.is_duplicate
    assert _outcome(trial) is Outcome.LEFT


def test_a_conflict_keeps_the_newer_statement_whichever_came_first() -> None:
    assert _outcome(_trial("Lives in Oslo.", "Lives in Bergen.")) is Outcome.RIGHT
    assert _outcome(_trial("Lives in Oslo.", "Lives in Bergen.", delta=-LATER)) is Outcome.LEFT


def test_statements_of_the_same_time_are_merged() -> None:
    assert _outcome(_trial("Lives in Oslo.", "Lives in Bergen.", delta=timedelta())) is Outcome.MERGED


def test_without_a_conflict_both_are_kept() -> None:
    assert _outcome(_trial("Likes green tea.", "Runs every morning.")) is Outcome.BOTH


def test_a_sentence_in_both_statements_is_left_out() -> None:
    assert _trial("Eats no fish. Rows on Sundays.", "Eats no fish. Sings.").drops_a_sentence(0.8, guard=True)
    assert not _trial("Rows on Sundays.", "Sings in a choir.").drops_a_sentence(0.8, guard=True)


def test_each_signal_is_measured_alone_at_the_given_threshold() -> None:
    # Terms: walks, dog, daily against walks, cat, daily: 2 of 3 are shared.
    trial = _trial("Walks the dog daily.", "Walks the cat daily too.")
    assert trial.fires(only(KEYWORD, keyword=0.66))
    assert not trial.fires(only(KEYWORD, keyword=0.68))
    assert not trial.fires(only(SEMANTIC, semantic=1.0))


def test_a_conflict_is_right_only_for_paraphrases_and_contradictions() -> None:
    pairs = [
        _pair("Likes green tea.", "Likes black tea.", Label.CONTRADICTION),
        _pair("Owns a red car.", "Owns a red car now.", Label.PARAPHRASE),
        _pair("His mother swims.", "His mother swims well.", Label.UNRELATED),
        _pair("Sings.", "Rows on Sundays.", Label.PARAPHRASE),
    ]
    answers = detection_answers(run_trials(pairs, HashingEmbedder()), only(KEYWORD))
    assert (answers.true_positives, answers.false_positives, answers.false_negatives) == (2, 1, 1)


def test_thresholds_are_chosen_only_by_the_choosing_half() -> None:
    near = [_pair("Walks the dog daily.", "Walks the cat daily too.", id=name) for name in _ids(Half.CHOOSING)]
    farther = [_pair("Walks the dog daily.", "Walks the cat twice today.", id=name) for name in _ids(Half.REPORTING)]

    # All near pairs share 2 of 3 terms. The other pairs are found only at half of their terms.
    assert choose(run_trials([*near, *farther], HashingEmbedder())) == Thresholds(semantic=0.95, keyword=0.65)


def test_tables_name_their_figures_for_both_halves() -> None:
    trials = run_trials(load_written()[:40], HashingEmbedder())
    for table in report(trials, Thresholds(0.7, 0.7)):
        assert {len(row) for row in table.rows} == {len(table.header)}, table.title
        assert re.fullmatch(r"### .+\n\n.+\n\n(\|.+\|\n)+", table.markdown())


def test_the_command_prints_every_table_and_draws_the_curves(tmp_path: Path) -> None:
    plot = tmp_path / "curves.svg"
    result = _run("--limit", "6", "--plot", str(plot))

    titles = re.findall(r"^### (.+)$", result.output, re.MULTILINE)
    assert titles[:4] == ["Detection", "Conflicts found, by kind", "De-duplication", "Decisions"]
    assert "36 pairs; choosing: 6 paraphrase, 6 contradiction, 6 unrelated; reporting: 6" in result.output
    assert plot.read_text(encoding="utf-8").count("precision, reporting") >= 1


def test_the_same_pairs_give_the_same_output_and_picture(tmp_path: Path) -> None:
    pictures = [tmp_path / "first.svg", tmp_path / "second.svg"]
    tables = [_run("--limit", "6", "--plot", str(picture)).output.partition("## ")[2] for picture in pictures]
    assert tables[0] == tables[1]
    assert pictures[0].read_bytes() == pictures[1].read_bytes()


def test_a_folder_without_conversations_is_reported_and_skipped(tmp_path: Path) -> None:
    result = _run("--limit", "2", "--data", str(tmp_path))
    assert "holds no conversations" in result.stderr
    assert "Pairs of conversations" not in result.output


def _run(*arguments: str) -> Result:
    result = CliRunner().invoke(main, ["--model", "hashing", *arguments], catch_exceptions=False)
    assert result.exit_code == 0
    return result


def _ids(half: Half) -> list[str]:
    return [name for name in (f"n{number}" for number in range(100)) if half_of(name) is half][:3]
