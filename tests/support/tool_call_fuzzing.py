"""Texts with tool calls, valid and randomly damaged, and what must hold for the result of parsing any text.

python -m tests.support.tool_call_fuzzing --texts 1000000
"""

import argparse
import json
import random
import re
import time
from collections.abc import Callable
from typing import Any

from mnemon_server.domain.tool_calls import JSON_DEPTH_MAX, ParseOptions, ParseResult, Protocol, ToolCall
from mnemon_server.services.protocols.parsing import parse_tool_calls, without_thinking

END, VCP_END = "[[END_ABP_TOOL]]", "<<<[END_TOOL_REQUEST]>>>"
PIECES = [
    *"{}[],:\"'\\\n \t`#/-+.eE0159aué漢🎉",
    *['"a"', '"a": ', "//", "/*", "*/", "```json\n", "```", "true", "None", "NaN", "1e999", '\\"', "\\n", "\\ud83c"],
    *[
        "[[ABP_TOOL:t]]",
        "[[ABP_TOOL:",
        "]]",
        END,
        "<think>",
        "</think>",
        "<thinking>",
        '{"action": "x", "parameters": {',
    ],
    *[
        "<<<[TOOL_REQUEST]>>>",
        VCP_END,
        "「始」",
        "「末」",
        "「始ESCAPE」",
        "「末ESCAPE」",
        "tool_name:「始」v「末」",
        "k1:「始」",
    ],
]
TOOLS = ["manage_memory", "search_memory", "My Tool", "工具"]
WORDS = [
    "red",
    "x y",
    "it's",
    'say "hi"',
    "a, b: {c}",
    "C:\\dir",
    "http://x/y#z",
    "漢字 🎉",
    "",
    "12",
    "true",
    "a\nb",
    f"see {END}",
]
OPTIONS = [
    ParseOptions(),
    ParseOptions(require_end_marker=False),
    ParseOptions(strict_boundaries=True, strict_envelope=True),
    ParseOptions(dual_mode=False),
]
_WORD = re.compile(r"\w+")


def random_value(chance: random.Random, depth: int = 0) -> Any:
    """A value of JSON."""
    kind = chance.randrange(8 if depth < 3 else 5)
    if kind < 2:
        return chance.choice(WORDS)
    if kind < 5:
        return [chance.randrange(-99, 99), chance.randrange(99) / 4, chance.choice([True, False, None])][kind - 2]
    if kind == 5:
        return [random_value(chance, depth + 1) for _ in range(chance.randrange(4))]
    return {chance.choice("abcdefg"): random_value(chance, depth + 1) for _ in range(chance.randrange(4))}


def random_call(chance: random.Random) -> tuple[str, str, dict[str, Any]]:
    """A random tool, action and parameters."""
    names = chance.sample(["query", "limit", "content", "tags", "id"], chance.randrange(4))
    return chance.choice(TOOLS), chance.choice(["", "create", "delete"]), {name: random_value(chance) for name in names}


def written(call: tuple[str, str, dict[str, Any]], *, indent: int | None = None) -> str:
    """A call in the correct ABP form."""
    tool, action, parameters = call
    envelope = {"action": action, "parameters": parameters}
    return f"[[ABP_TOOL:{tool}]]\n{json.dumps(envelope, ensure_ascii=False, indent=indent)}\n{END}\n"


def written_in_vcp(tool: str, fields: dict[str, str]) -> str:
    """A call in the correct VCP form."""
    lines = [f"tool_name:「始」{tool}「末」", *(f"{key}:「始」{value}「末」" for key, value in fields.items())]
    return "<<<[TOOL_REQUEST]>>>\n" + ",\n".join(lines) + f"\n{VCP_END}\n"


def sound_text(chance: random.Random) -> tuple[str, list[tuple[str, str, dict[str, Any]]]]:
    """A valid text, and the calls in it."""
    calls = [random_call(chance) for _ in range(chance.randrange(1, 4))]
    prose = [
        chance.choice(["", "I'll look.\n", "<think>hm {x} [[ABP_TOOL:no]]</think>\n", 'So {that} "is" it: '])
        for _ in calls
    ]
    blocks = [written(call, indent=chance.choice([None, 1])) for call in calls]
    return "".join(before + block for before, block in zip(prose, blocks, strict=True)), calls


def mutated(text: str, chance: random.Random) -> str:
    """The text after a few cuts, insertions, repetitions and swaps."""
    for _ in range(chance.randrange(1, 6)):
        begin = chance.randrange(len(text) + 1)
        end = min(len(text), begin + chance.choice([0, 1, 1, 2, 5, 30]))
        kind = chance.randrange(5)
        if kind == 0:
            text = text[:begin] + text[end:]
        elif kind in (1, 2):
            text = text[:begin] + chance.choice(PIECES) + text[begin:]
        elif kind == 3:
            text = text[:begin] + text[begin:end] * 2 + text[end:]
        else:
            text = text[:begin] + chance.choice(PIECES) + text[end:]
    return text


def random_text(chance: random.Random) -> str:
    """Mostly damaged calls of both protocols, sometimes only pieces of them."""
    kind = chance.randrange(10)
    if kind == 0:
        return "".join(chance.choice(PIECES) for _ in range(chance.randrange(60)))
    if kind < 3:
        fields = {
            chance.choice(["command1", "command2", "path1", "archery", "b"]): chance.choice(WORDS) for _ in range(4)
        }
        return mutated(written_in_vcp(chance.choice(TOOLS), fields) * chance.randrange(1, 3), chance)
    return mutated(sound_text(chance)[0], chance)


def check(text: str, options: ParseOptions) -> None:
    """Asserts all that must hold for any text."""
    result = parse_tool_calls(text, options)
    assert result == parse_tool_calls(text, options), "parsing the same text twice gave different results"
    assert result.success == bool(result.calls) == (result.error == "")
    assert result.raw_content == text
    visible = without_thinking(text).text
    for call in result.calls:
        _check_call(call, visible, options)
    _check_boundaries(result, visible, options)
    _check_places(result)


def _check_places(result: ParseResult) -> None:
    for problem in result.problems:
        assert problem.reason
        assert 0 <= problem.offset < len(result.raw_content)
        assert problem.line == result.raw_content.count("\n", 0, problem.offset) + 1


def _check_boundaries(result: ParseResult, visible: str, options: ParseOptions) -> None:
    """Never more calls than end markers, and without the last end marker never a call at the end."""
    for protocol, marker in ((Protocol.ABP, END), (Protocol.VCP, VCP_END)):
        if protocol is Protocol.ABP and not options.require_end_marker:
            continue
        assert _count(result, protocol) <= visible.count(marker)
        if _count(result, protocol):
            head, _, tail = visible.rpartition(marker)
            assert _count(parse_tool_calls(f"{head} {tail}", options), protocol) <= head.count(marker)


def _count(result: ParseResult, protocol: Protocol) -> int:
    return sum(call.protocol is protocol for call in result.calls)


def _check_call(call: ToolCall, visible: str, options: ParseOptions) -> None:
    """All its words are in the text, it is valid JSON, and it reads the same when it is written again."""
    assert call.tool in visible
    assert call.tool == call.tool.strip() != ""
    words = [word for text in texts_of(dict(call.parameters)) for word in _WORD.findall(text)]
    assert [word for word in words if word not in visible] == []
    json.dumps(dict(call.parameters), ensure_ascii=False, allow_nan=False).encode()
    assert _depth(dict(call.parameters)) <= JSON_DEPTH_MAX
    if call.protocol is Protocol.ABP:
        assert not (call.repairs and END not in visible), "a truncated call was repaired"
        again = parse_tool_calls(written((call.tool, call.action, dict(call.parameters))), ParseOptions())
        if _depth(dict(call.parameters)) < JSON_DEPTH_MAX and "<" not in json.dumps(call.parameters):
            assert [(one.tool, one.action, one.parameters, one.repairs) for one in again.calls] == [
                (call.tool, call.action, call.parameters, ())
            ]
    else:
        assert options.dual_mode and call.vcp is not None


def texts_of(value: Any) -> set[str]:
    """All keys and texts in a value of JSON."""
    if isinstance(value, dict):
        return {text for key, child in value.items() for text in [key, *texts_of(child)]}
    if isinstance(value, list):
        return {text for child in value for text in texts_of(child)}
    return {value} if isinstance(value, str) else set()


def _depth(value: Any) -> int:
    children = list(value.values()) if isinstance(value, dict) else value if isinstance(value, list) else None
    return 0 if children is None else 1 + max(map(_depth, children), default=0)


def run(texts: int, seed: int, report: Callable[[str], None]) -> None:
    """Checks this many texts. A failure names the seed of its text."""
    begin = time.monotonic()
    for number in range(texts):
        chance = random.Random(f"{seed}/{number}")
        text, options = random_text(chance), chance.choice(OPTIONS)
        try:
            check(text, options)
        except Exception as error:
            raise AssertionError(f"text {number} of seed {seed}, {options}: {text!r}") from error
        if number and number % 50_000 == 0:
            report(f"{number} texts, {number / (time.monotonic() - begin):.0f}/s")
    report(f"{texts} texts of seed {seed}: nothing found")


def main() -> None:
    """Runs for as long as it takes."""
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--texts", type=int, default=20_000)
    arguments.add_argument("--seed", type=int, default=1)
    options = arguments.parse_args()
    run(options.texts, options.seed, lambda line: print(line, flush=True))  # noqa: T201


if __name__ == "__main__":
    main()
