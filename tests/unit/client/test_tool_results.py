"""The results of a search within a bound: for any memories, the text is JSON, fits, and tells what was cut."""

import json
import re
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from mnemon.shared.tool_results import as_json, search_json

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=40),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=8,
)
SIZES = st.sampled_from((1, 40, 900))
VALUES = st.lists(st.tuples(st.dictionaries(st.text(max_size=8), JSON, max_size=4), st.text(max_size=50), SIZES))


def result(number: int, value: dict[str, Any]) -> dict[str, Any]:
    return {"namespace": ["user", "ada"], "key": f"key-{number}", "value": value, "score": 0.5}


@given(VALUES, st.integers(0, 5))
def test_whatever_memories_hold_their_text_is_json_that_fits(
    values: list[tuple[dict[str, Any], str, int]], offset: int
) -> None:
    found = [result(number, {**value, "content": text * size}) for number, (value, text, size) in enumerate(values)]
    text, count = search_json(list(map(as_json, found)), 4, offset=offset)
    shown = json.loads(text)
    assert len(text.encode()) <= 4_096
    assert [each["key"] for each in shown] == [each["key"] for each in found[:count]]
    assert ("[more]" in shown[-1]["value"] if shown else False) == (count < len(found))
    if len(as_json(found).encode()) <= 4_096:
        assert shown == found


def test_short_memories_are_whole_beside_long_ones() -> None:
    found = [result(0, {"content": "tea"}), result(1, {"content": "x" * 90_000}), result(2, {"content": "y" * 9_000})]
    text, _ = search_json(list(map(as_json, found)), 32)
    tea, long, middle = json.loads(text)
    assert (tea, middle) == (found[0], found[2])
    assert 20_000 < len(re.match("x*", long["value"]["content"])[0]) < 24_000  # type: ignore[index]


def test_a_memory_of_very_many_parts_is_shown_as_the_beginning_of_its_json() -> None:
    text, _ = search_json([as_json(result(0, {f"part {number}": number for number in range(9_999)}))], 4)
    [shown] = json.loads(text)
    assert (list(shown["value"]), shown["key"]) == (["content"], "key-0")
    assert shown["value"]["content"].startswith('{"part 0": 0, "part 1": 1, ')
    assert shown["value"]["content"].endswith(" characters; only a program can read the rest]")
