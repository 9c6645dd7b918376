"""Options and lines of the memory commands are read as intended, and stored text cannot manipulate their tables."""

import io
import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import click
import grpc
import pytest
from mnemon import (
    F,
    Filter,
    MatchExplanation,
    Memory,
    MemoryAnswer,
    MemoryForecast,
    MemoryMatch,
    ScorePart,
    SearchDiagnostics,
    SearchMode,
)
from mnemon._cli.documents.sources import Unreadable
from mnemon._cli.json_lines import MEMORY_LINES, Line, read_records
from mnemon._cli.memories import forecast_table, match_table, memory_sheet, memory_table
from mnemon._cli.options import comparison, future, moment, past
from mnemon.v1.common_pb2 import STATE_READY, STATE_STARTING, STATE_UNAVAILABLE
from mnemon.v1.knowledge_store_pb2 import CheckHealthResponse
from mnemon.v1.memory_pb2 import GetStatusResponse
from rich.console import Console

from tests.support.command import run, run_json
from tests.unit.client.scripted_server import failing, scripted_server

DIAGNOSTICS = SearchDiagnostics(SearchMode.HYBRID, True, 1, 1, 0, "", 0.0)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("metadata.score>=3", F("metadata.score") >= 3),
        ("metadata.score > 3.0", F("metadata.score") > 3.0),
        ("metadata.score<=3", F("metadata.score") <= 3),
        ("metadata.score<3", F("metadata.score") < 3),
        ("agent!=claude", F("agent") != "claude"),
        ('metadata.code="007"', F("metadata.code") == "007"),
        ("content~green tea", F("content").contains("green tea")),
        ("agent=007", F("agent") == "007"),
        ("user=42", F("user") == "42"),
        ('type="true"', F("type") == "true"),
        ("content~2.0", F("content").contains("2.0")),
        ("is_global=true", F("is_global") == True),  # noqa: E712 - builds a filter
        ("is_global=yes", F("is_global") == "yes"),
        ("importance>=1", F("importance") >= 1),
        ("metadata.equation=a=b", F("metadata.equation") == "a=b"),
        ("create_time>=2026-05-01T12:00Z", F("create_time") >= datetime(2026, 5, 1, 12, tzinfo=UTC)),
    ],
)
def test_comparisons_are_parsed(text: str, expected: Filter) -> None:
    assert repr(comparison(text)) == repr(expected)


@pytest.mark.parametrize(
    "text", ["metadata.score", "=3", "", "metadata.score>>3", "agent==claude", "score=<3", "content!~tea"]
)
def test_an_invalid_comparison_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(click.BadParameter, match=r"metadata\.score>=3"):
        comparison(text)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("90m", timedelta(minutes=90)),
        ("1.5h", timedelta(minutes=90)),
        ("30d", timedelta(days=30)),
        ("2w", timedelta(days=14)),
        ("2 weeks", timedelta(days=14)),
        ("1 day", timedelta(days=1)),
        ("2026-05-01T12:00+01:00", datetime(2026, 5, 1, 11, tzinfo=UTC)),
        ("2026-05-01", datetime(2026, 5, 1).astimezone()),
    ],
)
def test_a_time_is_absolute_or_relative(text: str, expected: Any) -> None:
    assert moment(text) == expected


def test_a_relative_time_counts_from_now_in_either_direction() -> None:
    now = datetime.now(UTC)

    assert abs(past("2h") - (now - timedelta(hours=2))) < timedelta(minutes=1)
    assert abs(future("30d") - (now + timedelta(days=30))) < timedelta(minutes=1)


@pytest.mark.parametrize("text", ["soon", "30", "30y", "2 moons", "2026-13-01", "999999999999999d", "99999999w", ""])
def test_an_invalid_time_is_refused(text: str) -> None:
    with pytest.raises(click.BadParameter):
        future(text)


def lines_of(tmp_path: Path, *lines: str, **fields: Any) -> list[Line | Unreadable]:
    path = tmp_path / "memories.jsonl"
    path.write_text("\n".join(lines), encoding="utf-8")
    return list(read_records(str(path), MEMORY_LINES, fields, {"source": "file"}))


def test_a_line_is_a_text_or_an_object_and_options_fill_missing_fields(tmp_path: Path) -> None:
    text, whole, vector = lines_of(
        tmp_path,
        '"Ada likes tea."',
        "",
        json.dumps({"content": "Bob?", "type": "fact", "agent": "", "decay": "contextual", "metadata": {"n": 1}}),
        json.dumps({"content": "Vector.", "embedding": [0.5, 1]}),
        type="preference",
        agent="claude",
    )

    assert isinstance(text, Line) and isinstance(whole, Line) and isinstance(vector, Line)
    assert text.item == Memory("Ada likes tea.", type="preference", agent="claude", metadata={"source": "file"})
    assert whole.item == Memory(
        "Bob?", type="fact", agent="claude", decay="contextual", metadata={"n": 1, "source": "file"}
    )
    assert whole.place.endswith("memories.jsonl:3")
    assert vector.item == (
        Memory("Vector.", type="preference", agent="claude", metadata={"source": "file"}),
        [0.5, 1],
    )


def test_the_json_output_of_list_can_be_read_again(tmp_path: Path) -> None:
    printed = Memory("text", memory_id="m-1", type="a", is_global=True, decay="reinforceable", metadata={"n": 5})
    [line] = lines_of(tmp_path, printed.to_json())

    assert isinstance(line, Line)
    assert line.item == Memory(
        "text", "m-1", type="a", is_global=True, decay="reinforceable", metadata={"n": 5, "source": "file"}
    )


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ("Ada likes tea.", "a line is a text in quotes, such as "),
        ("[1]", "must be quoted text or an object"),
        ('{"type": "a"}', '"content" must be text'),
        ('{"content": "a", "agnet": "b"}', '"agnet" is not a field'),
        ('{"content": "a", "content": "b"}', "the key 'content' appears twice"),
        ('{"content": "a", "type": 1}', '"type" must be text'),
        ('{"content": "a", "is_global": "yes"}', '"is_global" must be true or false'),
        ('{"content": "a", "metadata": [1]}', '"metadata" must be an object'),
        ('{"content": "a", "metadata": []}', '"metadata" must be an object'),
        ('{"content": "a", "type": false}', '"type" must be text'),
        ('{"content": "a", "embedding": "x"}', '"embedding" must be a list'),
    ],
)
def test_the_error_of_a_bad_line_is_named(tmp_path: Path, line: str, problem: str) -> None:
    [found] = lines_of(tmp_path, line)

    assert isinstance(found, Unreadable)
    assert problem in found.problem
    assert found.path.endswith("memories.jsonl:1")


def test_a_null_in_a_line_is_a_field_that_is_not_set(tmp_path: Path) -> None:
    given = {"content": "a", "user": None, "embedding": None, "metadata": {"n": None, "year": 2024}}
    [line] = lines_of(tmp_path, json.dumps(given), user="ada")

    assert isinstance(line, Line)
    assert line.item == Memory("a", user="ada", metadata={"year": 2024, "source": "file"})


def test_a_missing_file_is_reported(tmp_path: Path) -> None:
    assert [type(each) for each in read_records(str(tmp_path / "gone"), MEMORY_LINES, {}, {})] == [Unreadable]


def shown(renderable: object, width: int = 100) -> str:
    console = Console(file=io.StringIO(), width=width, force_terminal=False)
    console.print(renderable)
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def test_a_recall_shows_score_confidence_text_id_and_tags_and_why() -> None:
    why = MatchExplanation((ScorePart("vector", 0.5, 0.6, 0.3),), ("tea",), "reinforced 3 days ago", 0, 4)
    memory = Memory("Ada likes tea.", memory_id="m-1", type="preference", user="ada", is_global=True, confidence=0.93)
    text = shown(match_table(MemoryAnswer((MemoryMatch(memory, 0.5, explanation=why),), DIAGNOSTICS)))

    for part in ("0.500", "93%", "Ada likes tea.", "m-1", "type=preference", "user=ada", "global"):
        assert part in text
    for part in ("vector 0.500 x 0.60", "words: tea", "reinforced 3 days ago"):
        assert part in text


def test_empty_results_and_forecasts_say_so() -> None:
    assert shown(match_table(MemoryAnswer((), DIAGNOSTICS))).strip() == "nothing found"
    assert shown(forecast_table([])).strip() == "nothing fades by then"


def test_a_forecast_shows_the_time_and_the_confidence_now_and_then() -> None:
    fades = datetime(2026, 5, 1, 12, tzinfo=UTC)
    text = shown(forecast_table([MemoryForecast(Memory("text", memory_id="m-1", confidence=0.5), 0.125, fades)]))

    for part in (fades.astimezone().strftime("%Y-%m-%d %H:%M"), "50%", "12%", "m-1"):
        assert part in text


def test_stored_text_cannot_control_the_terminal() -> None:
    hostile = Memory("a\x1b[2Jb\u202e [bold]c[/bold]", memory_id="m-1", type="\x1b]0;x\x07", metadata={"k": "\x9b"})

    for text in (shown(memory_table([hostile])), shown(memory_sheet(hostile))):
        assert not {"\x1b", "\x07", "\x9b", "\u202e"} & set(text)
        assert "[bold]c[/bold]" in text


@pytest.mark.parametrize("width", [40, 80, 200])
def test_a_table_of_memories_fits_the_width(width: int) -> None:
    lines = shown(memory_table([Memory("word " * 300, memory_id="m" * 36)]), width).splitlines()

    assert max(len(line) for line in lines) <= width


@pytest.mark.parametrize(
    ("arguments", "right"),
    [
        (["remember"], "--file"),
        (["remember", "text", "--file", "-"], "not both"),
        (["remember", "text", "--decay", "never"], "reinforceable"),
        (["remember", "text", "--agent", ""], "--agent"),
        (["remember", "text", "--meta", "novalue"], "topic=travel"),
        (["remembered"], "QUERY"),
        (["remembered", "x", "--limit", "0"], "--limit"),
        (["remembered", "x", "--min-confidence", "2"], "--min-confidence"),
        (["remembered", "x", "--where", "score"], "metadata.score>=3"),
        (["remembered", "x", "--since", "soon"], "--since"),
        (["remembered", "x", "--user", ""], "--user"),
        (["memories", "m-1", "--type", "x"], "not both"),
        (["reinforce"], "MEMORY_ID"),
        (["forget"], "name memories"),
        (["forget", "--purge"], "--user ada"),
        (["forget", "m-1", "--undo", "--purge"], "choose one"),
        (["forget", "m-1", "--user", "ada", "--purge"], "not both"),
        (["forget", "--user", "ada"], "--purge"),
        (["forget", "m-1", "--dry-run"], "--purge"),
        (["forecast"], "--by"),
        (["forecast", "--by", "soon"], "30d"),
    ],
)
def test_a_wrong_memory_command_gets_the_right_usage(arguments: list[str], right: str) -> None:
    done = run("127.0.0.1:1", *arguments)

    assert done.returncode == 2
    assert right in done.stderr


def test_a_server_without_memories_is_healthy() -> None:
    store = CheckHealthResponse(state=STATE_READY, backend="local")
    unknown = failing(grpc.StatusCode.UNIMPLEMENTED, "no such method", reason="UNIMPLEMENTED")
    with scripted_server(lambda *_: store, unknown) as (address, _):
        done = run_json(address, "health")

    assert [(line["status"], line["memories"]) for line in done] == [("healthy", None)]


def test_stores_whose_index_is_starting_serve() -> None:
    store = CheckHealthResponse(state=STATE_STARTING, backend="chromadb")
    status = GetStatusResponse(state=STATE_STARTING, message="the vector database is starting")
    with scripted_server(lambda *_: store, lambda *_: status) as (address, _):
        [line] = run_json(address, "health")

    assert (line["status"], line["memories"]["status"]) == ("starting", "starting")


def test_unhealthy_memories_set_the_exit_code() -> None:
    store = CheckHealthResponse(state=STATE_READY, backend="local")
    status = GetStatusResponse(state=STATE_UNAVAILABLE, message="no answer from the vector database")
    with scripted_server(lambda *_: store, lambda *_: status) as (address, _):
        done = run(address, "health")

    assert done.returncode == 1
    assert "no answer from the vector database" in done.stdout
