"""A session for OpenAI's Agents SDK, on a conversation; installed with `mnemon-client[openai-agents]`."""

import json
from typing import TYPE_CHECKING, Any, Unpack

from mnemon._async.client import AsyncClient
from mnemon._messages.conversations import object_in, without_loose_ends
from mnemon._messages.recall import text_of
from mnemon._values.conversations import ConversationMessage, MessageToolCall
from mnemon._values.documents import ScopeFields

if TYPE_CHECKING:
    from agents.items import TResponseInputItem
    from agents.memory import SessionSettings

__all__ = ["MnemonSession"]

_KEY = "openai_agents"
"""The key of the payload with the whole item."""
_BATCH_ITEMS_MAX = 1000


class MnemonSession:
    """The items of an agent's runs, kept as the messages of a conversation.

        session = MnemonSession(client, "c1", user="ada")
        await Runner.run(agent, "I moved to Bern.", session=session)

    Each item is kept whole. What is said in it is found by `recall`.
    """

    session_settings: "SessionSettings | None" = None

    def __init__(
        self, client: AsyncClient, session_id: str, *, min_trust: str | None = None, **scope: Unpack[ScopeFields]
    ) -> None:
        """`session_id` is the conversation, and `scope` names whose it is, such as `user="ada"`. With `min_trust`, such
        as "agent", items are left out that are trusted less than that and less than their role.
        """
        self.session_id, self._min_trust = session_id, min_trust
        self._conversations, self._scope = client.conversations, scope

    async def get_items(self, limit: int | None = None) -> "list[TResponseInputItem]":
        """The items, oldest first; with a limit, only the newest, at most that many.

        Calls without their outputs, and outputs without their calls, are left out, as models require.
        """
        if limit is None and self.session_settings is not None:
            limit = self.session_settings.limit
        if limit is not None and limit <= 0:
            return []
        newest_first = self._conversations.messages(
            self.session_id,
            newest_first=limit is not None,
            min_trust=self._min_trust,
            page_size=_page_size(limit),
            **self._scope,
        )
        found: list[ConversationMessage] = []
        async for message in newest_first:
            found.append(message)
            if len(found) == limit:
                break
        return [_to_item(message) for message in without_loose_ends(found if limit is None else found[::-1])]

    async def add_items(self, items: "list[TResponseInputItem]") -> None:
        """Adds items at the end."""
        found = [_to_message(item) for item in items]
        for start in range(0, len(found), _BATCH_ITEMS_MAX):
            batch = found[start : start + _BATCH_ITEMS_MAX]
            await self._conversations.append(self.session_id, batch, **self._scope)

    async def pop_item(self) -> "TResponseInputItem | None":
        """Removes the newest item, and returns it; None if there is no item."""
        while (page := await self._conversations.messages_page(self.session_id, last=1, **self._scope)).messages:
            [newest] = page.messages
            removed = await self._conversations.delete_messages(
                self.session_id, newest.message_id, allow_missing=True, **self._scope
            )
            if removed.deleted_count:  # Otherwise another caller has it.
                item: TResponseInputItem = _to_item(newest)
                return item
        return None

    async def clear_session(self) -> None:
        """Removes the conversation for good."""
        await self._conversations.delete(self.session_id, allow_missing=True, **self._scope)


def _page_size(limit: int | None) -> int:
    return min(limit or _BATCH_ITEMS_MAX, _BATCH_ITEMS_MAX)


def _to_message(item: Any) -> ConversationMessage:
    """The item: what it says, calls or answers in the fields of a message, and all of it in the payload."""
    kind, payload = item.get("type", "message"), json.dumps({_KEY: item}, ensure_ascii=False)
    match kind:
        case "message":
            said = text_of("content", item.get("content"))
            return ConversationMessage(item.get("role") or "assistant", said, payload=payload)
        case "function_call":
            call = MessageToolCall(item.get("call_id", ""), item.get("name", ""), item.get("arguments", ""))
            return ConversationMessage("assistant", tool_calls=(call,), payload=payload)
        case "function_call_output":
            output = item.get("output")
            said = text_of("output", output if isinstance(output, list) else str(output or ""))
            return ConversationMessage("tool", said, tool_call_id=item.get("call_id", ""), payload=payload)
    # Reasoning, searches and the like: for the model alone.
    return ConversationMessage("assistant", payload=payload)


def _to_item(message: ConversationMessage) -> Any:
    """The item as the SDK gave it; of a message by another program, what its fields say."""
    return object_in(message.payload).get(_KEY) or {"role": _role(message.role), "content": message.content}


def _role(role: str) -> str:
    """The role as an input item may have it."""
    return role if role in ("user", "assistant", "system", "developer") else "user"
