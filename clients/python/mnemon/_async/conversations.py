"""The asyncio client's object for conversations."""

from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any, Unpack

from mnemon._async.service import AsyncService, Stub
from mnemon._messages.conversations import ids_to_pb, messages_to_pb
from mnemon._messages.convert import text
from mnemon._messages.recall import fields_to_pb, kinds_to_pb
from mnemon._messages.translation import read, request
from mnemon._values import conversations
from mnemon._values.documents import ScopeFields
from mnemon.v1 import conversation_pb2 as pb
from mnemon.v1.conversation_pb2_grpc import ConversationServiceStub


class AsyncConversations(AsyncService):
    """Conversations, as `client.conversations`: what was said, in order.

    A conversation is an id of a user's, and needs no creation. Its messages are events of the timeline, so `recall`
    finds them, and retention and erasure remove them.
    """

    _stub = Stub(ConversationServiceStub)

    async def append(
        self,
        conversation_id: str,
        messages: Sequence[conversations.ConversationMessage | Mapping[str, Any]],
        *,
        request_id: str | None = None,
        timeout: float | None = None,
        **scope: Unpack[ScopeFields],
    ) -> tuple[conversations.MessageReceipt, ...]:
        """Adds messages at the end of a conversation, at most 1,000; returns a receipt for each.

        Messages are `ConversationMessage`s, or mappings as chat APIs have them, such as {"role": "user", "content":
        "I moved to Bern."}. `scope` names whose conversation it is, such as `user="ada"`. A message with a
        `message_id` that the conversation has is stored once; if it says something else, raises MessageExistsError.
        """
        asked = request(
            pb.AppendMessagesRequest,
            conversation_id=conversation_id,
            scope=fields_to_pb(scope),
            messages=messages_to_pb(messages),
            request_id=request_id,
        )
        answer = await self._call(self._stub.AppendMessages, asked, timeout)
        return tuple(read(conversations.MessageReceipt, each) for each in answer.receipts)

    def messages(
        self,
        conversation_id: str,
        *,
        last: int = 0,
        newest_first: bool = False,
        min_trust: str | None = None,
        page_size: int = 0,
        timeout: float | None = None,
        **scope: Unpack[ScopeFields],
    ) -> AsyncIterator[conversations.ConversationMessage]:
        """Yields the messages of a conversation in the order in which they were added, or the newest first.

        With `last`, only so many at its end, at most 1,000. With `min_trust`, such as "agent", without messages that
        are trusted less than that and less than their role. A conversation that does not exist has no messages.
        `timeout` applies to each page.
        """
        return self._items(
            self.messages_page,
            conversation_id,
            last=last,
            newest_first=newest_first,
            min_trust=min_trust,
            page_size=page_size,
            timeout=timeout,
            **scope,
        )

    async def messages_page(
        self,
        conversation_id: str,
        *,
        last: int = 0,
        newest_first: bool = False,
        min_trust: str | None = None,
        page_size: int = 0,
        page_token: str = "",
        timeout: float | None = None,
        **scope: Unpack[ScopeFields],
    ) -> conversations.MessagePage:
        """Returns one page of messages: 50 if `page_size` is 0, at most 1,000."""
        asked = request(
            pb.ListMessagesRequest,
            conversation_id=conversation_id,
            scope=fields_to_pb(scope),
            last=last,
            newest_first=newest_first,
            min_trust=min_trust or "",
            page_size=page_size,
            page_token=page_token,
        )
        return read(conversations.MessagePage, await self._call(self._stub.ListMessages, asked, timeout))

    def list(
        self, *, page_size: int = 0, timeout: float | None = None, **scope: Unpack[ScopeFields]
    ) -> AsyncIterator[conversations.Conversation]:
        """Yields the conversations of a scope, the one with the newest message first."""
        return self._items(self.list_page, page_size=page_size, timeout=timeout, **scope)

    async def list_page(
        self,
        *,
        page_size: int = 0,
        page_token: str = "",
        timeout: float | None = None,
        **scope: Unpack[ScopeFields],
    ) -> conversations.ConversationPage:
        """Returns one page of conversations: 50 if `page_size` is 0, at most 1,000."""
        asked = request(
            pb.ListConversationsRequest, scope=fields_to_pb(scope), page_size=page_size, page_token=page_token
        )
        return read(conversations.ConversationPage, await self._call(self._stub.ListConversations, asked, timeout))

    async def context(
        self,
        conversation_id: str,
        *,
        query: str = "",
        max_tokens: int | None = None,
        max_messages: int | None = None,
        kinds: Sequence[str] = (),
        namespace: Sequence[str] | str = (),
        min_relevance: float = 0.0,
        min_trust: str | None = None,
        time_zone: str = "",
        timeout: float | None = None,
        **scope: Unpack[ScopeFields],
    ) -> conversations.ConversationContext:
        """Returns what a language model should read before it answers, within `max_tokens`, 4,000 by default.

        That is the last messages, at most `max_messages` (20 by default), what `recall` finds for them or for the
        `query`, and the newest summary. `kinds`, `namespace`, `min_relevance`, `min_trust` and `time_zone` are as in
        `recall`; `min_trust` also excludes messages that come from a less trusted origin than their role says.
        """
        asked = request(
            pb.GetConversationContextRequest,
            conversation_id=conversation_id,
            scope=fields_to_pb(scope),
            query=query,
            max_tokens=max_tokens,
            max_messages=max_messages,
            kinds=kinds_to_pb(kinds),
            namespace=namespace,
            min_relevance=min_relevance,
            min_trust=min_trust or "",
            time_zone=time_zone,
        )
        answer = await self._call(self._stub.GetConversationContext, asked, timeout)
        return read(conversations.ConversationContext, answer)

    async def delete_messages(
        self,
        conversation_id: str,
        message_ids: Sequence[str] | str = (),
        *,
        last: int = 0,
        after: str = "",
        allow_missing: bool = False,
        request_id: str | None = None,
        timeout: float | None = None,
        **scope: Unpack[ScopeFields],
    ) -> conversations.MessagesDeletion:
        """Removes messages for good: those with these ids, the `last` ones, or all `after` the one with this id.

        Raises MessageNotFoundError if an id does not exist, and removes nothing, unless `allow_missing`.
        """
        asked = request(
            pb.DeleteMessagesRequest,
            conversation_id=conversation_id,
            scope=fields_to_pb(scope),
            message_ids=ids_to_pb("message_ids", message_ids),
            last=last,
            after_message_id=text("after", after),
            allow_missing=allow_missing,
            request_id=request_id,
        )
        return read(conversations.MessagesDeletion, await self._call(self._stub.DeleteMessages, asked, timeout))

    async def delete(
        self,
        conversation_id: str,
        *,
        allow_missing: bool = False,
        request_id: str | None = None,
        timeout: float | None = None,
        **scope: Unpack[ScopeFields],
    ) -> conversations.MessagesDeletion:
        """Removes all events of a conversation for good: messages, summaries and any others.

        Raises ConversationNotFoundError if it has no events, unless `allow_missing`.
        """
        asked = request(
            pb.DeleteConversationRequest,
            conversation_id=conversation_id,
            scope=fields_to_pb(scope),
            allow_missing=allow_missing,
            request_id=request_id,
        )
        return read(conversations.MessagesDeletion, await self._call(self._stub.DeleteConversation, asked, timeout))
