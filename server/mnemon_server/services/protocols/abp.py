"""Parses ABP: a start marker with the tool's name, a JSON object, and an end marker.

[[ABP_TOOL:ToolName]]
{"action": "calculate", "parameters": {"expression": "2+2"}}
[[END_ABP_TOOL]]
"""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import json_repair

from mnemon_server.domain.tool_calls import ParseOptions, Protocol, Repair, ToolCall
from mnemon_server.services.protocols.findings import Findings
from mnemon_server.services.protocols.json_scanning import (
    TOKENS_MAX,
    Candidate,
    Mark,
    Scanner,
    Token,
    TooManyPiecesError,
)
from mnemon_server.services.protocols.json_values import UnsafeJsonError, object_of_pairs, read_json
from mnemon_server.services.protocols.searching import matches

# Repairs the punctuation of JSON that a model wrote: no word is guessed, dropped or moved.


_TOKENS_OF_REPAIR = 16
"""The least that a repair counts, in tokens: the library takes some time even for a tiny object."""

Shape = list[str]
"""Brackets, keys ("key 3") and values ("value 4"), in order."""


class UnrepairableError(ValueError):
    """The JSON cannot be read without guessing; the message says why."""


def read_sound(text: str, candidate: Candidate) -> Any:
    """The value of a valid candidate. Raises `UnsafeJsonError`, or `UnrepairableError` if it is not valid JSON."""
    if not candidate.closed:
        raise UnrepairableError("the JSON is not complete")
    try:
        return read_json(text[candidate.start : candidate.end])
    except json.JSONDecodeError as error:
        raise UnrepairableError(error.msg) from error


class Repairer:
    """Repairs the objects of one text, within a limit on the total work."""

    def __init__(self) -> None:
        self._tokens_left = TOKENS_MAX

    def read(self, text: str, candidate: Candidate) -> tuple[Any, frozenset[Repair]]:
        """The value of a candidate that is not valid JSON, and the repairs that were made.

        Raises `UnrepairableError`, or `UnsafeJsonError` if the JSON is readable but not safe to run.
        """
        if candidate.closed:
            try:
                source = text[candidate.start : candidate.end]
                return read_json(source, control_characters=True), frozenset({Repair.CONTROL_CHARACTERS})
            except json.JSONDecodeError:
                pass
        if candidate.flaw:
            raise UnrepairableError(candidate.flaw)
        self._tokens_left -= max(len(candidate.tokens), _TOKENS_OF_REPAIR)
        if self._tokens_left < 0:
            raise UnrepairableError("too much of the text needs repair")
        return _repaired(candidate.tokens), frozenset(candidate.repairs | _comma_repairs(candidate.tokens))


def _repaired(tokens: Sequence[Token]) -> Any:
    skeleton, expected, atoms = _skeleton(tokens)
    try:
        frame = json_repair.loads(skeleton, skip_json_loads=True)
    except (ValueError, RecursionError) as error:
        raise UnrepairableError("the JSON cannot be repaired") from error
    if list(_shape(frame)) != expected:
        raise UnrepairableError("the JSON can be repaired in more than one way, or not at all")
    return _filled(frame, atoms)


def _skeleton(tokens: Sequence[Token]) -> tuple[str, Shape, list[Any]]:
    """The punctuation with numbered atoms, the shape that the repaired JSON must have, and the atoms."""
    pieces: list[str] = []
    shape: Shape = []
    atoms: list[Any] = []
    for token, following in zip(tokens, [*tokens[1:], None], strict=True):
        if token.mark is Mark.ATOM:
            is_key = following is not None and following.mark == ":"
            if is_key and not isinstance(token.value, str):
                raise UnrepairableError("a key is not a string")
            shape.append(f"{'key' if is_key else 'value'} {len(atoms)}")
            pieces.append(f'"{len(atoms)}"')
            atoms.append(token.value)
        elif token.mark is Mark.CLOSED_HERE:
            shape.append(token.value)
            pieces.append(token.value)
        elif isinstance(token.mark, str):
            pieces.append(token.mark)
            if token.mark not in ",:":
                shape.append(token.mark)
    return " ".join(pieces), shape, atoms


def _shape(frame: Any) -> Iterator[str]:
    if isinstance(frame, dict):
        yield "{"
        for key, value in frame.items():
            yield f"key {key}"
            yield from _shape(value)
        yield "}"
    elif isinstance(frame, list):
        yield "["
        for value in frame:
            yield from _shape(value)
        yield "]"
    else:
        yield f"value {frame}"


def _filled(frame: Any, atoms: Sequence[Any]) -> Any:
    if isinstance(frame, dict):
        return object_of_pairs([(atoms[int(key)], _filled(value, atoms)) for key, value in frame.items()])
    if isinstance(frame, list):
        return [_filled(value, atoms) for value in frame]
    return atoms[int(frame)]


def _comma_repairs(tokens: Sequence[Token]) -> set[Repair]:
    repairs = set()
    for token, following in pairwise(tokens):
        if token.mark == "," and (following.mark is Mark.CLOSED_HERE or following.mark in ("}", "]", ",")):
            repairs.add(Repair.EXTRA_COMMAS)
        if following.mark == "," and token.mark in ("{", "["):
            repairs.add(Repair.EXTRA_COMMAS)
        if _ends_value(token) and (following.mark is Mark.ATOM or following.mark in ("{", "[")):
            repairs.add(Repair.MISSING_COMMAS)
    return repairs


def _ends_value(token: Token) -> bool:
    return token.mark is Mark.ATOM or token.mark is Mark.CLOSED_HERE or token.mark in ("}", "]")


_BEGINNING = re.compile(r"\[\[(?:ABP_TOOL:|END_ABP_TOOL\]\])")
_MARKER = re.compile(r"\[\[(?:ABP_TOOL:(?:(?P<name>[^\[\]\r\n]*+)\]\])?|(?P<end>END_ABP_TOOL\]\]))")
_BEFORE_SOUND_OBJECT = re.compile(r"\s*+(?:```\w*+\s*+)?(?=\{)")
_MEMBER_FOLLOWS = re.compile(r"""\s*+,\s*+["']""")
_CLOSER_FOLLOWS = re.compile(r"\s*+[}\]]")


class NoCallError(ValueError):
    """The block has no valid call; the message says why."""


@dataclass(frozen=True, slots=True)
class _Reading:
    """An object in a block that has the shape of a call."""

    action: str
    parameters: Mapping[str, Any]
    repairs: frozenset[Repair]


def has_marker(text: str) -> bool:
    """Whether the text has a marker of ABP."""
    return next(_markers(text), None) is not None


def parse_abp(text: str, options: ParseOptions) -> Findings:
    """All calls of `text` in order. A block without a valid call becomes a problem; the other blocks still count."""
    return _AbpParse(text, options).run()


def _markers(text: str) -> Iterator[re.Match[str]]:
    return matches(_BEGINNING, _MARKER, text)


class _AbpParse:
    """Parses one text, marker by marker."""

    def __init__(self, text: str, options: ParseOptions) -> None:
        self._text = text
        self._options = options
        # Numbers, not matches: garbage collection would look through each, and block all other threads.
        self._starts = [marker.start() for marker in _markers(text)]
        self._scanner = Scanner(text, self._starts)
        self._findings = Findings(Protocol.ABP)
        self._repairer = Repairer()

    def run(self) -> Findings:
        while (marker := self._next_marker()) is not None:
            if self._findings.full:
                self._findings.surplus(marker.start())
                break
            try:
                self._read_marker(marker)
            except TooManyPiecesError as error:
                # The end of this block is unknown, and a marker inside one of its strings must not become a call.
                self._findings.surplus(marker.start(), str(error), (marker["name"] or "").strip())
                break
        return self._findings

    def _read_marker(self, marker: re.Match[str]) -> None:
        if marker["end"]:
            self._out_of_place(marker, "an end marker without its start marker")
        elif marker["name"] is None:
            self._out_of_place(marker, "the start marker is not complete")
        else:
            self._block(marker)

    def _next_marker(self) -> re.Match[str] | None:
        marker = self._peek()
        self._scanner.index += 1
        return marker

    def _peek(self) -> re.Match[str] | None:
        index = self._scanner.index
        return _MARKER.match(self._text, self._starts[index]) if index < len(self._starts) else None

    def _out_of_place(self, marker: re.Match[str], reason: str) -> None:
        self._findings.problem(marker.start(), reason)
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

    def _sound_object(self, start: int) -> _Reading | None:
        """The call of a block that has one valid object and nothing else, as most have; None for other blocks."""
        end = self._peek()
        if end is None or not end["end"]:
            return None
        try:
            value = read_json(self._text[start : end.start()])
        except (json.JSONDecodeError, UnsafeJsonError):
            return None
        self._scanner.index += 1
        return self._shaped(value, frozenset())

    def _unterminated(self, marker: re.Match[str], candidates: list[Candidate]) -> _Reading:
        """The call of a block without an end marker. The text may be cut off, so only a valid object counts."""
        self._findings.boundaries_broken = True
        begin = _BEFORE_SOUND_OBJECT.match(self._text, marker.end())
        if self._options.require_end_marker or begin is None or not candidates:
            raise NoCallError("the end marker is missing")
        candidate = candidates[0]
        if candidate.start != begin.end() or not candidate.closed:
            raise NoCallError("the end marker is missing, and no complete object follows")
        if _MEMBER_FOLLOWS.match(self._text, candidate.end):
            raise NoCallError("the end marker is missing, and the object continues")
        return self._shaped(read_sound(self._text, candidate), frozenset())

    def _best(self, candidates: list[Candidate], start: int, end: int) -> _Reading:
        """The last valid object, or else the last one that can be repaired."""
        reasons: list[str] = []
        places = list(zip(candidates, [start, *(candidate.end for candidate in candidates)], strict=False))
        for read in (self._sound, self._repaired):
            for candidate, previous_end in reversed(places):
                try:
                    reading = read(candidate)
                    self._check_surroundings(candidate, self._text[previous_end : candidate.start].rstrip())
                except (NoCallError, UnrepairableError, UnsafeJsonError) as error:
                    reasons.append(str(error))
                    continue
                around = _repairs_around(self._text[start : candidate.start], self._text[candidate.end : end])
                return replace(reading, repairs=reading.repairs | around)
        raise NoCallError(reasons[len(candidates)] if reasons else "the block has no JSON object")

    def _sound(self, candidate: Candidate) -> _Reading:
        return self._shaped(read_sound(self._text, candidate), frozenset())

    def _repaired(self, candidate: Candidate) -> _Reading:
        return self._shaped(*self._repairer.read(self._text, candidate))

    def _check_surroundings(self, candidate: Candidate, before: str) -> None:
        if self._is_value_of_a_key(before, candidate.end):
            raise NoCallError("the beginning of the outer object is missing")
        if _MEMBER_FOLLOWS.match(self._text, candidate.end):
            raise NoCallError("the object is closed too early; more members follow")

    def _is_value_of_a_key(self, before: str, end: int) -> bool:
        """Whether the text before an object is a key, and not a sentence that ends with a colon."""
        return before.endswith(":") and (
            before[:-1].rstrip().endswith(('"', "'")) or _CLOSER_FOLLOWS.match(self._text, end) is not None
        )

    def _shaped(self, value: Any, repairs: frozenset[Repair]) -> _Reading:
        action, parameters = _envelope(value, strict=self._options.strict_envelope)
        return _Reading(action, parameters, repairs)


def _envelope(value: Any, *, strict: bool) -> tuple[str, Mapping[str, Any]]:
    """The action, which may be empty, and the parameters."""
    if not isinstance(value, dict):
        raise NoCallError("the JSON must be an object")
    if strict and not ("action" in value and "parameters" in value):
        raise NoCallError("the object must have `action` and `parameters`")
    if "parameters" not in value:
        return "", value
    action, parameters = value.get("action", ""), value["parameters"]
    if not isinstance(parameters, dict):
        raise NoCallError("`parameters` must be an object")
    if not isinstance(action, str):
        raise NoCallError("`action` must be a string")
    return action, parameters


def _repairs_around(before: str, after: str) -> frozenset[Repair]:
    """The repairs for the text that is ignored before and after the object."""
    rest = [before.strip(), after.strip()]
    bare = [re.sub(r"\A```\w*|```\Z", "", text).strip() for text in rest]
    repairs = {Repair.CODE_FENCE} if any("```" in text for text in rest) else set()
    return frozenset(repairs | ({Repair.SURROUNDING_TEXT} if any(bare) else set()))
