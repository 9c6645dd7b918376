"""The history of a chat for LangChain, on a conversation; installed with `mnemon-client[langchain]`."""

import json
from collections.abc import Iterable, Sequence
from typing import Any, Unpack

try:
    from langchain_core.chat_history import BaseChatMessageHistory
except ModuleNotFoundError as error:
    if (error.name or "").partition(".")[0] != "langchain_core":
        raise
    raise ImportError(
        "mnemon.langchain needs langchain-core; install it with: pip install 'mnemon-client[langchain]'"
    ) from error
from langchain_core.messages import (
    AIMessage,
    BaseMessage,
    HumanMessage,
    SystemMessage,
    ToolMessage,
    message_to_dict,
    messages_from_dict,
)

from mnemon._async.client import AsyncClient
from mnemon._messages.conversations import object_in, without_loose_ends
from mnemon._messages.recall import text_of
from mnemon._sync.client import Client
from mnemon._values.conversations import ConversationMessage, MessageToolCall
from mnemon._values.documents import ScopeFields

__all__ = ["MnemonChatMessageHistory"]

_ROLES = {"human": "user", "ai": "assistant"}
_KEY = "langchain"
"""The key of the payload with the whole message."""
_BATCH_MESSAGES_MAX = 1000


class MnemonChatMessageHistory(BaseChatMessageHistory):
    """The messages of a conversation, as LangChain has them.

        history = MnemonChatMessageHistory(client, "c1", user="ada")
        history.add_user_message("I moved to Bern.")

    Each message is kept whole, and its text is found by `recall`. Calls of tools whose answers are missing or hidden
    are left out, because models refuse them. With an `AsyncClient`, only the methods for asyncio work, such as
    `aget_messages`; with a `Client`, they run on a thread.
    """

    def __init__(
        self,
        client: Client | AsyncClient,
        conversation: str,
        *,
        min_trust: str | None = None,
        **scope: Unpack[ScopeFields],
    ) -> None:
        """`scope` names whose conversation it is, such as `user="ada"`. With `min_trust`, such as "agent", messages are
        left out that are trusted less than that and less than their role.
        """
        self._client, self._conversation, self._scope, self._min_trust = client, conversation, scope, min_trust

    @property
    def messages(self) -> list[BaseMessage]:  # type: ignore[override] # the base class allows a property
        """All messages, oldest first."""
        found = self._blocking.conversations.messages(self._conversation, min_trust=self._min_trust, **self._scope)
        return [_from_message(message) for message in without_loose_ends([*found])]

    def add_messages(self, messages: Sequence[BaseMessage]) -> None:
        """Adds messages at the end; one whose id the conversation has is stored once."""
        for batch in _batches(messages):
            self._blocking.conversations.append(self._conversation, batch, **self._scope)

    def clear(self) -> None:
        """Removes the conversation for good."""
        self._blocking.conversations.delete(self._conversation, allow_missing=True, **self._scope)

    async def aget_messages(self) -> list[BaseMessage]:
        """All messages, oldest first."""
        if isinstance(self._client, Client):
            return await super().aget_messages()
        found = self._client.conversations.messages(self._conversation, min_trust=self._min_trust, **self._scope)
        return [_from_message(message) for message in without_loose_ends([message async for message in found])]

    async def aadd_messages(self, messages: Sequence[BaseMessage]) -> None:
        """Adds messages at the end; one whose id the conversation has is stored once."""
        if isinstance(self._client, Client):
            return await super().aadd_messages(messages)
        for batch in _batches(messages):
            await self._client.conversations.append(self._conversation, batch, **self._scope)
        return None

    async def aclear(self) -> None:
        """Removes the conversation for good."""
        if isinstance(self._client, Client):
            return await super().aclear()
        await self._client.conversations.delete(self._conversation, allow_missing=True, **self._scope)
        return None

    @property
    def _blocking(self) -> Client:
        if isinstance(self._client, Client):
            return self._client
        raise TypeError("with an AsyncClient, use the methods for asyncio, such as aget_messages(), or give a Client")


def _batches(messages: Sequence[BaseMessage]) -> Iterable[list[ConversationMessage]]:
    found = [_to_conversation(message) for message in messages]
    return (found[start : start + _BATCH_MESSAGES_MAX] for start in range(0, len(found), _BATCH_MESSAGES_MAX))


def _to_conversation(message: BaseMessage) -> ConversationMessage:
    """The message: what it says and calls in their fields, and all of it in the payload."""
    calls = message.tool_calls if isinstance(message, AIMessage) else []
    return ConversationMessage(
        role=_ROLES.get(message.type, getattr(message, "role", "") or message.type),
        content=text_of("content", message.content),
        message_id=message.id or "",
        name=message.name or "",
        tool_calls=tuple(MessageToolCall(call["id"] or "", call["name"], json.dumps(call["args"])) for call in calls),
        tool_call_id=message.tool_call_id if isinstance(message, ToolMessage) else "",
        payload=json.dumps({_KEY: message_to_dict(message)}, ensure_ascii=False, default=str),
    )


def _from_message(message: ConversationMessage) -> BaseMessage:
    """The message as LangChain wrote it; of another program's, what its fields say."""
    if whole := object_in(message.payload).get(_KEY):
        return messages_from_dict([whole])[0]
    said: dict[str, Any] = {"content": message.content, "id": message.message_id, "name": message.name or None}
    match message.role:
        case "assistant":
            calls = [
                {"id": call.id, "name": call.name, "args": _arguments(call.arguments)} for call in message.tool_calls
            ]
            return AIMessage(**said, tool_calls=calls)
        case "system" | "developer":
            return SystemMessage(**said)
        case "tool":
            return ToolMessage(**said, tool_call_id=message.tool_call_id)
    return HumanMessage(**said)


def _arguments(text: str) -> dict[str, Any]:
    """The arguments of a call; anything but a JSON object goes under one name."""
    return object_in(text) or ({"arguments": text} if text else {})
