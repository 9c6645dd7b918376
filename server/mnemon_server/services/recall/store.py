"""The recall service: asks all kinds of records at once, and answers in one order."""

import asyncio
from collections.abc import Callable, Iterable, Iterator, Sequence
from copy import copy
from dataclasses import replace
from functools import partial
from time import perf_counter

import numpy as np

from mnemon_server.domain.access.bounds import UNBOUNDED, Bounds
from mnemon_server.domain.errors import ConfigurationError
from mnemon_server.domain.events import MESSAGE_TYPE
from mnemon_server.domain.kinds import RecordKind
from mnemon_server.domain.namespaces import Namespace
from mnemon_server.domain.origins import trust
from mnemon_server.domain.recall import (
    LIMIT_DEFAULT,
    LIMIT_MAX,
    RECALLED,
    TOKENS_DEFAULT,
    KindDiagnostics,
    RecallAnswer,
    RecallItem,
    RecallMessage,
    RecallQuery,
    Tokenizer,
)
from mnemon_server.domain.records import NOTHING_RELEVANT, Relevance, Scope
from mnemon_server.domain.validation import refuse
from mnemon_server.embedding.batcher import EmbeddingBatcher
from mnemon_server.ranking.fusion import Fusion
from mnemon_server.services.background.offload import Offload
from mnemon_server.services.facts.tool_namespaces import ToolNamespaces
from mnemon_server.services.reading.answers import ANSWER_BYTES_MAX, Room
from mnemon_server.services.recall.checks import query_violations
from mnemon_server.services.recall.kinds import PARTS_MAX, SEARCHES, Found, Question, Stores
from mnemon_server.services.recall.neighbours import Neighbours, is_question, neighbours, with_neighbours
from mnemon_server.services.recall.packing import pack, with_passages
from mnemon_server.services.recall.relevance import judged
from mnemon_server.services.recall.tokenizers import Count, Tokenizers, utf8_tokens
from mnemon_server.services.semantic.terms import normalised_content, without_full_stop

ITEM_TOKENS = 20
"""Most items take at least this much of a context, which limits how many are searched for it."""
OF_FLOOR, OF_BEST = 1 / 2, 1 / 3
"""Items below these shares of the floor, or of the best item, stay out of the context: they would only be noise in a
prompt.
"""
REPLY_WEIGHT = 1 / 2
"""The relevance of a reply to the same question, relative to the stored question."""
TURN_WEIGHTS = (1.0, 0.3, 0.2, 0.1)
"""How much the newest turns of a conversation count towards the meaning of the question, newest first."""
SKIPPED_FACTS = (
    "facts have no scope, and the memory tools have no namespace for this one: name the namespace to search them"
)

ReadTurns = Callable[[Sequence[RecallItem]], Neighbours]
"""Reads the turns around the messages among items."""


class RecallStore:
    """Recalls over the records of a vault, or over the part of them that a caller sees."""

    def __init__(
        self,
        stores: Stores,
        namespaces: ToolNamespaces,
        tokenizers: Tokenizers,
        embedder: EmbeddingBatcher,
        fusion: Fusion,
        offload: Offload,
    ) -> None:
        """All arguments belong to the caller. `namespaces` finds the facts of a scope; `fusion` combines
        meaning and words in the searches.
        """
        self._stores = stores
        self.namespaces = namespaces
        self._tokenizers = tokenizers
        self._embedder = embedder
        self._fusion = fusion
        self._offload = offload
        self._bounds = UNBOUNDED

    def over(self, stores: Stores, bounds: Bounds) -> "RecallStore":
        """The same service over a part of the records, for callers with bounds."""
        part = copy(self)
        part._stores, part._bounds, part.namespaces = stores, bounds, self.namespaces.over(bounds)
        return part

    def at(self, stores: Stores) -> "RecallStore":
        """The same service over the records of a moment."""
        part = copy(self)
        part._stores = stores
        return part

    async def recall(self, query: RecallQuery, *, room: Room | None = None) -> RecallAnswer:
        """Finds what matters for a question; see RecallQuery.

        Raises:
            InvalidArgumentError: the query is not valid.
            EmbeddingError: the question cannot be embedded.
            and the errors of the searches.
        """
        began = perf_counter()
        refuse(query_violations(query, self._embedder.model.dimension))
        turns = [message for message in query.messages if message.content.strip()]
        text = turns[-1].content if turns else query.text
        if not text.strip() and query.vector is None:
            answer = RecallAnswer(items=(), relevance=NOTHING_RELEVANT, tokenizer=query.tokenizer)
            return replace(answer, duration_s=perf_counter() - began)
        count = await self._count(query.tokenizer)
        vector = await self._vector(query, text, turns)
        asked, skipped = self._question(query, text, vector)
        wanted = [kind for kind in RECALLED if kind not in skipped and kind in (query.kinds or RECALLED)]
        rooms = [room.part() if room else None for _ in wanted]
        # The nearest texts of all times tell which relevance unrelated ones have: see relevance.py.
        beside = wanted if query.has_span else []
        searches = [SEARCHES[kind](self._stores, asked, part) for kind, part in zip(wanted, rooms, strict=True)]
        found = await asyncio.gather(
            *searches, *(SEARCHES[kind](self._stores, asked.of_all_times(), None) for kind in beside)
        )
        by_kind = dict(zip(wanted, found, strict=False))
        read_turns = partial(neighbours, self._stores.events.engine, asked.turns)
        of_all_times = found[len(wanted) :]
        is_cut = len(self._bounds.parts(query.scope)) > PARTS_MAX
        whose = partial(_whose, self._bounds, query)
        answer = await self._offload(
            _answer, query, text, by_kind, of_all_times, self._fusion, read_turns, whose, count
        )
        return replace(
            answer,
            kinds=tuple(_diagnostics(query, by_kind, skipped)),
            truncated=answer.truncated or is_cut or any(part is not None and part.is_full for part in rooms),
            duration_s=perf_counter() - began,
        )

    async def token_counts(self, tokenizer: Tokenizer, texts: Sequence[str]) -> list[int]:
        """The size of each text in tokens. Raises InvalidArgumentError if this server lacks the tokenizer."""
        count = await self._count(tokenizer)
        return await self._offload(lambda: list(map(count, texts)))

    async def _count(self, tokenizer: Tokenizer) -> Count:
        is_read = tokenizer is Tokenizer.UTF8
        return utf8_tokens if is_read else await self._offload(self._tokenizers.count_of, tokenizer)

    def _question(
        self, query: RecallQuery, text: str, vector: Sequence[float]
    ) -> tuple[Question, dict[RecordKind, str]]:
        """The question to each kind, and the kinds that are left out, with the reasons."""
        limit = max(query.limit, LIMIT_DEFAULT)
        if query.max_tokens and not query.limit:
            limit = min(max(query.max_tokens // ITEM_TOKENS, LIMIT_DEFAULT), LIMIT_MAX)
        # What the caller has already is found first, and left out; the same text in several records is one item.
        limit = min(2 * limit + len(query.excluded) + len(query.messages), LIMIT_MAX)
        asked = Question(
            query,
            text,
            vector,
            of_model=query.vector is None,
            limit=limit,
            namespace=None,
            parts=self._bounds.parts(query.scope)[:PARTS_MAX],
        )
        if query.namespace:
            return asked._replace(namespace=Namespace(query.namespace)), {}
        if query.scope == Scope():
            return asked, {}
        try:
            return asked._replace(namespace=self.namespaces.of_scope(query.scope)), {}
        except ConfigurationError:
            return asked, {RecordKind.FACT: SKIPPED_FACTS}

    async def _vector(self, query: RecallQuery, text: str, turns: Sequence[RecallMessage]) -> Sequence[float]:
        """The vector of the question; all kinds are asked with the same."""
        if query.vector is not None:
            return query.vector
        texts = [message.content for message in reversed(turns)][: len(TURN_WEIGHTS)] or [text]
        await asyncio.gather(*map(self._embedder.fetch_query, texts))
        vectors = await self._offload(lambda: [self._embedder.embed_query(each) for each in texts])
        return np.average(vectors, axis=0, weights=TURN_WEIGHTS[: len(vectors)]).tolist()  # type: ignore[no-any-return]


def _answer(
    query: RecallQuery,
    text: str,
    found: dict[RecordKind, Found],
    of_all_times: Sequence[Found],
    fusion: Fusion,
    turns: ReadTurns,
    whose: Callable[[Sequence[RecallItem]], list[RecallItem]],
    count: Count,
) -> RecallAnswer:
    """The answer without its diagnostics. Blocks.

    `of_all_times` is what the same searches found without the query's span of time; empty if it has no span. `whose`
    adds the users whose names the context needs.
    """
    unknown, asked_before = _unknown(query, found.values())
    unknown += _replies(asked_before, turns)
    ranked = sorted(unknown, key=lambda item: (-item.relevance, -item.time.timestamp()))
    items = _without_duplicates(ranked)
    searched = _nearest(found.values())
    nearest = _nearest(of_all_times) or searched
    relevance = judged(fusion, text, items[0].relevance if items else 0.0, nearest, len(searched))
    if query.min_relevance:
        relevance = Relevance(relevance.best, query.min_relevance)
        items = [item for item in items if item.relevance >= query.min_relevance]
    limit = query.limit or (LIMIT_MAX if query.max_tokens else LIMIT_DEFAULT)
    items, truncated = _within(items[:limit], ANSWER_BYTES_MAX)
    context, beside, tokens_max = "", list[RecallItem](), query.max_tokens or TOKENS_DEFAULT
    if not relevance.is_low:
        least = max(OF_FLOOR * (relevance.floor or 0.0), OF_BEST * relevance.best)
        told = [item for item in items if item.relevance >= least]
        beside_told = turns([*told, *_same(told, ranked)])
        packed = [item for item in with_neighbours(told, beside_told) if item.record.id not in query.excluded]
        packed = whose(packed)
        context, packed = pack(packed, text, tokens_max, count, query.time_zone)
        cited = {item.record: item for item in packed if item.citation}
        items = [replace(item, citation=cited.pop(item.record, item).citation) for item in items]
        beside = sorted(cited.values(), key=lambda item: item.citation)
    if query.max_tokens and not query.limit:
        items = [item for item in items if item.citation] or items[:LIMIT_DEFAULT]
    return RecallAnswer(
        items=tuple(with_passages(items, text)),
        neighbours=tuple(with_passages(beside, text)),
        relevance=relevance,
        context=context,
        context_tokens=count(context),
        tokenizer=query.tokenizer,
        truncated=truncated,
    )


def _whose(bounds: Bounds, query: RecallQuery, items: Sequence[RecallItem]) -> list[RecallItem]:
    """Names each item's user, unless all must have the same one: who said "I am allergic to bees"?"""
    own, users = {*(bounds.users or ())}, {item.scope.user for item in items if item.scope.user}
    if query.scope.user or (len(users) <= 1 and (bounds.users is None or users <= own)):
        return [*items]
    unnamed = own if len(own) == 1 else set()
    return [replace(item, whose="" if item.scope.user in unnamed else item.scope.user) for item in items]


def _same(told: Iterable[RecallItem], ranked: Iterable[RecallItem]) -> list[RecallItem]:
    """The records with the same texts as the items, such as a question that was asked more than once."""
    records = {record for item in told for record in item.duplicates}
    return [item for item in ranked if item.record in records]


def _nearest(found: Iterable[Found]) -> list[float]:
    """The cosines of the passages that were nearest to the question."""
    said = [each.diagnostics.relevance for each in found]
    return [cosine for each in said if each is not None for cosine in each.nearest]


def _unknown(query: RecallQuery, found: Iterable[Found]) -> tuple[list[RecallItem], list[RecallItem]]:
    """The items that the caller does not have, which are neither excluded nor the turns that ask; and the stored
    messages that ask the same, which are no answers either.
    """
    turns, question = {_plain(message.content) for message in query.messages}, _plain(query.text)
    if is_question(question):
        turns.add(question)
    unknown, asked_before = [], []
    for item in (item for each in found for item in each.items if item.record.id not in query.excluded):
        if _plain(item.content) not in turns or not (query.messages or item.type == MESSAGE_TYPE):
            unknown.append(item)
        elif item.type == MESSAGE_TYPE and is_question(item.content):
            asked_before.append(item)
    return unknown, asked_before


def _replies(asked_before: Sequence[RecallItem], turns: ReadTurns) -> Iterator[RecallItem]:
    """The replies to earlier occurrences of the question, which may share no word with it."""
    beside = turns(asked_before) if asked_before else {}
    for item in asked_before:
        if item.record in beside:
            for reply in beside[item.record].after[:1]:
                yield replace(reply, relevance=REPLY_WEIGHT * item.relevance)


def _plain(text: str) -> str:
    """A text by which the same sentence is known, however it is spaced, in any case, with or without a full stop."""
    return without_full_stop(normalised_content(text)).casefold()


def _without_duplicates(items: Iterable[RecallItem]) -> list[RecallItem]:
    """The items in their order. One with the same text as an earlier one becomes a duplicate of that."""
    distinct: dict[str, RecallItem] = {}
    for item in items:
        same = _plain(item.content)
        first = distinct.get(same)
        if first is None or first.record != item.record:
            distinct[same] = item if first is None else _joined(first, item)
    return list(distinct.values())


def _joined(first: RecallItem, second: RecallItem) -> RecallItem:
    """The more trusted of two items, at the place of the first: a page that repeats the user does not take it over."""
    ids = tuple(dict.fromkeys((*first.event_ids, *second.event_ids)))
    if trust(second.scope.origin) <= trust(first.scope.origin):
        return replace(first, duplicates=(*first.duplicates, second.record), event_ids=ids)
    duplicates = (*first.duplicates, first.record)
    return replace(second, relevance=first.relevance, duplicates=duplicates, event_ids=ids)


def _within(items: Sequence[RecallItem], bytes_max: int) -> tuple[list[RecallItem], bool]:
    """The first items that an answer has room for, at least one, and whether some are left out."""
    size = 0
    for number, item in enumerate(items):
        size += len(item.content.encode()) + len(str(item.metadata).encode())
        if size > bytes_max and number:
            return list(items[:number]), True
    return list(items), False


def _diagnostics(
    query: RecallQuery, found: dict[RecordKind, Found], skipped: dict[RecordKind, str]
) -> Iterable[KindDiagnostics]:
    for kind in RECALLED:
        if kind in found:
            yield KindDiagnostics(kind, found[kind].diagnostics, returned=len(found[kind].items))
        elif kind in skipped and kind in (query.kinds or RECALLED):
            yield KindDiagnostics(kind, skipped=skipped[kind])
