"""Lines of facts are read as intended, comparisons become filters, and stored text cannot manipulate tables."""

import io
import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from mnemon import (
    BlockProblem,
    Fact,
    FactAnswer,
    FactMatch,
    FactVersion,
    InvalidArgumentError,
    ParsedText,
    ProtocolStats,
    SearchDiagnostics,
    Tool,
    ToolCall,
    ToolCallResult,
    ToolFallback,
    ToolOutput,
    ToolProtocol,
)
from mnemon._cli import facts as fact_commands
from mnemon._cli import tools as tool_commands
from mnemon._cli.documents.sources import Unreadable
from mnemon._cli.json_lines import FACT_LINES, Line, read_records
from mnemon._cli.options import labels
from mnemon._messages.json import object_from_pb
from mnemon.v1 import facts_pb2, tools_pb2
from rich.console import Console, RenderableType

from tests.support.command import run
from tests.support.memory_messages import all_of, compare
from tests.unit.client.scripted_server import scripted_server

NOON = datetime(2026, 5, 1, 12, tzinfo=UTC)
ESCAPE = "\x1b[31mred [bold]x[/bold]"
SHOWN = "\\u001b[31mred [bold]x[/bold]"
FACT = Fact(
    ("user", ESCAPE),
    ESCAPE,
    {"content": ESCAPE},
    {ESCAPE: ESCAPE},
    NOON,
    NOON,
    index=(ESCAPE,),
    revision=3,
    versions=(FactVersion(2, {"n": 5}, NOON),),
)
ANSWER = FactAnswer((FactMatch(FACT, 0.75), FactMatch(FACT)), SearchDiagnostics(None, True, 1, 1, 0, "", 0.0))
CALL = ToolCall("abp-1", ESCAPE, ESCAPE, {"n": "\x1b"}, ToolProtocol.ABP, ("open brackets",))
PROBLEM = BlockProblem(ToolProtocol.ABP, ESCAPE, ESCAPE, 3, 2)
PARSED = ParsedText(True, (CALL,), "", "", ToolFallback.NONE, (PROBLEM,))
RESULTS = (
    ToolCallResult("abp-1", 2, ESCAPE, ToolOutput("done")),
    ToolCallResult("abp-2", 0, "t", error=InvalidArgumentError("no such id")),
)


def printed(*renderables: RenderableType) -> str:
    console = Console(file=io.StringIO(), width=200)
    for renderable in renderables:
        console.print(renderable)
    return str(console.file.getvalue())  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("shown", "parts"),
    [
        (printed(fact_commands.fact_table([FACT])), ("user.", "2026-05-01")),
        (printed(fact_commands.match_table(ANSWER)), ("0.750", "user.")),
        (printed(fact_commands.fact_sheet(FACT)), ("user.", "revision 2, 2026-05-01", '"n": 5')),
        (printed(fact_commands.namespace_list([FACT.namespace])), ("user.",)),
        (
            printed(tool_commands.tool_table([Tool(ESCAPE, "Ask.", {"properties": {"a": {}, "b": {}}})])),
            ("a, b", "server"),
        ),
        (printed(tool_commands.parsed_table(PARSED)), ("abp abp-1; open brackets", "line 2: a block of")),
        (printed(*tool_commands.result_lines(RESULTS)), ("abp-1 2", ": done", "abp-2  t: error: no such id")),
    ],
)
def test_a_table_shows_its_parts_and_makes_control_characters_visible(shown: str, parts: tuple[str, ...]) -> None:
    assert SHOWN in shown
    assert "\x1b" not in shown
    for part in parts:
        assert part in shown


def test_a_value_with_more_than_a_content_is_shown_as_json() -> None:
    shown = printed(fact_commands.fact_table([Fact(("a",), "k", {"content": "tea", "n": 5}), Fact(("a",), "l", {})]))
    assert '{"content": "tea", "n": 5}' in shown and "{}" in shown
    assert "nothing found" in printed(fact_commands.match_table(FactAnswer((), ANSWER.diagnostics)))
    assert "searched   nothing" in printed(fact_commands.fact_sheet(Fact(("a",), "k", {}, index=False)))


def test_counts_and_texts_without_a_call_are_shown() -> None:
    shown = printed(tool_commands.stats_table(ProtocolStats(10, 4, 5, 3, 2, 1)))
    assert [line.split()[-1] for line in shown.splitlines()] == ["10", "4", "5", "3", "2", "1"]
    nothing = ParsedText(False, (), "ABP parsing failed", "text", ToolFallback.PLAIN_TEXT)
    assert printed(tool_commands.parsed_table(nothing)) == "no call: the text is the model's answer\n"


def facts_of(tmp_path: Path, *lines: str, **fields: Any) -> list[Line | Unreadable]:
    path = tmp_path / "facts.jsonl"
    path.write_text("\n".join(lines), encoding="utf-8")
    return list(read_records(str(path), FACT_LINES, fields, {"from": "file"}))


def test_a_line_is_a_text_or_an_object_and_options_fill_missing_fields(tmp_path: Path) -> None:
    whole = {"namespace": ["b"], "key": "k", "value": {"n": 5}, "ttl_s": 90, "embedding": [0.5], "index": False}

    text, full = facts_of(tmp_path, '"tea"', "", json.dumps(whole), namespace=("a",), index=("title",))

    assert isinstance(text, Line) and isinstance(full, Line)
    assert text.item == Fact(("a",), "", {"content": "tea"}, {"from": "file"}, index=("title",))
    fact, embedding = full.item
    assert embedding == [0.5]
    assert fact == Fact(["b"], "k", {"n": 5}, {"from": "file"}, ttl=timedelta(seconds=90), index=False)  # type: ignore[arg-type]
    assert full.place.endswith("facts.jsonl:3")


def test_a_printed_fact_can_be_read_again(tmp_path: Path) -> None:
    fact = Fact(("user", "ada"), "k", {"n": [1, None]}, {}, NOON, NOON, timedelta(days=1), ("a", "b"), 7, NOON)

    [line] = facts_of(tmp_path, fact.to_json())

    assert isinstance(line, Line)
    read = line.item
    assert (tuple(read.namespace), read.key, read.value, read.ttl) == (fact.namespace, "k", fact.value, fact.ttl)
    assert (read.create_time, read.update_time, tuple(read.index), read.revision) == (NOON, NOON, ("a", "b"), 0)


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ("Ada likes tea.", "a line is a text in quotes, such as "),
        ("5", "must be quoted text or an object"),
        ('{"content": "tea"}', '"content" is not a field'),
        ('{"key": "k"}', '"value" must be an object'),
        ('{"value": []}', '"value" must be an object'),
        ('{"value": {}, "namespace": "a"}', '"namespace" must be a list of labels'),
        ('{"value": {}, "key": 5}', '"key" must be text'),
        ('{"value": {}, "metadata": []}', '"metadata" must be an object'),
        ('{"value": {}, "embedding": "x"}', '"embedding" must be a list of numbers'),
        ('{"value": {}, "create_time": "noon"}', '"create_time" must be'),
        ('{"value": {}, "update_time": 5}', '"update_time" must be'),
        ('{"value": {}, "ttl_s": "long"}', '"ttl_s" must be'),
        ('{"value": {}, "ttl_s": 1e300}', '"ttl_s" must be'),
    ],
)
def test_the_error_of_a_bad_line_is_named(tmp_path: Path, line: str, problem: str) -> None:
    [read] = facts_of(tmp_path, line)

    assert isinstance(read, Unreadable) and problem in read.problem


def test_comparisons_become_a_filter_and_without_a_namespace_all_are_searched() -> None:
    with scripted_server(lambda *_: facts_pb2.SearchFactsResponse()) as (address, server):
        where = ("--where", "score>=3", "--where", "score < 8", "--where", 'code="007"', "--where", "done!=true")
        assert run(address, "facts", "search", "tea", "user.ada", "--below", *where).stdout == "nothing found\n"
        run(address, "facts", "search", "tea")
        run(address, "facts", "search", "tea", "user")

    asked, everywhere, exact = (request.filter for request in server.requests)
    assert (list(asked.namespace), asked.subtree) == (["user", "ada"], True)
    assert asked.filter == all_of(
        compare("value.score", "GTE", 3),
        compare("value.score", "LT", 8),
        compare("value.code", "EQ", "007"),
        compare("value.done", "NE", True),
    )
    assert (list(everywhere.namespace), everywhere.subtree) == ([], True)
    assert (list(exact.namespace), exact.subtree) == (["user"], False)


def test_the_context_of_a_call_comes_from_options() -> None:
    answer = tools_pb2.CallToolResponse(output=tools_pb2.ToolOutput(content="created memory 1"))
    options = ("--config", "user_id=007", "--config", "org_id=a=b", "--namespace", "{user_id}.notes")
    more = ("--permit", "create", "--permit", "update", "--meta", "n=5", "--artifact")
    with scripted_server(lambda *_: answer) as (address, server):
        done = run(address, "tools", "call", "manage_memory", '{"content": "tea"}', *options, *more)
        run(address, "tools", "call", "manage_memory", "{}", "--config", "user_id=007", "--config", "org_id=a=b")

    assert done.stdout == "created memory 1\n"
    full, plain = (request.context for request in server.requests)
    assert (list(full.namespace), list(full.actions_permitted)) == (["{user_id}", "notes"], [1, 2])
    assert object_from_pb(full.config) == {"user_id": "007", "org_id": None}
    assert full.metadata["n"].int_value == 5
    assert server.requests[0].response_format == tools_pb2.RESPONSE_FORMAT_CONTENT_AND_ARTIFACT
    assert object_from_pb(plain.config) == {"user_id": "007", "org_id": "a=b"}
    assert (list(plain.namespace), list(plain.actions_permitted)) == ([], [])


def test_options_set_how_strictly_a_text_is_parsed(tmp_path: Path) -> None:
    path = tmp_path / "answer.txt"
    path.write_text("Grüße", encoding="utf-8")
    flags = ("--strict-envelope", "--no-end-marker", "--strict-boundaries", "--abp-only")
    with scripted_server(lambda *_: tools_pb2.ParseToolCallsResponse()) as (address, server):
        assert run(address, "tools", "parse", path, *flags).returncode == 1
        assert run(address, "tools", "parse", stdin="Good morning.").returncode == 1

    strict, plain = server.requests
    assert (strict.text, plain.text) == ("Grüße", "Good morning.")
    assert strict.options.strict_envelope and strict.options.strict_boundaries
    assert not strict.options.require_end_marker and not strict.options.dual_mode
    assert plain.options.require_end_marker and plain.options.dual_mode and not plain.options.strict_envelope


@pytest.mark.parametrize(
    "arguments",
    [
        ("facts",),
        ("facts", "put"),
        ("facts", "put", "user.ada"),
        ("facts", "put", "user.ada", "{"),
        ("facts", "put", "user.ada", "tea", "--file", "-"),
        ("facts", "put", "user.ada", "--file", "-", "--key", "k"),
        ("facts", "put", "user.ada", "tea", "--index", "a", "--no-index"),
        ("facts", "put", "user.ada", "tea", "--ttl", "2027-01-01"),
        ("facts", "get", "user.ada"),
        ("facts", "search", "tea", "--where", "score"),
        ("facts", "search", "tea", "--where", "score=1", "--where", "score=2"),
        ("facts", "delete"),
        ("facts", "delete", "user.ada", "k", "--below"),
        ("facts", "delete", "user.ada", "k", "--dry-run"),
        ("tools", "call", "t"),
        ("tools", "call", "t", "[]"),
        ("tools", "call", "t", "{}", "--config", "ada"),
        ("tools", "list", "--permit", "purge"),
        ("tools", "parse", "no-such-file"),
    ],
)
def test_a_wrong_command_line_is_refused(arguments: tuple[str, ...]) -> None:
    done = run("127.0.0.1:1", *arguments)

    assert done.returncode == 2
    assert "Usage:" in done.stdout + done.stderr


@pytest.mark.parametrize(
    "command", [("remember",), ("facts", "put", "user.ada"), ("tools", "call", "search_memory"), ("recall",)]
)
def test_standard_input_that_is_no_text_is_refused(command: tuple[str, ...]) -> None:
    for given, why in (("\n", "is empty"), ("x" * (1 << 20) + "y", "is longer than 1,048,576 bytes")):
        done = run("127.0.0.1:1", *command, "-", stdin=given)
        assert (done.returncode, f"standard input {why}" in done.stderr) == (2, True), done.stderr


@pytest.mark.parametrize("text", ["- milk", "-5 °C", "--help me"])
def test_a_text_that_begins_with_a_hyphen_is_taken_for_an_option_and_the_error_says_where_it_goes(text: str) -> None:
    done = run("127.0.0.1:1", "remember", text, "--user", "ada")
    assert (done.returncode, "goes after all options and --" in done.stderr) == (2, True), done.stderr
    typo = run("127.0.0.1:1", "remember", "milk", "--usr", "ada")
    assert "Did you mean '--user'?" in typo.stderr and "hyphen" not in typo.stderr


def test_a_text_that_is_not_utf_8_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "answer.txt"
    path.write_bytes(b"\xff")
    done = run("127.0.0.1:1", "tools", "execute", path)

    assert done.returncode == 2 and "is not UTF-8" in done.stderr


@pytest.mark.parametrize(
    ("text", "found", "meant"),
    [
        ("user.ada@example.org", ("user", "ada@example", "org"), r"user.ada@example\.org"),
        ("user.ada.king@example.org", ("user", "ada", "king@example", "org"), r"user.ada\.king@example\.org"),
        ("ada@example.co.uk", ("ada@example", "co", "uk"), r"ada@example\.co\.uk"),
        (r"user.ada@example\.org.notes", ("user", "ada@example.org", "notes"), None),
        ("user.ada@home", ("user", "ada@home"), None),
        ("user.ada.notes", ("user", "ada", "notes"), None),
    ],
)
def test_a_note_says_that_the_dots_of_an_address_have_made_several_labels_of_it(
    text: str, found: tuple[str, ...], meant: str | None, capsys: pytest.CaptureFixture[str]
) -> None:
    assert labels(text) == found
    note = (
        f"note: {text} has the labels {', '.join(found)}; a dot within a label has a backslash before it: '{meant}'\n"
    )
    assert capsys.readouterr().err == (note if meant else "")
