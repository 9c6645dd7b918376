"""The values of tools that callers give and get."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, TypeAlias, TypedDict

from mnemon._values.documents import JsonValue
from mnemon._values.facts import FactMatch
from mnemon.shared.errors import MnemonError


class ToolKind(StrEnum):
    """The executor of a tool: this server, or an endpoint of the operator's."""

    UNKNOWN = "unknown"
    MEMORY = "memory"
    FORWARDED = "forwarded"


class ToolProtocol(StrEnum):
    """How a call was written."""

    UNKNOWN = "unknown"
    ABP = "abp"
    VCP = "vcp"


class ToolFallback(StrEnum):
    """The fallback from ABP: none, VCP, or plain text, which is the model's answer."""

    NONE = "none"
    VCP = "vcp"
    PLAIN_TEXT = "plain-text"


Schemas: TypeAlias = list[dict[str, Any]]
"""The tools as the API of a model's vendor takes them."""


class ParseOptions(TypedDict, total=False):
    """How strictly a text is read, as keyword arguments."""

    strict_envelope: bool
    """Both `action` and `parameters` must be in the JSON of a call."""
    require_end_marker: bool
    """Unless False, a block without its end marker is not a call. If False, a complete, valid object is enough."""
    strict_boundaries: bool
    """A marker out of place fails the whole text."""
    dual_mode: bool
    """Unless False, VCP is tried where ABP gave no call."""


@dataclass(frozen=True, slots=True)
class Tool(JsonValue):
    """A tool as a language model sees it."""

    name: str
    description: str
    parameters: dict[str, Any]
    """The JSON schema of its arguments: an object."""
    actions_permitted: tuple[str, ...] = ()
    """The permitted actions of manage_memory."""
    kind: str = ToolKind.MEMORY


@dataclass(frozen=True, slots=True)
class ToolOutput(JsonValue):
    """The result of a tool."""

    content: str
    """For the model."""
    artifact: tuple[FactMatch, ...] = ()
    """For the program: the facts, if requested."""
    truncated: bool = False
    """`content` has fewer facts than were found."""
    nothing_relevant: bool = False
    """A search found nothing that is likely to have to do with its query."""


class JsonRepair(StrEnum):
    """A repair of a call's JSON that needed no guess at its words."""

    UNKNOWN = "unknown"
    CODE_FENCE = "code fence"
    SURROUNDING_TEXT = "text around the JSON"
    CONTROL_CHARACTERS = "control characters in strings"
    INVALID_ESCAPES = "invalid escapes"
    INNER_QUOTES = "quotes inside of strings"
    SINGLE_QUOTES = "single quotes"
    OPEN_STRINGS = "open strings"
    OPEN_BRACKETS = "open brackets"
    COMMENTS = "comments"
    EXTRA_COMMAS = "extra commas"
    MISSING_COMMAS = "missing commas"
    UNQUOTED_KEYS = "unquoted keys"
    PYTHON_LITERALS = "literals of Python"


@dataclass(frozen=True, slots=True)
class VcpCommand(JsonValue):
    """One `commandN` of a call, with the parameters of the suffix N without it."""

    number: int
    command: str
    parameters: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class ToolCall(JsonValue):
    """One call as a model wrote it; those of its parameters that VCP gave are texts."""

    call_id: str
    """Unique in its text, and the same whenever that text is read."""
    tool: str
    action: str
    """Empty if the call has no id."""
    parameters: dict[str, Any]
    protocol: ToolProtocol
    repairs: tuple[JsonRepair, ...] = ()
    """The repairs of the JSON."""
    commands: tuple[VcpCommand, ...] = ()
    asynchronous: bool = False
    no_reply: bool = False


@dataclass(frozen=True, slots=True)
class BlockProblem(JsonValue):
    """Why a block of a text is not a call, or that unclosed thinking hides the rest of the text."""

    protocol: ToolProtocol
    """UNKNOWN for thinking."""
    reason: str
    tool: str
    """Empty if it has none."""
    offset: int
    """Where the block begins: code points from the beginning of the text."""
    line: int
    """The same in lines, from 1."""


@dataclass(frozen=True, slots=True)
class ParsedText(JsonValue):
    """The calls of a text in order, and its failures: blocks that are not calls, and unclosed thinking."""

    success: bool
    """Whether there is a call."""
    calls: tuple[ToolCall, ...]
    error: str
    """Empty, or "ABP parsing failed"."""
    raw_content: str
    fallback: ToolFallback
    problems: tuple[BlockProblem, ...] = ()


@dataclass(frozen=True, slots=True)
class ToolCallResult(JsonValue):
    """The result of one call, or of one command of it: an output, or the error that `call` would have raised."""

    call_id: str
    command_number: int
    """The number of the command in a VCP call; 0 without commands."""
    tool: str
    output: ToolOutput | None = None
    error: MnemonError | None = None

    @property
    def content(self) -> str:
        """The text for the model: what the tool returned, or why it failed."""
        return self.output.content if self.output else f"error: {self.error}"


@dataclass(frozen=True, slots=True)
class ExecutedText(JsonValue):
    """The parsed text, and the result of each call, in order. Blocks that are no calls are in `parsed.problems`."""

    parsed: ParsedText
    results: tuple[ToolCallResult, ...]


@dataclass(frozen=True, slots=True)
class ProtocolStats(JsonValue):
    """Texts by outcome: total = abp_success + abp_failed + plain_text.

    Where ABP failed and VCP was tried, the text is counted in one of the two `vcp_fallback_...`, too.
    """

    total: int
    abp_success: int
    abp_failed: int
    vcp_fallback_success: int
    vcp_fallback_failed: int
    plain_text: int
