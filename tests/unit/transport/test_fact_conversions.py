"""Facts and requests about them are converted to messages and back without loss."""

import json
import threading
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from google.protobuf.duration_pb2 import Duration
from google.protobuf.timestamp_pb2 import Timestamp
from mnemon.v1 import common_pb2, errors_pb2
from mnemon.v1 import facts_pb2 as pb
from mnemon_server.domain.errors import FactNotFoundError, InvalidArgumentError
from mnemon_server.domain.facts import (
    Fact,
    FactBatch,
    FactFilter,
    FactIndex,
    FactMatch,
    FactPage,
    FactQuery,
    FactReceipt,
    FactRenewal,
    FactSearchAnswer,
    FactVersion,
    NamespacePage,
    PutFact,
    PutMode,
    RenewalReceipt,
)
from mnemon_server.domain.filters import AllOf, Condition, Operator
from mnemon_server.domain.json_text import JsonText
from mnemon_server.domain.namespaces import Namespace
from mnemon_server.domain.records import (
    AckLevel,
    BulkDeleteReceipt,
    SearchDiagnostics,
    SearchMode,
    View,
    WriteOutcome,
    WriteReceipt,
)
from mnemon_server.services.background.offload import LARGE_BYTES, converted
from mnemon_server.transport.convert import facts as convert
from mnemon_server.transport.convert import facts as requests
from mnemon_server.transport.convert.shared.namespaces import read_namespace
from mnemon_server.transport.convert.shared.reader import Reader
from mnemon_server.transport.convert.shared.results import with_receipts
from mnemon_server.transport.convert.shared.wire import AnswerBytes
from mnemon_server.transport.status import Failure

from tests.support.memory_messages import all_of, compare
from tests.support.python_calls import python_calls
from tests.support.tool_messages import struct
from tests.support.turns import Turns

CREATED, UPDATED, ENDS = (datetime(2026, 1, day, 3, 4, 5, 678, UTC) for day in (1, 2, 3))
ADA = Namespace(("user", "ada"))
VALUE = {"content": "window seats", "rank": 5, "sure": 0.5, "tags": ["a", None, True], "by": {"name": "Ada"}}
METADATA = {"topic": "travel", "rank": 5, "share": 0.5, "open": False, "tags": ("a", "b"), "seen": CREATED}
FACT = Fact(
    namespace=ADA,
    key="seat",
    value=VALUE,
    created_at=CREATED,
    updated_at=UPDATED,
    metadata=METADATA,
    revision=4,
    ttl=timedelta(days=1, microseconds=5),
    expires_at=ENDS,
    index=FactIndex(paths=("content", "by.name")),
    versions=(FactVersion(3, {"content": "aisle seats", "rank": 4}, CREATED),),
)
PLAIN = Fact(namespace=ADA, key="plain", value={}, created_at=CREATED, updated_at=CREATED, revision=1)
RECEIPT = WriteReceipt("seat", WriteOutcome.CREATED, 1, CREATED)
DIAGNOSTICS = SearchDiagnostics(mode=SearchMode.HYBRID, exact=True, scanned=9)


def message_of(fact: Fact) -> pb.Fact:
    """The fact as it is received."""
    message = pb.Fact()
    convert.fill_fact(message, fact)
    return pb.Fact.FromString(message.SerializeToString())


def put_of(message: pb.Fact, **terms: Any) -> PutFact:
    """The request to store the fact of a message."""
    return requests.read_put(pb.PutFactRequest(fact=message, **terms))


def test_a_fact_is_written_completely() -> None:
    message = message_of(FACT)
    assert (list(message.namespace), message.key, message.revision) == (["user", "ada"], "seat", 4)
    times = (message.create_time, message.update_time, message.expire_time, message.versions[0].update_time)
    assert tuple(moment.ToDatetime(UTC) for moment in times) == (CREATED, UPDATED, ENDS, CREATED)
    assert message.ttl.ToTimedelta() == FACT.ttl
    assert (message.index.off, list(message.index.paths)) == (False, ["content", "by.name"])
    [version] = message.versions
    assert (version.revision, version.value) == (3, struct({"content": "aisle seats", "rank": 4}))
    put = put_of(message)
    assert (put.value, put.metadata) == (VALUE, METADATA)
    assert [type(put.value[name]) for name in ("rank", "sure")] == [int, float]


def test_missing_fields_of_a_fact_are_left_out() -> None:
    message = message_of(PLAIN)
    assert not any(message.HasField(field) for field in ("ttl", "expire_time", "index"))
    assert (len(message.metadata), len(message.versions), message.HasField("value")) == (0, 0, True)


def test_a_put_is_read_completely() -> None:
    put = put_of(
        message_of(FACT),
        mode=pb.PUT_MODE_CREATE,
        expected_revision=0,
        request_id="once",
        ack=common_pb2.ACK_LEVEL_SEARCHABLE,
    )
    assert put == PutFact(
        namespace=ADA,
        key="seat",
        value=VALUE,
        metadata=METADATA,
        created_at=CREATED,
        updated_at=UPDATED,
        ttl=FACT.ttl,
        index=FACT.index,
        mode=PutMode.CREATE,
        expected_revision=0,
        request_id="once",
        ack=AckLevel.SEARCHABLE,
    )
    assert isinstance(put.namespace, Namespace)


def test_a_put_with_only_a_value_has_the_defaults() -> None:
    assert put_of(pb.Fact(namespace=ADA, value=struct({}))) == PutFact(namespace=ADA, value={})


def test_a_vector_is_read_as_it_was_sent() -> None:
    put = put_of(pb.Fact(namespace=ADA, value=struct({})), embedding=[0.5, -0.25, 0.0])
    assert list(put.embedding or ()) == [0.5, -0.25, 0.0]


@pytest.mark.parametrize("mode", list(PutMode))
def test_every_mode_has_a_number(mode: PutMode) -> None:
    number = pb.PutMode.Value(f"PUT_MODE_{mode.name}")
    assert put_of(pb.Fact(namespace=ADA, value=struct({})), mode=number).mode is mode


@pytest.mark.parametrize(
    ("broken", "message"),
    [
        ({"namespace": []}, "must have 1 to 16 labels"),
        ({"value": None}, "fact.value: is required"),
        ({"metadata": {"unset": common_pb2.MetadataValue()}}, "fact.metadata.unset: must be set"),
        ({"create_time": Timestamp(seconds=10**13)}, "fact.create_time: must be a time"),
        ({"update_time": Timestamp(nanos=-1)}, "fact.update_time: must be a time"),
        ({"ttl": Duration(seconds=1, nanos=-1)}, "fact.ttl: must be within 10,000 years"),
        ({"ttl": Duration(nanos=10**9)}, "fact.ttl: must be within 10,000 years"),
        ({"ttl": Duration(seconds=10**12)}, "fact.ttl: must be within 10,000 years"),
    ],
)
def test_an_invalid_value_is_refused(broken: dict[str, Any], message: str) -> None:
    fields: dict[str, Any] = {"namespace": ADA, "value": struct({}), **broken}
    with pytest.raises(ValueError, match=message):
        put_of(pb.Fact(**fields))


@pytest.mark.parametrize("terms", [{"mode": 9}, {"ack": 9}], ids=str)
def test_an_unknown_mode_or_ack_level_is_refused(terms: dict[str, int]) -> None:
    with pytest.raises(ValueError, match="not known"):
        put_of(pb.Fact(namespace=ADA, value=struct({})), **terms)


def test_a_filter_is_read_completely() -> None:
    asked = all_of(compare("value.rank", "EQ", 5), compare("metadata.topic", "NE", "work"))
    message = pb.FactFilter(namespace=ADA, subtree=True, filter=asked)
    rank = Condition("value.rank", Operator.EQ, (5,))
    topic = Condition("metadata.topic", Operator.NE, ("work",))
    assert requests.read_deletions(pb.DeleteFactsRequest(filter=message)) == FactFilter(
        namespace=ADA, subtree=True, where=AllOf((rank, topic))
    )


def test_all_facts_must_be_selected_explicitly() -> None:
    everything = pb.DeleteFactsRequest(filter={"subtree": True})
    assert requests.read_deletions(everything) == FactFilter(namespace=None, subtree=True)
    with pytest.raises(InvalidArgumentError, match="it would mean every fact"):
        requests.read_deletions(pb.DeleteFactsRequest(filter={}))


def test_a_search_is_read_completely() -> None:
    message = pb.SearchFactsRequest(
        filter=pb.FactFilter(namespace=ADA),
        query="where does she sit",
        limit=7,
        offset=3,
        mode=common_pb2.SEARCH_MODE_KEYWORD,
        min_score=0.25,
        view=common_pb2.VIEW_IDS,
    )
    assert requests.read_search(message) == FactQuery(
        filter=FactFilter(namespace=ADA),
        text="where does she sit",
        limit=7,
        offset=3,
        mode=SearchMode.KEYWORD,
        min_score=0.25,
        view=View.IDS,
    )


def test_a_search_with_only_a_filter_has_the_defaults() -> None:
    message = pb.SearchFactsRequest(filter=pb.FactFilter(namespace=ADA), vector=[1.0, 0.5])
    query = requests.read_search(message)
    assert (query.text, query.limit, query.offset, query.mode, query.min_score) == ("", 10, 0, None, 0.0)
    assert list(query.vector or ()) == [1.0, 0.5]
    assert query.view is View.STANDARD


def test_an_acknowledgement_has_the_fact_if_there_is_one() -> None:
    message = convert.put_to_pb(FactReceipt(RECEIPT, FACT))
    assert (message.receipt.id, message.receipt.outcome) == ("seat", common_pb2.WRITE_OUTCOME_CREATED)
    assert message.fact == message_of(FACT)
    assert not convert.put_to_pb(FactReceipt(RECEIPT, None)).HasField("fact")


def test_results_of_a_run_come_in_order_including_failed_ones() -> None:
    failure = Failure.of(InvalidArgumentError.of("fact.key", "must be at most 512 bytes"))
    message = with_receipts(pb.BulkPutFactsResponse(), [RECEIPT, failure])
    assert [result.WhichOneof("outcome") for result in message.results] == ["receipt", "error"]
    assert message.results[1].error.reason == errors_pb2.ERROR_REASON_INVALID_ARGUMENT
    assert message.results[1].error.violations[0].field == "fact.key"


async def test_an_answer_has_a_score_for_each_fact() -> None:
    matches = (FactMatch(FACT, 0.75, 0.5, 0.25), FactMatch(PLAIN))
    answer = await convert.answer_to_bytes(FactSearchAnswer(matches, DIAGNOSTICS), truncated=False)
    message = pb.SearchFactsResponse.FromString(answer)
    best, listed = message.results
    assert (best.score.relevance, best.score.vector, best.score.keyword) == (0.75, 0.5, 0.25)
    assert best.fact == message_of(FACT)
    assert not listed.HasField("score")
    assert (message.diagnostics.exact, message.diagnostics.scanned, message.diagnostics.returned) == (True, 9, 2)


async def test_pages_hold_facts_and_the_token_of_the_next() -> None:
    page = pb.ListFactsResponse.FromString(await convert.page_to_bytes(FactPage((FACT, PLAIN), 7, (3, 7)), str))
    assert (list(page.facts), page.next_page_token) == ([message_of(FACT), message_of(PLAIN)], "7")
    batch = pb.BatchGetFactsResponse.FromString(await convert.batch_to_bytes(FactBatch((PLAIN,))))
    assert (list(batch.facts), batch.truncated, list(batch.remaining)) == ([message_of(PLAIN)], False, [])
    assert pb.GetFactResponse.FromString(await convert.got_to_bytes(FACT)).fact == message_of(FACT)
    namespaces = convert.namespaces_to_pb(NamespacePage((("a",), ("a", "b")), ("a", "b")), "")
    assert [tuple(namespace.labels) for namespace in namespaces.namespaces] == [("a",), ("a", "b")]


def test_a_renewal_says_when_each_fact_expires_and_which_are_missing() -> None:
    receipt = RenewalReceipt((FactRenewal(ENDS), FactRenewal(None), FactNotFoundError("k")), replayed=True)
    message = convert.renewals_to_pb(receipt)
    ends, never, missing = message.results
    assert ends.renewal.expire_time.ToDatetime(UTC) == ENDS
    assert (never.WhichOneof("outcome"), never.renewal.HasField("expire_time")) == ("renewal", False)
    assert (missing.error.reason, message.replayed) == (errors_pb2.ERROR_REASON_FACT_NOT_FOUND, True)


def test_a_deletion_by_filter_returns_the_count() -> None:
    message = convert.deleted_to_pb(BulkDeleteReceipt(7, replayed=True))
    assert (message.deleted_count, message.replayed) == (7, True)


def test_a_repeated_namespace_is_not_checked_again() -> None:
    labels = pb.FactName(namespace=["user"] * 16)
    first = read_namespace(Reader(), "namespace", labels.namespace)
    assert read_namespace(Reader(), "namespace", labels.namespace) is first


def test_converting_a_small_fact_takes_few_calls() -> None:
    request = pb.PutFactRequest(fact=message_of(PLAIN))
    request.fact.value.update({"content": "Ada prefers window seats.", "rank": 5})
    requests.read_put(request)
    assert python_calls(lambda: requests.read_put(request)) < 200


async def test_other_calls_are_served_while_a_large_fact_is_read() -> None:
    request = pb.PutFactRequest(fact=pb.Fact(namespace=ADA, value=struct({"n": [0] * 90_000})))
    async with Turns() as turns:
        put = await converted(requests.read_put, request, request.ByteSize())
    assert put.value == {"n": [0] * 90_000}
    assert turns.count > 3


async def test_answers_end_at_the_message_limit_and_name_the_rest() -> None:
    # A number takes 11 bytes in a message instead of the 2 in which it was stored.
    facts = tuple(replace(LARGE, key=key) for key in "abc")
    page = pb.ListFactsResponse.FromString(await convert.page_to_bytes(FactPage(facts, 9, (3, 6, 9)), str))
    batch = pb.BatchGetFactsResponse.FromString(await convert.batch_to_bytes(FactBatch(facts, (((ADA[0],), "d"),))))
    answer = await convert.answer_to_bytes(FactSearchAnswer(tuple(map(FactMatch, facts)), DIAGNOSTICS), truncated=False)
    found = pb.SearchFactsResponse.FromString(answer)
    assert (len(page.facts), page.next_page_token) == (2, "6")
    assert ([fact.key for fact in batch.facts], batch.truncated) == (["a", "b"], True)
    assert [name.key for name in batch.remaining] == ["c", "d"]
    assert (len(found.results), found.truncated) == (2, True)


LARGE = replace(PLAIN, value=JsonText(json.dumps({"n": [0] * 100_000}), "fact", "f"))
VERSIONED = replace(PLAIN, versions=(FactVersion(1, LARGE.value, PLAIN.updated_at),))


@pytest.mark.parametrize("fact", [LARGE, VERSIONED], ids=["value", "version"])
async def test_other_calls_are_served_while_a_large_fact_is_written(fact: Fact) -> None:
    page, found = FactPage((fact,), None), FactSearchAnswer((FactMatch(fact),), DIAGNOSTICS)
    for write in (
        lambda: convert.got_to_bytes(fact),
        lambda: convert.batch_to_bytes(FactBatch((fact,))),
        lambda: convert.page_to_bytes(page, str),
        lambda: convert.answer_to_bytes(found, truncated=False),
    ):
        async with Turns() as turns:
            message = await write()
        assert len(message) > 20_000
        assert turns.count > 3


async def test_other_calls_are_served_while_many_names_are_read() -> None:
    request = pb.BatchGetFactsRequest(names=[pb.FactName(namespace=ADA, key=str(number)) for number in range(1_000)])
    async with Turns() as turns:
        names = await requests.read_names(request)
    assert [key for _, key in names] == [str(number) for number in range(1_000)]
    assert turns.count > 1


async def test_other_calls_are_served_while_a_large_answer_is_put_together() -> None:
    answer = AnswerBytes()
    for _ in range(3):
        assert answer.add(
            pb.BatchGetFactsResponse.FACTS_FIELD_NUMBER, [pb.Fact(key="k" * 1_000_000).SerializeToString()]
        )
    async with Turns() as turns:
        message = await answer.finish(pb.BatchGetFactsResponse(truncated=True))
    read = pb.BatchGetFactsResponse.FromString(message)
    assert [len(fact.key) for fact in read.facts] == [1_000_000] * 3 and read.truncated
    assert turns.count > 1


async def test_a_small_message_is_read_on_the_event_loop_and_errors_are_raised_either_way() -> None:
    def read(message: bytes) -> int:
        if not message:
            raise ValueError("nothing")
        return threading.get_ident()

    assert await converted(read, b"x", LARGE_BYTES - 1) == threading.get_ident()
    assert await converted(read, b"x", LARGE_BYTES) != threading.get_ident()
    for size in (0, LARGE_BYTES):
        with pytest.raises(ValueError, match="nothing"):
            await converted(read, b"", size)
