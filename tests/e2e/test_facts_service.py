"""The fact service over gRPC: storing, streams of facts, and what watchers receive."""

import json
from pathlib import Path
from typing import Any

import grpc
import pytest
from google.protobuf.duration_pb2 import Duration
from google.protobuf.json_format import MessageToDict
from google.rpc import error_details_pb2
from mnemon.v1 import changes_pb2, common_pb2, errors_pb2
from mnemon.v1 import facts_pb2 as pb

from tests.support.fact_messages import ADA, BOB, fact, get_fact, put_request, refused
from tests.support.memory_messages import metadata
from tests.support.server import (
    Connection,
    bare_server,
    detail,
    eventually,
    failure_of,
    reason,
    stream_end,
    violations,
    whole_server,
)
from tests.support.timeline_messages import sent
from tests.support.tool_messages import everything, put, struct

DIMENSION = 64
"""Of the hashing embedder."""
INVALID = grpc.StatusCode.INVALID_ARGUMENT


# Storing


async def test_a_fact_comes_back_as_it_was_stored(facts: Any) -> None:
    value = {"content": "window seats", "rank": 5, "share": 0.5, "by": {"names": ["Ada", None, True]}, "none": {}}
    stored = await put(facts, ADA, "seat", value, metadata=metadata(topic="travel", rank=7))
    assert (stored.receipt.id, stored.receipt.outcome, stored.receipt.revision) == (
        "seat", common_pb2.WRITE_OUTCOME_CREATED, 1,
    )  # fmt: skip
    found = await get_fact(facts, "seat")
    assert found == stored.fact
    assert (list(found.namespace), found.revision) == ([*ADA], 1)
    assert MessageToDict(found.value) == value
    assert found.metadata["rank"].int_value == 7
    assert found.create_time == found.update_time == stored.receipt.commit_time


async def test_the_mode_says_what_must_be_stored_before(facts: Any) -> None:
    create, update = pb.PUT_MODE_CREATE, pb.PUT_MODE_UPDATE
    missing = await failure_of(facts.PutFact(put_request("seat", mode=update)))
    assert (missing.code(), reason(missing)) == (grpc.StatusCode.NOT_FOUND, "FACT_NOT_FOUND")
    assert detail(missing, error_details_pb2.ResourceInfo).resource_type == "mnemon.Fact"
    await facts.PutFact(put_request("seat", mode=create))
    assert await refused(facts.PutFact(put_request("seat", mode=create))) == (
        grpc.StatusCode.ALREADY_EXISTS, "FACT_EXISTS",
    )  # fmt: skip
    replaced = await facts.PutFact(pb.PutFactRequest(fact=fact("seat", content="aisle"), mode=update))
    assert (replaced.receipt.outcome, replaced.fact.revision) == (common_pb2.WRITE_OUTCOME_REPLACED, 2)


async def test_a_stale_revision_is_refused(facts: Any) -> None:
    assert await refused(facts.PutFact(put_request("seat", expected_revision=7))) == (
        grpc.StatusCode.NOT_FOUND, "FACT_NOT_FOUND",
    )  # fmt: skip
    await facts.PutFact(put_request("seat", expected_revision=0))
    for call in (
        facts.PutFact(put_request("seat", expected_revision=0)),
        facts.PutFact(put_request("seat", expected_revision=7)),
        facts.DeleteFact(pb.DeleteFactRequest(namespace=ADA, key="seat", expected_revision=7)),
    ):
        error = await failure_of(call)
        assert (error.code(), reason(error)) == (grpc.StatusCode.ABORTED, "REVISION_MISMATCH")
        assert detail(error, error_details_pb2.ErrorInfo).metadata["actual_revision"] == "1"
    await facts.DeleteFact(pb.DeleteFactRequest(namespace=ADA, key="seat", expected_revision=1))


async def test_a_repeated_request_gets_the_first_answer(facts: Any) -> None:
    first = await facts.PutFact(put_request("", request_id="once"))
    again = await facts.PutFact(put_request("", request_id="once"))
    assert (again.receipt.id, again.receipt.replayed) == (first.receipt.id, True)
    assert len(await everything(facts)) == 1
    other = pb.PutFactRequest(fact=fact("other"), request_id="once")
    assert await refused(facts.PutFact(other)) == (grpc.StatusCode.ALREADY_EXISTS, "REQUEST_ID_REUSED")
    deletion = pb.DeleteFactRequest(namespace=ADA, key=first.receipt.id, request_id="twice")
    outcomes = [(await facts.DeleteFact(deletion)).receipt for _ in range(2)]
    assert [receipt.outcome for receipt in outcomes] == [common_pb2.WRITE_OUTCOME_DELETED] * 2
    assert [receipt.replayed for receipt in outcomes] == [False, True]


async def test_earlier_versions_are_returned_on_request(facts: Any) -> None:
    for content in ("window", "aisle", "middle"):
        await put(facts, ADA, "seat", {"content": content})
    assert len((await get_fact(facts, "seat")).versions) == 0
    versions = (await get_fact(facts, "seat", show_versions=True)).versions
    assert [(version.revision, version.value["content"]) for version in versions] == [(2, "aisle"), (1, "window")]
    assert versions[0].update_time.ToNanoseconds() > versions[1].update_time.ToNanoseconds()
    wanted = pb.ListFactsRequest(filter=pb.FactFilter(namespace=ADA), show_versions=True)
    assert [len(listed.versions) for listed in (await facts.ListFacts(wanted)).facts] == [2]


async def test_a_value_that_is_not_valid_json_is_refused(facts: Any) -> None:
    for number in (float("nan"), float("inf")):
        assert violations(await failure_of(put(facts, ADA, "k", {"n": number}))) == {"fact.value.n"}
    assert violations(await failure_of(put(facts, ADA, "k", {"text": "a\0b"}))) == {"fact.value.text"}
    assert violations(await failure_of(put(facts, ADA, "k", {"big": "x" * (1 << 20)}))) == {"fact.value"}
    deep: dict[str, Any] = {}
    for _ in range(32):
        deep = {"a": deep}
    assert violations(await failure_of(put(facts, ADA, "k", deep))) == {"fact.value"}
    await put(facts, ADA, "k", deep["a"])
    assert MessageToDict((await get_fact(facts, "k")).value) == deep["a"]


# A stream of facts


async def test_a_stream_is_answered_in_order_and_a_bad_fact_fails_alone(facts: Any) -> None:
    bad = pb.PutFactRequest(fact=pb.Fact(namespace=ADA, key="bad"))
    taken = put_request("seat", mode=pb.PUT_MODE_CREATE)
    runs = [
        pb.BulkPutFactsRequest(requests=[put_request("seat"), bad, put_request("tea")]),
        pb.BulkPutFactsRequest(requests=[taken, put_request("cat")]),
    ]
    first, second = [answer async for answer in facts.BulkPutFacts(sent(*runs))]
    assert [result.WhichOneof("outcome") for result in first.results] == ["receipt", "error", "receipt"]
    assert [result.receipt.id for result in first.results] == ["seat", "", "tea"]
    assert [violation.field for violation in first.results[1].error.violations] == ["fact.value"]
    assert second.results[0].error.reason == errors_pb2.ERROR_REASON_FACT_EXISTS
    assert second.results[1].receipt.outcome == common_pb2.WRITE_OUTCOME_CREATED
    assert [stored.key for stored in await everything(facts)] == ["seat", "tea", "cat"]


async def test_the_last_of_many_writes_of_one_fact_wins(facts: Any) -> None:
    def run(number: int) -> pb.BulkPutFactsRequest:
        same = pb.PutFactRequest(fact=fact("seat", content=f"number {number}"))
        return pb.BulkPutFactsRequest(requests=[same, *(put_request(f"{number}-{other}") for other in range(5))])

    answers = [answer async for answer in facts.BulkPutFacts(sent(*(run(number) for number in range(20))))]
    assert [answer.results[0].receipt.revision for answer in answers] == [*range(1, 21)]
    assert (await get_fact(facts, "seat")).value["content"] == "number 19"


@pytest.mark.parametrize("count", [0, 1_001])
async def test_an_empty_or_too_long_run_ends_the_stream(facts: Any, count: int) -> None:
    runs = [
        pb.BulkPutFactsRequest(requests=requests) for requests in ([put_request("seat")], [put_request("tea")] * count)
    ]
    answers, error = await stream_end(facts.BulkPutFacts(sent(*runs)))
    assert len(answers) == 1
    assert violations(error) == {"requests"}


# What watchers receive


async def test_watchers_get_each_change_and_the_fact(connection: Connection) -> None:
    facts = connection.facts
    watch = connection.changes.WatchChanges(changes_pb2.WatchChangesRequest(view=changes_pb2.CHANGE_VIEW_FULL))
    assert (await watch.read()).HasField("started")
    await put(facts, ADA, "seat", {"content": "window", "rank": 5})
    await put(facts, ADA, "seat", {"content": "aisle", "rank": 5})
    await put(facts, BOB, "tea", {"content": "green"})
    await facts.DeleteFact(pb.DeleteFactRequest(namespace=ADA, key="seat"))
    changes: list[changes_pb2.Change] = []
    while len(changes) < 4:
        changes += (await watch.read()).batch.changes
    watch.cancel()
    types = [changes_pb2.ChangeType.Name(change.type).removeprefix("CHANGE_TYPE_FACT_") for change in changes]
    assert types == ["CREATED", "UPDATED", "CREATED", "DELETED"]
    said = [change.fact_change for change in changes]
    assert [(tuple(each.namespace), each.key, each.reason) for each in said] == [
        (ADA, "seat", 0),
        (ADA, "seat", 0),
        (BOB, "tea", 0),
        (ADA, "seat", changes_pb2.FACT_DELETION_REASON_REQUESTED),
    ]
    assert changes[0].record_id == changes[1].record_id == changes[3].record_id != changes[2].record_id
    assert (changes[2].fact.key, changes[2].fact.value) == ("tea", struct({"content": "green"}))
    assert not changes[3].HasField("fact")
    assert "aisle" not in json.dumps(MessageToDict(changes[3]))


@pytest.mark.parametrize("view", [changes_pb2.CHANGE_VIEW_BASIC, changes_pb2.CHANGE_VIEW_FULL])
async def test_watchers_get_the_name_of_each_fact_that_a_filter_removed(connection: Connection, view: Any) -> None:
    facts, below = connection.facts, (*ADA, "travel")
    for namespace, key in ((ADA, "seat"), (ADA, "tea"), (below, "seat"), (BOB, "tea")):
        await put(facts, namespace, key, {"content": "window"})
    watch = connection.changes.WatchChanges(changes_pb2.WatchChangesRequest(view=view))
    assert (await watch.read()).HasField("started")
    everything_of_ada = pb.FactFilter(namespace=ADA, subtree=True)
    assert (await facts.DeleteFacts(pb.DeleteFactsRequest(filter=everything_of_ada))).deleted_count == 3
    changes: list[changes_pb2.Change] = []
    while len(changes) < 3:
        changes += (await watch.read()).batch.changes
    watch.cancel()
    requested = changes_pb2.FACT_DELETION_REASON_REQUESTED
    assert [change.fact_change for change in changes] == [
        changes_pb2.FactChange(namespace=namespace, key=key, reason=requested)
        for namespace, key in ((ADA, "seat"), (ADA, "tea"), (below, "seat"))
    ]
    assert len({change.commit_id for change in changes}) == 1
    assert not any(change.HasField("fact") for change in changes)


async def test_facts_that_expired_while_the_server_was_down_are_removed_and_reported(tmp_path: Path) -> None:
    async with whole_server(tmp_path) as first:
        await put(first.facts, ADA, "code", {"content": "the code is 7"}, ttl=Duration(nanos=1_000_000))
        await put(first.facts, ADA, "seat", {"content": "window"}, ttl=Duration(seconds=3_600))
    async with whole_server(tmp_path) as second:
        deleted = changes_pb2.ListChangesRequest(filter={"types": [changes_pb2.CHANGE_TYPE_FACT_DELETED]})

        async def is_told() -> bool:
            return bool((await second.changes.ListChanges(deleted)).changes)

        await eventually(is_told)
        [change] = (await second.changes.ListChanges(deleted)).changes
        assert change.fact_change == changes_pb2.FactChange(
            namespace=ADA, key="code", reason=changes_pb2.FACT_DELETION_REASON_EXPIRED
        )
        assert [stored.key for stored in await everything(second.facts)] == ["seat"]


async def test_every_method_says_that_the_server_is_starting() -> None:
    async with bare_server() as connection:
        facts, name = connection.facts, {"namespace": ADA, "key": "seat"}
        where = pb.FactFilter(namespace=ADA)
        calls = [
            facts.PutFact(put_request("seat")),
            facts.GetFact(pb.GetFactRequest(**name)),
            facts.BatchGetFacts(pb.BatchGetFactsRequest(names=[pb.FactName(**name)])),
            facts.RenewFacts(pb.RenewFactsRequest(names=[pb.FactName(**name)])),
            facts.SearchFacts(pb.SearchFactsRequest(filter=where)),
            facts.ListFacts(pb.ListFactsRequest(filter=where)),
            facts.ListNamespaces(pb.ListNamespacesRequest()),
            facts.DeleteFact(pb.DeleteFactRequest(**name)),
            facts.DeleteFacts(pb.DeleteFactsRequest(filter=where)),
        ]
        for call in calls:
            assert await refused(call) == (grpc.StatusCode.UNAVAILABLE, "NOT_SERVING")
        _, error = await stream_end(facts.BulkPutFacts(sent(pb.BulkPutFactsRequest(requests=[put_request("seat")]))))
        assert reason(error) == "NOT_SERVING"
