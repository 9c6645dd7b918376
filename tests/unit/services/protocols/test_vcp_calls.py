"""Calls in VCP: fields, escapes, numbered commands and flags."""

import pytest
from mnemon_server.domain.tool_calls import CallFlags, ParseResult, Protocol, ToolCall
from mnemon_server.services.protocols.parsing import parse_tool_calls

START, END = "<<<[TOOL_REQUEST]>>>", "<<<[END_TOOL_REQUEST]>>>"
NAME = "tool_name:「始」t「末」,"


def _parse(inside: str) -> ParseResult:
    return parse_tool_calls(f"Well.\n{START}\n{inside}\n{END}\nDone.")


def _call(inside: str) -> ToolCall:
    (call,) = _parse(inside).calls
    return call


@pytest.mark.parametrize(
    ("inside", "parameters"),
    [
        (NAME + "a:「始」b「末」", {"a": "b"}),
        (NAME + "a:「始」 b\nc \n「末」 then\nd :  「始」e「末」", {"a": "b\nc", "d": "e"}),
        (NAME + "a:「始」b「末」c:「始」d「末」", {"a": "b", "c": "d"}),
        (NAME + "a:「始」1「末」,a:「始」2「末」", {"a": "2"}),
        (NAME + "a:「始」b「末」,c:「始」d", {"a": "b"}),
        (NAME + "a:「始」「末」", {"a": ""}),
        (NAME + "a:「始」x「始」y「末」", {"a": "x「始」y"}),
        (NAME + "ключ:「始」x「末」,a_1:「始」y「末」", {"a_1": "y"}),
        (NAME + "「始」x「末」 a「始」y「末」", {}),
        (NAME + 'a:「始」{"b": [1]}「末」', {"a": '{"b": [1]}'}),
        (NAME + f"a:「始ESCAPE」{START} x:「始」y「末」 {END}「末ESCAPE」", {"a": f"{START} x:「始」y「末」 {END}"}),
        (
            NAME
            + "a:「始ESCAPE」<<<[TOOL_REQUEST_ESCAPE]>>>「始ESCAPE」b「末ESCAPE」"
            + "<<<[END_TOOL_REQUEST_ESCAPE]>>>「末ESCAPE」",
            {"a": f"{START}「始」b「末」{END}"},
        ),
        (NAME + "a:「始」<<<[TOOL_REQUEST_ESCAPE]>>>「末」", {"a": "<<<[TOOL_REQUEST_ESCAPE]>>>"}),
        (NAME + "「始ESCAPE」b:「始」c「末」「末ESCAPE」a:「始」1「末」", {"a": "1"}),
    ],
)
def test_fields_are_read(inside: str, parameters: dict[str, str]) -> None:
    call = _call(inside)
    assert (call.tool, call.protocol, call.action, dict(call.parameters)) == ("t", Protocol.VCP, "", parameters)


@pytest.mark.parametrize(
    ("inside", "reason"),
    [
        ("a:「始」b「末」", "tool_name is missing"),
        ("tool_name:「始」 「末」", "tool_name is missing"),
        ("tool_name:「始」t", "tool_name is missing"),
        ("a:「始」b, " + NAME, "tool_name is missing"),
        (NAME + "a:「始ESCAPE」b", "an ESCAPE field is not closed"),
        (NAME + "a:「始ESCAPE」b「末」", "an ESCAPE field is not closed"),
    ],
)
def test_an_incomplete_block_is_not_a_call(inside: str, reason: str) -> None:
    result = _parse(inside)
    assert result.calls == ()
    assert [(problem.reason, problem.offset, problem.line) for problem in result.problems] == [(reason, 6, 2)]


def test_a_block_without_its_end_marker_is_not_a_call_and_does_not_borrow_the_next_one() -> None:
    result = parse_tool_calls(f"{START}{NAME}a:「始」x {START}tool_name:「始」u「末」{END}{START}{NAME}")
    assert [(call.tool, dict(call.parameters)) for call in result.calls] == [("u", {})]
    assert [problem.reason for problem in result.problems] == ["the end marker is missing"] * 2


def test_an_unclosed_escape_runs_nothing() -> None:
    text = f"{START}{NAME}a:「始ESCAPE」an example: {START}tool_name:「始」wipe「末」{END}"
    assert parse_tool_calls(text).calls == ()


def test_numbered_commands_stay_flat_and_are_also_split_up_to_the_first_gap() -> None:
    call = _call(
        NAME
        + "command1:「始」ReadFile「末」, filePath1:「始」/notes/a.txt「末」,"
        + "command2:「始」Append「末」, line02:「始」z「末」, 72:「始」r「末」,"
        + "command4:「始」Delete「末」, filePath4:「始」b「末」,"
        + "filePath12:「始」c「末」, mode:「始」fast「末」, 2:「始」q「末」"
    )
    assert call.vcp is not None
    assert [(command.number, command.command, dict(command.parameters)) for command in call.vcp.commands] == [
        (1, "ReadFile", {"filePath": "/notes/a.txt"}),
        (2, "Append", {"7": "r"}),
    ]
    assert call.parameters["filePath12"] == "c"
    assert set(call.parameters) == set(call.vcp.fields) - {"tool_name"}


@pytest.mark.parametrize(
    "fields", ["command:「始」a「末」", "command2:「始」a「末」", "command01:「始」a「末」", "x1:「始」a「末」"]
)
def test_without_a_first_command_there_are_no_commands(fields: str) -> None:
    call = _call(NAME + fields)
    assert call.vcp is not None
    assert call.vcp.commands == ()


@pytest.mark.parametrize(
    ("archery", "flags"),
    [
        ("true", CallFlags(asynchronous=True)),
        ("no_reply", CallFlags(asynchronous=True, no_reply=True)),
        ("false", CallFlags()),
        ("True!", CallFlags()),
    ],
)
def test_archery_is_a_flag_and_not_a_parameter(archery: str, flags: CallFlags) -> None:
    call = _call(f"{NAME}archery:「始」{archery}「末」")
    assert call.vcp is not None
    assert (call.vcp.flags, dict(call.parameters)) == (flags, {})
    assert call.vcp.fields["archery"] == archery
