"""Recall over all kinds of records: what it finds beside the best single search, and what its context holds.

    python -m tests.bench.recalling [DATA] [--sets conversations] [--fill 5000] [--tokens 1000]

The texts of a conversation or chat are stored five times, under different names: as documents and as
events, which are searched alone; as events and as messages of a conversation, with unrelated records of the other
kinds, which are recalled; and dealt over all five kinds, which are recalled. DATA is a folder as in
`tests.bench.finding`. The unrelated records are sentences of the chats, or of the conversations beside a chat.
"""

import itertools
import random
import re
import time
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import click
from mnemon import (
    Client,
    ConversationMessage,
    Document,
    Fact,
    Memory,
    RecallAnswer,
    RecallItem,
    RecordKind,
    Scope,
    SemanticMemory,
)
from rich.console import Console
from rich.progress import Progress

from tests.bench import machine
from tests.bench.conversations import load_chats, load_conversations
from tests.bench.finding.searches import AT_ONCE, LIMIT, Documents, Events, ServerSearch
from tests.bench.finding.sets import CHATS, WRITTEN, Collection, Text, load
from tests.bench.metrics import estimate, ndcg, recall
from tests.bench.serving import serving

METRICS = (f"recall@{LIMIT}", f"nDCG@{LIMIT}")
SETS = ("conversations", "chats")
SPREAD, FILLED = "recall, dealt over kinds", "recall, events among unrelated records"
SAID = "recall, messages among unrelated records"
MESSAGES_AT_ONCE = 500
OTHERS = (RecordKind.DOCUMENT, RecordKind.MEMORY, RecordKind.FACT, RecordKind.SEMANTIC)
"""The kinds that are recalled, beside events."""
LINE_BYTES = 16
"""What a line of the plain context has beside its text."""


class Stored:
    """Texts stored under one name, and their ids by record."""

    def __init__(self, client: Client, name: str) -> None:
        self._client, self._name = client, name
        self._ids: dict[tuple[str, str], list[str]] = {}

    def put(self, kind: RecordKind, texts: Sequence[Text]) -> None:
        """Stores texts as records of a kind."""
        for text, result in zip(texts, self._put(kind, texts), strict=True):
            if result.error:
                raise result.error
            self._ids.setdefault((kind, self._id(kind, result)), []).append(text.id)

    def say(self, texts: Sequence[Text]) -> None:
        """Stores texts as the messages of one conversation, said a few seconds after each other."""
        began = datetime.now(UTC) - timedelta(hours=3)
        messages = [
            ConversationMessage(
                text.writer or "user",
                text.content,
                name=str(text.metadata.get("speaker", "")),
                message_time=began + timedelta(seconds=5 * number),
                metadata={key: value for key, value in text.metadata.items() if key != "speaker"},
            )
            for number, text in enumerate(texts)
        ]
        for start in range(0, len(messages), MESSAGES_AT_ONCE):
            part = slice(start, start + MESSAGES_AT_ONCE)
            receipts = self._client.conversations.append(self._name, messages[part], user=self._name)
            for text, receipt in zip(texts[part], receipts, strict=True):
                self._ids.setdefault((RecordKind.EVENT, receipt.event_id), []).append(text.id)
        # Until an event has a vector, it is found by its words alone.
        while self._client.timeline.status().text_pending_count:
            time.sleep(0.05)

    def _put(self, kind: RecordKind, texts: Sequence[Text]) -> Iterable[Any]:
        client, name = self._client, self._name
        match kind:
            case RecordKind.DOCUMENT:
                scope = Scope(user=name)
                return client.documents.put_many(
                    Document(f"{name}/{text.id}", text.content, text.metadata, scope=scope) for text in texts
                )
            case RecordKind.MEMORY:
                return client.memories.add_many(
                    Memory(text.content, metadata=text.metadata, user=name) for text in texts
                )
            case RecordKind.FACT:
                return client.facts.put_many(
                    Fact(("user", name), text.id, {"content": text.content}, text.metadata) for text in texts
                )
            case RecordKind.SEMANTIC:
                return client.semantic.add_many(
                    SemanticMemory(text.content, metadata=text.metadata, user=name) for text in texts
                )
        collection = Collection("", name, tuple(texts), ())
        return Events(client)._put(collection)

    def _id(self, kind: RecordKind, result: Any) -> str:
        match kind:
            case RecordKind.DOCUMENT:
                return str(result.doc_id)
            case RecordKind.FACT:
                return str(result.key)
            case RecordKind.EVENT:
                return str(result.event_id)
        return str(result.memory_id)

    def texts_of(self, item: RecallItem) -> list[str]:
        """The ids of the texts that an item stands for."""
        records = (item.record, *item.duplicates)
        return [text for each in records for text in self._ids.get((each.kind, each.id), [])]

    def ask(self, questions: Iterable[str], **how: Any) -> list[RecallAnswer]:
        """The answers to questions about these texts."""
        with ThreadPoolExecutor(AT_ONCE) as pool:
            return list(pool.map(lambda text: self._client.recall(text, user=self._name, **how), questions))


def dealt(texts: Sequence[Text], seed: int) -> dict[RecordKind, list[Text]]:
    """The texts of a conversation, each as a record of one kind."""
    rng = random.Random(seed)
    kinds = [kind for kind in RecordKind if kind in (RecordKind.EVENT, *OTHERS)]
    hands: dict[RecordKind, list[Text]] = {kind: [] for kind in kinds}
    for text in texts:
        hands[rng.choice(kinds)].append(text)
    return hands


def unrelated(data: Path | None, *, beside: str, count: int) -> list[Text]:
    """Sentences that have nothing to do with a set."""
    others = load_conversations(data) if beside == "chats" and data is not None else load_chats(CHATS)
    sentences = (part for each in others for turn in each.turns for part in re.split(r"(?<=[.!?])\s+|\n+", turn.text))
    distinct = dict.fromkeys(part.strip() for part in sentences if len(part.split()) >= 5)
    return [Text(f"u{number}", part, {}) for number, part in enumerate(itertools.islice(distinct, count))]


def plain_context(texts: Sequence[Text], found: Sequence[str], tokens: int) -> set[str]:
    """The texts of a ranking that fit one after the other."""
    content = {text.id: text.content for text in texts}
    kept, left = set[str](), 4 * tokens
    for each in found:
        left -= len(content[each].encode()) + LINE_BYTES
        if left < 0:
            break
        kept.add(each)
    return kept


class Measurement:
    """One collection, in all ways."""

    def __init__(self, client: Client, collection: Collection, fill: Sequence[Text], tokens: int) -> None:
        self._client, self._collection, self._fill, self._tokens = client, collection, fill, tokens
        self.rankings: dict[str, list[list[str]]] = {}
        self.contexts: dict[str, list[set[str]]] = {}

    def run(self) -> None:
        """Stores, asks."""
        collection = self._collection
        for name, search in (("documents", Documents), ("events", Events)):
            self._alone(name, search(self._client))
        spread = Stored(self._client, f"{collection.name}-spread")
        for kind, texts in dealt(collection.texts, seed=5).items():
            spread.put(kind, texts)
        self._recalled(SPREAD, spread)
        if self._fill:
            filled = Stored(self._client, f"{collection.name}-filled")
            filled.put(RecordKind.EVENT, collection.texts)
            self._recalled(FILLED, self._among_unrelated(filled))
            said = Stored(self._client, f"{collection.name}-said")
            said.say(collection.texts)
            self._recalled(SAID, self._among_unrelated(said))

    def _among_unrelated(self, stored: Stored) -> Stored:
        for kind in OTHERS:
            stored.put(kind, self._fill)
        return stored

    def _alone(self, name: str, search: ServerSearch) -> None:
        search.store(self._collection)
        self.rankings[name] = search.find(self._collection)
        texts = self._collection.texts
        self.contexts[name] = [plain_context(texts, ranking, self._tokens) for ranking in self.rankings[name]]

    def _recalled(self, name: str, stored: Stored) -> None:
        questions = [question.text for question in self._collection.questions]
        self.rankings[name] = [
            [text for item in answer for text in stored.texts_of(item)] for answer in stored.ask(questions, limit=LIMIT)
        ]
        self.contexts[name] = [
            {text for item in answer if item.citation for text in stored.texts_of(item)}
            for answer in stored.ask(questions, max_tokens=self._tokens)
        ]


def table(measured: Sequence[tuple[Collection, Measurement]]) -> Iterator[str]:
    """The lines of the table."""
    yield f"| set | search | {' | '.join(METRICS)} | evidence in the context | no context |"
    yield "| --- | --- | --- | --- | --- | --- |"
    for part in dict.fromkeys(collection.set for collection, _ in measured):
        members = [each for each in measured if each[0].set == part]
        for name in members[0][1].rankings:
            values, empty, asked = [], 0, 0
            for collection, each in members:
                rows = zip(collection.questions, each.rankings[name], each.contexts[name], strict=True)
                answerable = [row for row in rows if row[0].evidence]
                empty += sum(not context for _, _, context in answerable)
                asked += len(answerable)
                values.append(
                    [
                        (
                            recall(ranking, question.evidence, LIMIT),
                            ndcg(ranking, question.evidence, LIMIT),
                            len(question.evidence & context) / len(question.evidence),
                        )
                        for question, ranking, context in answerable
                    ]
                )
            found = estimate(values, names=(*METRICS, "context"))
            yield f"| {part} | {name} | {' | '.join(map(str, found.values()))} | {empty / asked:.3f} |"


@click.command()
@click.argument("data", type=click.Path(path_type=Path, exists=True), required=False)
@click.option("--sets", default=",".join(SETS), show_default=True, help="Names of sets, separated by commas.")
@click.option("--fill", default=5_000, show_default=True, help="Unrelated records of each other kind; 0: none.")
@click.option("--tokens", default=1_000, show_default=True, help="The size of the contexts.")
@click.option("--most", default=0, help="The first so many of each set; 0: all.")
@click.option("--written", type=click.Choice(WRITTEN), default=WRITTEN[0], show_default=True, help="See finding.")
@click.option("--address", help="Measure a server that runs already; by default one is started.")
def main(data: Path | None, *, sets: str, fill: int, tokens: int, most: int, written: str, address: str | None) -> None:
    """Measures what recall finds, on conversations in the folder DATA and on the chats of this repository."""
    measured: list[tuple[Collection, Measurement]] = []
    with serving(address) as client, Progress(console=Console(stderr=True), transient=True) as progress:
        for name in sets.split(","):
            collections = load([name], data, written=written, questions_max=0)
            beside = unrelated(data, beside=name, count=fill)
            for collection in progress.track(collections[: most or None], description=name):
                each = Measurement(client, collection, beside, tokens)
                each.run()
                measured.append((collection, each))
    click.echo(f"{machine.describe()}\n\nContexts of {tokens:,} tokens; {fill:,} unrelated records of each kind.\n")
    click.echo("\n".join(table(measured)))


if __name__ == "__main__":
    main()
