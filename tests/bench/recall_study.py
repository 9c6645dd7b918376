"""The effect of context and reranking, chosen on some conversations and reported on the others.

    python -m tests.bench.recall_study DATA [--shuffle] [--json]

One server after the other runs over the same records with different settings. The weight of the context and the
ranker's weights are chosen on every two and every three of the conversations. The results on the others are averaged
for each question, so that every conversation is reported without having been used for the choice.
"""

import json
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from pathlib import Path

import click
import numpy as np
from mnemon import Client, Scope, SearchMode, View
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table

from tests.bench.conversations import Conversation, load_conversations
from tests.bench.metrics import METRICS, Estimate, estimate, measure
from tests.bench.serving import serving
from tests.bench.train_ranker import UNRANKED, Asked, ask, index, measure_ranker, train, turn_id

CONTEXT_WEIGHTS = (0.0, 0.25, 0.5, 0.75, 1.0)
DEFAULT_WEIGHT = 0.75
CHOSEN_ON = (2, 3)
CHOSEN_BY = METRICS.index("recall@10")
DEPTH = 20
SETTING = "MNEMON_SEARCH_CONTEXT_WEIGHT"
FUSION = "MNEMON_FUSION"
FUSIONS = {"weighted": "hybrid, scores scaled query by query", "rrf": "hybrid, ranks fused"}
"""Labels of those that are not the default."""

Values = NDArray[np.float64]
"""METRICS of the questions of a conversation, of shape (questions, metrics)."""


@dataclass(frozen=True, slots=True)
class Row:
    """One search method: intervals over conversations, and of recall@10 over questions."""

    name: str
    estimates: dict[str, Estimate]
    over_questions: Estimate


@dataclass(frozen=True, slots=True)
class Study:
    """Everything measured in one order of the turns."""

    rows: list[Row]
    chosen_weights: dict[str, int]
    """How often each weight of the context was chosen."""


def run(conversations: Sequence[Conversation], folder: Path | None = None) -> Study:
    """Indexes once, unless `folder` already holds the index, and searches with all settings."""
    rows: dict[str, list[Values]] = {}
    asked: dict[float, list[list[Asked]]] = {}
    with tempfile.TemporaryDirectory(prefix="mnemon-study-") as name:
        folder = folder or Path(name)
        with serving(folder=folder) as client:
            index(client, conversations)
            rows["vector"] = [_measure_mode(client, each, SearchMode.VECTOR) for each in conversations]
        for weight in CONTEXT_WEIGHTS:
            with serving(folder=folder, settings=UNRANKED | {SETTING: str(weight)}) as client:
                asked[weight] = [ask(client, each) for each in conversations]
                if weight in (0.0, DEFAULT_WEIGHT):
                    label = "keyword" if weight else "keyword, each record alone"
                    rows[label] = [_measure_mode(client, each, SearchMode.KEYWORD) for each in conversations]
        for fusion, label in FUSIONS.items():
            with serving(folder=folder, settings=UNRANKED | {FUSION: fusion}) as client:
                rows[label] = [_measure_mode(client, each, SearchMode.HYBRID) for each in conversations]
        with serving(folder=folder) as client:
            reranked = [_measure_mode(client, each, SearchMode.HYBRID) for each in conversations]
    return _summarize(rows, asked, reranked)


def _summarize(rows: dict[str, list[Values]], asked: dict[float, list[list[Asked]]], reranked: list[Values]) -> Study:
    by_weight = {weight: [np.array(_measure_asked(each)) for each in groups] for weight, groups in asked.items()}
    default = asked[DEFAULT_WEIGHT]
    chosen: dict[str, int] = {}

    def best_weight(parts: Sequence[int]) -> list[Values]:
        weight = max(CONTEXT_WEIGHTS, key=lambda each: _mean([by_weight[each][part] for part in parts]))
        chosen[str(weight)] = chosen.get(str(weight), 0) + 1
        return by_weight[weight]

    def trained(parts: Sequence[int]) -> list[Values]:
        ranker = train([each for part in parts for each in default[part]])
        return [np.array(measure_ranker(ranker, each)) for each in default]

    return Study(
        rows=[
            *(_row(name, values) for name, values in rows.items()),
            _row("hybrid, each record alone", by_weight[0.0]),
            _row("hybrid, not reranked", by_weight[DEFAULT_WEIGHT]),
            _row("hybrid, not reranked, context chosen on others", _on_others(len(default), best_weight)),
            _row("hybrid, ranker trained on others", _on_others(len(default), trained)),
            _row("hybrid: the default", reranked),
        ],
        chosen_weights=chosen,
    )


def _on_others(count: int, choose: Callable[[Sequence[int]], list[Values]]) -> list[Values]:
    """Values for each conversation, averaged over all choices on two or three others."""
    reported: list[list[Values]] = [[] for _ in range(count)]
    for size in CHOSEN_ON:
        for parts in combinations(range(count), size):
            values = choose(parts)
            for part in set(range(count)) - set(parts):
                reported[part].append(values[part])
    return [np.mean(values, axis=0) for values in reported]


def _measure_mode(client: Client, conversation: Conversation, mode: SearchMode) -> Values:
    scope = Scope(project=conversation.id)
    values = []
    for question in conversation.questions:
        answer = client.documents.search(question.text, limit=DEPTH, scope=scope, mode=mode, view=View.IDS)
        relevant = {turn_id(conversation, turn) for turn in question.evidence}
        values.append(measure([result.doc_id for result in answer], relevant))
    return np.array(values)


def _measure_asked(asked: Sequence[Asked]) -> list[tuple[float, ...]]:
    return [measure(each.doc_ids, each.relevant) for each in asked]


def _mean(values: Sequence[Values]) -> float:
    return float(np.concatenate(values)[:, CHOSEN_BY].mean())


def _row(name: str, values: Sequence[Values]) -> Row:
    by_conversation = [[tuple(row) for row in part.tolist()] for part in values]
    by_question = [[row] for part in by_conversation for row in part]
    return Row(name, estimate(by_conversation), estimate(by_question)["recall@10"])


def shuffled(conversations: Sequence[Conversation], seed: int) -> list[Conversation]:
    """The conversations with their turns in random order."""
    rng = np.random.default_rng(seed)
    return [
        replace(each, turns=tuple(each.turns[i] for i in rng.permutation(len(each.turns)))) for each in conversations
    ]


def print_study(title: str, study: Study) -> None:
    """The table for people."""
    console = Console(width=150)
    table = Table("search", *METRICS, "recall@10, over questions", title=title)
    for row in study.rows:
        interval = f"[{row.over_questions.low:.3f}, {row.over_questions.high:.3f}]"
        table.add_row(row.name, *(str(row.estimates[metric]) for metric in METRICS), interval)
    console.print(table, markup=False)
    console.print(f"context chosen: {study.chosen_weights}", markup=False, highlight=False)


@click.command()
@click.argument("data", type=click.Path(path_type=Path))
@click.option("--shuffle", is_flag=True, help="With the turns in random order, where neighbours mean nothing.")
@click.option("--seed", default=7, show_default=True, help="Seed of that order.")
@click.option("--folder", type=click.Path(path_type=Path), help="Keeps the records here, and takes those that are.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def main(data: Path, *, shuffle: bool, seed: int, folder: Path | None, as_json: bool) -> None:
    """Studies the conversations of the folder DATA."""
    conversations = load_conversations(data)
    if len(conversations) <= max(CHOSEN_ON):
        click.echo(f"skipped: {data} holds {len(conversations)} conversations; more than {max(CHOSEN_ON)} are needed")
        return
    study = run(shuffled(conversations, seed) if shuffle else conversations, folder)
    if as_json:
        rows = {row.name: {name: str(value) for name, value in row.estimates.items()} for row in study.rows}
        click.echo(json.dumps({"rows": rows, "chosen": study.chosen_weights}, indent=2))
    else:
        print_study("turns in random order" if shuffle else "turns in order", study)


if __name__ == "__main__":
    main()
