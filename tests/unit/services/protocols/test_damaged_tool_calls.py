"""How damaged ABP blocks are handled. The expected results were worked out by hand."""

from typing import Any

import pytest
from mnemon_server.domain.tool_calls import PARSING_FAILED, Fallback, ParseOptions, Repair
from mnemon_server.services.protocols.parsing import parse_tool_calls

from tests.support.cases import ordinary

FENCE, AROUND, CONTROL, ESCAPES = (
    Repair.CODE_FENCE,
    Repair.SURROUNDING_TEXT,
    Repair.CONTROL_CHARACTERS,
    Repair.INVALID_ESCAPES,
)
SINGLE, STRINGS, BRACKETS = Repair.SINGLE_QUOTES, Repair.OPEN_STRINGS, Repair.OPEN_BRACKETS
COMMENTS, EXTRA, MISSING, KEYS, PYTHON = (
    Repair.COMMENTS,
    Repair.EXTRA_COMMAS,
    Repair.MISSING_COMMAS,
    Repair.UNQUOTED_KEYS,
    Repair.PYTHON_LITERALS,
)
END = "[[END_ABP_TOOL]]"

# The text between the markers → action, parameters, repairs.
READ: list[tuple[str, str, dict[str, Any], set[Repair]]] = [
    # Valid envelopes
    ('{"action": "calculate", "parameters": {"expression": "2+2"}}', "calculate", {"expression": "2+2"}, set()),
    ('{"parameters": {"a": 1}}', "", {"a": 1}, set()),
    ('{"a": 1, "b": [true, null, -2.5e3]}', "", {"a": 1, "b": [True, None, -2500.0]}, set()),
    ('{"action": "create", "content": "x"}', "", {"action": "create", "content": "x"}, set()),
    ("{}", "", {}, set()),
    ('{"action": "list", "parameters": {}}', "list", {}, set()),
    ('\n\n  {"a": "é ü 漢 🎉 \\u00e9 \\ud83c\\udf89"}  \n', "", {"a": "é ü 漢 🎉 é 🎉"}, set()),
    ('{"n": 9007199254740992}', "", {"n": 2**53}, set()),
    # Unclosed strings and brackets
    ('{"a": 1', "", {"a": 1}, {BRACKETS}),
    ('{"action": "x", "parameters": {"a": 1}', "x", {"a": 1}, {BRACKETS}),
    ('{"action": "x", "parameters": {"a": [1, 2', "x", {"a": [1, 2]}, {BRACKETS}),
    ('{"a": ["b"}', "", {"a": ["b"]}, {BRACKETS}),
    ('{"a": [{"b": 1], "c": 2}', "", {"a": [{"b": 1}], "c": 2}, {BRACKETS}),
    ('{"a": "b', "", {"a": "b"}, {STRINGS, BRACKETS}),
    ('{"a": "b c\n', "", {"a": "b c"}, {STRINGS, BRACKETS}),
    ('{"a": "b}', "", {"a": "b"}, {STRINGS}),
    ('{"action": "x", "parameters": {"q": "2+2}}', "x", {"q": "2+2"}, {STRINGS}),
    ('{"a": {"b": "c"', "", {"a": {"b": "c"}}, {BRACKETS}),
    # Commas
    ('{"a": 1,}', "", {"a": 1}, {EXTRA}),
    ('{"a": [1, 2,],}', "", {"a": [1, 2]}, {EXTRA}),
    ('{"a": 1,, "b": 2}', "", {"a": 1, "b": 2}, {EXTRA}),
    ('{"a": 1 "b": 2}', "", {"a": 1, "b": 2}, {MISSING}),
    ('{"a": "x"\n"b": "y"}', "", {"a": "x", "b": "y"}, {MISSING}),
    ('{"a": {"b": 1} "c": 2}', "", {"a": {"b": 1}, "c": 2}, {MISSING}),
    ('{"a": [1 2 3]}', "", {"a": [1, 2, 3]}, {MISSING}),
    ('{"a": ["x" "y"], "b": 1,}', "", {"a": ["x", "y"], "b": 1}, {MISSING, EXTRA}),
    # Quotes
    ("{'a': 'b'}", "", {"a": "b"}, {SINGLE}),
    ("{'a': 'it\\'s'}", "", {"a": "it's"}, {SINGLE, ESCAPES}),
    ('{"a": "say \\"hi}', "", {"a": 'say "hi'}, {STRINGS}),
    ('{"a": "say \\"hi\\", then \\"bye\\"", "b": 1,}', "", {"a": 'say "hi", then "bye"', "b": 1}, {EXTRA}),
    ("{'a': 'say \"x\"'}", "", {"a": 'say "x"'}, {SINGLE}),
    ('{"a": "it\\\'s"}', "", {"a": "it's"}, {ESCAPES}),
    ('{"a": "it\'s",}', "", {"a": "it's"}, {EXTRA}),
    ("{a: 1}", "", {"a": 1}, {KEYS}),
    ('{action: "x", parameters: {"b": 2}}', "x", {"b": 2}, {KEYS}),
    ("{'a': True, 'b': None}", "", {"a": True, "b": None}, {SINGLE, PYTHON}),
    # Strings that JSON does not allow
    ('{"a": "x\ny"}', "", {"a": "x\ny"}, {CONTROL}),
    ('{"a": "x\ty", "b": 1,}', "", {"a": "x\ty", "b": 1}, {CONTROL, EXTRA}),
    ('{"a": "C:\\Users"}', "", {"a": "C:\\Users"}, {ESCAPES}),
    ('{"a": "\\d+\\.\\d"}', "", {"a": "\\d+\\.\\d"}, {ESCAPES}),
    ('{"a": "C:\\dir\\}', "", {"a": "C:\\dir\\"}, {ESCAPES, STRINGS}),
    ('{"a": "C:\\\\dir\\\\",}', "", {"a": "C:\\dir\\"}, {EXTRA}),
    # Comments
    ('{"a": 1, // the first, "quoted"\n"b": 2}', "", {"a": 1, "b": 2}, {COMMENTS}),
    ('{"a": /* {"c": 3} */ 1}', "", {"a": 1}, {COMMENTS}),
    ('{"a": 1 # one\n}', "", {"a": 1}, {COMMENTS}),
    ('{"a": "http://x/y # z",}', "", {"a": "http://x/y # z"}, {EXTRA}),
    # Fences and prose
    ('```json\n{"a": 1}\n```', "", {"a": 1}, {FENCE}),
    ('```json\n{"a": 1,}\n```', "", {"a": 1}, {FENCE, EXTRA}),
    ('```json\n{"a": 1\n```', "", {"a": 1}, {FENCE, BRACKETS}),
    ('Here it is: {"a": 1} Good?', "", {"a": 1}, {AROUND}),
    ('I don\'t mind {this}: {"a": 1}', "", {"a": 1}, {AROUND}),
    ('Of {these, {"a": 1}', "", {"a": 1}, {AROUND}),
    ('{"a": 1}}', "", {"a": 1}, {AROUND}),
    # Several objects: a valid one wins over a repaired one, and among repaired ones the last wins
    ('{"a": 1}\n{"a": 2}', "", {"a": 2}, {AROUND}),
    ('{"a": 1}\n{"a": 2,}', "", {"a": 1}, {AROUND}),
    ('{"a": 1,}\n{"a": 2,}', "", {"a": 2}, {AROUND, EXTRA}),
    ('{"a": 1}\n{"parameters": 5}', "", {"a": 1}, {AROUND}),
    ('{"a": 1}, {"a": 2}', "", {"a": 2}, {AROUND}),
    # Markers in strings
    (f'{{"a": "x {END} y"}}', "", {"a": f"x {END} y"}, set()),
    (f'{{"a": "x {END} y",}}', "", {"a": f"x {END} y"}, {EXTRA}),
    (f"{{'a': 'x {END} y'}}", "", {"a": f"x {END} y"}, {SINGLE}),
    (f'{{"a": "[[ABP_TOOL:b]]{{}}{END}"}}', "", {"a": f"[[ABP_TOOL:b]]{{}}{END}"}, set()),
    (f'{{"a": "x\n{END}\ny"}}', "", {"a": f"x\n{END}\ny"}, {CONTROL}),
    (f'{{"a": "\\"{END}\\"", "b": {{"c": "{END}"}}}}', "", {"a": f'"{END}"', "b": {"c": END}}, set()),
]

# The text between the markers → a part of the reason.
REFUSED: list[tuple[str, str]] = [
    ("", "no JSON object"),
    ("2+2", "no JSON object"),
    ("null", "must be an object"),
    ('"text"', "must be an object"),
    ('[{"a": 1}]', "must be an object"),
    ('[1, {"a": 1}]', "must be an object"),
    ('{"parameters": 5}', "`parameters` must be an object"),
    ('{"parameters": [1]}', "`parameters` must be an object"),
    ('{"action": "x", "parameters": "{}"}', "`parameters` must be an object"),
    ('{"action": 1, "parameters": {}}', "`action` must be a string"),
    ('{"a": tru', "word outside"),
    ('{"a": hello world}', "word outside"),
    ('{"a":', "repaired"),
    ('{"a": "b", "c":', "repaired"),
    ('{"a": "b", "c', "repaired"),
    ('{"a"}', "repaired"),
    ('{"a" 1}', "more text follows"),
    ('{"a": , "b": 1}', "repaired"),
    ('{"a": -', "unexpected '-'"),
    ('{"a": 01}', "unexpected '0'"),
    ('{"a": 0x10}', "unexpected '0'"),
    ('{"a": NaN}', "NaN"),
    ('{"a": -Infinity}', "-Infinity"),
    ('{"a": 1e400}', "too large"),
    ('{"a": 9007199254740993}', "beyond 2^53"),
    ('{"a": ' + "9" * 5_000 + ",}", "beyond 2^53"),
    ('{"a": 1, "a": 2}', "same key twice"),
    ("{'a': 1, 'a': 1}", "same key twice"),
    ('{"a": "\\ud83c"}', "surrogate"),
    ('{"a": "\\ud83c",}', "surrogate"),
    ('{"a": ' * 33 + "1" + "}" * 33, "nested deeper than 32"),
    ('{"a": ' * 100_000, "nested deeper than 32"),
    ('"action": "delete", "parameters": {"a": 1}}', "beginning of the outer object"),
    ("action: delete, parameters: {'a': 1}}", "beginning of the outer object"),
    ('{"a": {"b": 1}}, "c": 2}', "closed too early"),
    ('{"a": function() { return 1; }}', "word outside"),
    ('{"a": """x"""}', "more text follows"),
    ('{"a": "he said "hi" to me"}', 'write a " inside of one as \\"'),
    ("{'a': 'it's'}", "write a ' inside of one as \\'"),
    ('{"a": "x "y} {"b": 1} z"}', "more text follows"),
    # Backslashes that may be meant as themselves
    ('{"path":"C:\\dir\\"}', "may end its string"),
    ('{"path":"C:\\"}', "may end its string"),
    ("{'path':'C:\\'}", "may end its string"),
    ('{"paths":["C:\\", "// all"]}', "may end its string"),
    ('{"a": "say \\"hi\\" in C:\\"}', "may end its string"),
    ('{"a": "x \\"\\d\\" y"}', "some backslashes are escapes"),
    ('{"path":"C:\\new\\dir"}', "some backslashes are escapes"),
    ('{"path":"\\\\server\\dir"}', "some backslashes are escapes"),
    ('{"from":"C:\\temp","to":"D:\\dir"}', "some backslashes are escapes"),
    ('{"paths":["C:\\", "D:", 1]}', "more text follows"),
    ('{"a": "f() { return 1; }', "its end is not clear"),
    ('{"a": "x, "b": "y', "more text follows"),
    ('{"a": 1]', "has no opening bracket"),
    ('{"a": 1; "b": 2}', "unexpected ';'"),
    ("{“a”: 1}", "no JSON object"),
    ('{"a": 1\nThat is all.', "word outside"),
    ('{"a": [1 "b": 2}', "repaired"),
]


@pytest.mark.parametrize(("inside", "action", "parameters", "repairs"), READ)
def test_a_block_that_can_be_repaired_without_guessing_is_a_call(
    inside: str, action: str, parameters: dict[str, Any], repairs: set[Repair]
) -> None:
    result = parse_tool_calls(f"Let me see.\n[[ABP_TOOL: Some Tool ]]\n{inside}\n{END}\nDone.")
    assert [(call.tool, call.action, dict(call.parameters), set(call.repairs)) for call in result.calls] == [
        ("Some Tool", action, parameters, repairs)
    ]
    assert (result.success, result.error, result.fallback, result.problems) == (True, "", Fallback.NONE, ())


@pytest.mark.parametrize(("inside", "reason"), REFUSED)
def test_a_block_that_could_only_be_repaired_by_guessing_is_not_a_call(inside: str, reason: str) -> None:
    result = parse_tool_calls(f"Let me see.\n[[ABP_TOOL:t]]\n{inside}\n{END}")
    assert (result.calls, result.success, result.error) == ((), False, PARSING_FAILED)
    assert result.fallback is Fallback.PLAIN_TEXT
    assert [(problem.tool, problem.offset, problem.line) for problem in result.problems] == [("t", 12, 2)]
    assert reason in result.problems[0].reason


@pytest.mark.parametrize("inside", ordinary(inside for inside, *_ in READ))
def test_a_block_without_its_end_marker_is_not_a_call(inside: str) -> None:
    if END not in inside:
        assert parse_tool_calls(f"[[ABP_TOOL:t]]\n{inside}").calls == ()


@pytest.mark.parametrize(("inside", "action", "parameters", "repairs"), READ)
def test_if_no_end_marker_is_needed_only_a_complete_and_valid_object_counts(
    inside: str, action: str, parameters: dict[str, Any], repairs: set[Repair]
) -> None:
    result = parse_tool_calls(f"[[ABP_TOOL:t]]\n{inside}", ParseOptions(require_end_marker=False))
    if repairs == set() or inside == '```json\n{"a": 1}\n```':
        assert [(call.action, dict(call.parameters)) for call in result.calls] == [(action, parameters)]
    for call in result.calls:
        assert call.repairs == ()


@pytest.mark.parametrize("cut", ordinary(range(1, 60)))
def test_a_truncated_text_gives_no_call(cut: int) -> None:
    text = '[[ABP_TOOL:t]]{"action": "x", "parameters": {"a": "b"}}[[END_ABP_TOOL]]'
    assert parse_tool_calls(text).success
    assert parse_tool_calls(text[:-cut]).calls == ()
    if "}}" not in text[:-cut]:
        assert parse_tool_calls(text[:-cut], ParseOptions(require_end_marker=False)).calls == ()


def test_a_strict_envelope_has_both_keys() -> None:
    def calls(inside: str) -> int:
        return len(parse_tool_calls(f"[[ABP_TOOL:t]]{inside}{END}", ParseOptions(strict_envelope=True)).calls)

    assert calls('{"action": "x", "parameters": {}}') == 1
    assert calls('{"action": "x", "parameters": {},}') == 1
    assert calls('{"parameters": {}}') == calls('{"action": "x"}') == calls('{"a": 1}') == calls("{}") == 0


def test_a_block_that_needs_too_much_repair_is_skipped_and_the_rest_is_read() -> None:
    long = "[" + "1 " * 20_000 + "]"
    result = parse_tool_calls(f'[[ABP_TOOL:a]]{{"x": {long}}}{END}[[ABP_TOOL:b]]{{"x": 1,}}{END}')
    assert [call.tool for call in result.calls] == ["b"]
    assert [problem.tool for problem in result.problems] == ["a"]
