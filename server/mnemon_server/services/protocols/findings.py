"""What one protocol found in a text."""

from dataclasses import dataclass, field

from mnemon_server.domain.tool_calls import BlockProblem, Protocol, ToolCall

BLOCKS_MAX = 16_384
"""Of a text that are told, calls and problems together."""


@dataclass(slots=True)
class Findings:
    """Calls, and problems whose offsets are those of the text that was read."""

    protocol: Protocol
    calls: list[ToolCall] = field(default_factory=list)
    problems: list[BlockProblem] = field(default_factory=list)
    boundaries_broken: bool = False

    @property
    def full(self) -> bool:
        """Whether nothing more is read out of the text."""
        return len(self.calls) + len(self.problems) >= BLOCKS_MAX

    def surplus(self, offset: int, reason: str = f"a text is read for {BLOCKS_MAX:,} blocks", tool: str = "") -> None:
        """Notes that nothing from `offset` on was read, and why."""
        self.problem(offset, f"{reason}; this one and what follows were not read", tool)

    def problem(self, offset: int, reason: str, tool: str = "") -> None:
        """Notes why the block that begins at `offset` gave no call."""
        self.problems.append(BlockProblem(protocol=self.protocol, reason=reason, tool=tool, offset=offset))
