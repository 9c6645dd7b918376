"""The body of a frame decodes to exactly the event that was encoded, and is the published message."""

import math
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from mnemon.v1 import episodic_pb2
from mnemon_server.domain.clock import EPOCH
from mnemon_server.domain.events import FILTER_FIELDS, Event
from mnemon_server.domain.records import INT64_MAX, INT64_MIN, MetadataValue, Scope
from mnemon_server.engines.events.index.event_fields import field_reader
from mnemon_server.wire.events import decode, encode

TIME = datetime(2026, 1, 31, 23, 59, 59, 123_456, tzinfo=UTC)
EVENT = Event(
    event_id="an id",
    event_type="conversation",
    event_time=TIME,
    content="Grüße 👋 東京",
    context="a context",
    scope=Scope("u", "h", "p", "a", "x"),
    importance=0.1,
    source="user",
    metadata={
        "text": "é\"'%$[]",
        "empty": "",
        "whole": 5,
        "number": 5.0,
        "yes": True,
        "no": False,
        "list": ("b", "a", "b"),
        "none": (),
        "time": datetime(1812, 6, 24, 1, 2, 3, 4, tzinfo=UTC),
    },
    record_time=TIME + timedelta(microseconds=1),
)

texts = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=20)
times = st.datetimes(timezones=st.just(UTC))
metadata_values: st.SearchStrategy[MetadataValue] = st.one_of(
    texts,
    st.integers(INT64_MIN, INT64_MAX),
    st.floats(allow_nan=False, allow_infinity=False),
    st.booleans(),
    st.lists(texts, max_size=3).map(tuple),
    times,
)
events = st.builds(
    Event,
    event_id=texts,
    event_type=texts,
    event_time=times,
    content=texts,
    context=texts,
    scope=st.builds(Scope, texts, texts, texts, texts, texts),
    importance=st.none() | st.floats(0, 1),
    source=texts,
    metadata=st.dictionaries(texts, metadata_values, max_size=4),
    record_time=times,
)


def kinds(event: Event) -> dict[str, type]:
    """The types that `==` does not distinguish: 5, 5.0 and True."""
    return {key: type(value) for key, value in event.metadata.items()}


def test_an_event_comes_back_unchanged() -> None:
    found = decode(encode(EVENT))
    assert found == EVENT
    assert kinds(found) == kinds(EVENT)
    assert (found.event_time.tzinfo, found.record_time.tzinfo) == (UTC, UTC)


@settings(max_examples=200, derandomize=True, deadline=None)
@given(event=events)
def test_any_event_comes_back_unchanged(event: Event) -> None:
    found = decode(encode(event))
    assert found == event
    assert kinds(found) == kinds(event)


@pytest.mark.parametrize("importance", [None, 0.0, 5e-324, 0.1, 1 / 3, 1.0])
def test_importance_is_kept_to_the_last_bit_and_unknown_is_not_zero(importance: float | None) -> None:
    assert decode(encode(replace(EVENT, importance=importance))).importance == importance


@pytest.mark.parametrize(
    "time",
    [
        datetime.min.replace(tzinfo=UTC),
        EPOCH - timedelta(microseconds=1),
        EPOCH,
        EPOCH + timedelta(microseconds=1),
        datetime.max.replace(tzinfo=UTC),
    ],
)
def test_times_are_kept_to_the_microsecond_even_before_1970(time: datetime) -> None:
    event = replace(EVENT, event_time=time, record_time=time, metadata={"time": time})
    assert decode(encode(event)) == event
    message = episodic_pb2.EpisodicEvent.FromString(encode(event))
    assert message.HasField("event_time") and message.HasField("record_time")
    assert message.event_time.ToDatetime(UTC) == time


def test_a_whole_float_stays_a_float_and_keeps_its_sign() -> None:
    found = decode(encode(replace(EVENT, metadata={"zero": -0.0, "large": 2.0**60, "whole": 2**60})))
    assert math.copysign(1, found.metadata["zero"]) == -1  # type: ignore[arg-type]
    assert [type(found.metadata[key]) for key in ("zero", "large", "whole")] == [float, float, int]


def test_the_body_is_the_published_message() -> None:
    message = episodic_pb2.EpisodicEvent.FromString(encode(EVENT))
    assert (message.event_id, message.scope.persona, message.importance) == ("an id", "p", 0.1)
    assert message.content == EVENT.content
    assert message.metadata["whole"].int_value == 5
    assert message.metadata["none"].WhichOneof("kind") == "string_list_value"


def test_the_order_of_the_metadata_does_not_affect_the_bytes() -> None:
    turned = replace(EVENT, metadata=dict(reversed(list(EVENT.metadata.items()))))
    assert encode(turned) == encode(EVENT)


def test_every_field_of_a_filter_is_read() -> None:
    read = field_reader(EVENT)
    assert {name: read(name) for name in FILTER_FIELDS} == {
        "event_id": "an id",
        "user": "u",
        "household": "h",
        "persona": "p",
        "agent": "a",
        "project": "x",
        "event_type": "conversation",
        "content": EVENT.content,
        "context": "a context",
        "importance": 0.1,
        "source": "user",
        "event_time": EVENT.event_time,
        "record_time": EVENT.record_time,
    }
    assert (read("metadata.list"), read("metadata.missing")) == (("b", "a", "b"), None)


@pytest.mark.parametrize("name", ["metadata", "scope", "__class__", "whole", "metadata.", "no_such_field"])
def test_an_unknown_field_of_a_filter_has_no_value(name: str) -> None:
    assert field_reader(EVENT)(name) is None
