"""The tools for conversations, which belong to a user: they exist where the MCP server is bound to one."""

from typing import Any

from pydantic import Field

from mnemon._async.client import AsyncClient
from mnemon._mcp.identity import Identity
from mnemon._mcp.searches import Arguments, OwnTool, json_list, time_text
from mnemon._values.conversations import ConversationMessage

APPEND_CONVERSATION, READ_CONVERSATION = "append_conversation", "read_conversation"
_ID_CHARACTERS_MAX = 256
_LISTED_MAX = 20


class Turn(Arguments):
    """One message of a conversation."""

    role: str = Field(min_length=1, description='Who said it: "user" or "assistant".')
    content: str = Field(min_length=1, description="The words.")


class AppendConversation(Arguments):
    """The arguments of append_conversation."""

    conversation: str = Field(
        min_length=1, max_length=_ID_CHARACTERS_MAX, description="The name of the conversation; a new one begins it."
    )
    turns: list[Turn] = Field(min_length=1, max_length=100, description="What was said, oldest first.")


class ReadConversation(Arguments):
    """The arguments of read_conversation."""

    conversation: str = Field(
        "",
        max_length=_ID_CHARACTERS_MAX,
        description="The name of the conversation. Left out: the names of the latest ones.",
    )
    last: int = Field(20, ge=1, le=200, description="How many turns at its end to return at most.")


async def _append(client: AsyncClient, identity: Identity, given: AppendConversation) -> str:
    messages = [ConversationMessage(turn.role, turn.content) for turn in given.turns]
    receipts = await client.conversations.append(given.conversation, messages, user=identity.user)
    return f"added {len(receipts)} to {given.conversation}"


async def _read(client: AsyncClient, identity: Identity, given: ReadConversation) -> str:
    found: list[dict[str, Any]]
    if not given.conversation:
        listed = await client.conversations.list_page(page_size=_LISTED_MAX, user=identity.user)
        found = [
            {
                "conversation": each.conversation_id,
                "title": each.title,
                "turns": each.message_count,
                "last": time_text(each.last_message_time),
            }
            for each in listed.conversations
        ]
        return json_list(found, truncated=bool(listed.next_page_token))
    page = await client.conversations.messages_page(
        given.conversation, newest_first=True, page_size=given.last, user=identity.user
    )
    return json_list([_told(message) for message in page.messages], truncated=bool(page.next_page_token))


def _told(message: ConversationMessage) -> dict[str, Any]:
    """A turn as a model sees it."""
    calls = [{"name": call.name, "arguments": call.arguments} for call in message.tool_calls]
    said = {"name": message.name, "content": message.content, "tool_calls": calls}
    shown = {name: value for name, value in said.items() if value}
    return {"role": message.role, **shown, "time": time_text(message.message_time)}


CONVERSATION_TOOLS = {
    tool.name: tool
    for tool in (
        OwnTool(
            APPEND_CONVERSATION,
            "Keep turns of a conversation word by word, in order, such as an agreement that was just made. They are "
            "found by recall, and by query_timeline.",
            AppendConversation,
            _append,
            is_read=False,
        ),
        OwnTool(
            READ_CONVERSATION,
            "Read the last turns of a conversation that was kept, newest first; or the names of the latest "
            "conversations.",
            ReadConversation,
            _read,
        ),
    )
}
