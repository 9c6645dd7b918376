"""What one protocol found in a text."""

from dataclasses import dataclass, field

from mnemon_server.domain.tool_calls import BlockProblem, Protocol, ToolCall


@dataclass(slots=True)
class Findings:
    """Calls, and problems whose offsets are those of the text that was read."""

    protocol: Protocol
    calls: list[ToolCall] = field(default_factory=list)
    problems: list[BlockProblem] = field(default_factory=list)
    boundaries_broken: bool = False

    def problem(self, offset: int, reason: str, tool: str = "") -> None:
        """Notes why the block that begins at `offset` gave no call."""
        self.problems.append(BlockProblem(protocol=self.protocol, reason=reason, tool=tool, offset=offset))
