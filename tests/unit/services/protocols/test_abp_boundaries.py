"""Where an ABP block begins and ends, and what happens to the other blocks."""

import pytest
from mnemon_server.domain.errors import InvalidArgumentError
from mnemon_server.domain.tool_calls import TEXT_BYTES_MAX, Fallback, ParseOptions
from mnemon_server.services.protocols.parsing import parse_tool_calls

END = "[[END_ABP_TOOL]]"
VCP = "<<<[TOOL_REQUEST]>>>tool_name:「始」v「末」<<<[END_TOOL_REQUEST]>>>"


def _block(tool: str, inside: str = '{"a": 1}') -> str:
    return f"[[ABP_TOOL:{tool}]]\n{inside}\n{END}\n"


def _tools(text: str, options: ParseOptions | None = None) -> list[str]:
    return [call.tool for call in parse_tool_calls(text, options or ParseOptions()).calls]


def test_all_blocks_are_read_in_the_order_of_the_text() -> None:
    result = parse_tool_calls(_block("b") + "and\n" + _block("a") + _block("b"))
    assert [(call.id, call.tool) for call in result.calls] == [("abp-1", "b"), ("abp-2", "a"), ("abp-3", "b")]


def test_a_bad_block_is_reported_with_its_position_and_the_others_are_read() -> None:
    text = _block("a") + "ü\n" + _block("bad", "{nothing}") + _block("c")
    result = parse_tool_calls(text)
    assert [call.tool for call in result.calls] == ["a", "c"]
    assert [(problem.tool, problem.offset, problem.line) for problem in result.problems] == [
        ("bad", text.index("[[ABP_TOOL:bad"), 5)
    ]


def test_positions_are_those_of_the_text_before_its_thinking_was_removed() -> None:
    text = "<think>\n\nhm\n</think>\n" + _block("bad", "") + "<think>x</think>" + _block("worse", "")
    problems = parse_tool_calls(text).problems
    assert [(problem.offset, problem.line) for problem in problems] == [
        (text.index("[[ABP_TOOL:bad"), 5),
        (text.index("[[ABP_TOOL:worse"), 8),
    ]


def test_a_name_is_trimmed_keeps_its_case_and_may_hold_spaces() -> None:
    assert _tools(_block("  My Tool  ") + _block("my tool") + _block("工具")) == ["My Tool", "my tool", "工具"]


@pytest.mark.parametrize(
    "marker", ["[[ABP_TOOL:]]", "[[ABP_TOOL:  ]]", "[[ABP_TOOL:a", "[[ABP_TOOL:a\nb]]", "[[ABP_TOOL:a[0]]]"]
)
def test_a_start_marker_without_a_valid_name_starts_no_block(marker: str) -> None:
    result = parse_tool_calls(f'{marker}{{"a": 1}}{END}')
    assert result.calls == ()
    assert result.problems != ()


@pytest.mark.parametrize("marker", ["[[abp_tool:t]]", "[ABP_TOOL:t]", "[[ABP_TOOL t]]", "[[ABPTOOL:t]]"])
def test_text_that_is_not_a_marker_starts_no_block(marker: str) -> None:
    assert _tools(f'{marker}{{"a": 1}}{END}') == []


def test_a_start_marker_before_the_end_marker_ends_the_outer_block_and_the_inner_one_counts_once() -> None:
    result = parse_tool_calls('[[ABP_TOOL:outer]]{"a": 1}' + _block("inner") + END)
    assert [call.tool for call in result.calls] == ["inner"]
    assert [problem.reason for problem in result.problems] == [
        "the end marker is missing",
        "an end marker without its start marker",
    ]


def test_an_unclosed_string_does_not_swallow_the_next_block() -> None:
    result = parse_tool_calls(_block("a", '{"q": "open') + _block("b", '{"q": "closed"}'))
    assert [(call.tool, dict(call.parameters)) for call in result.calls] == [
        ("a", {"q": "open"}),
        ("b", {"q": "closed"}),
    ]


@pytest.mark.parametrize(
    "text",
    [
        '[[ABP_TOOL:outer]]{"a": 1}' + _block("inner"),
        _block("a") + END,
        _block("a") + '[[ABP_TOOL:b]]{"a": 1}',
        _block("a") + "[[ABP_TOOL:b",
    ],
)
def test_with_strict_boundaries_a_misplaced_marker_fails_the_whole_text(text: str) -> None:
    assert _tools(text) != []
    assert _tools(text, ParseOptions(strict_boundaries=True)) == []
    assert _tools(text + VCP, ParseOptions(strict_boundaries=True)) == []
    assert _tools(_block("a") + _block("b", "{"), ParseOptions(strict_boundaries=True)) == ["a"]


def test_without_an_end_marker_the_object_must_follow_at_once_and_end_the_block() -> None:
    def tools(text: str) -> list[str]:
        return _tools(text, ParseOptions(require_end_marker=False))

    assert tools('[[ABP_TOOL:t]] {"a": 1} and more') == ["t"]
    assert tools('[[ABP_TOOL:t]]\n```json\n{"a": 1}\n```') == ["t"]
    assert tools('[[ABP_TOOL:t]] {"a": 1}' + _block("u")) == ["t", "u"]
    assert tools('[[ABP_TOOL:t]] such as {"a": 1}') == []
    assert tools('[[ABP_TOOL:t]] {"a": {"b": 1}') == []
    assert tools('[[ABP_TOOL:t]] {"a": 1}, "b": 2}') == []
    assert tools('[[ABP_TOOL:t]] {"a": 1,}') == []
    assert tools("[[ABP_TOOL:t]] ") == []


def test_a_text_of_one_mebibyte_is_read_and_a_longer_one_is_refused() -> None:
    rest = TEXT_BYTES_MAX - len(_block("t").encode())
    assert _tools(_block("t") + "é" * (rest // 2)) == ["t"]
    with pytest.raises(InvalidArgumentError, match="text: must have at most 1048576 bytes"):
        parse_tool_calls(_block("t") + "é" * (rest // 2 + 1))
    with pytest.raises(InvalidArgumentError):
        parse_tool_calls("x" * (TEXT_BYTES_MAX + 1))


def test_a_text_without_a_call_is_plain_text() -> None:
    for text in ["", "2 + 2 is 4.", '{"action": "x", "parameters": {}}', "[[ABP_TOOL:t]]"]:
        result = parse_tool_calls(text)
        assert (result.success, result.error, result.fallback) == (False, "ABP parsing failed", Fallback.PLAIN_TEXT)
        assert result.raw_content == text
