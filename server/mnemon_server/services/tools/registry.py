"""The tools of a server by name: those of the memory, and those that forward to endpoints of the operator's."""

from collections.abc import Iterable
from dataclasses import dataclass

from mnemon_server.domain.errors import ConfigurationError, InvalidArgumentError, ToolNotFoundError
from mnemon_server.domain.tools import ListedTool, OperatorTool, ToolKind
from mnemon_server.services.tools.argument_schema import ArgumentSchema
from mnemon_server.services.tools.definitions import MANAGE_MEMORY, SEARCH_MEMORY
from mnemon_server.services.tools.forwarding import ToolEndpoint

MEMORY_TOOLS = (MANAGE_MEMORY, SEARCH_MEMORY)


@dataclass(frozen=True, slots=True)
class ForwardedTool:
    """An operator's tool, ready to be called."""

    listed: ListedTool
    schema: ArgumentSchema
    endpoint: ToolEndpoint


class ToolRegistry:
    """Holds the operator's tools beside the memory's, and their endpoints, which it closes."""

    def __init__(self, tools: Iterable[tuple[OperatorTool, ToolEndpoint]] = ()) -> None:
        """Raises ConfigurationError where a name is taken, or a schema is none."""
        self._forwarded: dict[str, ForwardedTool] = {}
        for tool, endpoint in tools:
            if tool.name in self._forwarded or tool.name in MEMORY_TOOLS:
                raise ConfigurationError(f"the tool {tool.name!r} is there twice; each needs a name of its own")
            self._forwarded[tool.name] = ForwardedTool(_listed(tool), _schema(tool), endpoint)

    @property
    def names(self) -> tuple[str, ...]:
        """Of all tools: the memory's, then the operator's in the order of their names."""
        return (*MEMORY_TOOLS, *sorted(self._forwarded))

    def forwarded(self) -> tuple[ForwardedTool, ...]:
        """The operator's tools, in the order of their names."""
        return tuple(self._forwarded[name] for name in sorted(self._forwarded))

    def forwarded_tool(self, name: str) -> ForwardedTool:
        """Raises ToolNotFoundError where no tool of the operator's has this name."""
        try:
            return self._forwarded[name]
        except KeyError:
            raise ToolNotFoundError(name, self.names) from None

    async def aclose(self) -> None:
        """Closes all endpoints. No call may be in flight."""
        for tool in self._forwarded.values():
            await tool.endpoint.aclose()


def _schema(tool: OperatorTool) -> ArgumentSchema:
    try:
        return ArgumentSchema(tool.parameters)
    except InvalidArgumentError as error:
        raise ConfigurationError(f"the tool {tool.name!r}: {error}") from error


def _listed(tool: OperatorTool) -> ListedTool:
    return ListedTool(name=tool.name, description=tool.description, parameters=tool.parameters, kind=ToolKind.FORWARDED)
