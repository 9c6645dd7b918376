"""Whether the relevance of the best match tells own questions from foreign ones, over gRPC, and the floor that does.

    python -m tests.bench.relevance DATA [--floors] [--plot FILE.svg] [--questions 150] [--address HOST:PORT]

DATA is a folder with conversations, as `tests.bench.conversations` reads them, and a subfolder `xquad`, as
`tests.bench.languages` reads it. The chats with an assistant are always there. Foreign questions are those of other
conversations, as they are and with the names of this one's speakers; those that a chat does not answer; and those about
paragraphs that are not stored. The floors are chosen on some conversations and chats, `--floors`, and reported on
the others. AUC is the probability that an own question has a better best match than a foreign one.
"""

import json
import re
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import click
import matplotlib as mpl
import numpy as np
from matplotlib.figure import Figure
from mnemon import Client, Document, Scope, SearchMode, View
from numpy.typing import NDArray
from rich.console import Console
from rich.progress import Progress

from tests.bench import machine
from tests.bench.conversations import Conversation, load_conversations
from tests.bench.finding.sets import CHATS, REPORTED_ON
from tests.bench.languages import load_languages
from tests.bench.serving import serving

CONVERSATIONS_CHOSEN_ON = 3
OWN = "own"
ABSTENTION = "abstention"
RECALL = "recall"
MODES = (*map(str, (SearchMode.HYBRID, SearchMode.VECTOR, SearchMode.KEYWORD)), RECALL)
"""The modes of a search of documents, and a recall over all kinds."""
HEADINGS = (
    "texts",
    "foreign questions",
    "mode",
    "own",
    "foreign",
    "AUC",
    "own kept at 5 %",
    "own kept",
    "foreign told",
    "told if 5 % of own are",
)
AT_ONCE = 4
STEPS = np.arange(101) / 100
EXCESS = np.arange(-40, 81) / 100

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Corpus:
    """Texts that are searched alone, and questions by their origin; the texts answer the questions of `OWN`."""

    name: str
    part: str
    """The row of the table."""
    chosen_on: bool
    texts: list[str]
    questions: dict[str, list[str]]


@dataclass(frozen=True, slots=True)
class Bests:
    """The relevance of the best match of each question, the server's floor, and whether it says that it is relevant."""

    relevance: Floats
    floor: Floats
    is_relevant: NDArray[np.bool_]

    def share(self, floor: float | None = None) -> float:
        """The share of questions whose best match reaches a floor; by default, the server's own."""
        return float(np.mean(self.is_relevant if floor is None else self.relevance >= floor))


Measured = dict[tuple[str, str, str], Bests]
"""By the name of the corpus, the origin of the questions, and the mode."""


def corpora(data: Path, questions_max: int, rng: np.random.Generator) -> list[Corpus]:
    """All texts and questions."""
    return [
        *_of_conversations(load_conversations(data), rng),
        *_of_chats(rng),
        *_of_languages(data / "xquad", questions_max),
    ]


def _of_conversations(conversations: Sequence[Conversation], rng: np.random.Generator) -> Iterator[Corpus]:
    for number, one in enumerate(conversations):
        others = [(asked.text, other) for other in conversations if other is not one for asked in other.questions]
        drawn = [others[i] for i in rng.permutation(len(others))[: len(one.questions)]]
        chosen_on = number < CONVERSATIONS_CHOSEN_ON
        yield Corpus(
            one.id,
            f"conversations {'1–3' if chosen_on else '4–5'}",
            chosen_on,
            [turn.document for turn in one.turns],
            {
                OWN: [asked.text for asked in one.questions],
                "of others": [text for text, _ in drawn],
                "of others, names of own": [_renamed(text, other, one) for text, other in drawn],
            },
        )


def _renamed(question: str, asked_of: Conversation, asked_in: Conversation) -> str:
    names = dict(zip(_speakers(asked_of), _speakers(asked_in), strict=False))
    return re.sub(rf"\b({'|'.join(map(re.escape, names))})\b", lambda found: names[found[0]], question)


def _speakers(conversation: Conversation) -> list[str]:
    return list(dict.fromkeys(turn.speaker for turn in conversation.turns))


def _of_chats(rng: np.random.Generator) -> Iterator[Corpus]:
    files = [file for file in sorted(CHATS.glob("*.jsonl")) if not file.name.endswith(".questions.jsonl")]
    asked = {file: _rows(file.with_suffix(".questions.jsonl")) for file in files}
    for file in files:
        others = [each["question"] for other in files if other != file for each in asked[other] if each["evidence"]]
        chosen_on = file.stem not in REPORTED_ON
        yield Corpus(
            file.stem,
            f"chats {'1–8' if chosen_on else '9–12'}",
            chosen_on,
            [message["text"] for message in _rows(file)],
            {
                OWN: [each["question"] for each in asked[file] if each["evidence"]],
                ABSTENTION: [each["question"] for each in asked[file] if not each["evidence"]],
                "of others": [others[i] for i in rng.permutation(len(others))[: len(asked[file])]],
            },
        )


def _rows(file: Path) -> list[dict[str, str]]:
    return [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]


def _of_languages(folder: Path, questions_max: int) -> Iterator[Corpus]:
    for language in load_languages(folder, (), questions_max):
        # The paragraphs of an article are dealt to both halves, so that foreign questions are about its subject.
        for half in (0, 1):
            is_own = [asked.paragraph % 2 == half for asked in language.questions]
            yield Corpus(
                f"{language.name}-{half}",
                f"paragraphs, {language.name}",
                chosen_on=False,
                texts=language.paragraphs[half::2],
                questions={
                    OWN: [asked.text for asked, own in zip(language.questions, is_own, strict=True) if own],
                    "of other paragraphs": [
                        asked.text for asked, own in zip(language.questions, is_own, strict=True) if not own
                    ],
                },
            )


def measure(client: Client, corpus: Corpus, modes: Sequence[str], progress: Progress) -> Measured:
    """Stores the texts, and asks every question in each of the modes."""
    scope = Scope(project=corpus.name)
    documents = (Document(f"{corpus.name}/{number}", text, scope=scope) for number, text in enumerate(corpus.texts))
    stored = client.documents.put_many(documents, timeout=900.0)
    for result in stored:
        if result.error:
            raise result.error
    task = progress.add_task(corpus.name, total=len(modes) * sum(map(len, corpus.questions.values())))

    def best(text: str, mode: str) -> tuple[float, float, bool]:
        progress.advance(task)
        if mode == RECALL:
            recalled = client.recall(text, project=corpus.name, limit=1, view=View.IDS)
            # The floor of a recall differs by question, so the curve shows by how much the best item exceeds it.
            excess = recalled.best_relevance - (recalled.relevance_floor or 0.0)
            return excess, 0.0, not recalled.nothing_relevant
        answer = client.documents.search(text, limit=1, scope=scope, mode=mode, view=View.IDS)
        return answer.best_relevance or 0.0, answer.diagnostics.relevance_floor or 0.0, not answer.nothing_relevant

    measured = {}
    with ThreadPoolExecutor(AT_ONCE) as pool:
        for origin, texts in corpus.questions.items():
            for mode in modes:
                found = np.array(list(pool.map(best, texts, [mode] * len(texts))), np.float64)
                measured[corpus.name, origin, mode] = Bests(found[:, 0], found[:, 1], found[:, 2] > 0.0)
    return measured


def pooled(measured: Measured, among: Sequence[Corpus], origin: str, mode: str) -> Bests:
    """The questions of one origin about all these texts."""
    found = [measured[corpus.name, origin, mode] for corpus in among]
    return Bests(
        np.concatenate([each.relevance for each in found]),
        np.concatenate([each.floor for each in found]),
        np.concatenate([each.is_relevant for each in found]),
    )


def auc(own: Floats, foreign: Floats) -> float:
    """The probability that an own value is larger than a foreign one; equal ones count half."""
    ordered = np.sort(foreign)
    places = ordered.searchsorted(own, "left") + ordered.searchsorted(own, "right")
    return float(places.mean() / 2 / len(foreign))


def rows(measured: Measured, among: Sequence[Corpus], modes: Sequence[str]) -> Iterator[tuple[str, ...]]:
    """The rows of the table, one for each part of the texts, origin of foreign questions, and mode."""
    for part in dict.fromkeys(corpus.part for corpus in among):
        of_part = [corpus for corpus in among if corpus.part == part]
        for origin in of_part[0].questions:
            for mode in modes if origin != OWN else ():
                own, foreign = (pooled(measured, of_part, each, mode) for each in (OWN, origin))
                at_five = own.share(float(np.nextafter(np.quantile(foreign.relevance, 0.95), 1.0)))
                counts = (str(len(own.relevance)), str(len(foreign.relevance)))
                told_at_five = 1 - foreign.share(float(np.quantile(own.relevance, 0.05)))
                shares = (
                    auc(own.relevance, foreign.relevance),
                    at_five,
                    own.share(),
                    1 - foreign.share(),
                    told_at_five,
                )
                yield (part, origin, mode, *counts, *(f"{share:.3f}" for share in shares))


def best_floor(measured: Measured, among: Sequence[Corpus], mode: str) -> tuple[float, float]:
    """The floor that tells own from foreign questions best, and how well: the mean of the share of own ones that reach
    it and of foreign ones that do not. All parts and origins count equally.
    """
    gains = []
    for part in dict.fromkeys(corpus.part for corpus in among):
        of_part = [corpus for corpus in among if corpus.part == part]
        own = pooled(measured, of_part, OWN, mode)
        # That a chat does not answer a question about its subjects cannot be told by relevance.
        for origin in of_part[0].questions.keys() - {OWN, ABSTENTION}:
            foreign = pooled(measured, of_part, origin, mode)
            gains.append([(own.share(floor) + 1 - foreign.share(floor)) / 2 for floor in STEPS])
    mean = np.mean(gains, axis=0)
    best = int(np.argmax(mean))
    return float(STEPS[best]), float(mean[best])


def draw(measured: Measured, among: Sequence[Corpus], file: Path) -> None:
    """Writes a picture of the shares of own and foreign questions whose best item exceeds the floor of a recall."""
    parts = list(dict.fromkeys(corpus.part for corpus in among))
    with mpl.rc_context({"svg.fonttype": "none", "svg.hashsalt": "mnemon"}):
        figure = Figure(figsize=(3.2 * len(parts), 3.4), layout="constrained")
        for axes, part in zip(figure.subplots(1, len(parts), sharey=True), parts, strict=True):
            of_part = [corpus for corpus in among if corpus.part == part]
            for origin in of_part[0].questions:
                found = pooled(measured, of_part, origin, RECALL)
                style = {"color": "tab:blue", "linewidth": 2} if origin == OWN else {"linestyle": "--"}
                shares = [found.share(excess) for excess in EXCESS]
                axes.plot(EXCESS, shares, label=origin, **style)
            axes.axvline(0.0, color="black", linewidth=1, linestyle=":", label="floor")
            axes.set(title=part, xlabel="best relevance above the floor", xlim=(-0.4, 0.8), ylim=(0, 1.02))
            axes.grid(alpha=0.3)
            axes.legend(fontsize="x-small")
        figure.axes[0].set_ylabel("share of questions that reach it")
        figure.savefig(file, metadata={"Date": None})


@click.command()
@click.argument("data", type=click.Path(path_type=Path))
@click.option("--address", help="Measure a server that runs already; by default one is started.")
@click.option("--questions", "questions_max", default=150, help="Maximum number of questions of a language.")
@click.option("--modes", default=",".join(MODES), show_default=True, help="Modes, separated by commas.")
@click.option("--floors", is_flag=True, help="Choose the floors, on the texts that are for that.")
@click.option("--plot", type=click.Path(path_type=Path), help="Draw the reported recalls.")
def main(data: Path, address: str | None, *, questions_max: int, modes: str, floors: bool, plot: Path | None) -> None:
    """Measures the best match of every question, and prints a table."""
    found = corpora(data, questions_max, np.random.default_rng(0))
    among = [corpus for corpus in found if corpus.chosen_on is floors]
    measured: Measured = {}
    with serving(address) as client, Progress(console=Console(stderr=True)) as progress:
        for corpus in among:
            measured |= measure(client, corpus, modes.split(","), progress)
    click.echo(machine.describe() + "\n")
    for cells in (HEADINGS, ("---",) * len(HEADINGS), *rows(measured, among, modes.split(","))):
        click.echo(f"| {' | '.join(cells)} |")
    for mode in modes.split(",") if floors else ():
        floor, gain = best_floor(measured, among, mode)
        click.echo(f"\n{mode}: the floor {floor:.2f} tells {gain:.3f}")
    if plot:
        draw(measured, among, plot)


if __name__ == "__main__":
    main()
