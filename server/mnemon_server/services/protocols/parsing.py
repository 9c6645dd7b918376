"""Reads the calls in a model's text: removes the thinking, then tries ABP, then VCP."""

from collections.abc import Sequence
from dataclasses import replace

from mnemon_server.domain.errors import InvalidArgumentError
from mnemon_server.domain.tool_calls import TEXT_BYTES_MAX, BlockProblem, Fallback, ParseOptions, ParseResult
from mnemon_server.services.protocols import abp, vcp
from mnemon_server.services.protocols.thinking import VisibleText, without_thinking
from mnemon_server.services.shared.pause import Rest, no_rest

DEFAULT_OPTIONS = ParseOptions()
WRITTEN_IN_JSON = "to have it in a JSON string, write \\u003cthink>"


def parse_tool_calls(text: str, options: ParseOptions = DEFAULT_OPTIONS, rest: Rest = no_rest) -> ParseResult:
    """All calls of `text`, and a problem for each block without one; the time is linear in the length of the text.

    If there is an ABP call, VCP blocks are ignored. With `strict_boundaries`, a text with broken boundaries has no
    calls at all, not even of VCP. Raises `InvalidArgumentError` for a text above 1 MiB.
    """
    _check_size(text)
    visible = without_thinking(text)
    found = abp.parse_abp(visible.text, options, rest)
    problems = list(found.problems)
    has_marker = abp.has_marker(visible.text) or (options.dual_mode and vcp.has_marker(visible.text))
    calls, fallback = found.calls, Fallback.NONE
    whole_text_failed = options.strict_boundaries and found.boundaries_broken
    if whole_text_failed:
        calls = []
    elif not calls and options.dual_mode:
        found = vcp.parse_vcp(visible.text, rest)
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
    """The problems with their places in the original text, in order; a thinking block that is not closed comes last."""
    moved = [replace(problem, offset=visible.offset_in_original(problem.offset)) for problem in problems]
    moved.sort(key=lambda problem: problem.offset)
    if visible.unclosed is not None:
        moved.append(_unclosed_thinking(text, visible.unclosed))
    placed = []
    counted, line = 0, 1
    for problem in moved:
        line += text.count("\n", counted, problem.offset)
        counted = problem.offset
        placed.append(replace(problem, line=line))
    return tuple(placed)


def _unclosed_thinking(text: str, offset: int) -> BlockProblem:
    hidden = text[offset:]
    marker = ", among them a marker of a call" if abp.has_marker(hidden) or vcp.has_marker(hidden) else ""
    reason = f"this <think> is not closed, and hides {len(hidden):,} characters{marker}; {WRITTEN_IN_JSON}"
    return BlockProblem(protocol=None, reason=reason, offset=offset)
