"""The tools of a server by name: the memory tools, and those that are forwarded to the operator's endpoints."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass

import structlog
from mnemon.shared.tool_definitions import MANAGE_MEMORY, SEARCH_MEMORY

from mnemon_server.domain.access import Principal
from mnemon_server.domain.errors import ConfigurationError, InvalidArgumentError, ToolNotFoundError
from mnemon_server.domain.tools import ListedTool, OperatorTool, ToolKind, UnofferedTool
from mnemon_server.services.limits.accounts import Budget
from mnemon_server.services.tools.argument_schema import ArgumentSchema, UnsupportedSchemaError
from mnemon_server.services.tools.endpoints import ToolEndpoint

MEMORY_TOOLS = (MANAGE_MEMORY, SEARCH_MEMORY)
CALLS_IN_FLIGHT_MAX = 64

SignCaller = Callable[[Principal, OperatorTool], str]
"""A token that says to a tool who calls."""

_log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class ForwardedTool:
    """An operator's tool, ready to be called."""

    listed: ListedTool
    schema: ArgumentSchema
    endpoint: ToolEndpoint
    slots: Budget
    """Limits the calls in flight, so that a slow endpoint cannot take up all calls of the server."""
    token_for: Callable[[Principal], str]
    """The token that says to the endpoint who calls; empty if it is not told."""


class ToolRegistry:
    """Holds the operator's tools besides the memory tools. Owns and closes their endpoints."""

    def __init__(
        self,
        tools: Iterable[tuple[OperatorTool, ToolEndpoint]] = (),
        *,
        calls_max: int = CALLS_IN_FLIGHT_MAX,
        sign: SignCaller = lambda caller, tool: "",
    ) -> None:
        """Takes the tools, how many calls each may have in flight, and what tells the tools with `identity` who calls.

        If a tool's schema is valid but not supported, only that tool is not offered.

        Raises ConfigurationError if a name is used twice, or a schema is not valid.
        """
        self._forwarded: dict[str, ForwardedTool] = {}
        self._unoffered: dict[str, UnofferedTool] = {}
        self._endpoints: list[ToolEndpoint] = []
        for tool, endpoint in sorted(tools, key=lambda pair: pair[0].name):
            self._endpoints.append(endpoint)
            if tool.name in (*self._forwarded, *self._unoffered, *MEMORY_TOOLS):
                raise ConfigurationError(f"the tool {tool.name!r} is defined twice; each needs its own name")
            slots = Budget(calls_max, f"calls of the tool {tool.name!r}")
            try:
                self._forwarded[tool.name] = ForwardedTool(
                    _listed(tool), _schema(tool), endpoint, slots, _token_for(tool, sign)
                )
            except UnsupportedSchemaError as error:
                _log.warning("a tool of the tools file is not offered", tool=tool.name, reason=str(error))
                self._unoffered[tool.name] = UnofferedTool(tool.name, str(error))

    @property
    def names(self) -> tuple[str, ...]:
        """The names of all tools: the memory tools, then the operator's tools, sorted by name."""
        return (*MEMORY_TOOLS, *self._forwarded)

    def forwarded(self) -> tuple[ForwardedTool, ...]:
        """The operator's tools, sorted by name."""
        return tuple(self._forwarded.values())

    def unoffered(self) -> tuple[UnofferedTool, ...]:
        """The operator's tools that cannot be called, sorted by name."""
        return tuple(self._unoffered.values())

    def forwarded_tool(self, name: str) -> ForwardedTool:
        """The operator's tool with this name. Raises ToolNotFoundError if it does not exist."""
        try:
            return self._forwarded[name]
        except KeyError:
            raise ToolNotFoundError(name, self.names) from None

    async def aclose(self) -> None:
        """Closes all endpoints. No call may be in flight."""
        for endpoint in self._endpoints:
            await endpoint.aclose()


def _token_for(tool: OperatorTool, sign: SignCaller) -> Callable[[Principal], str]:
    return lambda caller: sign(caller, tool) if tool.identity else ""


def _schema(tool: OperatorTool) -> ArgumentSchema:
    try:
        return ArgumentSchema(tool.parameters)
    except InvalidArgumentError as error:
        raise ConfigurationError(f"the tool {tool.name!r}: {error}") from error


def _listed(tool: OperatorTool) -> ListedTool:
    return ListedTool(name=tool.name, description=tool.description, parameters=tool.parameters, kind=ToolKind.FORWARDED)
