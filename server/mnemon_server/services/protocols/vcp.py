"""Parses VCP: fields between 「始」 and 「末」, in a block between two markers.

    <<<[TOOL_REQUEST]>>>
    tool_name:「始」FileOperator「末」,
    command1:「始」ReadFile「末」,
    filePath1:「始」/notes/a.txt「末」
    <<<[END_TOOL_REQUEST]>>>

Only an ESCAPE field hides markers: a start or end marker in a plain value starts or ends a block.
"""

import re
from dataclasses import dataclass, field

from mnemon_server.domain.tool_calls import CallFlags, Protocol, ToolCall, VcpCommand, VcpDetails
from mnemon_server.services.protocols.findings import Findings
from mnemon_server.services.protocols.searching import matches

START, END = "<<<[TOOL_REQUEST]>>>", "<<<[END_TOOL_REQUEST]>>>"
OPEN, CLOSE = "「始」", "「末」"
OPEN_ESCAPE, CLOSE_ESCAPE = "「始ESCAPE」", "「末ESCAPE」"

_TOKEN = re.compile("|".join(map(re.escape, (START, END, OPEN, CLOSE, OPEN_ESCAPE, CLOSE_ESCAPE))))
_MARKER = re.compile("|".join(map(re.escape, (START, END))))
_KEY = re.compile(r"[A-Za-z0-9_]++")
_ESCAPED = {
    "<<<[TOOL_REQUEST_ESCAPE]>>>": START,
    "<<<[END_TOOL_REQUEST_ESCAPE]>>>": END,
    OPEN_ESCAPE: OPEN,
    CLOSE_ESCAPE: CLOSE,
}
_ESCAPED_TOKEN = re.compile("|".join(map(re.escape, _ESCAPED)))
_DIGITS = "0123456789"


def has_marker(text: str) -> bool:
    """Whether the text has a marker of VCP."""
    return next(matches(_MARKER, _MARKER, text), None) is not None


def parse_vcp(text: str) -> Findings:
    """All calls of `text` in order. A block without a valid call becomes a problem; the other blocks still count."""
    return _VcpParse(text).run()


@dataclass(slots=True)
class _Block:
    """A block that has begun. `key` is the key of the field whose value is being read."""

    start: int
    previous_end: int
    key: str | None = None
    value_start: int = 0
    fields: dict[str, str] = field(default_factory=dict)


class _VcpParse:
    """Parses one text, token by token."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._findings = Findings(Protocol.VCP)
        self._block: _Block | None = None
        self._escapes = 0

    def run(self) -> Findings:
        for token in matches(_TOKEN, _TOKEN, self._text):
            if self._findings.full:
                self._findings.surplus(token.start())
                self._block = None
                break
            if self._escapes:
                self._in_escape(token)
            elif token[0] == START:
                self._start(token)
            elif self._block is None:
                self._outside(token)
            elif token[0] == END:
                self._finish(self._block)
                self._block = None
            else:
                self._in_block(token, self._block)
        if self._block is not None:
            self._out_of_place(self._block.start, "an ESCAPE field is not closed" if self._escapes else _UNTERMINATED)
        return self._findings

    def _start(self, token: re.Match[str]) -> None:
        if self._block is not None:
            self._out_of_place(self._block.start, _UNTERMINATED)
        self._block = _Block(token.start(), token.end())

    def _outside(self, token: re.Match[str]) -> None:
        if token[0] == END:
            self._out_of_place(token.start(), "an end marker without its start marker")

    def _in_block(self, token: re.Match[str], block: _Block) -> None:
        if block.key is not None:
            if token[0] == CLOSE:
                block.fields[block.key] = self._text[block.value_start : token.start()].strip()
                block.key, block.previous_end = None, token.end()
            return
        if token[0] in (OPEN, OPEN_ESCAPE):
            block.key = self._key_before(token.start(), block)
            block.previous_end = block.value_start = token.end()
            self._escapes = 1 if token[0] == OPEN_ESCAPE else 0
            if block.key == "" and not self._escapes:
                block.key = None

    def _in_escape(self, token: re.Match[str]) -> None:
        """Skips tokens until the ESCAPE field ends; a nested pair of ESCAPE tokens is part of the field's text."""
        if token[0] == OPEN_ESCAPE:
            self._escapes += 1
        elif token[0] == CLOSE_ESCAPE:
            self._escapes -= 1
        if self._escapes or self._block is None:
            return
        if self._block.key:
            value = self._text[self._block.value_start : token.start()].strip()
            self._block.fields[self._block.key] = _ESCAPED_TOKEN.sub(lambda match: _ESCAPED[match[0]], value)
        self._block.key, self._block.previous_end = None, token.end()

    def _key_before(self, position: int, block: _Block) -> str:
        """The key of the value that begins at `position`; empty if it has none."""
        before = self._text[block.previous_end : position].rstrip()
        if not before.endswith(":"):
            return ""
        match = _KEY.match(before[:-1].rstrip()[::-1])
        return match[0][::-1] if match else ""

    def _out_of_place(self, offset: int, reason: str) -> None:
        tool = self._block.fields.get("tool_name", "") if self._block else ""
        self._findings.problem(offset, reason, tool)
        self._findings.boundaries_broken = True

    def _finish(self, block: _Block) -> None:
        tool = block.fields.get("tool_name", "")
        if not tool:
            self._findings.problem(block.start, "tool_name is missing")
            return
        parameters = {key: value for key, value in block.fields.items() if key not in ("tool_name", "archery")}
        details = VcpDetails(fields=block.fields, commands=_commands(parameters), flags=_flags(block.fields))
        self._findings.calls.append(
            ToolCall(
                id=f"{Protocol.VCP}-{len(self._findings.calls) + 1}",
                tool=tool,
                parameters=parameters,
                protocol=Protocol.VCP,
                vcp=details,
            )
        )


def _flags(fields: dict[str, str]) -> CallFlags:
    archery = fields.get("archery", "")
    return CallFlags(asynchronous=archery in ("true", "no_reply"), no_reply=archery == "no_reply")


def _commands(parameters: dict[str, str]) -> tuple[VcpCommand, ...]:
    """`command1`, `command2`, … up to the first missing number, each with the parameters of the same number."""
    by_suffix: dict[str, dict[str, str]] = {}
    for key, value in parameters.items():
        name, suffix = _split_key(key)
        by_suffix.setdefault(suffix, {})[name] = value
    commands: list[VcpCommand] = []
    while (members := by_suffix.get(str(len(commands) + 1))) is not None and "command" in members:
        rest = {name: value for name, value in members.items() if name != "command"}
        commands.append(VcpCommand(number=len(commands) + 1, command=members["command"], parameters=rest))
    return tuple(commands)


def _split_key(key: str) -> tuple[str, str]:
    """Splits a key into its name and its number, like `^(.+?)(\\d+)$`; the number may be empty."""
    name = key.rstrip(_DIGITS) or key[:1]
    return name, key[len(name) :]


_UNTERMINATED = "the end marker is missing"
