"""Reads what an extractor gets: the messages of a batch, earlier ones, the summary, and known statements."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime

from mnemon_server.domain.bridge.extraction import (
    MESSAGE_CHARACTERS_MAX,
    ExtractionRequest,
    Known,
    Turn,
)
from mnemon_server.domain.clock import system_clock
from mnemon_server.domain.conversations import SPEAKER_KEY, SUMMARY_TYPE
from mnemon_server.domain.encoding import owner_values
from mnemon_server.domain.events import MESSAGE_TYPE, Event, EventSelection, StoredEvent
from mnemon_server.domain.origins import Origin, least_trusted, less_trusted, not_from, with_origin, without_origin
from mnemon_server.domain.records import Scope
from mnemon_server.domain.semantic import SemanticFilter, SemanticMatch, SimilarQuery
from mnemon_server.engines.promises.events import EventEngine
from mnemon_server.engines.promises.vault import VaultTransaction
from mnemon_server.services.background.offload import Offload
from mnemon_server.services.quarantine.store import QuarantineStore
from mnemon_server.services.semantic.store import SemanticStore
from mnemon_server.wire.events import decode

ROLE_KEY = "role"
"""Metadata that says who speaks, if the source of the event does not."""
DEFAULT_ROLE = "user"
NOT_SEARCHED = frozenset({"tool", "system"})
SEARCHES_MAX = 8
"""The newest messages for which known statements are searched."""
MATCHES_MAX = 5
QUERY_CHARACTERS_MAX = 2_000
READ_MAX = 64
"""Events read to find some of the same scope: conversations in several scopes may have the same id."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ContextLimits:
    """Limits of the context that is sent with the messages of a batch."""

    earlier_max: int = 6
    """Messages before them."""
    known_max: int = 10
    """Known statements."""


@dataclass(eq=False, repr=False, slots=True)
class ConversationReader:
    """Reads conversations of a vault; any number of calls at the same time."""

    _quarantine: QuarantineStore
    _whole_semantic: SemanticStore
    _limits: ContextLimits
    _offload: Offload

    # Quarantined messages are kept from extractors, whose answers would repeat them.

    @property
    def _events(self) -> EventEngine:
        return self._quarantine.shown.events

    @property
    def _semantic(self) -> SemanticStore:
        whole = self._whole_semantic
        return whole.over(self._quarantine.shown) if self._quarantine.hidden else whole

    def shown_in(self, tx: VaultTransaction) -> VaultTransaction:
        """A transaction that saves answers and sees nothing in quarantine."""
        return self._quarantine.shown_in(tx)

    async def messages(self, sequences: Sequence[int]) -> list[Event]:
        """The messages that still exist, in their order."""
        return await self._offload(self._read, sequences)

    async def newest(self, scope: Scope, conversation: str, last: int) -> tuple[list[Event], int]:
        """The newest messages of a conversation, in their order, and the sequence of the first; 0 if it has none."""
        return await self._offload(self._newest, scope, conversation, last)

    async def request(
        self, messages: Sequence[Event], before: int, content_max: int, refusal: str = ""
    ) -> ExtractionRequest:
        """The request about stored messages of one conversation; `before` is the sequence of the first."""
        scope, conversation = without_origin(messages[0].scope), messages[0].conversation
        earlier, summary = await self._offload(self._context, scope, conversation, before)
        read = [*messages, *earlier, *([summary] if summary else [])]
        return await self.request_of(
            with_origin(scope, least_trusted(event.scope for event in read)),
            conversation,
            turns(messages),
            content_max,
            earlier=turns(earlier),
            summary=summary.content if summary else "",
            refusal=refusal,
        )

    async def request_of(
        self,
        scope: Scope,
        conversation: str,
        messages: Sequence[Turn],
        content_max: int,
        *,
        earlier: Sequence[Turn] = (),
        summary: str = "",
        refusal: str = "",
    ) -> ExtractionRequest:
        """The request about messages, with known statements. `scope` has the least trusted origin of its sources."""
        return ExtractionRequest(
            scope=scope,
            conversation=conversation,
            messages=messages,
            now=system_clock(),
            content_max=content_max,
            earlier=earlier,
            known=await self._known(scope, messages),
            summary=summary,
            refusal=refusal,
        )

    async def _known(self, scope: Scope, messages: Sequence[Turn]) -> list[Known]:
        """The statements that match the messages best. An answer may repeat them, so less trusted ones are excluded."""
        asked = [turn for turn in messages if turn.role not in NOT_SEARCHED][-SEARCHES_MAX:]
        where = SemanticFilter(
            scope=Scope(user=scope.user, household=scope.household, persona=scope.persona),
            expression=not_from(less_trusted(Origin(scope.origin or Origin.AGENT))),
        )
        best: dict[str, SemanticMatch] = {}
        for turn in asked if self._limits.known_max else ():
            query = SimilarQuery(text=turn.content[:QUERY_CHARACTERS_MAX], top_k=MATCHES_MAX, where=where)
            for match in (await self._semantic.search(query)).results:
                found = match.memory
                # A filter without a household or a persona matches any.
                is_comparable = (found.scope.household, found.scope.persona) == (scope.household, scope.persona)
                before = best.get(found.memory_id)
                if is_comparable and (before is None or match.score > before.score):
                    best[found.memory_id] = match
        matches = sorted(best.values(), key=lambda match: -match.score)[: self._limits.known_max]
        return [_known(match) for match in matches]

    def _read(self, sequences: Sequence[int]) -> list[Event]:
        return _decoded(self._events.read(sequences))

    def _newest(self, scope: Scope, conversation: str, last: int, before: int | None = None) -> tuple[list[Event], int]:
        found = self._events.sequences(_of(MESSAGE_TYPE, scope, conversation))
        if before is not None:
            found = found[found < before]
        stored = self._events.read(found[-max(last, READ_MAX) :].tolist())
        same = [
            (each.sequence, event) for each, event in zip(stored, _decoded(stored), strict=True) if _is_of(event, scope)
        ]
        newest = same[-last:] if last else []
        return [event for _, event in newest], newest[0][0] if newest else 0

    def _context(self, scope: Scope, conversation: str, before: int) -> tuple[list[Event], Event | None]:
        earlier, _ = self._newest(scope, conversation, self._limits.earlier_max, before)
        summaries = self._events.window(_of(SUMMARY_TYPE, scope, conversation), limit=READ_MAX).events
        summary = next((event for event in _decoded(summaries) if _is_of(event, scope)), None)
        return earlier, summary


def turns(messages: Iterable[Event]) -> list[Turn]:
    """The messages as an extractor gets them."""
    return [_turn(event) for event in messages]


def _turn(event: Event) -> Turn:
    role = event.source or _text(event, ROLE_KEY) or DEFAULT_ROLE
    name = _text(event, SPEAKER_KEY)
    return Turn(
        message_id=event.event_id,
        role=role,
        content=event.content[:MESSAGE_CHARACTERS_MAX],
        time=event.event_time,
        name="" if name == role else name,
    )


def _text(event: Event, key: str) -> str:
    value = event.metadata.get(key)
    return value if isinstance(value, str) else ""


def _known(match: SemanticMatch) -> Known:
    memory = match.memory
    time: datetime = memory.create_time or memory.update_time
    return Known(
        memory_id=memory.memory_id,
        content=memory.content,
        time=time,
        revision=memory.revision,
        importance=memory.importance,
    )


def _of(event_type: str, scope: Scope, conversation: str) -> EventSelection:
    return EventSelection(scope=scope, event_types=frozenset({event_type}), conversation=conversation)


def _is_of(event: Event, scope: Scope) -> bool:
    return owner_values(event.scope) == owner_values(scope)


def _decoded(stored: Iterable[StoredEvent]) -> list[Event]:
    return [decode(each.body) for each in stored]
