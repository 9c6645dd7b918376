"""The training of the relation model: what it learns, and that it is the same each time."""

from pathlib import Path

import numpy as np
from mnemon_server.domain.conflicts import RelationType
from mnemon_server.services.conflicts.relation_features import FEATURES

from tests.bench.conflict_pairs import load_written
from tests.bench.relation_templates import generate
from tests.bench.train_relations import Examples, choose_threshold, nested, train, write_weights

TYPES = tuple(RelationType)


def _examples(seed: int) -> Examples:
    """Two features tell the type, the others are noise."""
    random = np.random.default_rng(seed)
    answers = np.arange(120) % len(TYPES)
    inputs = random.random((len(answers), len(FEATURES)))
    inputs[:, 0], inputs[:, 1] = answers // 2, answers % 2
    owners = np.column_stack([np.arange(len(answers)), np.full(len(answers), -1)])
    return Examples(inputs, answers, np.ones(len(answers)), owners)


def test_the_model_learns_what_tells_the_types_apart() -> None:
    examples = _examples(1)
    likely = train(examples, 1.0).probabilities(_examples(2).inputs)
    assert (likely.argmax(axis=1) == examples.answers).all()
    assert np.allclose(likely.sum(axis=1), 1.0)


def test_what_counts_nothing_changes_nothing() -> None:
    examples = _examples(1)
    misleading = Examples(examples.inputs, examples.answers[::-1], np.zeros(len(examples.answers)), examples.owners)
    joined = train(examples.joined(misleading), 1.0).probabilities(examples.inputs)
    assert (joined.argmax(axis=1) == examples.answers).all()


def test_pairs_that_were_left_out_do_not_train() -> None:
    examples = _examples(1)
    rest = examples.without(np.arange(30))
    assert rest.owners[:, 0].tolist() == list(range(30, 120))
    # The types are told by the features, so also for pairs that nothing was learnt from.
    likely = nested(examples, rest.only(np.zeros(0, np.int64)), np.random.default_rng(3))
    assert (likely.argmax(axis=1) == examples.answers).mean() > 0.95


def test_the_threshold_is_the_lowest_that_is_precise_enough() -> None:
    related, unrelated = TYPES.index(RelationType.SAME), TYPES.index(RelationType.UNRELATED)
    # From the likeliest to be related: six that are, one that is not, one that is, and more that are not.
    answers = np.array([related] * 6 + [unrelated, related] + [unrelated] * 4)
    said = np.array([0.9] * 6 + [0.62, 0.57, 0.52, 0.42, 0.32, 0.22])
    likely = np.zeros((len(said), len(TYPES)))
    likely[:, related], likely[:, unrelated] = said, 1 - said
    # Above 0.55, seven of eight are right; above 0.5, seven of nine.
    assert choose_threshold(likely, answers) == 0.55


def test_the_same_examples_give_the_same_file(tmp_path: Path) -> None:
    for name in ("one", "other"):
        write_weights(train(_examples(1), 3.0), tmp_path / name)
    assert (tmp_path / "one").read_bytes() == (tmp_path / "other").read_bytes()


def test_templates_are_the_same_each_time_and_share_no_statement_with_the_labelled_pairs() -> None:
    generated = list(generate())
    assert generated == list(generate())
    assert {pair.relation for pair in generated} == set(RelationType)
    labelled = {side.content for pair in load_written() for side in (pair.left, pair.right)}
    assert not labelled & {text for pair in generated for text in (pair.left, pair.right)}
