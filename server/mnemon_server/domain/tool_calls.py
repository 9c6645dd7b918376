"""Calls of tools that a language model wrote into its text, and what became of reading them."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

TEXT_BYTES_MAX = 1_048_576
"""Of a text that is read for calls, in UTF-8."""
JSON_DEPTH_MAX = 32
"""Objects and lists inside of each other, the outermost included: deeper ones could not be read out of a message."""
INTEGER_MAX = 2**53
"""The largest integer, either way, below which no reader of JSON rounds."""

PARSING_FAILED = "ABP parsing failed"
"""The error of every text without a call."""


class Protocol(StrEnum):
    """How a call is written."""

    ABP = "abp"
    VCP = "vcp"


class Fallback(StrEnum):
    """What stood in for ABP."""

    NONE = "none"
    VCP = "vcp"
    PLAIN_TEXT = "plain-text"


class Repair(StrEnum):
    """What was wrong with a call that could be read without a guess at its words."""

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


@dataclass(frozen=True, slots=True, kw_only=True)
class CallFlags:
    """How a VCP call wants to be run: `archery` is `true` or `no_reply`."""

    asynchronous: bool = False
    no_reply: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class VcpCommand:
    """One `commandN` of a VCP call, with the parameters of suffix N under their names without it."""

    number: int
    command: str
    parameters: Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class VcpDetails:
    """What only VCP has: every field as it was written, the numbered commands, and the flags of `archery`."""

    fields: Mapping[str, str]
    commands: tuple[VcpCommand, ...] = ()
    flags: CallFlags = CallFlags()


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolCall:
    """One call; `id` is unique in its text, and the same whenever that text is read.

    `action` is empty where the call has none of its own. Parameters of VCP are texts, and leave out
    `tool_name` and `archery`.
    """

    id: str
    tool: str
    parameters: Mapping[str, Any]
    protocol: Protocol
    action: str = ""
    repairs: tuple[Repair, ...] = ()
    vcp: VcpDetails | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockProblem:
    """Why a block gave no call. `offset` counts characters of the text as it came, `line` counts from 1.

    `protocol` is None for thinking that never closes, which hides the rest of the text whatever is in it.
    """

    protocol: Protocol | None
    reason: str
    tool: str = ""
    offset: int
    line: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class ParseOptions:
    """How strictly a text is read.

    `strict_envelope`: both `action` and `parameters` must be there. `require_end_marker`: without its end marker no
    block is a call; otherwise a complete, sound object right behind the start marker is one. `strict_boundaries`: a
    marker out of place fails the whole text. `dual_mode`: VCP is tried where ABP gave no call.
    """

    strict_envelope: bool = False
    require_end_marker: bool = True
    strict_boundaries: bool = False
    dual_mode: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class ParseResult:
    """The calls of a text in its order, and what was skipped or hidden. `raw_content` is the text as it came."""

    raw_content: str
    calls: tuple[ToolCall, ...] = ()
    problems: tuple[BlockProblem, ...] = ()
    fallback: Fallback = Fallback.NONE
    has_marker: bool = False

    @property
    def success(self) -> bool:
        """Whether there is at least one call."""
        return bool(self.calls)

    @property
    def error(self) -> str:
        """Empty where there is a call."""
        return "" if self.calls else PARSING_FAILED


@dataclass(frozen=True, slots=True, kw_only=True)
class ProtocolStatistics:
    """Texts by what became of them.

    `total` = `abp_success` + `abp_failed` + `plain_text`, the last being texts without any marker. Texts whose markers
    gave no ABP call are `abp_failed`, and, where VCP was tried on them, one of the two `vcp_fallback_…`, too.
    """

    total: int = 0
    abp_success: int = 0
    abp_failed: int = 0
    vcp_fallback_success: int = 0
    vcp_fallback_failed: int = 0
    plain_text: int = 0
