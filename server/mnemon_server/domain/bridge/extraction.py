"""What an extractor gets of a conversation, and what it answers: statements, and perhaps a summary."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from mnemon_server.domain.records import Scope
from mnemon_server.domain.semantic import SavedSemantic

VALID_TIME_KEY = "valid_time"
"""The metadata key for the time at which, or since which, a statement holds."""
STATEMENTS_MAX = 50
"""Maximum number of statements in an answer: more than twice the messages of a batch."""
SUMMARY_CHARACTERS_MAX = 4_000
MESSAGE_CHARACTERS_MAX = 8_000
"""The beginning of a message that is sent."""
PREVIEW_MESSAGES_MAX = 200


class ExtractMode(StrEnum):
    """How messages of conversations become statements."""

    OFF = "off"
    MODEL = "model"
    SERVICE = "service"


class Refusal(StrEnum):
    """Why an answer of an extractor was refused."""

    NOT_JSON = "not_json"
    WRONG_SHAPE = "wrong_shape"
    UNKNOWN_ID = "unknown_id"
    TOO_LONG = "too_long"
    REJECTED = "rejected"
    """The extractor itself refused these messages, and accepts others."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """A message of a conversation."""

    message_id: str
    """The id of its event."""
    role: str
    content: str
    time: datetime
    name: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Known:
    """A stored statement that may be what the messages are about."""

    memory_id: str
    content: str
    time: datetime
    revision: int
    importance: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ExtractionRequest:
    """A part of a conversation. All turns are in their order."""

    scope: Scope
    conversation: str
    messages: Sequence[Turn]
    """The messages to extract from."""
    now: datetime
    content_max: int
    """Maximum number of characters in a statement."""
    earlier: Sequence[Turn] = ()
    """The messages just before them."""
    known: Sequence[Known] = ()
    summary: str = ""
    """The newest summary of the conversation."""
    refusal: str = ""
    """Why the last answer about these messages was refused."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Extracted:
    """A statement of an answer. Its ids come from the request."""

    content: str
    message_ids: tuple[str, ...]
    importance: float | None = None
    valid_time: datetime | None = None
    updates: str = ""
    """The known statement whose place it takes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Extraction:
    """The answer of an extractor."""

    statements: tuple[Extracted, ...]
    summary: str = ""
    tokens: int = 0
    """The tokens that the call took."""
    extractor: str = ""
    """The name of the model or the service."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PreviewRequest:
    """The messages of a preview: the newest of a stored conversation, or those that are given."""

    scope: Scope
    conversation: str = ""
    last: int = 0
    """How many stored ones; 0 means as many as a batch has."""
    messages: Sequence[Turn] = ()
    mode: ExtractMode = ExtractMode.OFF
    """OFF means the policy's extractor, or the one that the server has."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PreviewedStatement:
    """A statement of an answer, and what saving it would do."""

    extracted: Extracted
    saved: SavedSemantic


@dataclass(frozen=True, slots=True, kw_only=True)
class ExtractionPreview:
    """The statements that an extraction would save. If the answer was refused, `refusal` and `message` say why."""

    statements: tuple[PreviewedStatement, ...] = ()
    summary: str = ""
    refusal: Refusal | None = None
    message: str = ""
    message_count: int = 0
    tokens: int = 0
