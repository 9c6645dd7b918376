"""The search of each kind, whose results become items. Within a kind, they keep the order of its search."""

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import NamedTuple

from mnemon_server.domain.clock import EPOCH
from mnemon_server.domain.conversations import ConversationKey
from mnemon_server.domain.documents import DocumentFilter, SearchQuery, SearchResult
from mnemon_server.domain.events import (
    MESSAGE_TYPE,
    EventScore,
    EventSelection,
    StoredEvent,
    WindowDiagnostics,
    WindowQuery,
)
from mnemon_server.domain.facts import FactFilter, FactMatch, FactQuery
from mnemon_server.domain.filters import Condition, Expression, Operator
from mnemon_server.domain.json_text import JsonText
from mnemon_server.domain.kinds import RecordKind
from mnemon_server.domain.memories import MemoryFilter, MemoryMatch, MemoryQuery
from mnemon_server.domain.namespaces import Namespace
from mnemon_server.domain.origins import not_from
from mnemon_server.domain.recall import Diagnostics, RecallItem, RecallQuery, RecordReference
from mnemon_server.domain.records import NEAREST_MAX, Scope, SearchMode
from mnemon_server.domain.semantic import SemanticFilter, SemanticMatch, SimilarQuery
from mnemon_server.services.documents.store import DocumentStore
from mnemon_server.services.events.store import EventStore
from mnemon_server.services.facts.store import FactStore
from mnemon_server.services.memories.store import MemoryStore
from mnemon_server.services.reading.answers import Room
from mnemon_server.services.reading.filter_expressions import joined
from mnemon_server.services.semantic.event_links import links_of
from mnemon_server.services.semantic.store import SemanticStore
from mnemon_server.wire.events import decode

EVENT_IDS_MAX = 10
PARTS_MAX = 32
"""Scopes of events that are searched. Further ones are left out, and the answer says that it is not all."""
UNSCORED = EventScore(0.0, None, None)


@dataclass(frozen=True, slots=True)
class Stores:
    """The services of a vault that recall asks, or of the part of it that a caller sees."""

    documents: DocumentStore
    memories: MemoryStore
    facts: FactStore
    semantic: SemanticStore
    events: EventStore


class Question(NamedTuple):
    """The question to each kind."""

    query: RecallQuery
    text: str
    vector: Sequence[float]
    of_model: bool
    limit: int
    namespace: Namespace | None
    """The namespace of the facts; None means all."""
    parts: tuple[Scope, ...]
    """The scopes of the events. Each is searched separately."""

    def of_all_times(self) -> "Question":
        """The same without the span of time, for what its nearest texts tell; one result is enough."""
        return self._replace(query=replace(self.query, start=None, end=None), limit=1)

    def condition(self, kind: RecordKind) -> Expression | None:
        """The caller's filter for this kind."""
        given = next((expression for named, expression in self.query.filters if named is kind), None)
        return given if kind is RecordKind.EVENT else joined([given, not_from(self.query.without)])

    def recorded(self) -> Expression | None:
        """The condition that an event was recorded by the moment that is asked about."""
        moment = self.query.as_of
        return None if moment is None else Condition("record_time", Operator.LTE, (moment,))

    def events(self) -> EventSelection:
        """The events that are asked about, of all scopes."""
        query = self.query
        expression = joined([self.condition(RecordKind.EVENT), self.recorded()])
        return EventSelection(start=query.start, end=query.end, expression=expression, without=query.without)

    def turns(self, conversation: ConversationKey) -> EventSelection:
        """The messages of a conversation that are asked about."""
        return replace(
            self.events(),
            scope=conversation.scope,
            whole_scope=True,
            conversation=conversation.conversation_id,
            event_types=frozenset({MESSAGE_TYPE}),
        )

    def created(self) -> list[Expression]:
        """The span of time, as conditions."""
        ends = ((Operator.GTE, self.query.start), (Operator.LTE, self.query.end))
        return [Condition("create_time", operator, (end,)) for operator, end in ends if end is not None]


class Found(NamedTuple):
    """The items of one kind, best first."""

    items: list[RecallItem]
    diagnostics: Diagnostics


async def _documents(stores: Stores, asked: Question, room: Room | None) -> Found:
    where = DocumentFilter(
        scope=asked.query.scope, expression=joined([asked.condition(RecordKind.DOCUMENT), *asked.created()])
    )
    query = SearchQuery(text=asked.text, vector=asked.vector, of_model=asked.of_model, top_k=asked.limit, where=where)
    answer = await stores.documents.search(query, room=room)
    return Found([_of_document(result) for result in answer.results], answer.diagnostics)


def _of_document(result: SearchResult) -> RecallItem:
    document = result.document
    assert document is not None  # noqa: S101 - searches with a query have it
    return RecallItem(
        record=RecordReference(RecordKind.DOCUMENT, result.doc_id),
        content=result.content,
        relevance=result.score,
        similarity=result.vector_score,
        keyword=result.keyword_score,
        time=document.create_time or EPOCH,
        update_time=document.update_time,
        scope=document.scope,
        metadata=result.metadata,
        passage=result.passage,
    )


async def _memories(stores: Stores, asked: Question, room: Room | None) -> Found:
    query = asked.query
    where = MemoryFilter(
        scope=query.scope,
        created_from=query.start,
        created_to=query.end,
        min_confidence=query.min_confidence,
        expression=asked.condition(RecordKind.MEMORY),
    )
    answer = await stores.memories.search(
        MemoryQuery(text=asked.text, vector=asked.vector, of_model=asked.of_model, limit=asked.limit, where=where),
        room=room,
    )
    return Found([_of_memory(match) for match in answer.results], answer.diagnostics)


def _of_memory(match: MemoryMatch) -> RecallItem:
    memory = match.memory
    return RecallItem(
        record=RecordReference(RecordKind.MEMORY, memory.memory_id),
        content=memory.content,
        relevance=match.score,
        similarity=match.similarity,
        keyword=match.keyword_score,
        time=memory.create_time,
        update_time=memory.update_time,
        confidence=memory.confidence,
        scope=memory.scope,
        type=memory.type,
        metadata=memory.metadata,
        passage=match.passage,
    )


async def _facts(stores: Stores, asked: Question, room: Room | None) -> Found:
    where = FactFilter(
        namespace=asked.namespace,
        subtree=asked.query.subtree,
        where=joined([asked.condition(RecordKind.FACT), *asked.created()]),
    )
    answer = await stores.facts.search(
        FactQuery(filter=where, text=asked.text, vector=asked.vector, of_model=asked.of_model, limit=asked.limit),
        room=room,
    )
    return Found([_of_fact(match) for match in answer.matches], answer.diagnostics)


def _of_fact(match: FactMatch) -> RecallItem:
    fact = match.fact
    value = json.loads(fact.value.text) if isinstance(fact.value, JsonText) else fact.value
    content = value.get("content")
    is_text = isinstance(content, str) and content.strip()
    return RecallItem(
        record=RecordReference(RecordKind.FACT, fact.key, tuple(fact.namespace)),
        content=str(content) if is_text else json.dumps(dict(value), ensure_ascii=False),
        relevance=match.score or 0.0,
        similarity=match.similarity,
        keyword=match.keyword_score,
        time=fact.created_at,
        update_time=fact.updated_at,
        scope=fact.source,
        metadata=fact.metadata,
    )


async def _statements(stores: Stores, asked: Question, room: Room | None) -> Found:
    query = asked.query
    where = SemanticFilter(
        scope=query.scope,
        created_from=query.start,
        created_to=query.end,
        expression=asked.condition(RecordKind.SEMANTIC),
    )
    answer = await stores.semantic.search(
        SimilarQuery(
            text=asked.text,
            vector=asked.vector,
            of_model=asked.of_model,
            top_k=asked.limit,
            min_similarity=0.0 if not asked.text.strip() else None,
            where=where,
        ),
        room=room,
    )
    return Found([_of_statement(match) for match in answer.results], answer.diagnostics)


def _of_statement(match: SemanticMatch) -> RecallItem:
    statement = match.memory
    return RecallItem(
        record=RecordReference(RecordKind.SEMANTIC, statement.memory_id),
        content=statement.content,
        relevance=match.score,
        similarity=match.similarity,
        keyword=match.keyword_score,
        time=statement.create_time or EPOCH,
        update_time=statement.update_time,
        importance=statement.importance,
        scope=statement.scope,
        source=statement.source,
        metadata=statement.metadata,
        event_ids=links_of(statement.metadata)[-EVENT_IDS_MAX:],
    )


async def _events(stores: Stores, asked: Question, room: Room | None) -> Found:
    mode = SearchMode.HYBRID if asked.text.strip() else SearchMode.VECTOR
    query = WindowQuery(has_range=True, limit=asked.limit, text=asked.text, vector=asked.vector, mode=mode)
    where = (replace(asked.events(), scope=part) for part in asked.parts)
    pages = await asyncio.gather(*(stores.events.window(replace(query, where=each), room=room) for each in where))
    items = [of_event(*found) for page in pages for found in zip(page.events, page.scores, strict=True)]
    if len(pages) == 1:
        return Found(items, pages[0].diagnostics)
    items.sort(key=lambda item: -item.relevance)
    return Found(items[: asked.limit], joined_diagnostics([page.diagnostics for page in pages]))


def joined_diagnostics(parts: Sequence[WindowDiagnostics]) -> WindowDiagnostics:
    """The diagnostics of several searches of the timeline as one."""
    said = [each.relevance for each in parts if each.relevance is not None]
    best = max(said, key=lambda each: each.best, default=None)
    nearest = chain.from_iterable(each.nearest for each in said)
    return WindowDiagnostics(
        total_scanned=max((each.total_scanned for each in parts), default=0),
        filtered_by_context=sum(each.filtered_by_context for each in parts),
        filtered_by_window=sum(each.filtered_by_window for each in parts),
        returned=sum(each.returned for each in parts),
        duration_s=max((each.duration_s for each in parts), default=0.0),
        mode=parts[0].mode if parts else None,
        pending=sum(each.pending for each in parts),
        exact=all(each.exact for each in parts),
        relevance=best and replace(best, nearest=tuple(sorted(nearest, reverse=True)[:NEAREST_MAX])),
    )


def of_event(stored: StoredEvent, score: EventScore = UNSCORED) -> RecallItem:
    """The item of an event."""
    event = decode(stored.body)
    return RecallItem(
        record=RecordReference(RecordKind.EVENT, event.event_id),
        content=event.content,
        relevance=score.relevance,
        similarity=score.similarity,
        keyword=score.keyword,
        time=event.event_time,
        importance=event.importance,
        scope=event.scope,
        type=event.event_type,
        source=event.source,
        metadata=event.metadata,
        conversation=event.conversation,
        sequence=stored.sequence,
    )


SEARCHES: Mapping[RecordKind, Callable[[Stores, Question, Room | None], Awaitable[Found]]] = {
    RecordKind.DOCUMENT: _documents,
    RecordKind.MEMORY: _memories,
    RecordKind.FACT: _facts,
    RecordKind.SEMANTIC: _statements,
    RecordKind.EVENT: _events,
}
"""The search of each kind that can be recalled."""
