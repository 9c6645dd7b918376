"""The results of a search as JSON for a language model, within a bound: long texts are cut and marked."""

import json
from collections.abc import Callable, Iterable, Sequence
from typing import Any

RESULT_KIB_DEFAULT = 32
_LONG = ("value", "passage", "content", "context", "metadata")
"""The parts of a result that may be long; the others identify it, and stay whole."""
_SHARE_MIN = 1_024
"""The least number of bytes to which a result is cut."""
_NOTE_BYTES = 256
"""Bytes reserved for a note after the results."""
_LONGEST_MIN, _MARK_CHARACTERS = 16, 128


def search_json(results: Sequence[str], kib_max: int, *, offset: int = 0, truncated: bool = False) -> tuple[str, int]:
    """The result of search_memory: a list of JSON objects, and how many of `results` are in it.

    The results after `offset` of a query share `kib_max`: what short ones do not need is for long ones, whose texts are
    cut. If more were found than are in it, which `truncated` says of the results themselves, the last value says so.
    """
    alone = len(results) == 1

    def advice(number: int) -> str:
        return "only a program can read the rest" if alone else f"offset {offset + number} and limit 1 show more of it"

    shown = bounded(results, kib_max, advice)
    if shown and (truncated or len(shown) < len(results)):
        last = json.loads(shown[-1])
        last["value"]["[more]"] = f"More was found than fits here: search again with offset {offset + len(shown)}."
        shown[-1] = as_json(last)
    return f"[{', '.join(shown)}]", len(shown)


def bounded(results: Sequence[str], kib_max: int, advice: Callable[[int], str]) -> list[str]:
    """The first JSON objects, cut where needed to fit, each cut marked with its `advice`.

    The first one is always among them.
    """
    room = kib_max * 1_024
    sizes = [len(text.encode()) for text in results]
    if sum(sizes) + 2 * len(sizes) <= room:
        return list(results)
    room -= _NOTE_BYTES
    share, shown = max(_SHARE_MIN, _fair_share(sizes, room)), list[str]()
    for number, (text, size) in enumerate(zip(results, sizes, strict=True)):
        fitting = text if size <= share else _cut_to(json.loads(text), share, advice(number))
        room -= len(fitting.encode()) + 2
        if room < 0 and shown:
            break
        shown.append(fitting)
    return shown


def as_json(value: Any) -> str:
    """The value as JSON for a model."""
    return json.dumps(value, ensure_ascii=False)


def _fair_share(sizes: Iterable[int], room: int) -> int:
    """The limit per result, in bytes, at which all fit; short ones take less."""
    ordered = sorted(size + 2 for size in sizes)
    for number, size in enumerate(ordered):
        if size * (len(ordered) - number) > room:
            return room // (len(ordered) - number) - 2
        room -= size
    return room


def _cut_to(result: dict[str, Any], size: int, advice: str) -> str:
    """The result as JSON of at most about so many bytes: with shorter texts, or else with the beginning of its JSON."""
    longest = size
    while longest >= _LONGEST_MIN:
        text = as_json({name: _cut(part, longest, advice) if name in _LONG else part for name, part in result.items()})
        if (length := len(text.encode())) <= size:
            return text
        longest = min(longest - 1, longest * size * 9 // (length * 10))
    # It consists of many parts rather than long texts.
    flat = {name: _flat(part) if name in _LONG else part for name, part in result.items()}
    return text if flat == result else _cut_to(flat, size, advice)


def _flat(part: Any) -> Any:
    is_flat = not isinstance(part, dict) or (len(part) == 1 and isinstance(part.get("content"), str))
    return part if is_flat else {"content": as_json(part)}


def _cut(part: Any, longest: int, advice: str) -> Any:
    match part:
        case str() if len(part) > longest + _MARK_CHARACTERS:
            return f"{part[:longest]}\u2026 [cut: {longest:,} of {len(part):,} characters; {advice}]"
        case dict():
            return {name: _cut(inner, longest, advice) for name, inner in part.items()}
        case list():
            return [_cut(inner, longest, advice) for inner in part]
    return part
