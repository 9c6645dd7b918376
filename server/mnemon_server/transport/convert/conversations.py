"""The conversation service's requests and answers."""

from collections.abc import Sequence
from typing import Any

from mnemon.v1 import conversation_pb2 as pb

from mnemon_server.domain.conversations import (
    ContextQuery,
    ConversationContext,
    ConversationKey,
    ConversationPage,
    DeletedMessages,
    Message,
    MessageQuery,
    MessageReceipt,
    StoredMessage,
    ToolCall,
)
from mnemon_server.domain.events import LIMIT_DEFAULT
from mnemon_server.domain.records import PageOf, View
from mnemon_server.services.background.offload import Pause
from mnemon_server.transport.convert.archive import KINDS
from mnemon_server.transport.convert.recall import answer_to_pb, read_tokenizer
from mnemon_server.transport.convert.shared.fields import filled
from mnemon_server.transport.convert.shared.reader import Reader, read_min_trust
from mnemon_server.transport.convert.shared.several import fill_each
from mnemon_server.wire.values import fill_metadata, fill_scope, fill_time, scope_of


def read_key(request: Any) -> ConversationKey:
    """Which conversation a request is about."""
    return ConversationKey(scope=scope_of(request), conversation_id=request.conversation_id)


async def read_messages(request: pb.AppendMessagesRequest) -> list[Message]:
    """The messages to add; yields to other calls."""
    reader, pause, messages = Reader(), Pause(), []
    for number, message in enumerate(request.messages):
        messages.append(_read_message(reader, f"messages[{number}]", message))
        await pause.where_due()
    reader.finish()
    return messages


def _read_message(reader: Reader, field: str, message: pb.ConversationMessage) -> Message:
    return Message(
        role=message.role,
        content=message.content,
        message_id=message.message_id,
        name=message.name,
        tool_calls=tuple(ToolCall(call.id, call.name, call.arguments) for call in message.tool_calls),
        tool_call_id=message.tool_call_id,
        payload=message.payload,
        time=reader.time(f"{field}.message_time", message, "message_time"),
        importance=message.importance if message.HasField("importance") else None,
        metadata=reader.metadata(f"{field}.metadata", message.metadata) if message.metadata else {},
    )


def read_query(request: pb.ListMessagesRequest, after: int) -> MessageQuery:
    """Which messages to list."""
    reader = Reader()
    limit = reader.page_size(request.page_size, LIMIT_DEFAULT)
    least = read_min_trust(reader, "min_trust", request)
    reader.finish()
    return MessageQuery(last=request.last, newest_first=request.newest_first, after=after, limit=limit, min_trust=least)


def read_deleted(request: pb.DeleteMessagesRequest) -> DeletedMessages:
    """Which messages to remove."""
    return DeletedMessages(
        message_ids=tuple(request.message_ids),
        last=request.last,
        after_message_id=request.after_message_id,
        allow_missing=request.allow_missing,
    )


def read_context(request: pb.GetConversationContextRequest) -> ContextQuery:
    """The request for a context."""
    reader = Reader()
    query = ContextQuery(
        max_tokens=request.max_tokens,
        tokenizer=read_tokenizer(reader, request.tokenizer),
        max_messages=request.max_messages,
        text=request.query,
        kinds=tuple(reader.enum(f"kinds[{number}]", kind, KINDS) for number, kind in enumerate(request.kinds)),
        namespace=tuple(request.namespace),
        min_relevance=request.min_relevance,
        min_trust=read_min_trust(reader, "min_trust", request),
        time_zone=reader.time_zone("time_zone", request.time_zone),
    )
    reader.finish()
    return query


def receipts_to_pb(receipts: Sequence[MessageReceipt]) -> pb.AppendMessagesResponse:
    """The receipts of messages."""
    return pb.AppendMessagesResponse(
        receipts=[
            pb.MessageReceipt(message_id=message_id, event_id=event_id, sequence=sequence, duplicate=duplicate)
            for message_id, event_id, sequence, duplicate in receipts
        ]
    )


async def page_to_pb(page: PageOf[StoredMessage], next_page_token: str) -> pb.ListMessagesResponse:
    """A page of messages; yields to other calls."""
    message = pb.ListMessagesResponse(next_page_token=next_page_token)
    await fill_each(message.messages, page.items, _fill_message)
    return message


def conversations_to_pb(page: ConversationPage, next_page_token: str) -> pb.ListConversationsResponse:
    """A page of conversations."""
    message = pb.ListConversationsResponse(next_page_token=next_page_token)
    for each in page.conversations:
        target = message.conversations.add(conversation_id=each.conversation_id, message_count=each.event_count)
        fill_scope(target, each.scope)
        fill_time(target.first_message_time, each.first_time)
        fill_time(target.last_message_time, each.last_time)
        target.title = each.title
    return message


async def context_to_pb(context: ConversationContext) -> pb.GetConversationContextResponse:
    """The context; yields to other calls."""
    message = filled(
        pb.GetConversationContextResponse(),
        context,
        earlier_message_count=context.earlier_count,
        recall=await answer_to_pb(context.recall, View.STANDARD) if context.recall else None,
        messages=(),
    )
    await fill_each(message.messages, context.messages, _fill_message)
    return message


def _fill_message(target: pb.ConversationMessage, stored: StoredMessage) -> None:
    message, target.event_id, target.sequence, target.origin, target.origin_name = stored
    target.message_id, target.role, target.name = message.message_id, message.role, message.name
    target.content, target.payload, target.tool_call_id = message.content, message.payload, message.tool_call_id
    for call in message.tool_calls:
        target.tool_calls.add(id=call.id, name=call.name, arguments=call.arguments)
    fill_time(target.message_time, message.time)
    if message.importance is not None:
        target.importance = message.importance
    if message.metadata:
        fill_metadata(target.metadata, message.metadata)
