"""Collects the calls and problems that one protocol finds in a text."""

from dataclasses import dataclass, field

from mnemon_server.domain.tool_calls import BlockProblem, Protocol, ToolCall

BLOCKS_MAX = 16_384
"""The most blocks of a text that are reported, calls and problems together."""


@dataclass(slots=True)
class Findings:
    """Calls and problems. The offsets of problems refer to the text that was parsed."""

    protocol: Protocol
    calls: list[ToolCall] = field(default_factory=list)
    problems: list[BlockProblem] = field(default_factory=list)
    boundaries_broken: bool = False

    @property
    def full(self) -> bool:
        """Whether BLOCKS_MAX is reached, so that the rest of the text is not read."""
        return len(self.calls) + len(self.problems) >= BLOCKS_MAX

    def surplus(self, offset: int, reason: str = f"at most {BLOCKS_MAX:,} blocks are read", tool: str = "") -> None:
        """Adds the problem that the text was not read from `offset` on, and why."""
        self.problem(offset, f"{reason}; this block and the rest of the text were not read", tool)

    def problem(self, offset: int, reason: str, tool: str = "") -> None:
        """Adds the reason why the block that begins at `offset` has no valid call."""
        self.problems.append(BlockProblem(protocol=self.protocol, reason=reason, tool=tool, offset=offset))
