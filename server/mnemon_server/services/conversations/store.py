"""The conversation service: messages are added, read and removed as events of the timeline."""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import timedelta
from functools import partial

import numpy as np

from mnemon_server.domain.clock import Clock, system_clock
from mnemon_server.domain.conversations import (
    CONTEXT_MESSAGES_DEFAULT,
    SUMMARY_TYPE,
    ContextQuery,
    Conversation,
    ConversationContext,
    ConversationKey,
    ConversationNotFoundError,
    ConversationPage,
    ConversationPosition,
    DeletedMessages,
    Message,
    MessageExistsError,
    MessageNotFoundError,
    MessageQuery,
    MessageReceipt,
    StoredMessage,
)
from mnemon_server.domain.errors import RequestIdReusedError
from mnemon_server.domain.events import MESSAGE_TYPE, EventReceipt, EventSelection, PrunedEvents, RecordEvent
from mnemon_server.domain.origins import less_trusted
from mnemon_server.domain.records import PageOf, Scope
from mnemon_server.domain.validation import refuse, request_id_violations, scope_violations
from mnemon_server.engines.promises.events import EventEngine, Sequences
from mnemon_server.engines.promises.values import Fits
from mnemon_server.services.background.offload import Offload
from mnemon_server.services.conversations.checks import (
    appending_violations,
    context_violations,
    conversation_violations,
    deletion_violations,
    query_violations,
)
from mnemon_server.services.conversations.context import Asked, pack_context
from mnemon_server.services.conversations.messages import (
    event_id_of,
    from_event,
    is_trusted,
    message_id_of,
    says_the_same,
    title_of,
    to_event,
    without_loose_ends,
)
from mnemon_server.services.events.checks import limit_violations
from mnemon_server.services.events.store import EventStore
from mnemon_server.services.reading.answers import Room, read_within
from mnemon_server.services.reading.pages import PAGE_BYTES_MAX
from mnemon_server.services.recall.store import RecallStore
from mnemon_server.services.writing.writes import new_id, request_key
from mnemon_server.wire.events import decode

MICROSECOND = timedelta(microseconds=1)
MESSAGES = frozenset({MESSAGE_TYPE})


class ConversationStore:
    """The conversations of a vault, or of the part of it that a caller sees."""

    def __init__(
        self, events: EventStore, recall: RecallStore, offload: Offload, *, clock: Clock = system_clock
    ) -> None:
        """All arguments belong to the caller. `offload` runs the reads."""
        self._events = events
        self._recall = recall
        self._offload = offload
        self._clock = clock

    def over(self, events: EventStore, recall: RecallStore) -> "ConversationStore":
        """The same service over a part of the events."""
        return ConversationStore(events, recall, self._offload, clock=self._clock)

    # Adding

    async def append(
        self, conversation: ConversationKey, messages: Sequence[Message], *, request_id: str = ""
    ) -> list[MessageReceipt]:
        """Adds messages in their order; returns a receipt for each.

        Raises:
            InvalidArgumentError: names the invalid fields; nothing was added.
            MessageExistsError: the conversation has a message with such an id that says something else; nothing was
                added.
            RequestIdReusedError: the request id belongs to another request.
            ThrottledError, StorageFullError, StorageFailedError: nothing was added.
        """
        refuse(appending_violations(conversation, messages, request_id))
        named = [_named(message, request_id, number) for number, message in enumerate(messages)]
        engine = self._events.engine
        if request_id or any(message.message_id for message in messages):
            await self._offload(_check_known, engine, conversation, named, messages)
        now = self._clock()
        events = [
            to_event(conversation, message, now + number * MICROSECOND, may_record=engine.may_record)
            for number, message in enumerate(named)
        ]
        receipts = await self._events.record([RecordEvent(event) for event in events])
        stored = [receipt for receipt in receipts if isinstance(receipt, EventReceipt)]
        for receipt in receipts:
            if not isinstance(receipt, EventReceipt):
                raise receipt
        if any(receipt.duplicate for receipt in stored):
            # Another call may have added a message with the same id since.
            await self._offload(_check_known, engine, conversation, named, messages)
        return [
            MessageReceipt(message.message_id, receipt.event_id, receipt.sequence, receipt.duplicate)
            for message, receipt in zip(named, stored, strict=True)
        ]

    # Reading

    async def messages(
        self, conversation: ConversationKey, query: MessageQuery, *, room: Room | None = None
    ) -> PageOf[StoredMessage]:
        """A page of messages; see MessageQuery."""
        refuse(query_violations(conversation, query))
        return await read_within(room, self._offload, _page, self._events.engine, _selection(conversation), query)

    async def conversations(
        self, scope: Scope, *, after: ConversationPosition | None = None, limit: int
    ) -> ConversationPage:
        """A page of conversations, the one with the newest message first. `after` is the previous `next_position`."""
        refuse([*scope_violations(scope), *limit_violations(limit, "page_size")])
        where = EventSelection(scope=scope, event_types=MESSAGES)
        found = await self._offload(self._events.engine.conversations, where)
        left = (each for each in found if after is None or each.position < after)
        ordered = sorted(left, key=lambda each: each.position, reverse=True)
        page = await self._offload(_titled, self._events.engine, ordered[:limit])
        return ConversationPage(tuple(page), page[-1].position if len(ordered) > limit else None)

    async def context(
        self, conversation: ConversationKey, query: ContextQuery, *, room: Room | None = None
    ) -> ConversationContext:
        """The context that a language model should read before it answers.

        Raises the same as a recall.
        """
        refuse(context_violations(conversation, query))
        engine = self._events.engine
        newest = MessageQuery(newest_first=True, limit=query.max_messages or CONTEXT_MESSAGES_DEFAULT)
        page = await read_within(room, self._offload, _page, engine, _selection(conversation), newest)
        least = query.min_trust
        trusted = [each for each in page.items if least is None or is_trusted(each, least)]
        messages = without_loose_ends(trusted)
        count = await self._offload(engine.count, _selection(conversation)) - len(page.items) + len(messages)
        excluded = less_trusted(least) if least else ()
        summaries = replace(_selection(conversation, frozenset({SUMMARY_TYPE})), without=excluded)
        found = (await self._offload(engine.window, summaries, limit=1)).events
        summary = decode(found[0].body) if found else None
        asked = Asked(conversation, query, messages, count, summary)
        return await pack_context(self._recall, asked, room=room)

    # Removing

    async def delete(
        self, conversation: ConversationKey, which: DeletedMessages, *, request_id: str = ""
    ) -> PrunedEvents:
        """Removes messages for good.

        Raises:
            MessageNotFoundError: some ids do not exist; nothing was removed.
            RequestIdReusedError: the request id belongs to another request.
        """
        refuse(deletion_violations(conversation, which, request_id))
        choose = partial(_chosen, self._events.engine, conversation, which)
        parts = [*which.message_ids], which.last, which.after_message_id, which.allow_missing
        key = request_key(request_id, "delete-messages", conversation.scope, conversation.conversation_id, *parts)
        return await self._events.pruning.prune_chosen(choose, key)

    async def delete_conversation(
        self, conversation: ConversationKey, *, allow_missing: bool = False, request_id: str = ""
    ) -> PrunedEvents:
        """Removes all events of a conversation for good.

        Raises:
            ConversationNotFoundError: it has no events.
            RequestIdReusedError: the request id belongs to another request.
        """
        refuse([*conversation_violations(conversation), *request_id_violations(request_id)])
        engine = self._events.engine

        def choose(*, is_resumed: bool) -> Sequences:
            found = engine.sequences(_selection(conversation, frozenset()))
            if not len(found) and not (allow_missing or is_resumed):
                raise ConversationNotFoundError(conversation.conversation_id)
            return found

        parts = conversation.scope, conversation.conversation_id, allow_missing
        key = request_key(request_id, "delete-conversation", *parts)
        return await self._events.pruning.prune_chosen(choose, key)


def _named(message: Message, request_id: str, number: int) -> Message:
    if message.message_id:
        return message
    return replace(message, message_id=message_id_of(request_id, number) if request_id else new_id())


def _selection(conversation: ConversationKey, event_types: frozenset[str] = MESSAGES) -> EventSelection:
    return EventSelection(
        scope=conversation.scope,
        whole_scope=True,
        conversation=conversation.conversation_id,
        event_types=event_types,
    )


# Blocking


def _check_known(
    engine: EventEngine, conversation: ConversationKey, named: Sequence[Message], asked: Sequence[Message]
) -> None:
    """Raises if a message with one of these ids says something else, even if it is in quarantine: the new one would be
    lost.
    """
    found = engine.get_stored([event_id_of(conversation, message.message_id) for message in named])
    for stored, message, given in zip(found, named, asked, strict=True):
        if stored is not None and not says_the_same(from_event(stored).message, message):
            if given.message_id:
                raise MessageExistsError(message.message_id)
            raise RequestIdReusedError("request_id was used for different messages; each request needs its own")


def _page(
    engine: EventEngine, where: EventSelection, query: MessageQuery, *, fits: Fits | None = None
) -> PageOf[StoredMessage]:
    """A page of messages; empty if `fits` refuses it."""
    sequences = engine.sequences(where)
    if query.last and not query.after:
        sequences = sequences[-query.last :]
    if query.newest_first:
        sequences = sequences[::-1]
    if query.after:
        sequences = sequences[sequences < query.after] if query.newest_first else sequences[sequences > query.after]
    events = engine.read(sequences[: query.limit].tolist(), bytes_max=PAGE_BYTES_MAX)
    if events and fits is not None and not fits("", sum(len(event.body) for event in events)):
        return PageOf((), None)
    has_more = bool(events) and events[-1].sequence != sequences[-1]
    least = query.min_trust
    shown = (each for each in map(from_event, events) if least is None or is_trusted(each, least))
    return PageOf(tuple(shown), events[-1].sequence if has_more else None)


def _chosen(
    engine: EventEngine, conversation: ConversationKey, which: DeletedMessages, *, is_resumed: bool
) -> Sequences:
    """The messages to remove, ascending."""
    sequences = engine.sequences(_selection(conversation))
    if which.last:
        return sequences[-which.last :]
    named = _sequences_of(engine, conversation, which.message_ids or (which.after_message_id,))
    missing = [message_id for message_id, sequence in named.items() if sequence is None]
    if missing and not (which.allow_missing or is_resumed):
        raise MessageNotFoundError(*missing)
    known = np.array(sorted(sequence for sequence in named.values() if sequence is not None), np.int64)
    if which.message_ids:
        return known
    return sequences[sequences > known[0]] if len(known) else known


def _sequences_of(
    engine: EventEngine, conversation: ConversationKey, message_ids: Iterable[str]
) -> dict[str, int | None]:
    """The positions of messages by their ids; None for each that does not exist."""
    ids = list(dict.fromkeys(message_ids))
    stored = engine.get([event_id_of(conversation, message_id) for message_id in ids])
    found = {message_id: each and each.sequence for message_id, each in zip(ids, stored, strict=True)}
    if None in found.values():
        # A message that was recorded as an event has the id of that.
        sequences = engine.sequences(_selection(conversation)).tolist()
        while sequences and None in found.values():
            events = engine.read(sequences, bytes_max=PAGE_BYTES_MAX)
            for event in events:
                each = from_event(event)
                if (name := each.message.message_id) in found:
                    found[name] = found[name] or each.sequence
            sequences = sequences[sequences.index(events[-1].sequence) + 1 :] if events else []
    return found


def _titled(engine: EventEngine, page: Sequence[Conversation]) -> list[Conversation]:
    """The conversations with their titles, as far as their first messages fit into PAGE_BYTES_MAX."""
    stored = engine.read(sorted(each.first_sequence for each in page), bytes_max=PAGE_BYTES_MAX)
    titles = {each.sequence: title_of(decode(each.body)) for each in stored}
    return [each._replace(title=titles.get(each.first_sequence, "")) for each in page]
