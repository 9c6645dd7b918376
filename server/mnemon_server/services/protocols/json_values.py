"""Reads JSON that is safe to pass to a tool: every reader understands it the same way, and its depth is limited."""

import json
from typing import Any

from mnemon_server.domain.records import WHOLE_MAX
from mnemon_server.domain.tool_calls import JSON_DEPTH_MAX
from mnemon_server.domain.validation import has_unpaired_surrogate


class UnsafeJsonError(ValueError):
    """The text is JSON, or close to it, but must not be passed to a tool; the message says why."""


def read_json(text: str, *, control_characters: bool = False) -> Any:
    """The JSON value of the whole text.

    With `control_characters`, strings may have unescaped line breaks and other control characters. Raises
    `UnsafeJsonError`, or `json.JSONDecodeError` if the text is not JSON.
    """
    try:
        value = (_LENIENT if control_characters else _STRICT).decode(text)
    except RecursionError as error:
        raise UnsafeJsonError(_TOO_DEEP) from error
    if text.count("{") + text.count("[") > JSON_DEPTH_MAX:
        _check_depth(value)
    if _may_hold_surrogates(text):
        _check_characters(value)
    return value


def end_of_sound_json(text: str, start: int) -> int | None:
    """The position after the JSON value that begins at `start`; None if that is not valid JSON."""
    try:
        _, end = _STRICT.raw_decode(text, start)
    except (ValueError, RecursionError):
        return None
    return end


def read_integer(text: str) -> int:
    """A JSON integer; raises `UnsafeJsonError` for one that some readers would round."""
    if len(text) > _INTEGER_CHARS_MAX or abs(int(text)) > WHOLE_MAX:
        raise UnsafeJsonError("an integer is beyond 2^53, which some readers would round; write it as a string")
    return int(text)


def read_fraction(text: str) -> float:
    """A JSON number with a fraction or an exponent; raises `UnsafeJsonError` for one that is too large for a double."""
    value = float(text)
    if value in (float("inf"), float("-inf")):
        raise UnsafeJsonError("a number is too large")
    return value


def read_string(inner: str) -> str:
    """The string between two quotes; control characters may be unescaped. Raises the errors of `read_json`."""
    value: str = json.loads(f'"{inner}"', strict=False)
    if has_unpaired_surrogate(value):
        raise UnsafeJsonError(_HALF_CHARACTER)
    return value


def object_of_pairs(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """An object from its members; raises `UnsafeJsonError` if two have the same key."""
    members = dict(pairs)
    if len(members) < len(pairs):
        raise UnsafeJsonError("an object has the same key twice")
    return members


def _refuse_constant(name: str) -> Any:
    raise UnsafeJsonError(f"{name} is not a JSON number")


def _check_depth(value: Any) -> None:
    level = [value]
    for _ in range(JSON_DEPTH_MAX):
        level = [child for parent in level for child in _children(parent)]
    if any(isinstance(child, dict | list) for child in level):
        raise UnsafeJsonError(_TOO_DEEP)


def _children(value: Any) -> list[Any]:
    if isinstance(value, dict):
        return list(value.values())
    return value if isinstance(value, list) else []


def _may_hold_surrogates(source: str) -> bool:
    return "\\ud" in source or "\\uD" in source or has_unpaired_surrogate(source)


def _check_characters(value: Any) -> None:
    if has_unpaired_surrogate(json.dumps(value, ensure_ascii=False)):
        raise UnsafeJsonError(_HALF_CHARACTER)


_TOO_DEEP = f"nested deeper than {JSON_DEPTH_MAX}"
_HALF_CHARACTER = "a string holds half of a surrogate pair"
_INTEGER_CHARS_MAX = len(str(WHOLE_MAX)) + 1


def _decoder(*, strict: bool) -> json.JSONDecoder:
    return json.JSONDecoder(
        object_pairs_hook=object_of_pairs,
        parse_int=read_integer,
        parse_float=read_fraction,
        parse_constant=_refuse_constant,
        strict=strict,
    )


_STRICT, _LENIENT = _decoder(strict=True), _decoder(strict=False)
