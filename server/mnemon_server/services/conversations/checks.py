"""Checks of messages and of what is asked of conversations: every problem is named with its field."""

from collections.abc import Iterable, Sequence

from mnemon_server.domain.conversations import (
    ARGUMENTS_BYTES_MAX,
    MESSAGE_ID_BYTES_MAX,
    MESSAGES_MAX,
    NAME_BYTES_MAX,
    ROLE_BYTES_MAX,
    SPEAKER_KEY,
    TOOL_CALLS_MAX,
    ContextQuery,
    ConversationKey,
    DeletedMessages,
    Message,
    MessageQuery,
)
from mnemon_server.domain.documents import CONTENT_BYTES_MAX, QUERY_BYTES_MAX
from mnemon_server.domain.errors import FieldViolation
from mnemon_server.domain.events import CONVERSATION_BYTES_MAX, LIMIT_MAX, PAYLOAD_BYTES_MAX
from mnemon_server.domain.namespaces import namespace_violations
from mnemon_server.domain.recall import TOKENS_MAX
from mnemon_server.domain.validation import (
    id_violations,
    metadata_violations,
    request_id_violations,
    scope_violations,
    share_violations,
    text_violations,
)
from mnemon_server.services.conversations.messages import payload_of
from mnemon_server.services.events.checks import limit_violations, time_violations


def conversation_violations(conversation: ConversationKey) -> Iterable[FieldViolation]:
    """Violations in which conversation is meant."""
    if not conversation.scope.user:
        yield FieldViolation("scope.user", "must name the user that the conversation belongs to")
    yield from scope_violations(conversation.scope)
    if not conversation.conversation_id:
        yield FieldViolation("conversation_id", "must not be empty")
    yield from id_violations(conversation.conversation_id, "conversation_id", CONVERSATION_BYTES_MAX)


def appending_violations(
    conversation: ConversationKey, messages: Sequence[Message], request_id: str
) -> Iterable[FieldViolation]:
    """Violations in messages to add."""
    yield from conversation_violations(conversation)
    yield from request_id_violations(request_id)
    if not 1 <= len(messages) <= MESSAGES_MAX:
        yield FieldViolation("messages", f"must be 1 to {MESSAGES_MAX:,}")
        return
    places: dict[str, int] = {}
    for number, message in enumerate(messages):
        field = f"messages[{number}]"
        yield from _message_violations(message, field)
        if message.message_id and (first := places.setdefault(message.message_id, number)) != number:
            yield FieldViolation(f"{field}.message_id", f"must differ from messages[{first}].message_id")


def query_violations(conversation: ConversationKey, query: MessageQuery) -> Iterable[FieldViolation]:
    """Violations in a query of messages."""
    yield from conversation_violations(conversation)
    yield from limit_violations(query.limit, "page_size")
    if not 0 <= query.last <= LIMIT_MAX:
        yield FieldViolation("last", f"must be 1 to {LIMIT_MAX:,}, or 0 for all")
    if query.last and query.newest_first:
        yield FieldViolation("last", "must be 0 with newest_first: the first page has the last messages")


def deletion_violations(
    conversation: ConversationKey, which: DeletedMessages, request_id: str
) -> Iterable[FieldViolation]:
    """Violations in messages to remove."""
    yield from conversation_violations(conversation)
    yield from request_id_violations(request_id)
    given = sum(map(bool, (which.message_ids, which.last, which.after_message_id)))
    if given != 1:
        yield FieldViolation("message_ids", "exactly one of message_ids, last and after_message_id must be set")
    if len(which.message_ids) > MESSAGES_MAX:
        yield FieldViolation("message_ids", f"must be at most {MESSAGES_MAX:,}")
        return
    for number, message_id in enumerate(which.message_ids):
        if not message_id:
            yield FieldViolation(f"message_ids[{number}]", "must not be empty")
        yield from id_violations(message_id, f"message_ids[{number}]", MESSAGE_ID_BYTES_MAX)
    yield from id_violations(which.after_message_id, "after_message_id", MESSAGE_ID_BYTES_MAX)
    if not 0 <= which.last <= MESSAGES_MAX:
        yield FieldViolation("last", f"must be 1 to {MESSAGES_MAX:,}")


def context_violations(conversation: ConversationKey, query: ContextQuery) -> Iterable[FieldViolation]:
    """Violations in what the context is asked for, except for what the recall checks."""
    yield from conversation_violations(conversation)
    if not 0 <= query.max_tokens <= TOKENS_MAX:
        yield FieldViolation("max_tokens", f"must be 1 to {TOKENS_MAX:,}, or 0 for the default")
    if not 0 <= query.max_messages <= MESSAGES_MAX:
        yield FieldViolation("max_messages", f"must be 1 to {MESSAGES_MAX:,}, or 0 for the default")
    yield from text_violations(query.text, "query", QUERY_BYTES_MAX)
    yield from share_violations(query.min_relevance, "min_relevance")
    if query.namespace:
        yield from namespace_violations(query.namespace, "namespace")


def _message_violations(message: Message, field: str) -> Iterable[FieldViolation]:
    yield from id_violations(message.message_id, f"{field}.message_id", MESSAGE_ID_BYTES_MAX)
    if not message.role:
        yield FieldViolation(f"{field}.role", 'must say who speaks, such as "user" or "assistant"')
    yield from id_violations(message.role, f"{field}.role", ROLE_BYTES_MAX)
    yield from id_violations(message.name, f"{field}.name", NAME_BYTES_MAX)
    yield from text_violations(message.content, f"{field}.content", CONTENT_BYTES_MAX)
    yield from _tool_violations(message, field)
    yield from share_violations(message.importance, f"{field}.importance")
    yield from time_violations(message.time, f"{field}.message_time")
    if SPEAKER_KEY in message.metadata:
        yield FieldViolation(f"{field}.metadata.{SPEAKER_KEY}", "must not be set: it is the name, or else the role")
    yield from metadata_violations(message.metadata, f"{field}.metadata")


def _tool_violations(message: Message, field: str) -> Iterable[FieldViolation]:
    if len(message.tool_calls) > TOOL_CALLS_MAX:
        yield FieldViolation(f"{field}.tool_calls", f"must be at most {TOOL_CALLS_MAX}")
        return
    for number, call in enumerate(message.tool_calls):
        place = f"{field}.tool_calls[{number}]"
        yield from id_violations(call.id, f"{place}.id", MESSAGE_ID_BYTES_MAX)
        if not call.name:
            yield FieldViolation(f"{place}.name", "must name the tool")
        yield from id_violations(call.name, f"{place}.name", NAME_BYTES_MAX)
        yield from text_violations(call.arguments, f"{place}.arguments", ARGUMENTS_BYTES_MAX)
    yield from id_violations(message.tool_call_id, f"{field}.tool_call_id", MESSAGE_ID_BYTES_MAX)
    found = [*text_violations(message.payload, f"{field}.payload", PAYLOAD_BYTES_MAX)]
    yield from found
    if not found and len(payload_of(message).encode()) > PAYLOAD_BYTES_MAX:
        most = f"{PAYLOAD_BYTES_MAX:,} bytes"
        yield FieldViolation(f"{field}.payload", f"must be at most {most} together with the tool calls")
