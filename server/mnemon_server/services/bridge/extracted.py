"""The statements and the summary of an extractor's answer, as they are saved."""

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from datetime import datetime

from mnemon_server.domain.bridge import LINK_KEY
from mnemon_server.domain.bridge.extraction import (
    VALID_TIME_KEY,
    Extracted,
    Extraction,
    ExtractionRequest,
)
from mnemon_server.domain.conflicts import Relation, RelationType
from mnemon_server.domain.conversations import SUMMARY_TYPE
from mnemon_server.domain.errors import MnemonError
from mnemon_server.domain.events import Event
from mnemon_server.domain.records import MetadataValue, Scope
from mnemon_server.domain.semantic import ConflictPolicy, SaveSemantic, SemanticMemory
from mnemon_server.engines.promises.vault import VaultTransaction
from mnemon_server.services.bridge.routing import SOURCE_DEFAULT, Skip
from mnemon_server.services.bridge.saving import Tally, save_statement
from mnemon_server.services.semantic.event_linking import highest
from mnemon_server.services.semantic.resolver import NOT_JUDGED, Judged
from mnemon_server.services.semantic.saving import SaveProgram
from mnemon_server.services.semantic.store import SemanticStore
from mnemon_server.services.writing.tombstones import erased_events

UPDATE_PROBABILITY = 0.95
"""How sure the statement is that names the one it updates: as sure as a rule needs, and open to an arbitration."""
SUMMARY_SOURCE = "extraction"


@dataclass(frozen=True, slots=True)
class ExtractedBatch:
    """The statements of an answer, embedded. Room is reserved for them as long as they are prepared."""

    statements: Sequence[Extracted]
    programs: Sequence[SaveProgram | MnemonError]
    sources: Mapping[str, Event]

    def save(self, tx: VaultTransaction, shown: VaultTransaction) -> tuple[Tally, bool]:
        """Saves all of the statements, except where a message was erased in the meantime. Returns the counts, and
        whether a message was erased. `shown` has the records of the transaction that are not in quarantine.

        Raises:
            ThrottledError: there is no room for all of them.
        """
        tally = Tally()
        events = [*self.sources.values()]
        erased = {event.event_id for event, gone in zip(events, erased_events(tx, events), strict=True) if gone}
        for statement, program in zip(self.statements, self.programs, strict=True):
            if isinstance(program, MnemonError):
                tally.skip(Skip.INVALID)
            elif erased.isdisjoint(statement.message_ids):
                save_statement(shown, program, [self.sources[each] for each in statement.message_ids], tally)
        return tally, bool(erased)


@asynccontextmanager
async def prepared(
    semantic: SemanticStore, answer: Extraction, request: ExtractionRequest, sources: Mapping[str, Event]
) -> AsyncIterator[ExtractedBatch]:
    """Yields what saves the statements of an answer; its transaction must end before the block does.

    `sources` are the messages that still exist, by id. What only others say is left out.

    Raises:
        EmbeddingError: a text cannot be embedded.
        ThrottledError, IndexWarmingError: see SemanticStore.
    """
    kept = (_of_existing(each, sources) for each in answer.statements)
    statements = [statement for statement in kept if statement.message_ids]
    if not statements:
        yield ExtractedBatch((), (), sources)
        return
    saves = [_save(each, request, sources) for each in statements]
    judged = [_judged(each, request, answer.extractor) for each in statements]
    async with semantic.prepared(saves, judged) as programs:
        yield ExtractedBatch(statements, programs, sources)


def summary_event(event_id: str, newest: Event, scope: Scope, summary: str, now: datetime) -> Event:
    """The event of a summary of the conversation up to its newest message, written now, with the scope of its
    sources.
    """
    return Event(
        event_id=event_id,
        event_type=SUMMARY_TYPE,
        event_time=now,
        content=summary,
        scope=scope,
        source=SUMMARY_SOURCE,
        record_time=now,
        conversation=newest.conversation,
    )


def _of_existing(statement: Extracted, sources: Mapping[str, Event]) -> Extracted:
    return replace(statement, message_ids=tuple(each for each in statement.message_ids if each in sources))


def _save(statement: Extracted, request: ExtractionRequest, sources: Mapping[str, Event]) -> SaveSemantic:
    metadata: dict[str, MetadataValue] = {LINK_KEY: statement.message_ids}
    if statement.valid_time is not None:
        metadata[VALID_TIME_KEY] = statement.valid_time
    # A correction must not lose because the model found it less important than what it corrects.
    updated = next((each for each in request.known if each.memory_id == statement.updates), None)
    importance = highest(statement.importance, updated.importance if updated else None)
    memory = SemanticMemory(
        memory_id="",
        content=statement.content,
        # The scope of the messages, regardless of the answer.
        scope=request.scope,
        importance=importance,
        source=SOURCE_DEFAULT,
        metadata=metadata,
        create_time=max(sources[each].event_time for each in statement.message_ids),
    )
    return SaveSemantic(memory=memory, conflict_policy=ConflictPolicy.RESOLVE)


def _judged(statement: Extracted, request: ExtractionRequest, extractor: str) -> Judged:
    updated = next((each for each in request.known if each.memory_id == statement.updates), None)
    if updated is None:
        return NOT_JUDGED
    relation = Relation(RelationType.UPDATES, UPDATE_PROBABILITY, UPDATE_PROBABILITY, judge=extractor)
    return {updated.memory_id: (updated.revision, relation)}
