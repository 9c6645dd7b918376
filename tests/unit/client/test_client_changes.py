"""How the client reads changes: every type, record and detail of the protos has a value in Python."""

import json
from datetime import timedelta

import pytest
from mnemon import Change, ChangePage, ChangeType, Fact, FactChange, Scope
from mnemon._messages.changes import change_from_pb
from mnemon.v1 import changes_pb2 as pb

TYPES = [name.removeprefix("CHANGE_TYPE_") for name in pb.ChangeType.keys() if not name.endswith("UNSPECIFIED")]  # noqa: SIM118
FIELDS = [
    (oneof, field.name)
    for oneof in ("record", "details")
    for field in pb.Change.DESCRIPTOR.oneofs_by_name[oneof].fields
]


@pytest.mark.parametrize("name", TYPES)
def test_every_type_of_the_protos_is_known(name: str) -> None:
    message = pb.Change(type=pb.ChangeType.Value(f"CHANGE_TYPE_{name}"))
    assert change_from_pb(message).type is ChangeType[name]


@pytest.mark.parametrize(("oneof", "field"), FIELDS)
def test_every_record_and_every_detail_of_the_protos_has_a_value(oneof: str, field: str) -> None:
    message = pb.Change()
    if field == "prune_reason":
        message.prune_reason = pb.SEMANTIC_PRUNE_REASON_DELETED
    else:
        getattr(message, field).SetInParent()
    assert getattr(change_from_pb(message), oneof) is not None


def test_the_change_of_a_fact_names_the_fact_and_carries_it_in_the_full_view() -> None:
    message = pb.Change(type=pb.CHANGE_TYPE_FACT_UPDATED, record_id="f1", revision=2)
    message.fact_change.namespace.extend(["user", "ada"])
    message.fact_change.key = "seat"
    message.fact.namespace.extend(["user", "ada"])
    message.fact.key = "seat"
    message.fact.ttl.FromTimedelta(timedelta(hours=1))
    change = change_from_pb(message)
    assert change.details == FactChange(("user", "ada"), "seat")
    assert isinstance(change.record, Fact) and change.record.ttl == timedelta(hours=1)
    assert change.to_dict()["record"] == change.record.to_dict()


def test_a_page_with_facts_can_be_written_as_json() -> None:
    fact = Fact(("user", "ada"), "seat", {"row": 7}, ttl=timedelta(hours=1))
    change = Change("e1", 1, "c1", None, ChangeType.FACT_CREATED, "f1", 1, Scope(), "", (), fact)
    written = json.loads(ChangePage((change,), "cursor", caught_up=True).to_json())
    assert (written["cursor"], written["caught_up"]) == ("cursor", True)
    assert written["changes"] == [change.to_dict()] and written["changes"][0]["record"]["ttl_s"] == 3600.0
