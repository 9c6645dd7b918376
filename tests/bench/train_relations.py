"""Trains the relation model of `services/conflicts/signals.py` and writes its weights.

    python -m tests.bench.train_relations [--out FILE] [--model NAME]

Trains on the choosing half of the written pairs, on pairs from templates, and on strangers: statements of different
written pairs with similar vectors, which are unrelated. Prints how well that does on pairs that were left out, with a
penalty that was chosen without them (nested cross-validation). The reporting half is not used.
"""

import json
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import click
import numpy as np
from mnemon_server.domain.conflicts import DetectionConfig, RelationType
from mnemon_server.services.conflicts.relation_features import FEATURES, features, read
from mnemon_server.services.conflicts.signals import WEIGHTS_FILE, RelationModel
from numpy.typing import NDArray

from tests.bench.classification import Answers
from tests.bench.conflict_pairs import EVERYDAY, WRITTEN, Half, Pair, load_written
from tests.bench.conflict_trials import open_embedder
from tests.bench.relation_templates import generate

Floats = NDArray[np.float64]
Vectors = Mapping[str, NDArray[np.float32]]

TEMPLATE_WEIGHT = 0.25
"""What a pair from templates counts, against 1 for a written one."""
UNRELATED_TEMPLATE_WEIGHT = TEMPLATE_WEIGHT / 3
"""The weight of an unrelated pair, since they outnumber all others."""
STRANGERS, STRANGER_WEIGHT = 6, 0.05
"""How many of the most similar strangers of each statement are taken, and what each counts."""
RIDGES = (1.0, 3.0, 10.0)
"""Penalties of the squared weights, for features of unit variance."""
PRECISION_MIN = 0.85
"""What the threshold must reach on pairs that were left out. The lowest such threshold finds most."""
THRESHOLDS = tuple(step / 20 for step in range(4, 20))
FOLDS, INNER_FOLDS, SEED, STEPS_MAX = 10, 5, 1, 100
_TYPES = tuple(RelationType)
_UNRELATED = _TYPES.index(RelationType.UNRELATED)


@dataclass(frozen=True, slots=True)
class Examples:
    """Rows of features, the place of each right answer in RelationType, and what each row counts."""

    inputs: Floats
    answers: NDArray[np.int64]
    shares: Floats
    owners: NDArray[np.int64]
    """The numbers of the one or two written pairs that a row is made of, in the shape (rows, 2); -1 for none."""

    def only(self, rows: NDArray[np.int64] | NDArray[np.bool_]) -> "Examples":
        """These rows."""
        return Examples(*(getattr(self, name)[rows] for name in self.__slots__))

    def without(self, pairs: NDArray[np.int64]) -> "Examples":
        """The rows that are not made of these pairs."""
        return self.only(~np.isin(self.owners, pairs).any(axis=1))

    def joined(self, other: "Examples") -> "Examples":
        """These and others."""
        return Examples(*(np.concatenate([getattr(self, name), getattr(other, name)]) for name in self.__slots__))


def train(examples: Examples, ridge: float) -> RelationModel:
    """A softmax regression with a ridge penalty, by Newton's method."""
    means, deviations = examples.inputs.mean(axis=0), examples.inputs.std(axis=0) + 1e-9
    inputs = np.column_stack([(examples.inputs - means) / deviations, np.ones(len(examples.inputs))])
    weights = _fit(inputs, np.eye(len(_TYPES))[examples.answers], examples.shares, ridge)
    scaled = weights[:-1] / deviations[:, None]
    return RelationModel(np.vstack([scaled, weights[-1] - means @ scaled]))


def _fit(inputs: Floats, right: Floats, shares: Floats, ridge: float) -> Floats:
    width, types = inputs.shape[1], right.shape[1]
    # The tiny penalty of the intercept makes the solution unique.
    penalties = np.append(np.full(width - 1, ridge), 1e-6)
    weights = np.zeros((width, types))
    for _ in range(STEPS_MAX):
        likely = RelationModel(np.vstack([weights, np.zeros(types)])).probabilities(inputs)
        gradient = inputs.T @ (shares[:, None] * (likely - right)) + penalties[:, None] * weights
        # By blocks of types; the weights of a type are beside each other.
        blocks = [
            [(inputs.T * (shares * likely[:, i] * ((i == j) - likely[:, j]))) @ inputs for j in range(types)]
            for i in range(types)
        ]
        curvature = np.block(blocks) + np.diag(np.tile(penalties, types))
        step = np.linalg.solve(curvature, gradient.T.ravel()).reshape(types, width).T
        weights -= step
        if np.abs(step).max() < 1e-6:
            return weights
    raise ValueError("the regression does not converge")


def left_out(examples: Examples, extra: Examples, ridge: float, folds: int, random: np.random.Generator) -> Floats:
    """The probabilities of each example's types by a model that was trained without it."""
    fold = random.permutation(len(examples.answers)) % folds
    found = np.zeros((len(examples.answers), len(_TYPES)))
    for number in range(folds):
        out = fold == number
        rest = examples.joined(extra).without(examples.owners[out, 0])
        found[out] = train(rest, ridge).probabilities(examples.inputs[out])
    return found


def choose(examples: Examples, extra: Examples, folds: int, random: np.random.Generator) -> float:
    """The penalty with which the right types of pairs that were left out are likeliest."""

    def surprise(ridge: float) -> float:
        likely = left_out(examples, extra, ridge, folds, random)
        return -float(np.log(likely[np.arange(len(likely)), examples.answers]).sum())

    return min(RIDGES, key=surprise)


def nested(examples: Examples, extra: Examples, random: np.random.Generator) -> Floats:
    """The probabilities of each example's types by a model that was trained, and its penalty chosen, without it."""
    fold = random.permutation(len(examples.answers)) % FOLDS
    found = np.zeros((len(fold), len(_TYPES)))
    for number in range(FOLDS):
        tested = fold == number
        rest, others = (each.without(examples.owners[tested, 0]) for each in (examples, extra))
        ridge = choose(rest, others, INNER_FOLDS, random)
        found[tested] = train(rest.joined(others), ridge).probabilities(examples.inputs[tested])
    return found


def describe(likely: Floats, answers: NDArray[np.int64]) -> str:
    """How well conflicts are found at the default threshold, and how often a related pair has the right type."""
    related = answers != _UNRELATED
    said = 1 - likely[:, _UNRELATED] > DetectionConfig().relation_threshold
    found = Answers.of(zip(said.tolist(), related.tolist(), strict=True))
    types = np.delete(likely, _UNRELATED, axis=1).argmax(axis=1)
    right = (types == answers)[related]
    return f"precision {found.precision}, recall {found.recall}, right type of related pairs {right.mean():.2f}"


def choose_threshold(likely: Floats, answers: NDArray[np.int64]) -> float:
    """The lowest threshold with a precision of `PRECISION_MIN`; `DetectionConfig` has it as its default."""
    said, related = 1 - likely[:, _UNRELATED], answers != _UNRELATED
    return next(bound for bound in THRESHOLDS if related[said > bound].mean() >= PRECISION_MIN)


def examples_of(
    pairs: Sequence[tuple[str, str, RelationType]], share: float, vectors: Vectors, owners: Sequence[tuple[int, int]]
) -> Examples:
    """The features of texts with labels, the vectors of the texts, and the owners of each pair."""
    rows = [features(read(left), read(right), float(vectors[left] @ vectors[right])) for left, right, _ in pairs]
    answers = np.array([_TYPES.index(relation) for *_, relation in pairs])
    return Examples(np.array(rows), answers, np.full(len(rows), share), np.array(owners))


def strangers_of(pairs: Sequence[Pair], vectors: Vectors) -> Examples:
    """Statements of different pairs, each with the STRANGERS most similar ones."""
    texts = [(side.content, number) for number, pair in enumerate(pairs) for side in (pair.left, pair.right)]
    stacked, numbers = np.array([vectors[text] for text, _ in texts]), np.array([number for _, number in texts])
    cosines = np.where(numbers[:, None] == numbers, -1.0, stacked @ stacked.T)
    nearest = np.argsort(-cosines, axis=1, kind="stable")[:, :STRANGERS].tolist()
    chosen = sorted({(min(one, other), max(one, other)) for one, others in enumerate(nearest) for other in others})
    found = [(texts[one][0], texts[other][0], RelationType.UNRELATED) for one, other in chosen]
    return examples_of(found, STRANGER_WEIGHT, vectors, [(texts[one][1], texts[other][1]) for one, other in chosen])


def write_weights(model: RelationModel, path: Path) -> None:
    """Writes the file that `default_relations` reads."""
    names = (*FEATURES, "intercept")
    table = {
        type_: dict(zip(names, (round(float(value), 3) for value in column), strict=True))
        for type_, column in zip(_TYPES, model.weights.T, strict=True)
    }
    path.write_text(json.dumps(table, indent=2) + "\n", encoding="utf-8")


@click.command()
@click.option("--out", type=click.Path(path_type=Path), default=WEIGHTS_FILE, help="File of the weights.")
@click.option("--model", help="The embedding model; by default the server's.")
def main(out: Path, model: str | None) -> None:
    """Trains on the choosing half and on templates."""
    written = [pair for file in (WRITTEN, EVERYDAY) for pair in load_written(file) if pair.half is Half.CHOOSING]
    labelled = [(pair.left.content, pair.right.content, pair.relation) for pair in written]
    templates = [(pair.left, pair.right, pair.relation) for pair in generate()]
    with closing(open_embedder(model)) as embedder:
        texts = sorted({text for left, right, _ in (*labelled, *templates) for text in (left, right)})
        vectors = {text: embedder.embed([text])[0] for text in texts}
    examples = examples_of(labelled, 1.0, vectors, [(number, -1) for number in range(len(labelled))])
    strangers = strangers_of(written, vectors)
    made = examples_of(templates, TEMPLATE_WEIGHT, vectors, [(-1, -1)] * len(templates))
    made.shares[made.answers == _UNRELATED] = UNRELATED_TEMPLATE_WEIGHT
    extra = made.joined(strangers)
    random = np.random.default_rng(SEED)
    click.echo(f"{len(written)} written pairs, {len(templates)} from templates, {len(strangers.answers)} strangers")
    likely = nested(examples, extra, random)
    click.echo(f"threshold: {choose_threshold(likely, examples.answers):g}")
    click.echo(f"on pairs left out: {describe(likely, examples.answers)}")
    ridge = choose(examples, extra, FOLDS, random)
    click.echo(f"penalty: {ridge:g}")
    write_weights(train(examples.joined(extra), ridge), out)
    click.echo(f"{out.name}: {out.stat().st_size} bytes")


if __name__ == "__main__":
    main()
