"""Search in several languages: which paragraph answers a question, over gRPC, on the data of XQuAD.

    python -m tests.bench.languages FOLDER [--model multilingual] [--languages en,de] [--questions 150]

FOLDER holds files such as xquad.de.json (Artetxe et al., ACL 2020), in SQuAD's form. The paragraphs of a language are
searched alone, by a scope filter. Intervals are 95 % bootstrap intervals over paragraphs, because questions about one
paragraph are dependent. "Gain" is the paired difference of hybrid search to the better one of its halves.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import click
import numpy as np
from mnemon import Client, Document, Scope, SearchMode, View
from numpy.typing import NDArray
from rich.console import Console
from rich.progress import Progress

from tests.bench import machine
from tests.bench.serving import serving

DEPTH = 10
BOOTSTRAP_ROUNDS = 2_000
MODES = (SearchMode.VECTOR, SearchMode.KEYWORD, SearchMode.HYBRID)
HEADINGS = ("language", "vector", "words", "hybrid", "hybrid, hit@5", "hybrid, MRR@10", "gain")

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Question:
    """A question, and the number of the paragraph that answers it."""

    text: str
    paragraph: int


@dataclass(frozen=True, slots=True)
class Language:
    """The paragraphs of a language, and questions about them."""

    name: str
    paragraphs: list[str]
    questions: list[Question]

    @property
    def scope(self) -> Scope:
        """The scope of its paragraphs."""
        return Scope(project=self.name)


@dataclass(frozen=True, slots=True)
class Places:
    """For each mode: the place of the right paragraph for each question, from 1; infinity if it is not found."""

    language: Language
    of_modes: dict[SearchMode, Floats]

    def hits(self, mode: SearchMode, depth: int = 1) -> Floats:
        """For each question: 1 if the right paragraph is among the first `depth`, otherwise 0."""
        return (self.of_modes[mode] <= depth).astype(np.float64)

    def cells(self) -> list[str]:
        """The columns of the table."""
        hybrid = self.hits(SearchMode.HYBRID)
        better = max((self.hits(mode) for mode in (SearchMode.VECTOR, SearchMode.KEYWORD)), key=np.mean)
        return [
            self.language.name,
            *(f"{self.hits(mode).mean():.3f}" for mode in (SearchMode.VECTOR, SearchMode.KEYWORD)),
            self._with_interval(hybrid),
            f"{self.hits(SearchMode.HYBRID, 5).mean():.3f}",
            f"{(1 / self.of_modes[SearchMode.HYBRID]).mean():.3f}",
            self._with_interval(hybrid - better, sign="+"),
        ]

    def _with_interval(self, values: Floats, *, sign: str = "") -> str:
        paragraphs = np.array([question.paragraph for question in self.language.questions])
        sums, counts = np.bincount(paragraphs, values), np.bincount(paragraphs)
        drawn = np.random.default_rng(0).integers(len(sums), size=(BOOTSTRAP_ROUNDS, len(sums)))
        means = sums[drawn].sum(axis=1) / np.maximum(counts[drawn].sum(axis=1), 1)
        low, high = np.percentile(means, [2.5, 97.5])
        return f"{values.mean():{sign}.3f} [{low:{sign}.3f}, {high:{sign}.3f}]"


def load_languages(folder: Path, names: Sequence[str], questions_max: int) -> list[Language]:
    """The languages of a folder in the order of their files; all if no names are given."""
    found = []
    for file in sorted(folder.glob("*.json")):
        name = file.stem.rpartition(".")[2]
        if not names or name in names:
            articles = json.loads(file.read_text("utf-8"))["data"]
            parts = [part for article in articles for part in article["paragraphs"]]
            questions = [Question(each["question"], i) for i, part in enumerate(parts) for each in part["qas"]]
            # Spread over all paragraphs, and the same in every language.
            chosen = np.random.default_rng(0).permutation(len(questions))[:questions_max]
            found.append(Language(name, [part["context"] for part in parts], [questions[i] for i in np.sort(chosen)]))
    return found


def measure(client: Client, language: Language, progress: Progress) -> Places:
    """Stores the paragraphs, and asks every question in every mode."""
    documents = [
        Document(f"{language.name}-{number}", text, scope=language.scope)
        for number, text in enumerate(language.paragraphs)
    ]
    for result in client.documents.put_many(documents):
        if result.error:
            raise result.error
    task = progress.add_task(language.name, total=len(language.questions))
    places: dict[SearchMode, list[float]] = {mode: [] for mode in MODES}
    for question in language.questions:
        wanted = f"{language.name}-{question.paragraph}"
        for mode in MODES:
            answer = client.documents.search(question.text, limit=DEPTH, scope=language.scope, mode=mode, view=View.IDS)
            found = [result.doc_id for result in answer]
            places[mode].append(found.index(wanted) + 1 if wanted in found else np.inf)
        progress.advance(task)
    return Places(language, {mode: np.array(values) for mode, values in places.items()})


@click.command()
@click.argument("folder", type=click.Path(path_type=Path))
@click.option("--model", default="multilingual", show_default=True, help="The server's embedding_model.")
@click.option("--languages", default="", help="Names of languages, separated by commas; by default all.")
@click.option("--questions", "questions_max", default=100_000, help="Maximum number of questions of a language.")
def main(folder: Path, model: str, languages: str, questions_max: int) -> None:
    """Measures every language, and prints a table."""
    found = load_languages(folder, list(filter(None, languages.split(","))), questions_max)
    if not found:
        click.echo(f"skipped: {folder} holds no such files", err=True)
        return
    with serving(settings={"MNEMON_EMBEDDING_MODEL": model}) as client, Progress(console=Console(stderr=True)) as bar:
        measured = [measure(client, language, bar) for language in found]
    click.echo(machine.describe() + "\n")
    for cells in (HEADINGS, ("---",) * len(HEADINGS), *(each.cells() for each in measured)):
        click.echo(f"| {' | '.join(cells)} |")
    click.echo(f"\nMean of hybrid: {np.mean([each.hits(SearchMode.HYBRID).mean() for each in measured]):.3f}")


if __name__ == "__main__":
    main()
