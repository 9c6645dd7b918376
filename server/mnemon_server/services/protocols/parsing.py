"""Reads the calls of a model's text: without its thinking, ABP first, then VCP."""

from collections.abc import Sequence
from dataclasses import replace

from mnemon_server.domain.errors import InvalidArgumentError
from mnemon_server.domain.tool_calls import TEXT_BYTES_MAX, BlockProblem, Fallback, ParseOptions, ParseResult
from mnemon_server.services.protocols import abp, vcp
from mnemon_server.services.protocols.thinking import VisibleText, without_thinking

DEFAULT_OPTIONS = ParseOptions()
WRITTEN_IN_JSON = "where a string of JSON is to say it, write \\u003cthink>"


def parse_tool_calls(text: str, options: ParseOptions = DEFAULT_OPTIONS) -> ParseResult:
    """All calls of `text`, with the reason for each block that gives none; time is linear in the text's length.

    Where ABP gives a call, VCP blocks are ignored. A text whose boundaries are broken gives no call under
    `strict_boundaries`, of VCP neither. Raises `InvalidArgumentError` for a text above 1 MiB.
    """
    _check_size(text)
    visible = without_thinking(text)
    found = abp.parse_abp(visible.text, options)
    problems = list(found.problems)
    has_marker = abp.has_marker(visible.text) or (options.dual_mode and vcp.has_marker(visible.text))
    calls, fallback = found.calls, Fallback.NONE
    whole_text_failed = options.strict_boundaries and found.boundaries_broken
    if whole_text_failed:
        calls = []
    elif not calls and options.dual_mode:
        found = vcp.parse_vcp(visible.text)
        calls, fallback = found.calls, Fallback.VCP
        problems += found.problems
        if options.strict_boundaries and found.boundaries_broken:
            calls = []
    return ParseResult(
        raw_content=text,
        calls=tuple(calls),
        problems=_placed(text, visible, problems),
        fallback=fallback if calls else Fallback.PLAIN_TEXT,
        has_marker=has_marker,
    )


def _check_size(text: str) -> None:
    if len(text) > TEXT_BYTES_MAX or (
        len(text) * 4 > TEXT_BYTES_MAX and len(text.encode(errors="surrogatepass")) > TEXT_BYTES_MAX
    ):
        raise InvalidArgumentError.of("text", f"must have at most {TEXT_BYTES_MAX} bytes in UTF-8")


def _placed(text: str, visible: VisibleText, problems: Sequence[BlockProblem]) -> tuple[BlockProblem, ...]:
    """The problems in the order of the text as it came, each with its place there; last, thinking that never closes."""
    moved = [replace(problem, offset=visible.offset_in_original(problem.offset)) for problem in problems]
    moved.sort(key=lambda problem: problem.offset)
    if visible.unclosed is not None:
        moved.append(_unclosed_thinking(text, visible.unclosed))
    placed = []
    behind, line = 0, 1
    for problem in moved:
        line += text.count("\n", behind, problem.offset)
        behind = problem.offset
        placed.append(replace(problem, line=line))
    return tuple(placed)


def _unclosed_thinking(text: str, offset: int) -> BlockProblem:
    hidden = text[offset:]
    marker = ", a marker of a call among them" if abp.has_marker(hidden) or vcp.has_marker(hidden) else ""
    reason = f"the <think> here never closes, and hides {len(hidden):,} characters{marker}; {WRITTEN_IN_JSON}"
    return BlockProblem(protocol=None, reason=reason, offset=offset)
