"""Every error in an event, a query or a pruning is reported with its field, and valid ones are accepted."""

import math
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from mnemon_server.domain.errors import FieldViolation
from mnemon_server.domain.events import Event, EventPosition, EventSelection, RecordEvent, WindowQuery
from mnemon_server.domain.filters import Condition, Operator
from mnemon_server.domain.records import Scope
from mnemon_server.services.events.checks import (
    is_sound,
    pruning_violations,
    record_violations,
    selection_violations,
    window_violations,
)

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
ADA = Scope(user="ada")
MIB = 1 << 20


def requested(request_id: str = "", **fields: Any) -> RecordEvent:
    """A request to record an event."""
    usual: dict[str, Any] = {"event_id": "", "event_type": "task", "event_time": NOON, "scope": ADA}
    return RecordEvent(Event(**(usual | fields)), request_id)


def fields(violations: Iterable[FieldViolation]) -> list[str]:
    """The invalid fields."""
    return [violation.field for violation in violations]


@pytest.mark.parametrize(
    ("field", "wrong"),
    [
        ("event.scope.user", requested(scope=Scope(persona="p"))),
        ("event.scope.persona", requested(scope=Scope(user="ada", persona="é" * 129))),
        ("event.event_type", requested(event_type="")),
        ("event.event_type", requested(event_type="t" * 129)),
        ("event.event_id", requested(event_id="i" * 257)),
        ("event.event_id", requested(event_id="a\0b")),
        ("event.content", requested(content="x" * (MIB + 1))),
        ("event.content", requested(content="é" * (MIB // 2 + 1))),
        ("event.content", requested(content="\0")),
        ("event.content", requested(content=" \u3000\n")),
        ("event.content", requested(content="half a pair: \ud800")),
        ("event.context", requested(context="x" * 65_537)),
        ("event.source", requested(source="s" * 257)),
        ("event.importance", requested(importance=math.nan)),
        ("event.importance", requested(importance=1.001)),
        ("event.importance", requested(importance=-0.001)),
        ("event.importance", requested(importance=math.inf)),
        ("event.event_time", requested(event_time=datetime(1, 1, 1, tzinfo=timezone(timedelta(hours=1))))),
        ("event.event_time", requested(event_time=datetime(9999, 12, 31, 23, tzinfo=timezone(timedelta(hours=-2))))),
        ("event.metadata", requested(metadata={"no key": 1})),
        ("event.metadata.k", requested(metadata={"k": math.nan})),
        ("event.metadata.k", requested(metadata={"k": datetime(1, 1, 1, tzinfo=timezone(timedelta(hours=1)))})),
        ("request_id", requested("r" * 129)),
    ],
)
def test_errors_in_an_event_are_named(field: str, wrong: RecordEvent) -> None:
    assert fields(record_violations(wrong)) == [field]
    assert not is_sound(wrong)


@pytest.mark.parametrize(
    "fine",
    [
        requested(),
        requested(content="", importance=0.0),
        requested(content="é" * (MIB // 2), importance=1.0),
        requested(event_id="i" * 256, event_type="t" * 128, source="s" * 256, context="c" * 65_536),
        requested(event_time=datetime(1, 1, 1)),
        requested(event_time=datetime(9999, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC)),
        requested("r" * 128, metadata={"k": NOON, "l": ("a", "b")}),
    ],
)
def test_values_at_their_limits_are_accepted(fine: RecordEvent) -> None:
    assert fields(record_violations(fine)) == []
    assert is_sound(fine)


def test_all_errors_of_an_event_are_named_at_once() -> None:
    wrong = requested("r" * 200, scope=Scope(), event_type="", importance=2.0)

    assert fields(record_violations(wrong)) == [
        "event.scope.user",
        "event.event_type",
        "event.importance",
        "request_id",
    ]


texts = st.sampled_from(["", "a", "é", "\0", "\ud800", "x" * 128, "x" * 129, "x" * 256, "x" * 257, "é" * 64, "é" * 65])


@settings(max_examples=300, deadline=None)
@given(
    event_id=texts,
    event_type=texts,
    content=texts,
    context=texts,
    source=texts,
    scope=st.builds(Scope, user=texts, household=texts, persona=texts, agent=texts, project=texts),
    importance=st.one_of(st.none(), st.floats(-1, 2), st.just(math.nan)),
    metadata=st.dictionaries(texts, texts, max_size=2),
    request_id=texts,
)
def test_the_fast_check_and_the_detailed_check_agree_about_every_event(request_id: str, **given_fields: Any) -> None:
    request = requested(request_id, **given_fields)

    assert is_sound(request) == (fields(record_violations(request)) == [])


@pytest.mark.parametrize(
    ("field", "query"),
    [
        ("last_days", WindowQuery(last_days=0)),
        ("last_days", WindowQuery(last_days=36_501)),
        ("last_days", WindowQuery(last_days=1, has_range=True)),
        ("limit", WindowQuery(limit=0)),
        ("limit", WindowQuery(limit=1_001)),
        (
            "range.end_time",
            WindowQuery(has_range=True, where=EventSelection(start=NOON, end=NOON - timedelta(0, 0, 1))),
        ),
        (
            "range.start_time",
            WindowQuery(
                has_range=True, where=EventSelection(start=datetime(1, 1, 1, tzinfo=timezone(timedelta(hours=1))))
            ),
        ),
        ("query", WindowQuery(text="x" * 65_537)),
        ("page_token", WindowQuery(text="x", after=EventPosition(1, "a"))),
        ("filter.min_importance", WindowQuery(where=EventSelection(min_importance=math.nan))),
        ("filter.event_types", WindowQuery(where=EventSelection(event_types=frozenset(map(str, range(65)))))),
        ("filter.scope.user", WindowQuery(where=EventSelection(scope=Scope(user="u" * 257)))),
        (
            "filter.filter.condition.field",
            WindowQuery(where=EventSelection(expression=Condition("colour", Operator.EQ, ("red",)))),
        ),
    ],
)
def test_errors_in_a_query_are_named(field: str, query: WindowQuery) -> None:
    assert fields(window_violations(query)) == [field]


def test_a_window_of_one_moment_and_the_largest_values_are_accepted() -> None:
    moment = EventSelection(start=NOON, end=NOON, event_types=frozenset(map(str, range(64))), min_importance=1.0)

    assert fields(window_violations(WindowQuery(has_range=True, where=moment, limit=1_000))) == []
    assert fields(window_violations(WindowQuery(last_days=36_500, text="x" * 65_536))) == []
    assert fields(selection_violations(EventSelection())) == []


@pytest.mark.parametrize(
    ("wrong", "pruning"),
    [
        (["filter"], (None, EventSelection(), [])),
        (["event_ids"], (NOON, EventSelection(), ["a"])),
        (["event_ids"], (None, EventSelection(scope=ADA), ["a"])),
        (["event_ids"], (None, EventSelection(), ["a"] * 1_001)),
        (["event_ids[1]"], (None, EventSelection(), ["a", ""])),
        (["before"], (datetime(1, 1, 1, tzinfo=timezone(timedelta(hours=1))), EventSelection(), [])),
        ([], (NOON, EventSelection(scope=ADA), [])),
        ([], (None, EventSelection(), ["a"] * 1_000)),
    ],
)
def test_a_pruning_must_be_limited_and_never_means_everything(wrong: list[str], pruning: tuple[Any, Any, Any]) -> None:
    assert fields(pruning_violations(*pruning, "")) == wrong
