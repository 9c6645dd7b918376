"""Tools that language models call: their descriptions, the calls with the application's context, and the results."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, tzinfo
from enum import StrEnum
from typing import Any

from mnemon_server.domain.access import EVERYBODY, Principal
from mnemon_server.domain.facts import FactMatch
from mnemon_server.domain.origins import Origin
from mnemon_server.domain.records import MetadataValue
from mnemon_server.domain.tool_calls import ParseOptions, ParseResult

CALLS_MAX = 64
"""Maximum number of calls in one text that are run. Each further call gets an error."""
ANSWER_BYTES_MAX = 1 << 20
"""Maximum size of the answer of an operator's endpoint, in UTF-8."""
TIMEOUT_DEFAULT_S = 10.0


class ToolKind(StrEnum):
    """The executor of a tool: this server, or an operator's endpoint."""

    MEMORY = "memory"
    FORWARDED = "forwarded"


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedTool:
    """A tool as it is described to a language model. `parameters` is a JSON schema of type object."""

    name: str
    description: str
    parameters: Mapping[str, Any]
    kind: ToolKind
    actions_permitted: tuple[str, ...] = ()
    """The permitted actions of `manage_memory`; empty for every other tool."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OperatorTool:
    """A tool that an operator adds. Exactly one of `http` (a URL) and `grpc` ("host:port") is set and names its
    endpoint.

    `tls` applies to `grpc` only. `timeout_s` covers the whole call. With `identity`, the endpoint is told who calls.
    """

    name: str
    description: str
    parameters: Mapping[str, Any]
    http: str = ""
    grpc: str = ""
    tls: bool = False
    timeout_s: float = TIMEOUT_DEFAULT_S
    identity: bool = False

    @property
    def endpoint(self) -> str:
        """The name of its endpoint."""
        return self.http or self.grpc


@dataclass(frozen=True, slots=True)
class UnofferedTool:
    """An operator's tool that is not available, and why."""

    name: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolContext:
    """The application's part of a call, which a model cannot influence.

    `namespace` may have placeholders, which `config` fills. If it is empty, the server's setting applies, and without
    that setting `default_namespace`. An empty `actions_permitted` allows all that the server permits. `metadata` is
    added to every fact that the call creates. `search_memory` excludes records that are trusted less than `min_trust`.
    It shows times in `time_zone`, to which days in its filter belong, too.
    """

    namespace: tuple[str, ...] = ()
    config: Mapping[str, Any] = field(default_factory=dict)
    actions_permitted: tuple[str, ...] = ()
    metadata: Mapping[str, MetadataValue] = field(default_factory=dict)
    min_trust: Origin | None = None
    time_zone: tzinfo = UTC


@dataclass(frozen=True, slots=True, kw_only=True)
class CallTool:
    """A call of one tool. With `artifact`, `search_memory` returns the facts that it found in addition to their
    text.
    """

    tool: str
    arguments: Mapping[str, Any] = field(default_factory=dict)
    context: ToolContext = ToolContext()
    artifact: bool = False
    request_id: str = ""
    caller: Principal = EVERYBODY
    """The caller that an operator's tool is told."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExecuteText:
    """A model's text whose calls are run in order. Each call's request id is derived from `request_id`, if that
    is set.
    """

    text: str
    options: ParseOptions = field(default_factory=ParseOptions)
    context: ToolContext = ToolContext()
    artifact: bool = False
    request_id: str = ""
    caller: Principal = EVERYBODY


@dataclass(frozen=True, slots=True)
class ToolOutput:
    """The result of a tool: a text for the model and, on request, the facts found for the program."""

    content: str
    artifact: tuple[FactMatch, ...] = ()
    truncated: bool = False
    """More facts were found than fit into the answer."""
    nothing_relevant: bool = False
    """A search found nothing that is likely to have to do with its query."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolCallResult:
    """The result of one call in a text, or of one command of a call: the tool's output, or the error.

    `command_number` is 0 if the call has no numbered commands. An error that is not a MnemonError is a defect of this
    program.
    """

    call_id: str
    tool: str
    outcome: ToolOutput | Exception
    command_number: int = 0


@dataclass(frozen=True, slots=True)
class ExecutedText:
    """The parsed text, and one result per call or per command of a call, in order."""

    parsed: ParseResult
    results: tuple[ToolCallResult, ...]
