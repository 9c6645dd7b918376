"""A call in a model's thinking is not a call."""

import pytest
from mnemon_server.services.protocols.parsing import parse_tool_calls, without_thinking

BLOCK = '[[ABP_TOOL:{}]]{{"a": 1}}[[END_ABP_TOOL]]'
VCP = "<<<[TOOL_REQUEST]>>>tool_name:「始」{}「末」<<<[END_TOOL_REQUEST]>>>"


@pytest.mark.parametrize(
    ("text", "visible"),
    [
        ("a <think>b</think> c", "a  c"),
        ("a<THINK>b</Think>c", "a c"),
        ("<thinking>a<think>b</think>c</thinking>d", "d"),
        ("<think>a<think>b</think>c", ""),
        ("a<thinking type='deep'>b</thinking>c", "a c"),
        ("a<think>b", "a"),
        ("a</think>b", "a</think>b"),
        ("<think></think>", ""),
        ("a<thinker>b</thinker>", "a<thinker>b</thinker>"),
        ("a<thin\u212a>b", "a<thin\u212a>b"),
        ("<think>a</thinking>b", "b"),
        ("", ""),
    ],
)
def test_thinking_is_removed(text: str, visible: str) -> None:
    assert without_thinking(text).text == visible


@pytest.mark.parametrize("call", [BLOCK, VCP])
def test_a_call_in_thinking_is_ignored(call: str) -> None:
    text = f"<think>{call.format('a')}<think>{call.format('b')}</think>{call.format('c')}</think>{call.format('d')}"
    assert [found.tool for found in parse_tool_calls(text).calls] == ["d"]
    assert parse_tool_calls(f"<think>{call.format('a')}").calls == ()
    assert [found.tool for found in parse_tool_calls(f"{call.format('a')}<think>{call.format('b')}").calls] == ["a"]


def test_removing_thinking_creates_no_marker() -> None:
    assert parse_tool_calls('[[ABP_<think>x</think>TOOL:t]]{"a": 1}[[END_ABP_TOOL]]').calls == ()


def test_a_call_cut_off_by_unclosed_thinking_is_ignored() -> None:
    assert parse_tool_calls('[[ABP_TOOL:t]]{"a": "<think>"}[[END_ABP_TOOL]]').calls == ()


@pytest.mark.parametrize("call", [BLOCK, VCP])
def test_unclosed_thinking_is_reported_with_the_calls_it_hides(call: str) -> None:
    text = f"<think>a</think>ok\n{call.format('a')}\n<Thinking>hm {call.format('b')}<think></think>"
    result = parse_tool_calls(text)
    assert [found.tool for found in result.calls] == ["a"]
    [problem] = result.problems
    start = text.index("<Thinking>")
    assert (problem.protocol, problem.offset, problem.line) == (None, start, 3)
    assert f"hides {len(text) - start} characters, among them a marker of a call" in problem.reason


def test_unclosed_thinking_without_calls_is_reported_without_calls() -> None:
    result = parse_tool_calls("So: <think>what now?")
    assert result.error == "ABP parsing failed"
    assert not result.has_marker
    [problem] = result.problems
    assert "hides 16 characters; " in problem.reason


def test_a_call_with_think_tags_in_its_text_can_be_written_as_documented() -> None:
    cut = parse_tool_calls('[[ABP_TOOL:t]]{"a": "the tag <think>"}[[END_ABP_TOOL]]')
    assert [problem.reason.split(",")[0] for problem in cut.problems] == [
        "the end marker is missing",
        "this <think> is not closed",
    ]
    assert "write \\u003cthink>" in cut.problems[-1].reason
    [call] = parse_tool_calls('[[ABP_TOOL:t]]{"a": "the tag \\u003cthink>"}[[END_ABP_TOOL]]').calls
    assert call.parameters == {"a": "the tag <think>"}


def test_every_remaining_character_knows_its_original_position() -> None:
    text = "ab<think>x</think>cd <thinking><think></think></thinking> ef</think>"
    visible = without_thinking(text)
    assert visible.text == "ab cd  ef</think>"
    moved = [text[visible.offset_in_original(offset)] for offset in range(len(visible.text)) if offset != 2]
    assert "".join(moved) == visible.text.replace("ab cd", "abcd")
