"""Packs what a language model should read before it answers: the last messages, a summary, and what is recalled."""

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

from mnemon_server.domain.conversations import (
    CONTEXT_TOKENS_DEFAULT,
    ContextQuery,
    ConversationContext,
    ConversationKey,
    Message,
    StoredMessage,
)
from mnemon_server.domain.documents import QUERY_BYTES_MAX
from mnemon_server.domain.events import Event
from mnemon_server.domain.kinds import RecordKind
from mnemon_server.domain.recall import RecallAnswer, RecallMessage, RecallQuery
from mnemon_server.services.reading.answers import Room
from mnemon_server.services.recall.packing import ELLIPSIS
from mnemon_server.services.recall.store import RecallStore

MESSAGES_SHARE = 2
"""The messages get this part of the tokens before anything is recalled: one in MESSAGES_SHARE."""
SUMMARY_SHARE = 2
"""A summary takes at most this part of what the messages leave."""
ASKED_MAX = 8
"""How many of the last messages are asked with."""
UNASKED = ("system", "tool")
"""Roles whose messages ask nothing."""


class Asked(NamedTuple):
    """The content to pack."""

    conversation: ConversationKey
    query: ContextQuery
    newest: Sequence[StoredMessage]
    """The last messages, newest first."""
    message_count: int
    """The number of messages in the whole conversation."""
    summary: Event | None


async def pack_context(recall: RecallStore, asked: Asked, *, room: Room | None = None) -> ConversationContext:
    """The context, within the tokens of the query. Raises the same as a recall."""
    query, newest = asked.query, asked.newest
    newest = await _with_room(recall, query, newest)
    texts = [_said(each.message) for each in newest]
    *sizes, size = await recall.token_counts(query.tokenizer, [*texts, asked.summary.content if asked.summary else ""])
    left = query.max_tokens or CONTEXT_TOKENS_DEFAULT
    taken = _fitting(sizes, left // MESSAGES_SHARE) or int(bool(sizes) and sizes[0] <= left)
    left -= sum(sizes[:taken])
    summary = asked.summary
    if summary is not None:
        summary, left = (summary, left - size) if size <= left // SUMMARY_SHARE else (None, left)
    answer = await _recalled(recall, asked, taken, left, room)
    recalled = set[str]()
    if answer is not None:
        left -= answer.context_tokens
        recalled = {item.record.id for item in answer.items if item.record.kind is RecordKind.EVENT and item.citation}
    while taken < len(newest) and sizes[taken] <= left and newest[taken].event_id not in recalled:
        left -= sizes[taken]
        taken += 1
    messages = _without_loose_answers(newest[:taken][::-1])
    left += sum(sizes[len(messages) : taken])
    return ConversationContext(
        messages=tuple(messages),
        earlier_count=max(asked.message_count - len(messages), 0),
        summary=summary.content if summary else "",
        summary_time=summary.event_time if summary else None,
        recall=answer,
        tokens=(query.max_tokens or CONTEXT_TOKENS_DEFAULT) - left,
        tokenizer=query.tokenizer,
    )


async def _with_room(
    recall: RecallStore, query: ContextQuery, newest: Sequence[StoredMessage]
) -> Sequence[StoredMessage]:
    """The messages, the newest one shortened if the context has no room for it: a prompt needs its last turn."""
    tokens_max = query.max_tokens or CONTEXT_TOKENS_DEFAULT
    if not newest:
        return newest
    message, kept = newest[0].message, len(newest[0].message.content)
    [size] = await recall.token_counts(query.tokenizer, [_said(message)])
    while size > tokens_max and kept:
        # Some tokens have more characters than others, so that a few steps may be needed.
        kept = kept * tokens_max // (MESSAGES_SHARE * size)
        message = replace(message, content=_ends(newest[0].message.content, kept))
        [size] = await recall.token_counts(query.tokenizer, [_said(message)])
    return [newest[0]._replace(message=message), *newest[1:]] if kept else newest


def _ends(text: str, kept: int) -> str:
    """The beginning and the end of a text, so many characters together."""
    half = kept // 2
    return f"{text[:half]}\n{ELLIPSIS}\n{text[len(text) - half :]}" if half else ""


async def _recalled(
    recall: RecallStore, asked: Asked, taken: int, tokens_max: int, room: Room | None
) -> RecallAnswer | None:
    """The answer of a recall for the last messages; None if they ask nothing."""
    query = asked.query
    turns = [each.message for each in asked.newest[:ASKED_MAX] if each.message.role not in UNASKED]
    messages = tuple(RecallMessage(turn.role, _cut(turn.content)) for turn in turns[::-1] if turn.content.strip())
    if not query.text.strip() and not messages:
        return None
    return await recall.recall(
        RecallQuery(
            text=query.text,
            messages=() if query.text.strip() else messages,
            scope=asked.conversation.scope,
            namespace=query.namespace,
            kinds=query.kinds,
            # A recall without room for a context is one that has no context.
            max_tokens=max(tokens_max, 1),
            tokenizer=query.tokenizer,
            min_relevance=query.min_relevance,
            min_trust=query.min_trust,
            time_zone=query.time_zone,
            excluded=frozenset(each.event_id for each in asked.newest[:taken]),
        ),
        room=room,
    )


def _fitting(sizes: Sequence[int], tokens_max: int) -> int:
    """How many of the first messages have at most this many tokens together."""
    taken = total = 0
    for size in sizes:
        total += size
        if total > tokens_max:
            break
        taken += 1
    return taken


def _said(message: Message) -> str:
    """A message as a model reads it, to count its tokens."""
    calls = "".join(f"{call.name}({call.arguments})\n" for call in message.tool_calls)
    return f"{message.speaker}: {message.content}\n{calls}"


def _without_loose_answers(messages: Sequence[StoredMessage]) -> list[StoredMessage]:
    """The messages from the first on that answers no call of a tool that is missing: models refuse such answers."""
    first = 0
    while first < len(messages) and messages[first].message.tool_call_id:
        first += 1
    return list(messages[first:])


def _cut(text: str) -> str:
    """The text, cut to the length that a question may have."""
    return text.encode()[:QUERY_BYTES_MAX].decode(errors="ignore")
