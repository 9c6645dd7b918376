"""Tools that language models call: what a model is told, a call with what the application adds, and the outcome."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from mnemon_server.domain.facts import FactMatch
from mnemon_server.domain.records import MetadataValue
from mnemon_server.domain.tool_calls import ParseOptions, ParseResult

CALLS_MAX = 64
"""Of one text that are run; the others get an error each."""
ANSWER_BYTES_MAX = 1 << 20
"""Of what an operator's endpoint answers, in UTF-8."""
TIMEOUT_DEFAULT_S = 10.0


class ToolKind(StrEnum):
    """Who runs a tool: this server, or an endpoint of the operator's."""

    MEMORY = "memory"
    FORWARDED = "forwarded"


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedTool:
    """A tool as a language model is told of it; `parameters` is a JSON schema of type object."""

    name: str
    description: str
    parameters: Mapping[str, Any]
    kind: ToolKind
    actions_permitted: tuple[str, ...] = ()
    """What `manage_memory` may do; empty for every other tool."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OperatorTool:
    """A tool that an operator adds: exactly one of `http`, a URL, and `grpc`, "host:port", says where it is run.

    `tls` is of `grpc` alone; `timeout_s` is for a whole call.
    """

    name: str
    description: str
    parameters: Mapping[str, Any]
    http: str = ""
    grpc: str = ""
    tls: bool = False
    timeout_s: float = TIMEOUT_DEFAULT_S


@dataclass(frozen=True, slots=True)
class UnofferedTool:
    """A tool of the operator's that cannot be called, and why."""

    name: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolContext:
    """What the application knows of a call, and a model may not choose.

    `namespace` may hold labels in braces, which `config` fills; empty: the server's setting, and without one
    `default_namespace`. `actions_permitted`: empty for all that the server permits. `metadata` is put on every fact
    that is created.
    """

    namespace: tuple[str, ...] = ()
    config: Mapping[str, Any] = field(default_factory=dict)
    actions_permitted: tuple[str, ...] = ()
    metadata: Mapping[str, MetadataValue] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class CallTool:
    """A call of one tool. With `artifact`, the facts that `search_memory` finds come beside their text."""

    tool: str
    arguments: Mapping[str, Any] = field(default_factory=dict)
    context: ToolContext = ToolContext()
    artifact: bool = False
    request_id: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExecuteText:
    """A model's text whose calls are to be run in order; each gets a request id made from `request_id`, if any."""

    text: str
    options: ParseOptions = field(default_factory=ParseOptions)
    context: ToolContext = ToolContext()
    artifact: bool = False
    request_id: str = ""


@dataclass(frozen=True, slots=True)
class ToolOutput:
    """What a tool returned: a text for the model, and the facts found for the program, where it asked for them."""

    content: str
    artifact: tuple[FactMatch, ...] = ()
    truncated: bool = False
    """More was found than there is room for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolCallResult:
    """What came of one call of a text, or of one command of it: what the tool returned, or why it failed.

    `command_number` is 0 where the call has no commands of its own. An outcome that is no MnemonError is a fault of
    the product's.
    """

    call_id: str
    tool: str
    outcome: ToolOutput | Exception
    command_number: int = 0


@dataclass(frozen=True, slots=True)
class ExecutedText:
    """What was read, and one result per call, or per command of a call, in order."""

    parsed: ParseResult
    results: tuple[ToolCallResult, ...]
