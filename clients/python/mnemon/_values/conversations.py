"""The values of conversations."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from mnemon._values.documents import JsonValue, MetadataValue, Scope
from mnemon._values.recall import RecallAnswer


@dataclass(frozen=True, slots=True)
class MessageToolCall(JsonValue):
    """A call of a tool, as an assistant asks for it."""

    id: str
    name: str
    arguments: str = ""
    """As the model wrote them, mostly JSON."""


@dataclass(frozen=True, slots=True)
class ConversationMessage(JsonValue):
    """A turn of a conversation."""

    role: str
    """"user", "assistant", "system", "tool", or anything else."""
    content: str = ""
    message_id: str = ""
    """Unique in the conversation; empty means a new UUID."""
    name: str = ""
    """The name of the speaker."""
    tool_calls: tuple[MessageToolCall, ...] = ()
    tool_call_id: str = ""
    """The call that it answers, if it is the answer of a tool."""
    payload: str = ""
    """Data of your program; never searched."""
    message_time: datetime | None = None
    """When it was said; None means when the server receives it."""
    importance: float | None = None
    metadata: Mapping[str, MetadataValue] = field(default_factory=dict)
    event_id: str = ""
    """The server's: the id of its event in the timeline."""
    sequence: int = 0
    """The server's: its position in the order of all events."""
    origin: str = ""
    """The server's: where the message comes from. The role alone proves nothing; see `min_trust` of `context`."""
    origin_name: str = ""

    def as_chat(self) -> dict[str, Any]:
        """The message as chat APIs of language models take it, with OpenAI's names."""
        said: dict[str, Any] = {"role": self.role, "content": self.content}
        if self.name:
            said["name"] = self.name
        if self.tool_call_id:
            said["tool_call_id"] = self.tool_call_id
        if self.tool_calls:
            said["tool_calls"] = [
                {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}
                for call in self.tool_calls
            ]
        return said


@dataclass(frozen=True, slots=True)
class MessageReceipt(JsonValue):
    """The server's receipt for a message."""

    message_id: str
    event_id: str
    sequence: int
    duplicate: bool
    """The conversation had it already; nothing was written."""


@dataclass(frozen=True, slots=True)
class MessagePage(JsonValue):
    """A page of messages."""

    messages: tuple[ConversationMessage, ...]
    next_page_token: str
    """Empty after the last page."""


@dataclass(frozen=True, slots=True)
class Conversation(JsonValue):
    """A conversation, without its messages."""

    conversation_id: str
    scope: Scope
    message_count: int
    first_message_time: datetime | None
    last_message_time: datetime | None
    title: str = ""
    """The metadata "title" of its first message, or else the beginning of its text."""


@dataclass(frozen=True, slots=True)
class ConversationPage(JsonValue):
    """A page of conversations, the one with the newest message first."""

    conversations: tuple[Conversation, ...]
    next_page_token: str
    """Empty after the last page."""


@dataclass(frozen=True, slots=True)
class ConversationContext(JsonValue):
    """The context that a language model should read before it answers."""

    messages: tuple[ConversationMessage, ...]
    """The last messages, oldest first."""
    earlier_message_count: int
    """How many older messages the conversation has."""
    summary: str
    """The newest summary of the conversation; empty without a summary, or if it does not fit."""
    summary_time: datetime | None
    recall: RecallAnswer | None
    """The recall for the last messages, without these; None if there was nothing to ask."""
    tokens: int
    """The size of the messages, the summary and the recalled context together."""
    tokenizer: str
    """How tokens were counted."""


@dataclass(frozen=True, slots=True)
class MessagesDeletion(JsonValue):
    """The result of a removal."""

    deleted_count: int
    replayed: bool = False
    """It had been removed by an earlier try of the same call."""
