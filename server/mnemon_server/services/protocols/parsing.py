"""Reads the calls in a model's text: removes the thinking, then tries ABP, then VCP."""

import re
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, replace

from mnemon_server.domain.errors import InvalidArgumentError
from mnemon_server.domain.tool_calls import TEXT_BYTES_MAX, BlockProblem, Fallback, ParseOptions, ParseResult
from mnemon_server.services.protocols import abp, vcp
from mnemon_server.services.protocols.searching import matches

# Removes the thinking of a model from its text.


_TAG_BEGINNING = re.compile(r"</?think", re.IGNORECASE | re.ASCII)
# ASCII, since otherwise other letters that fold to "k", such as the Kelvin sign, would match.
_TAG = re.compile(r"<(/?)think(?:ing)?(?:\s[^<>]*)?>", re.IGNORECASE | re.ASCII)


@dataclass(frozen=True, slots=True)
class VisibleText:
    """A text without its thinking, with the original position of each character."""

    text: str
    starts: tuple[int, ...]
    shifts: tuple[int, ...]
    unclosed: int | None = None
    """The offset in the original text of a tag that is not closed, and so hides the rest; None if all are closed."""

    def offset_in_original(self, offset: int) -> int:
        """The offset in the original text of the character at `offset`."""
        return offset + self.shifts[bisect_right(self.starts, offset) - 1]


def without_thinking(text: str) -> VisibleText:
    """Removes `<think>` and `<thinking>` blocks, nested or not; an unclosed one hides the rest of the text.

    A space replaces a block between two words, so that no marker can result from joining them.
    """
    pieces: list[str] = []
    starts, shifts, length = [0], [0], 0
    ranges, unclosed = _visible_ranges(text)
    for begin, end in ranges:
        if pieces and _would_join(text, pieces[-1], begin):
            pieces.append(" ")
            length += 1
        starts.append(length)
        shifts.append(begin - length)
        pieces.append(text[begin:end])
        length += end - begin
    return VisibleText("".join(pieces), tuple(starts), tuple(shifts), unclosed)


def _visible_ranges(text: str) -> tuple[list[tuple[int, int]], int | None]:
    ranges, depth, begin, hidden_from = [], 0, 0, 0
    for tag in matches(_TAG_BEGINNING, _TAG, text):
        if not tag[1]:
            if depth == 0:
                hidden_from = tag.start()
                if hidden_from > begin:
                    ranges.append((begin, hidden_from))
            depth += 1
        elif depth:
            depth -= 1
            begin = tag.end()
    if depth:
        return ranges, hidden_from
    if begin < len(text):
        ranges.append((begin, len(text)))
    return ranges, None


def _would_join(text: str, before: str, begin: int) -> bool:
    return not before[-1].isspace() and not text[begin].isspace()


DEFAULT_OPTIONS = ParseOptions()
WRITTEN_IN_JSON = "to have it in a JSON string, write \\u003cthink>"


def parse_tool_calls(text: str, options: ParseOptions = DEFAULT_OPTIONS) -> ParseResult:
    """All calls of `text`, and a problem for each block without one; the time is linear in the length of the text.

    If there is an ABP call, VCP blocks are ignored. With `strict_boundaries`, a text with broken boundaries has no
    calls at all, not even of VCP. Raises `InvalidArgumentError` for a text above 1 MiB.
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
