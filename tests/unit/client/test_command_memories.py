"""Comparisons and times of options are read as intended, and health includes the memories."""

from datetime import UTC, datetime, time, timedelta
from typing import Any

import click
import grpc
import pytest
from mnemon import F, Filter
from mnemon._cli.options import comparison, future, moment, past, until
from mnemon.v1.common_pb2 import STATE_READY, STATE_STARTING, STATE_UNAVAILABLE
from mnemon.v1.knowledge_store_pb2 import CheckHealthResponse
from mnemon.v1.memory_pb2 import GetStatusResponse

from tests.support.command import run, run_json
from tests.unit.client.scripted_server import failing, scripted_server


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
        ("45 seconds", timedelta(seconds=45)),
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


def test_a_day_may_be_named_from_today() -> None:
    before = datetime.now().astimezone().date()
    days = [past(text).date() for text in ("yesterday", "Today", "tomorrow")]
    after = datetime.now().astimezone().date()

    assert all(before <= day - timedelta(days=away) <= after for day, away in zip(days, (-1, 0, 1), strict=True))
    assert (past("yesterday").time(), until("yesterday").time()) == (time.min, time.max)


@pytest.mark.parametrize("text", ["soon", "30", "30y", "2 moons", "2026-13-01", "999999999999999d", "99999999w", ""])
def test_an_invalid_time_is_refused(text: str) -> None:
    with pytest.raises(click.BadParameter):
        future(text)


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
        (["forget"], "name the ids of memories; `mnemon memories` shows them"),
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
