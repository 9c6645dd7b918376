"""What the client makes of events: every type, record and detail that the wire knows has a value in Python."""

import json
from datetime import timedelta

import pytest
from mnemon import Event, EventPage, EventType, Fact, FactChange, Scope
from mnemon._messages.feed import event_from_pb
from mnemon.v1 import events_pb2 as pb

TYPES = [name.removeprefix("EVENT_TYPE_") for name in pb.EventType.keys() if not name.endswith("UNSPECIFIED")]  # noqa: SIM118
FIELDS = [
    (oneof, field.name) for oneof in ("record", "details") for field in pb.Event.DESCRIPTOR.oneofs_by_name[oneof].fields
]


@pytest.mark.parametrize("name", TYPES)
def test_every_type_of_the_wire_is_known(name: str) -> None:
    message = pb.Event(type=pb.EventType.Value(f"EVENT_TYPE_{name}"))
    assert event_from_pb(message).type is EventType[name]


@pytest.mark.parametrize(("oneof", "field"), FIELDS)
def test_every_record_and_every_detail_of_the_wire_has_a_value(oneof: str, field: str) -> None:
    message = pb.Event()
    if field == "prune_reason":
        message.prune_reason = "deleted"
    else:
        getattr(message, field).SetInParent()
    assert getattr(event_from_pb(message), oneof) is not None


def test_the_event_of_a_fact_says_which_fact_it_is_and_has_it_in_the_full_view() -> None:
    message = pb.Event(type=pb.EVENT_TYPE_FACT_UPDATED, record_id="f1", revision=2)
    message.fact_change.namespace.extend(["user", "ada"])
    message.fact_change.key = "seat"
    message.fact.namespace.extend(["user", "ada"])
    message.fact.key = "seat"
    message.fact.ttl.FromTimedelta(timedelta(hours=1))
    event = event_from_pb(message)
    assert event.details == FactChange(("user", "ada"), "seat")
    assert isinstance(event.record, Fact) and event.record.ttl == timedelta(hours=1)
    assert event.to_dict()["record"] == event.record.to_dict()


def test_a_page_is_written_as_json_with_facts_in_it() -> None:
    fact = Fact(("user", "ada"), "seat", {"row": 7}, ttl=timedelta(hours=1))
    event = Event("e1", 1, "c1", None, EventType.FACT_CREATED, "f1", 1, Scope(), "", (), fact)
    written = json.loads(EventPage((event,), "cursor", caught_up=True).to_json())
    assert (written["cursor"], written["caught_up"]) == ("cursor", True)
    assert written["events"] == [event.to_dict()] and written["events"][0]["record"]["ttl_s"] == 3600.0
