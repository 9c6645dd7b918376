"""Repairs the punctuation of JSON that a model wrote: no word is guessed, dropped or moved.

The repair library gets only the brackets and commas of an object, with numbers instead of its keys and values. So no
text can mislead the library, and its result can be compared with the original, token by token.
"""

import json
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any

import json_repair

from mnemon_server.domain.tool_calls import Repair
from mnemon_server.services.protocols.json_scanning import TOKENS_MAX, Candidate, Mark, Token
from mnemon_server.services.protocols.json_values import object_of_pairs, read_json

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
