"""Any text: no exception, no call that was not complete, and time linear in its length."""

import ast
import json
import random
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from mnemon_server.domain.tool_calls import JSON_DEPTH_MAX, ParseOptions
from mnemon_server.services.protocols.parsing import parse_tool_calls

from tests.bench.tool_calls import HOSTILE, hostile_text, seconds
from tests.support.tool_call_fuzzing import OPTIONS, PIECES, check, mutated, run, sound_text, texts_of, written

CARELESS = [
    *["C:\\", "C:\\dir\\", "C:\\new\\temp", "C:\\Users\\ada", "\\\\server\\share", "\\d+", "say \\", "a\\\\b", "\\'x"],
    *[
        "it's",
        'say "hi"',
        '"',
        "'",
        "",
        "a",
        "x, y: {z}",
        "// none",
        ", b",
        "}",
        "]",
        ": c",
        "“smart”",
        "a\nb",
        "é",
        "漢",
    ],
]
"""Texts that go wrong if a model writes them as they are."""
CHARACTERS = st.characters(exclude_categories=["Cs"])
SCALARS = st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.floats(allow_nan=False, allow_infinity=False)
VALUES = st.recursive(
    SCALARS | st.lists(CHARACTERS | st.sampled_from(PIECES), max_size=8).map("".join),
    lambda children: st.lists(children, max_size=4) | st.dictionaries(st.text(CHARACTERS), children, max_size=4),
    max_leaves=12,
)
PARAMETERS = st.dictionaries(st.text(CHARACTERS), VALUES, max_size=4)


@given(
    st.lists(
        st.tuples(st.sampled_from(["a", "Some Tool"]), st.sampled_from(["", "x"]), PARAMETERS), min_size=1, max_size=3
    )
)
@settings(deadline=None, max_examples=100)
def test_a_validly_written_call_is_read_as_it_was_meant(calls: list[tuple[str, str, dict[str, Any]]]) -> None:
    text = "Well:\n".join(map(written, calls))
    assume("<think" not in text)
    read = parse_tool_calls(text).calls
    assert [(call.tool, call.action, call.parameters, call.repairs) for call in read] == [(*call, ()) for call in calls]


@given(st.lists(st.sampled_from(PIECES) | st.text(CHARACTERS, max_size=3), max_size=60), st.sampled_from(OPTIONS))
@settings(deadline=None, max_examples=100)
def test_any_sequence_of_pieces_is_read_without_harm(pieces: list[str], options: ParseOptions) -> None:
    check("".join(pieces), options)


@given(st.randoms(use_true_random=False), st.sampled_from(OPTIONS))
@settings(deadline=None, max_examples=75)
def test_a_mutated_call_is_read_without_harm(chance: random.Random, options: ParseOptions) -> None:
    check(mutated(sound_text(chance)[0], chance), options)


@given(PARAMETERS, st.data())
@settings(deadline=None, max_examples=75)
def test_no_proper_prefix_of_a_text_gives_a_call(parameters: dict[str, Any], data: st.DataObject) -> None:
    text = written(("t", "x", parameters)).rstrip()
    cut = data.draw(st.integers(0, len(text) - 1))
    if "[[END_ABP_TOOL]]" not in text[:cut]:
        assert parse_tool_calls(text[:cut]).calls == ()


def string_written(text: str, chance: random.Random) -> str:
    """The text as JSON, as Python, or between quotes as it is."""
    return chance.choice([json.dumps(text), json.dumps(text, ensure_ascii=False), repr(text), f'"{text}"', f"'{text}'"])


def carelessly_written(chance: random.Random) -> tuple[str, list[str]]:
    """An object as a careless model writes it, and its strings that are closed, as they are written."""
    strings = [string_written(chance.choice(CARELESS), chance) for _ in range(chance.randrange(1, 5))]
    *closed, last = strings
    if chance.random() < 0.3:
        strings[-1] = last[:-1]
    else:
        closed.append(last)
    comma = chance.choice([", ", ",", ",\n", " "])
    if chance.random() < 0.5:
        members = comma.join(f'"k{number}": {string}' for number, string in enumerate(strings))
    else:
        members = f'"k": [{comma.join(strings)}' + chance.choice(["]", "]", ",]", ""])
    ends = ["}", "}", ",}", "", "} // done", "}\n```"]
    return f"{{{members}{chance.choice(ends)}", closed


def readings(string: str) -> set[str]:
    """The texts that a closed string may mean: its characters as they are, or what its escapes stand for."""
    inner = string[1:-1]
    found = {inner}
    with suppress(ValueError, SyntaxError):
        found.add(json.loads(string, strict=False) if string[0] == '"' else ast.literal_eval(string))
    with suppress(ValueError):
        found.add(json.loads('"' + inner.replace("\\'", "'").replace('"', '\\"') + '"', strict=False))
    return found


@pytest.mark.filterwarnings("ignore:.*invalid escape sequence")
@given(st.integers(0, 2**64))
@settings(deadline=None, max_examples=2_000, derandomize=True)
def test_a_repair_keeps_each_closed_string_or_there_is_no_call(seed: int) -> None:
    written_object, closed = carelessly_written(random.Random(seed))
    for call in parse_tool_calls(f"[[ABP_TOOL:t]]\n{written_object}\n[[END_ABP_TOOL]]").calls:
        kept = texts_of(dict(call.parameters))
        lost = [string for string in closed if not readings(string) & kept]
        assert lost == [], f"{written_object} became {dict(call.parameters)}"


@pytest.mark.parametrize("seed", [7])
def test_2000_damaged_texts_are_read_without_harm(seed: int) -> None:
    """The short form of `make fuzz`."""
    run(2_000, seed=seed, report=lambda _: None)


@pytest.mark.parametrize("depth", [JSON_DEPTH_MAX - 2, JSON_DEPTH_MAX, 1_000, 50_000])
@pytest.mark.parametrize(("opening", "closing"), [("[", "]"), ('{"a":', "}")])
def test_nesting_is_bounded(depth: int, opening: str, closing: str) -> None:
    inside = opening * depth + "1" + closing * depth
    text = f'[[ABP_TOOL:t]]{{"parameters": {{"a": {inside}}}}}[[END_ABP_TOOL]]'
    sound, damaged = parse_tool_calls(text), parse_tool_calls(text.replace("}}[[", "},}[["))
    assert sound.success == damaged.success == (depth + 2 <= JSON_DEPTH_MAX)


@pytest.mark.parametrize("name", HOSTILE)
def test_time_is_linear_for_hostile_texts(name: str) -> None:
    """Quadratic time would take sixteen times as long for four times the text. Nine is allowed on a busy machine."""
    small, large = (hostile_text(HOSTILE[name], size) for size in (20_000, 80_000))
    ratios = []
    while not ratios or (min(ratios) >= 9 and len(ratios) < 5):
        floor = max(seconds(lambda: parse_tool_calls(small), 2), 2e-4)
        ratios.append(seconds(lambda: parse_tool_calls(large), 1) / floor)
    assert min(ratios) < 9, f"{name}: {ratios}"


def test_the_call_that_the_fuzzing_starts_from_matches_the_protocol() -> None:
    assert written(("T", "x", {"a": 1})) == (
        "[[ABP_TOOL:T]]\n" + json.dumps({"action": "x", "parameters": {"a": 1}}) + "\n[[END_ABP_TOOL]]\n"
    )
