"""The labelled pairs of statements match their README: complete, distinct, permanently split, and our own."""

import json
import re
from collections import Counter
from pathlib import Path

import pytest

from tests.bench.conflict_pairs import (
    EVERYDAY,
    FRESH,
    REFERENCES,
    WRITTEN,
    Half,
    Label,
    Outcome,
    Pair,
    half_of,
    load_references,
    load_written,
    read_rows,
)

FILES = (WRITTEN, FRESH, EVERYDAY, REFERENCES)
REFERENCE = re.compile(r"conv-\d+/D\d+:\d+")
KINDS = {
    Label.PARAPHRASE: {"reworded", "near-duplicate", "same-text", "partial-overlap", "cross-language"},
    Label.CONTRADICTION: {
        "negation", "number", "date", "place", "preference", "role", "status", "inference", "older-record", "guessed",
    },
    Label.UNRELATED: {"other-subject", "other-meaning", "several-values", "same-topic", "both-true", "other-topic"},
}  # fmt: skip
HALVES_OF_KNOWN_PAIRS = {
    "p001": Half.REPORTING,
    "p002": Half.CHOOSING,
    "p003": Half.REPORTING,
    "c001": Half.CHOOSING,
    "u001": Half.REPORTING,
    "r001": Half.CHOOSING,
}


@pytest.fixture(scope="module")
def written() -> list[Pair]:
    return load_written()


def test_at_least_340_pairs_are_written_and_60_refer_to_conversations(written: list[Pair]) -> None:
    assert len(written) >= 340
    assert len([*read_rows(REFERENCES)]) >= 60


def test_ids_are_unique_over_all_files() -> None:
    ids = Counter(row["id"] for file in FILES for row in read_rows(file))
    assert [pair_id for pair_id, count in ids.items() if count > 1] == []


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_every_kind_belongs_to_its_label(file: Path) -> None:
    strangers = [row["id"] for row in read_rows(file) if row["kind"] not in KINDS[Label(row["label"])]]
    assert strangers == []


def test_every_kind_of_the_readme_is_written_and_explained(written: list[Pair]) -> None:
    kinds = {pair.kind for pair in (*written, *load_written(EVERYDAY))}
    assert kinds == set().union(*KINDS.values())
    readme = (WRITTEN.parent / "README.md").read_text(encoding="utf-8")
    assert [kind for kind in kinds if f"`{kind}`" not in readme] == []


def test_the_readme_counts_the_pairs() -> None:
    readme = (WRITTEN.parent / "README.md").read_text(encoding="utf-8")
    assert f"{len([*read_rows(WRITTEN)])} pairs of statements" in readme
    assert f"{len([*read_rows(REFERENCES)])} further pairs" in readme
    assert f"{len([*read_rows(FRESH)])} pairs like these" in readme
    assert f"{len([*read_rows(EVERYDAY)])} pairs of what people" in readme


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_no_two_pairs_are_equal_or_reversed(file: Path) -> None:
    pairs = Counter(frozenset((row["left"], row["right"])) for row in read_rows(file))
    assert [set(pair) for pair, count in pairs.items() if count > 1] == []


def test_no_two_written_pairs_differ_only_in_order_or_case(written: list[Pair]) -> None:
    said = Counter(_words(pair.left.content + " " + pair.right.content) for pair in written)
    assert [sorted(words) for words, count in said.items() if count > 1] == []


@pytest.mark.parametrize("label", Label)
@pytest.mark.parametrize("half", Half)
def test_each_half_holds_enough_of_every_label(written: list[Pair], half: Half, label: Label) -> None:
    assert sum(pair.half is half and pair.label is label for pair in written) >= 45


def test_a_pair_stays_in_its_half() -> None:
    assert {pair_id: half_of(pair_id) for pair_id in HALVES_OF_KNOWN_PAIRS} == HALVES_OF_KNOWN_PAIRS


def test_other_languages_are_in_the_set(written: list[Pair]) -> None:
    languages = Counter(pair.language for pair in written)
    assert languages["de"] >= 15
    assert languages["zh"] + languages["ja"] >= 20


def test_the_expected_result_agrees_with_the_label(written: list[Pair]) -> None:
    expected = {label: [pair.expected for pair in written if pair.label is label and pair.expected] for label in Label}
    assert set(expected[Label.UNRELATED]) == {frozenset({Outcome.BOTH})}
    assert set(expected[Label.CONTRADICTION]) == {frozenset({Outcome.LEFT}), frozenset({Outcome.RIGHT})}
    assert not any(Outcome.BOTH in outcomes for outcomes in expected[Label.PARAPHRASE])
    assert min(map(len, expected.values())) >= 40


def test_the_newer_side_of_a_contradiction_is_expected_unless_it_is_a_guess_or_weaker(written: list[Pair]) -> None:
    exceptions = [pair.kind for pair in written if pair.label is Label.CONTRADICTION and not _expects_the_newer(pair)]
    assert set(exceptions) == {"guessed", "inference"}
    assert exceptions.count("inference") == 1


def test_references_hold_ids_and_no_text_of_the_conversations() -> None:
    allowed = {"id", "label", "kind", "language", "left", "right", "expected"}
    for row in read_rows(REFERENCES):
        assert row.keys() == allowed
        assert REFERENCE.fullmatch(row["left"]) and REFERENCE.fullmatch(row["right"])
        assert row["left"].partition("/")[0] == row["right"].partition("/")[0]


def test_references_become_statements_with_the_time_of_their_session(tmp_path: Path) -> None:
    turn = {"session": 1, "speaker": "Ada", "time": "1:56 pm on 8 May, 2023"}
    turns = [{**turn, "id": "D1:1", "text": "I row."}, {**turn, "id": "D2:1", "text": "I row on Sundays."}]
    (tmp_path / "conv-1.json").write_text(json.dumps({"id": "conv-1", "turns": turns, "questions": []}))
    references = tmp_path / "references.jsonl"
    row = {"id": "x1", "label": "paraphrase", "kind": "partial-overlap", "language": "en", "expected": ["merged"]}
    references.write_text(json.dumps({**row, "left": "conv-1/D1:1", "right": "conv-1/D2:1"}))

    (pair,) = load_references(tmp_path, references)

    assert (pair.left.content, pair.right.content) == ("I row.", "I row on Sundays.")
    assert pair.left.create_time is not None
    assert pair.left.create_time.isoformat() == "2023-05-08T13:56:00+00:00"
    assert pair.expected == {Outcome.MERGED}


def test_a_folder_without_conversations_gives_no_references(tmp_path: Path) -> None:
    assert load_references(tmp_path) == []


def _words(text: str) -> frozenset[str]:
    return frozenset(re.findall(r"\w+", text.lower()))


def _expects_the_newer(pair: Pair) -> bool:
    if not pair.expected or pair.left.create_time is None or pair.right.create_time is None:
        return True
    newer = Outcome.RIGHT if pair.right.create_time > pair.left.create_time else Outcome.LEFT
    return pair.expected == {newer}
