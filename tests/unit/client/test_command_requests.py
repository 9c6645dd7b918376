"""Options of commands become requests, and a wrong command line is refused."""

from datetime import datetime
from pathlib import Path

import pytest
from mnemon._cli.options import labels
from mnemon._messages.json import object_from_pb
from mnemon.v1 import episodic_pb2, facts_pb2, tools_pb2

from tests.support.command import run
from tests.support.memory_messages import all_of, compare
from tests.unit.client.scripted_server import scripted_server


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


def test_a_text_searches_all_times_and_names_events_not_yet_indexed() -> None:
    answer = episodic_pb2.QueryWindowResponse(diagnostics={"pending": 3})
    with scripted_server(lambda *_: answer) as (address, server):
        done = run(address, "timeline", "tea", "--limit", "7")

    assert done.stdout == "nothing found\n"
    assert "note: not yet indexed: 3 events, which" in done.stderr
    [request] = server.requests
    assert (request.query, request.limit, request.range.HasField("end_time")) == ("tea", 7, False)
    assert request.range.start_time.ToDatetime() == datetime(1, 1, 1)


def test_without_a_text_the_newest_events_of_all_times_are_listed() -> None:
    with scripted_server(lambda *_: episodic_pb2.ListRecentEventsResponse()) as (address, server):
        assert run(address, "timeline", "--user", "ada", "--type", "task").stdout == "nothing happened\n"

    request = server.requests[0]
    assert isinstance(request, episodic_pb2.ListRecentEventsRequest)
    assert (request.filter.scope.user, list(request.filter.event_types), request.page_size) == ("ada", ["task"], 51)


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
        ("facts", "delete"),
        ("facts", "delete", "user.ada", "k", "--below"),
        ("facts", "delete", "user.ada", "k", "--where", "score>=3"),
        ("facts", "delete", "user.ada", "k", "--dry-run"),
        ("tools", "call", "t"),
        ("tools", "call", "t", "[]"),
        ("tools", "call", "t", "{}", "--config", "ada"),
        ("tools", "list", "--permit", "purge"),
        ("tools", "parse", "no-such-file"),
        ("record",),
        ("record", "text"),
        ("record", "text", "--user", "ada"),
        ("record", "text", "--type", "task"),
        ("record", "text", "--type", "", "--user", "ada"),
        ("record", "text", "--file", "-"),
        ("timeline", "--mode", "keyword"),
        ("timeline", "text", "--limit", "0"),
        ("timeline", "--since", "noon"),
        ("timeline", " "),
        ("happened",),
        ("prune",),
        ("prune", "e-1", "--user", "ada"),
        ("prune", "e-1", "--before", "3d"),
        ("bridge", "policy", "--mode", "most"),
        ("learn", "text"),
        ("learn", "text", "--user", ""),
        ("learn", "text", "--user", "ada", "--detect", "--resolve"),
        ("learn", "text", "--user", "ada", "--dry-run"),
        ("unlearn",),
        ("unlearn", "m-1", "--user", "ada"),
        ("known", "m-1", "--user", "ada"),
        ("unmerge",),
        ("unmerge", "d-1", "--memory", "m-1"),
        ("rules", "load", "no-such-file.json"),
    ],
)
def test_a_wrong_command_line_is_refused(arguments: tuple[str, ...]) -> None:
    done = run("127.0.0.1:1", *arguments)

    assert done.returncode == 2
    assert "Usage:" in done.stdout + done.stderr


@pytest.mark.parametrize(("given", "lacking"), [("--user", "--type"), ("--type", "--user")])
def test_what_an_event_lacks_is_named_alone(given: str, lacking: str) -> None:
    [said] = run("127.0.0.1:1", "record", "text", given, "x").stderr.splitlines()[-1:]

    assert lacking in said and given not in said


@pytest.mark.parametrize(
    "command", [("remember",), ("facts", "put", "user.ada"), ("tools", "call", "search_memory"), ("recall",)]
)
def test_standard_input_that_is_no_text_is_refused(command: tuple[str, ...]) -> None:
    for given, why in (("\n", "is empty"), ("x" * (1 << 20) + "y", "is longer than 1,048,576 bytes")):
        done = run("127.0.0.1:1", *command, "-", stdin=given)
        assert (done.returncode, f"standard input {why}" in done.stderr) == (2, True), done.stderr


@pytest.mark.parametrize(
    "command", [("chat", "show"), ("bridge", "preview"), ("remembered",), ("quarantine", "add", "web")]
)
def test_an_argument_that_is_blank_is_refused_as_a_variable_that_may_be_unset(command: tuple[str, ...]) -> None:
    for blank in ("", "\u200b"):
        done = run("127.0.0.1:1", *command, blank)
        assert (done.returncode, "must not be blank; a variable may be unset" in done.stderr) == (2, True), done.stderr


@pytest.mark.parametrize(
    ("quotas", "told"),
    [
        ("{", "must be a JSON object"),
        ("[" * 100_000, "must be a JSON object"),
        ("[1]", "must be a JSON object"),
        ('{"recordz": 3}', "'recordz' is not a quota; did you mean 'records'?"),
        ('{"records": 1.5}', "quotas.records: must be a whole number, not 1.5"),
        ('{"disk_mib": "9"}', "quotas.disk_mib: must be a number, not '9'"),
    ],
)
def test_quotas_that_cannot_be_read_are_refused_with_a_sentence(quotas: str, told: str) -> None:
    for command in ("create", "update"):
        done = run("127.0.0.1:1", "tenants", command, "acme", "--quotas", quotas)
        assert done.returncode in (1, 2) and told in done.stderr, done.stderr
        assert "Traceback" not in done.stderr


@pytest.mark.parametrize("text", ["- milk", "-5 °C", "--help me"])
def test_a_text_that_begins_with_a_hyphen_is_taken_for_an_option_and_the_error_says_where_it_goes(text: str) -> None:
    done = run("127.0.0.1:1", "remember", text, "--user", "ada")
    assert (done.returncode, "goes after all options and --" in done.stderr) == (2, True), done.stderr
    typo = run("127.0.0.1:1", "remember", "milk", "--usr", "ada")
    assert "Did you mean '--user'?" in typo.stderr and "hyphen" not in typo.stderr


@pytest.mark.parametrize("command", [("tools", "execute"), ("tools", "parse"), ("update", "tea", "--file")])
def test_a_text_that_is_not_utf_8_is_refused(tmp_path: Path, command: tuple[str, ...]) -> None:
    path = tmp_path / "answer.txt"
    path.write_bytes(b"caf\xe9")
    done = run("127.0.0.1:1", *command, path)

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
