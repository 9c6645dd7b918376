"""Trains the ranker of `services/search/reranking.py` on conversations and writes its weights.

    python -m tests.bench.train_ranker DATA [--on NAME]… [--out FILE]

Trains on the first three conversations by default. The results on the others are printed too.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import click
import numpy as np
from mnemon import Client, Document, Scope, SearchMode, View
from mnemon_server.services.search.reranking import (
    DEPTH,
    FEATURES,
    REACH,
    WEIGHTS_FILE,
    Ranker,
    Turn,
    answering,
    features,
    log_odds,
    reordered,
)
from numpy.typing import NDArray

from tests.bench.conversations import Conversation, Question, load_conversations
from tests.bench.metrics import METRICS, estimate, measure
from tests.bench.serving import serving

Floats = NDArray[np.float64]

TRAINED_ON = 3
RIDGE = 1.0
"""Of the squared weights, for features of unit variance."""
STEPS_MAX = 50
NEAR_CERTAIN = 1e-3
FOUND = 100
"""How many results a search returns. A question that is not among them counts as if it had no score."""
UNRANKED = {"MNEMON_SEARCH_RERANKING": "false"}
"""The setting of a server whose results can be used for training."""


@dataclass(frozen=True, slots=True)
class Asked:
    """A question, the results of a hybrid search that are reranked, best first, and the relevant ones."""

    query: str
    doc_ids: tuple[str, ...]
    turns: tuple[Turn, ...]
    scores: Floats
    relevant: frozenset[str]


def index(client: Client, conversations: Sequence[Conversation]) -> None:
    """Stores every turn as a document in the scope of its conversation, unless that was done before."""
    if client.documents.count():
        return
    documents = [
        Document(turn_id(conversation, turn.id), turn.document, scope=Scope(project=conversation.id))
        for conversation in conversations
        for turn in conversation.turns
    ]
    for result in client.documents.put_many(documents):
        if result.error:
            raise result.error


def turn_id(conversation: Conversation, turn: str) -> str:
    """The document id of a turn."""
    return f"{conversation.id}/{turn}"


def ask(client: Client, conversation: Conversation) -> list[Asked]:
    """Searches for all questions of a conversation on a server with the settings UNRANKED."""
    return [_ask(client, conversation, question) for question in conversation.questions]


def _ask(client: Client, conversation: Conversation, question: Question) -> Asked:
    answer = client.documents.search(
        question.text, limit=FOUND, scope=Scope(project=conversation.id), mode=SearchMode.HYBRID, view=View.IDS
    )
    return judged(conversation, question, {result.doc_id: result.score for result in answer})


def judged(conversation: Conversation, question: Question, scores: Mapping[str, float]) -> Asked:
    """The question with its results: the scores of documents, best first."""
    doc_ids = [turn_id(conversation, each.id) for each in conversation.turns]
    turns = [
        replace(Turn.of(each.document, each.document, {}), score=scores.get(doc_id, 0.0))
        for doc_id, each in zip(doc_ids, conversation.turns, strict=True)
    ]
    found = {
        doc_id: answering(turn, turns[max(i - REACH, 0) : i][::-1])
        for i, (doc_id, turn) in enumerate(zip(doc_ids, turns, strict=True))
    }
    best = tuple(scores)[:DEPTH]
    return Asked(
        query=question.text,
        doc_ids=best,
        turns=tuple(found[doc_id] for doc_id in best),
        scores=np.array([scores[doc_id] for doc_id in best]),
        relevant=frozenset(turn_id(conversation, turn) for turn in question.evidence),
    )


def train(asked: Sequence[Asked]) -> Ranker:
    """A logistic regression of relevance on the score's log-odds, with a fixed weight of 1, and the features.

    Every question has the same weight, however many texts answer it.
    """
    rows = [np.column_stack([_odds(each.scores), features(each.query, each.turns)]) for each in asked]
    relevant = [np.array([doc_id in each.relevant for doc_id in each.doc_ids], np.float64) for each in asked]
    shares = [np.full(len(each.doc_ids), 1 / len(each.relevant)) for each in asked]
    inputs = np.concatenate(rows)
    means, deviations = inputs.mean(axis=0), inputs.std(axis=0) + 1e-9
    fitted = _fit((inputs - means) / deviations, np.concatenate(relevant), np.concatenate(shares)) / deviations
    if fitted[0] <= 0:
        raise ValueError("the scores do not tell what is relevant from the rest")
    return Ranker(fitted[1:] / fitted[0])


def measure_ranker(ranker: Ranker, asked: Sequence[Asked]) -> list[tuple[float, ...]]:
    """METRICS of each question after reranking."""
    values = []
    for each in asked:
        ranking = [
            each.doc_ids[row] for row, _ in reordered(each.scores, ranker.scores(each.query, each.turns, each.scores))
        ]
        values.append(measure(ranking, each.relevant))
    return values


def _odds(scores: Floats) -> Floats:
    return log_odds(np.clip(scores, NEAR_CERTAIN, 1 - NEAR_CERTAIN))


def _fit(inputs: Floats, relevant: Floats, shares: Floats) -> Floats:
    """Weights of a ridge logistic regression, by Newton's method, without the intercept."""
    inputs = np.column_stack([np.ones(len(inputs)), inputs])
    ridge = np.diag([0.0, *[RIDGE] * (inputs.shape[1] - 1)])
    weights = np.zeros(inputs.shape[1])
    for _ in range(STEPS_MAX):
        likely = 1 / (1 + np.exp(-inputs @ weights))
        gradient = inputs.T @ (shares * (relevant - likely)) - ridge @ weights
        curvature = (inputs.T * (shares * likely * (1 - likely))) @ inputs + ridge
        step = np.linalg.solve(curvature, gradient)
        weights += step
        if np.abs(step).max() < 1e-9:
            return weights[1:]
    raise ValueError("the regression does not converge")


def write_weights(ranker: Ranker, path: Path) -> None:
    """Writes the file that `default_ranker` reads."""
    weights = {name: round(float(weight), 4) for name, weight in zip(FEATURES, ranker.weights, strict=True)}
    path.write_text(json.dumps(weights, indent=2) + "\n", encoding="utf-8")


@click.command()
@click.argument("data", type=click.Path(path_type=Path))
@click.option("--on", "names", multiple=True, help="A conversation to train on; by default the first three.")
@click.option("--out", type=click.Path(path_type=Path), default=WEIGHTS_FILE, help="File of the weights.")
@click.option("--folder", type=click.Path(path_type=Path), help="Keeps the records here, and takes those that are.")
def main(data: Path, names: tuple[str, ...], out: Path, folder: Path | None) -> None:
    """Trains on conversations of the folder DATA."""
    conversations = load_conversations(data)
    chosen = names or tuple(conversation.id for conversation in conversations[:TRAINED_ON])
    with serving(folder=folder, settings=UNRANKED) as client:
        index(client, conversations)
        asked = {conversation.id: ask(client, conversation) for conversation in conversations}
    ranker = train([each for name in chosen for each in asked[name]])
    write_weights(ranker, out)
    for what, parts in (("trained on", set(chosen)), ("held out", asked.keys() - set(chosen))):
        if not parts:
            continue
        before = estimate([[measure(each.doc_ids, each.relevant) for each in asked[name]] for name in sorted(parts)])
        after = estimate([measure_ranker(ranker, asked[name]) for name in sorted(parts)])
        click.echo(f"{what}: {', '.join(sorted(parts))}")
        for metric in METRICS:
            click.echo(f"  {metric}: {before[metric]}, reranked {after[metric]}")
    click.echo(f"{out.name}: {out.stat().st_size} bytes")


if __name__ == "__main__":
    main()
