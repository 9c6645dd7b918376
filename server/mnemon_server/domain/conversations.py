"""Conversations, whose messages are events of the timeline, and what may be wrong with a call about them."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, tzinfo
from typing import NamedTuple

from mnemon_server.domain.clock import to_microseconds
from mnemon_server.domain.errors import ErrorReason, MnemonError, NotFoundError
from mnemon_server.domain.kinds import RecordKind
from mnemon_server.domain.origins import Origin
from mnemon_server.domain.recall import RecallAnswer, Tokenizer
from mnemon_server.domain.records import MetadataValue, Scope

SUMMARY_TYPE = "summary"
"""The type of events that summarise what was said before them."""
SPEAKER_KEY = "speaker"
"""The metadata key of an event under which the speaker of a message is searched."""
MESSAGES_MAX, CONTEXT_MESSAGES_DEFAULT = 1_000, 20
CONTEXT_TOKENS_DEFAULT = 4_000
MESSAGE_ID_BYTES_MAX, ROLE_BYTES_MAX, NAME_BYTES_MAX = 256, 128, 256
TOOL_CALLS_MAX, ARGUMENTS_BYTES_MAX = 128, 256 << 10


class ConversationPosition(NamedTuple):
    """A position in the order of conversations: by the time of the newest message, then by its place in storage."""

    time_us: int
    sequence: int


class Conversation(NamedTuple):
    """A conversation of a user, with what its events say about it."""

    conversation_id: str
    scope: Scope
    """The scope of its events; the same id in another scope is another conversation."""
    event_count: int
    """The number of its events that were asked for."""
    first_time: datetime
    last_time: datetime
    first_sequence: int
    last_sequence: int
    """The positions of its oldest and newest event in storage order."""
    title: str = ""
    """The metadata "title" of the first message, or else the beginning of its text."""

    @property
    def position(self) -> ConversationPosition:
        """Its position among the others."""
        return ConversationPosition(to_microseconds(self.last_time), self.last_sequence)


class ToolCall(NamedTuple):
    """A call of a tool, as an assistant asks for it."""

    id: str
    name: str
    arguments: str = ""
    """As the model wrote them, mostly JSON."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """A turn of a conversation; see `ConversationMessage` in the protos."""

    role: str
    content: str = ""
    message_id: str = ""
    name: str = ""
    tool_calls: tuple[ToolCall, ...] = ()
    tool_call_id: str = ""
    payload: str = ""
    time: datetime | None = None
    """None before it is stored means when that happens."""
    importance: float | None = None
    metadata: Mapping[str, MetadataValue] = field(default_factory=dict)

    @property
    def speaker(self) -> str:
        """The name of who speaks, or else the role."""
        return self.name or self.role


class StoredMessage(NamedTuple):
    """A message as stored."""

    message: Message
    event_id: str
    sequence: int
    """Its position in storage order."""
    origin: str = ""
    origin_name: str = ""


class MessageReceipt(NamedTuple):
    """The confirmation of a message. Its promises hold once a caller has it."""

    message_id: str
    event_id: str
    sequence: int
    duplicate: bool


class ConversationPage(NamedTuple):
    """A page of conversations, the newest first; `next_position` is None after the last page."""

    conversations: tuple[Conversation, ...]
    next_position: ConversationPosition | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ConversationKey:
    """Which conversation."""

    scope: Scope
    """The whole scope of its messages; the user is required."""
    conversation_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageQuery:
    """Which messages of a conversation, and in which order."""

    last: int = 0
    """Only so many at its end; 0 means all."""
    newest_first: bool = False
    after: int = 0
    """The position of the last message of the previous page; 0 for the first page."""
    limit: int = 50
    min_trust: Origin | None = None
    """Leaves out messages that are trusted less than this, and less than their role."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeletedMessages:
    """Which messages to remove: exactly one of the first three is set."""

    message_ids: tuple[str, ...] = ()
    last: int = 0
    after_message_id: str = ""
    allow_missing: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ContextQuery:
    """The contents of the context of a conversation."""

    max_tokens: int = 0
    """0: CONTEXT_TOKENS_DEFAULT."""
    tokenizer: Tokenizer = Tokenizer.UTF8
    max_messages: int = 0
    """0: CONTEXT_MESSAGES_DEFAULT."""
    text: str = ""
    """What to recall for; empty means the last messages."""
    kinds: tuple[RecordKind, ...] = ()
    namespace: tuple[str, ...] = ()
    min_relevance: float = 0.0
    min_trust: Origin | None = None
    """Applies to the recalled records, and to messages that are trusted less than their role; see `is_trusted`."""
    time_zone: tzinfo = UTC
    """That of the days in what is recalled."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConversationContext:
    """The context that a language model should read before it answers."""

    messages: tuple[StoredMessage, ...]
    """The last ones, oldest first."""
    earlier_count: int
    summary: str = ""
    summary_time: datetime | None = None
    recall: RecallAnswer | None = None
    """None if there was nothing to ask."""
    tokens: int = 0
    tokenizer: Tokenizer = Tokenizer.UTF8


class ConversationNotFoundError(NotFoundError):
    """The user has no conversation with this id."""

    reason = ErrorReason.CONVERSATION_NOT_FOUND
    noun = "conversation"


class MessageNotFoundError(NotFoundError):
    """The conversation has no message with this id, or with some of these ids."""

    reason = ErrorReason.MESSAGE_NOT_FOUND
    noun = "message"


class MessageExistsError(MnemonError):
    """The conversation has a message with this id that says something else."""

    reason = ErrorReason.MESSAGE_EXISTS

    def __init__(self, message_id: str) -> None:
        self.message_id = message_id
        super().__init__(
            f"the conversation has another message with the id {message_id!r}; omit the id for a new message, or "
            "delete that one first"
        )
