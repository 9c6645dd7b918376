"""Which share of the best item's relevance an item needs to be worth its room in the context of a recall.

    python -m tests.bench.context_shares DATA [--most 3] [--tokens 1000]

The texts of conversations and chats are dealt over all kinds, as in `tests.bench.recalling`. The first 50 items of each
question are packed as the server packs them, without those below a share of the best one's relevance, or half of the
floor. Questions for which nothing is relevant are left out. "Clear" are those whose best item has twice the floor.
"""

import statistics
from collections.abc import Iterator, Sequence
from pathlib import Path

import click
from mnemon import RecallAnswer
from mnemon_server.domain.kinds import RecordKind
from mnemon_server.domain.recall import RecallItem, RecordReference
from mnemon_server.services.recall.packing import pack
from mnemon_server.services.recall.store import OF_FLOOR
from mnemon_server.services.recall.tokenizers import utf8_tokens

from tests.bench import machine
from tests.bench.conversations import Question
from tests.bench.finding.sets import WRITTEN, load
from tests.bench.recalling import SETS, Stored, dealt
from tests.bench.serving import serving

SHARES = (0.0, 0.25, 0.33, 0.4, 0.5, 0.6)
ITEMS = 50
Row = tuple[float, int, int]
"""The share of the evidence in a context, its tokens and its items."""


def packed(answer: RecallAnswer, question: Question, stored: Stored, share: float, tokens: int) -> Row:
    """The context of the items that have this share of the best one's relevance."""
    least = max(OF_FLOOR * (answer.relevance_floor or 0.0), share * answer.best_relevance)
    told = [item for item in answer if item.score >= least]
    items = [
        RecallItem(
            record=RecordReference(RecordKind(str(item.kind)), item.id, item.record.namespace),
            content=item.content,
            relevance=item.score,
            similarity=item.similarity,
            keyword=item.keyword_score,
            time=item.time,
            metadata=item.metadata,
        )
        for item in told
        if item.time is not None
    ]
    context, placed = pack(items, question.text, tokens, utf8_tokens)
    cited = [item for item, place in zip(told, placed, strict=True) if place.citation]
    held = {text for item in cited for text in stored.texts_of(item)}
    return len(question.evidence & held) / len(question.evidence), utf8_tokens(context), len(cited)


def line(name: str, share: float, rows: Sequence[Row]) -> str:
    """The means of the rows of one share."""
    evidence, size, items = (statistics.fmean(column) for column in zip(*rows, strict=True))
    return f"| {name} | {share} | {len(rows)} | {evidence:.3f} | {size:.0f} | {items:.1f} |"


def lines(name: str, asked: Sequence[tuple[RecallAnswer, Question, Stored]], tokens: int) -> Iterator[str]:
    """The lines of a set: of all of its questions, and of the clear ones."""
    clear = [each for each in asked if each[0].best_relevance >= 2 * (each[0].relevance_floor or 0.0)]
    for part, members in ((name, asked), (f"{name}, clear", clear)):
        for share in SHARES if members else ():
            yield line(part, share, [packed(*each, share, tokens) for each in members])


@click.command()
@click.argument("data", type=click.Path(path_type=Path, exists=True))
@click.option("--most", default=3, show_default=True, help="The first so many of each set; 0: all.")
@click.option("--tokens", default=1_000, show_default=True, help="The size of the contexts.")
def main(data: Path, *, most: int, tokens: int) -> None:
    """Prints what contexts hold, on conversations in the folder DATA and on the chats of this repository."""
    click.echo(f"{machine.describe()}\n\n| set | share | questions | evidence | tokens | items |")
    click.echo("| --- | --- | --- | --- | --- | --- |")
    with serving(None) as client:
        for name in SETS:
            asked = list[tuple[RecallAnswer, Question, Stored]]()
            for collection in load([name], data, written=WRITTEN[0], questions_max=0)[: most or None]:
                stored = Stored(client, f"{collection.name}-shares")
                for kind, texts in dealt(collection.texts, seed=5).items():
                    stored.put(kind, texts)
                questions = [question for question in collection.questions if question.evidence]
                answers = stored.ask([question.text for question in questions], limit=ITEMS)
                asked += [
                    (answer, question, stored)
                    for answer, question in zip(answers, questions, strict=True)
                    if not answer.nothing_relevant
                ]
            click.echo("\n".join(lines(name, asked, tokens)))


if __name__ == "__main__":
    main()
