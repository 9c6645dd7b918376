"""The recall of searches: every question of every conversation, over gRPC and with an exact search in process.

    python -m tests.bench.recall DATA [--address HOST:PORT] [--json]

Fails if vector search over gRPC does not find what comparing every vector finds.
"""

import json
import sys
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TypeVar

import click
import numpy as np
from mnemon import Client, Document, Scope, SearchMode, View
from numpy.typing import NDArray
from rich.console import Console
from rich.progress import track
from rich.table import Table

from tests.bench.conversations import RENDERING, Conversation, load_conversations
from tests.bench.embedders import bare_embedder
from tests.bench.exact import ExactSearch
from tests.bench.metrics import METRICS, Estimate, estimate, measure, recall
from tests.bench.serving import serving

EXACT = "vector, exact, in process"
DEPTH = 20
SHARES = {"half": 2, "twentieth": 20, "two_hundredth": 200}
"""Metadata keys that deal every document at random into so many equal buckets; a filter keeps bucket 0."""
FILTERED_DEPTH = 10
TOLERANCE = 0.001
ROUNDING = 1e-5

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class FilteredRecall:
    """Vector search with a filter, as means over questions; recall counts the evidence that the filter keeps."""

    key: str
    documents: int
    found: float
    """Share of the exact answer's first ten that is found."""
    questions: int
    recall: float
    exact_recall: float


@dataclass(frozen=True, slots=True)
class Report:
    """Everything measured."""

    documents: int
    questions: int
    model: str
    modes: dict[str, dict[str, Estimate]]
    filtered: list[FilteredRecall]

    @property
    def problems(self) -> list[str]:
        """The differences between vector search over gRPC and exact search."""
        exact, vector = self.modes[EXACT], self.modes[SearchMode.VECTOR.value]
        apart = [
            f"{metric}: {vector[metric].mean:.4f} over gRPC, {exact[metric].mean:.4f} exact"
            for metric in METRICS
            if abs(vector[metric].mean - exact[metric].mean) > TOLERANCE
        ]
        lost = [
            f"filter {each.key}: {each.found:.4f} of the exact answer found, recall {each.recall:.4f} over gRPC, "
            f"{each.exact_recall:.4f} exact"
            for each in self.filtered
            if each.found < 1 - TOLERANCE or abs(each.recall - each.exact_recall) > TOLERANCE
        ]
        return apart + lost


class Measurement:
    """One run against one server."""

    def __init__(self, client: Client, conversations: Sequence[Conversation], *, seed: int) -> None:
        self._client, self._conversations = client, conversations
        self._buckets = _deal(conversations, seed)
        self._console = Console(stderr=True)

    def run(self) -> Report:
        """Indexes, searches and compares."""
        self._index()
        embeddings = self._stored_embeddings()
        model = self._client.documents.status().embedding_model
        with bare_embedder(model) as embedder:
            texts = [text for text, _ in self._questions()]
            # One by one, as the server embeds them: int8 results depend slightly on the other texts of a batch.
            vectors = [embedder.embed([text])[0] for text in self._progress(texts, "embedding questions")]
        exact = ExactSearch(embeddings)
        return Report(
            documents=len(embeddings),
            questions=len(texts),
            model=f"{model.name}, {model.precision}",
            modes=self._modes(embeddings, vectors),
            filtered=[self._filtered(key, exact, vectors) for key in SHARES],
        )

    def _index(self) -> None:
        documents = [
            Document(
                _doc_id(conversation, turn.id),
                turn.document,
                {
                    "conversation": conversation.id,
                    "session": turn.session,
                    "speaker": turn.speaker,
                    "time": turn.time,
                    **self._buckets[_doc_id(conversation, turn.id)],
                },
                scope=_scope(conversation),
            )
            for conversation in self._conversations
            for turn in conversation.turns
        ]
        for result in self._progress(self._client.documents.put_many(documents), "indexing", len(documents)):
            if result.error:
                raise result.error

    def _stored_embeddings(self) -> dict[str, Sequence[Sequence[float]]]:
        return {
            document.doc_id: document.embeddings
            for conversation in self._progress(self._conversations, "reading vectors")
            for document in self._client.documents.list(
                scope=_scope(conversation), view=View.FULL, page_size=1_000, timeout=300.0
            )
        }

    def _modes(
        self, embeddings: dict[str, Sequence[Sequence[float]]], vectors: Sequence[NDArray[np.float32]]
    ) -> dict[str, dict[str, Estimate]]:
        values: dict[str, list[list[tuple[float, ...]]]] = {mode: [] for mode in (EXACT, *SearchMode)}
        remaining = iter(vectors)
        for conversation in self._progress(self._conversations, "asking"):
            own = [_doc_id(conversation, turn.id) for turn in conversation.turns]
            exact = ExactSearch({doc_id: embeddings[doc_id] for doc_id in own})
            for measured in values.values():
                measured.append([])
            for question in conversation.questions:
                relevant = {_doc_id(conversation, turn_id) for turn_id in question.evidence}
                ranking = [doc_id for doc_id, _ in exact.rank(next(remaining))]
                values[EXACT][-1].append(measure(ranking, relevant))
                for mode in SearchMode:
                    ranking = self._search(question.text, conversation, mode)
                    values[mode][-1].append(measure(ranking, relevant))
        return {str(mode): estimate(measured) for mode, measured in values.items()}

    def _search(self, text: str, conversation: Conversation, mode: SearchMode) -> list[str]:
        answer = self._client.documents.search(text, limit=DEPTH, scope=_scope(conversation), mode=mode, view=View.IDS)
        return [result.doc_id for result in answer]

    def _filtered(self, key: str, exact: ExactSearch, vectors: Sequence[NDArray[np.float32]]) -> FilteredRecall:
        kept = {doc_id for doc_id, buckets in self._buckets.items() if buckets[key] == 0}
        found, recalls, exact_recalls = [], [], []
        asked = zip(self._questions(), vectors, strict=True)
        for (text, evidence), vector in self._progress(asked, f"filter {key}", len(vectors)):
            # The server drops results without similarity; near zero, rounding decides.
            best = [each for each in exact.rank(vector, kept) if each[1] > ROUNDING]
            ranking = self._search_filtered(text, {key: 0})
            found.append(_agreement(ranking, best))
            if relevant := evidence & kept:
                recalls.append(recall(ranking, relevant, FILTERED_DEPTH))
                exact_recalls.append(recall([doc_id for doc_id, _ in best], relevant, FILTERED_DEPTH))
        means = (float(np.mean(values)) if values else 1.0 for values in (recalls, exact_recalls))
        return FilteredRecall(key, len(kept), float(np.mean(found)), len(recalls), *means)

    def _search_filtered(self, text: str, filters: dict[str, int]) -> list[str]:
        answer = self._client.documents.search(
            text, limit=FILTERED_DEPTH, filters=filters, mode=SearchMode.VECTOR, view=View.IDS
        )
        return [result.doc_id for result in answer]

    def _questions(self) -> list[tuple[str, set[str]]]:
        return [
            (question.text, {_doc_id(conversation, turn_id) for turn_id in question.evidence})
            for conversation in self._conversations
            for question in conversation.questions
        ]

    def _progress(self, items: Iterable[_T], what: str, total: int | None = None) -> Iterator[_T]:
        total = total if total is not None or not isinstance(items, Collection) else len(items)
        quiet = not self._console.is_terminal
        yield from track(items, what, total=total, console=self._console, disable=quiet, transient=True)


def _agreement(ranking: Sequence[str], exact: Sequence[tuple[str, float]]) -> float:
    scores = dict(exact)
    wanted = min(FILTERED_DEPTH, len(exact))
    if not wanted:
        return 1.0
    # A document as near as the last expected one is also right, because turns repeat.
    bound = exact[wanted - 1][1] - ROUNDING
    return sum(scores.get(doc_id, -2.0) >= bound for doc_id in ranking) / wanted


def _deal(conversations: Sequence[Conversation], seed: int) -> dict[str, dict[str, int]]:
    doc_ids = [_doc_id(conversation, turn.id) for conversation in conversations for turn in conversation.turns]
    rng = np.random.default_rng(seed)
    dealt = {key: rng.permutation(len(doc_ids)) % count for key, count in SHARES.items()}
    return {doc_id: {key: int(dealt[key][i]) for key in SHARES} for i, doc_id in enumerate(doc_ids)}


def _doc_id(conversation: Conversation, turn_id: str) -> str:
    return f"{conversation.id}/{turn_id}"


def _scope(conversation: Conversation) -> Scope:
    return Scope(project=conversation.id)


def print_report(report: Report) -> None:
    """The tables for people."""
    console = Console(width=124)
    console.print(
        f"{report.documents:,} documents, written {RENDERING}; {report.questions} questions; {report.model}.\n"
        "Means over questions, with 95 % bootstrap intervals over conversations.",
        markup=False,
        highlight=False,
    )
    table = Table("search", *METRICS)
    for mode, estimates in report.modes.items():
        table.add_row(mode, *(str(estimates[metric]) for metric in METRICS))
    console.print(table, markup=False)
    first = f"first {FILTERED_DEPTH} found of the exact"
    table = Table("vector, filter keeps", first, "questions with evidence kept", "recall@10", "recall@10, exact")
    for each in report.filtered:
        kept = f"{100 / SHARES[each.key]:g} %, {each.documents:,} documents"
        recalls = (f"{each.recall:.4f}", f"{each.exact_recall:.4f}")
        table.add_row(kept, f"{each.found:.4f}", str(each.questions), *recalls)
    console.print(table)


@click.command()
@click.argument("data", type=click.Path(path_type=Path))
@click.option("--address", help="Measure a server that runs already; by default one is started.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.option("--seed", default=7, show_default=True, help="Seed of the filters' buckets.")
def main(data: Path, address: str | None, *, as_json: bool, seed: int) -> None:
    """Measures recall on the conversations of the folder DATA."""
    conversations = load_conversations(data)
    if not conversations:
        click.echo(f"skipped: {data} holds no conversations", err=True)
        return
    with serving(address) as client:
        report = Measurement(client, conversations, seed=seed).run()
    if as_json:
        click.echo(json.dumps({**asdict(report), "problems": report.problems}, indent=2))
    else:
        print_report(report)
    for problem in report.problems:
        click.echo(f"not exact: {problem}", err=True)
    sys.exit(1 if report.problems else 0)


if __name__ == "__main__":
    main()
