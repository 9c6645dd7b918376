"""ABP: a start marker with the tool's name, a JSON object, and an end marker.

[[ABP_TOOL:ToolName]]
{"action": "calculate", "parameters": {"expression": "2+2"}}
[[END_ABP_TOOL]]
"""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from mnemon_server.domain.tool_calls import ParseOptions, Protocol, Repair, ToolCall
from mnemon_server.services.protocols.findings import Findings
from mnemon_server.services.protocols.json_repairs import UnrepairableError, read_candidate
from mnemon_server.services.protocols.json_scanning import Boundary, Candidate, Scanner
from mnemon_server.services.protocols.json_values import UnsafeJsonError, read_json_at

_MARKER = re.compile(r"\[\[(?:ABP_TOOL:(?:(?P<name>[^\[\]\r\n]*+)\]\])?|(?P<end>END_ABP_TOOL\]\]))")
_BEFORE_SOUND_OBJECT = re.compile(r"\s*+(?:```\w*+\s*+)?(?=\{)")
_SPACE = re.compile(r"\s*+")
_GOES_ON = re.compile(r"""\s*+,\s*+["']""")
_CLOSES_MORE = re.compile(r"\s*+[}\]]")


class NoCallError(ValueError):
    """The block gives no call; the message says why."""


@dataclass(frozen=True, slots=True)
class _Reading:
    """One object of a block that has a call's shape."""

    action: str
    parameters: Mapping[str, Any]
    repairs: frozenset[Repair]
    start: int
    end: int


def has_marker(text: str) -> bool:
    """Whether anything of ABP is in the text."""
    return _MARKER.search(text) is not None


def parse_abp(text: str, options: ParseOptions) -> Findings:
    """All calls of `text` in its order; a block that gives none is told of, and the others still count."""
    return _AbpParse(text, options).run()


class _AbpParse:
    """One text, marker by marker."""

    def __init__(self, text: str, options: ParseOptions) -> None:
        self._text = text
        self._options = options
        self._markers = list(_MARKER.finditer(text))
        self._scanner = Scanner(text, [Boundary(*marker.span()) for marker in self._markers])
        self._findings = Findings(Protocol.ABP)

    def run(self) -> Findings:
        while (marker := self._next_marker()) is not None:
            if marker["end"]:
                self._out_of_place(marker, "an end marker without its start marker")
            elif marker["name"] is None:
                self._out_of_place(marker, "the start marker is not complete")
            else:
                self._block(marker)
        return self._findings

    def _next_marker(self) -> re.Match[str] | None:
        marker = self._peek()
        self._scanner.index += 1
        return marker

    def _peek(self) -> re.Match[str] | None:
        return self._markers[self._scanner.index] if self._scanner.index < len(self._markers) else None

    def _out_of_place(self, marker: re.Match[str], reason: str, tool: str = "") -> None:
        self._findings.problem(marker.start(), reason, tool)
        self._findings.boundaries_broken = True

    def _block(self, marker: re.Match[str]) -> None:
        tool = marker["name"].strip()
        try:
            reading = self._read(marker)
            if not tool:
                raise NoCallError("the tool's name is empty")
        except (NoCallError, UnrepairableError, UnsafeJsonError) as error:
            self._findings.problem(marker.start(), str(error), tool)
            return
        self._findings.calls.append(
            ToolCall(
                id=f"{Protocol.ABP}-{len(self._findings.calls) + 1}",
                tool=tool,
                action=reading.action,
                parameters=reading.parameters,
                protocol=Protocol.ABP,
                repairs=tuple(repair for repair in Repair if repair in reading.repairs),
            )
        )

    def _read(self, marker: re.Match[str]) -> _Reading:
        sound = self._sound_object(marker.end())
        if sound is not None:
            return sound
        candidates = self._scanner.candidates(marker.end())
        end = self._peek()
        if end is None or not end["end"]:
            return self._unterminated(marker, candidates)
        self._scanner.index += 1
        return self._best(candidates, marker.end(), end.start())

    def _sound_object(self, position: int) -> _Reading | None:
        """Most blocks: a sound object and nothing else. The others are read piece by piece."""
        space = _SPACE.match(self._text, position)
        start = space.end() if space else position
        if self._text[start : start + 1] != "{":
            return None
        try:
            value, end = read_json_at(self._text, start)
        except (json.JSONDecodeError, UnsafeJsonError):
            return None
        before = self._scanner.index
        self._scanner.skip_to(end)
        marker, space = self._peek(), _SPACE.match(self._text, end)
        if marker is None or not marker["end"] or space is None or space.end() != marker.start():
            self._scanner.index = before
            return None
        self._scanner.index += 1
        return self._shaped(value, frozenset(), start, end)

    def _unterminated(self, marker: re.Match[str], candidates: list[Candidate]) -> _Reading:
        """A text that was cut off must never run, so that without its end marker only a sound object counts."""
        self._findings.boundaries_broken = True
        begin = _BEFORE_SOUND_OBJECT.match(self._text, marker.end())
        if self._options.require_end_marker or begin is None or not candidates:
            raise NoCallError("the end marker is missing")
        candidate = candidates[0]
        if candidate.start != begin.end() or not candidate.closed:
            raise NoCallError("the end marker is missing, and no complete object follows")
        value, repairs = read_candidate(self._text, candidate)
        if repairs or _GOES_ON.match(self._text, candidate.end):
            raise NoCallError("the end marker is missing, and the object needs a repair")
        return self._shaped(value, repairs, candidate.start, candidate.end)

    def _best(self, candidates: list[Candidate], start: int, end: int) -> _Reading:
        """The last object that is sound, or else the last that can be repaired."""
        readings: list[_Reading] = []
        reasons: list[str] = []
        behind = start
        for candidate in candidates:
            try:
                readings.append(self._reading(candidate, self._text[behind : candidate.start]))
            except (NoCallError, UnrepairableError, UnsafeJsonError) as error:
                reasons.append(str(error))
            behind = candidate.end
        if not readings:
            raise NoCallError(reasons[-1] if reasons else "there is no JSON object in it")
        sound = [reading for reading in readings if not reading.repairs]
        best = (sound or readings)[-1]
        around = _repairs_around(self._text[start : best.start], self._text[best.end : end])
        return _Reading(best.action, best.parameters, best.repairs | around, best.start, best.end)

    def _reading(self, candidate: Candidate, before: str) -> _Reading:
        value, repairs = read_candidate(self._text, candidate)
        if self._is_value_of_a_key(before.rstrip(), candidate.end):
            raise NoCallError("the object that it belongs to has no beginning")
        if _GOES_ON.match(self._text, candidate.end):
            raise NoCallError("the object ends before its text does")
        return self._shaped(value, repairs, candidate.start, candidate.end)

    def _is_value_of_a_key(self, before: str, end: int) -> bool:
        """Whether what stands before an object is a key, and no sentence that ends with a colon."""
        return before.endswith(":") and (
            before[:-1].rstrip().endswith(('"', "'")) or _CLOSES_MORE.match(self._text, end) is not None
        )

    def _shaped(self, value: Any, repairs: frozenset[Repair], start: int, end: int) -> _Reading:
        action, parameters = _envelope(value, strict=self._options.strict_envelope)
        return _Reading(action, parameters, repairs, start, end)


def _envelope(value: Any, *, strict: bool) -> tuple[str, Mapping[str, Any]]:
    """The action, empty where there is none of its own, and the parameters."""
    if not isinstance(value, dict):
        raise NoCallError("it is a list, not an object")
    if strict and not ("action" in value and "parameters" in value):
        raise NoCallError("an object with `action` and `parameters` is needed")
    if "parameters" not in value:
        return "", value
    action, parameters = value.get("action", ""), value["parameters"]
    if not isinstance(parameters, dict):
        raise NoCallError("`parameters` must be an object")
    if not isinstance(action, str):
        raise NoCallError("`action` must be a string")
    return action, parameters


def _repairs_around(before: str, after: str) -> frozenset[Repair]:
    """What had to be left out of the block on both sides of its object."""
    rest = [before.strip(), after.strip()]
    bare = [re.sub(r"\A```\w*|```\Z", "", text).strip() for text in rest]
    repairs = {Repair.CODE_FENCE} if any("```" in text for text in rest) else set()
    return frozenset(repairs | ({Repair.SURROUNDING_TEXT} if any(bare) else set()))
