"""Tool calls that a language model wrote into its text, and the result of parsing them."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

TEXT_BYTES_MAX = 1_048_576
"""Maximum size of a text to parse, in UTF-8."""
JSON_DEPTH_MAX = 32
"""Maximum nesting of objects and lists, including the outermost. Messages cannot carry deeper values."""

PARSING_FAILED = "ABP parsing failed"
"""The error of every text that contains no call."""


class Protocol(StrEnum):
    """The syntax of a call."""

    ABP = "abp"
    VCP = "vcp"


class Fallback(StrEnum):
    """The protocol that was used instead of ABP."""

    NONE = "none"
    VCP = "vcp"
    PLAIN_TEXT = "plain-text"


class Repair(StrEnum):
    """A defect that was repaired without guessing at the words of the call."""

    CODE_FENCE = "code fence"
    SURROUNDING_TEXT = "text around the JSON"
    CONTROL_CHARACTERS = "control characters in strings"
    INVALID_ESCAPES = "invalid escapes"
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
    """How a VCP call asks to be run: `archery` is `true` or `no_reply`."""

    asynchronous: bool = False
    no_reply: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class VcpCommand:
    """One `commandN` of a VCP call, with the parameters that have the suffix N, here without the suffix."""

    number: int
    command: str
    parameters: Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class VcpDetails:
    """The VCP-specific parts of a call: all fields as written, the numbered commands, and the flags of `archery`."""

    fields: Mapping[str, str]
    commands: tuple[VcpCommand, ...] = ()
    flags: CallFlags = CallFlags()


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolCall:
    """One call. `id` is unique within its text, and parsing the same text again gives the same id.

    `action` is empty if the call names none. Parameters of a VCP call are strings and do not include `tool_name` and
    `archery`.
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
    """Why a block contains no call. `offset` counts characters of the original text; `line` counts from 1.

    `protocol` is None for an unclosed thinking block, which hides the rest of the text whatever it contains.
    """

    protocol: Protocol | None
    reason: str
    tool: str = ""
    offset: int
    line: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class ParseOptions:
    """How strictly a text is parsed.

    `strict_envelope`: a call must have both `action` and `parameters`. `require_end_marker`: a block without an end
    marker is not a call; otherwise a complete, valid object right after the start marker is one. `strict_boundaries`: a
    misplaced marker fails the whole text. `dual_mode`: VCP is tried if ABP finds no call.
    """

    strict_envelope: bool = False
    require_end_marker: bool = True
    strict_boundaries: bool = False
    dual_mode: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class ParseResult:
    """The calls in text order, and the parts that were skipped or hidden. `raw_content` is the original text."""

    raw_content: str
    calls: tuple[ToolCall, ...] = ()
    problems: tuple[BlockProblem, ...] = ()
    fallback: Fallback = Fallback.NONE
    has_marker: bool = False

    @property
    def success(self) -> bool:
        """Whether the text contains at least one call."""
        return bool(self.calls)

    @property
    def error(self) -> str:
        """Empty if the text contains a call."""
        return "" if self.calls else PARSING_FAILED


@dataclass(frozen=True, slots=True, kw_only=True)
class ProtocolStatistics:
    """Number of texts by parsing result.

    `total` = `abp_success` + `abp_failed` + `plain_text`; the last counts texts without markers. Texts with markers but
    without an ABP call count as `abp_failed` and, if VCP was tried, also as one of the two `vcp_fallback_…`.
    """

    total: int = 0
    abp_success: int = 0
    abp_failed: int = 0
    vcp_fallback_success: int = 0
    vcp_fallback_failed: int = 0
    plain_text: int = 0
