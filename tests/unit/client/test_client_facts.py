"""Facts come back as they were given, and every call names its namespace."""

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import grpc
import mnemon
import pytest
from hypothesis import given
from hypothesis import strategies as st
from mnemon import Client, F, Fact
from mnemon._messages import records
from mnemon._messages.json import object_from_pb, object_to_pb
from mnemon._messages.translation import read
from mnemon.v1 import common_pb2
from mnemon.v1 import facts_pb2 as pb

from tests.support.memory_messages import all_of, any_of, compare
from tests.unit.client.scripted_server import scripted_server

NOON = datetime(2026, 5, 1, 12, tzinfo=UTC)
ADA = ("user", "ada")

TEXTS = st.text(st.characters(codec="utf-8"), max_size=8)
EXACT = st.integers(-(2**53), 2**53)
SCALARS = st.none() | st.booleans() | EXACT | st.floats(allow_nan=False, allow_infinity=False) | TEXTS
OBJECTS = st.dictionaries(
    TEXTS,
    st.recursive(
        SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3), max_leaves=8
    ),
    max_size=4,
)


def nested(levels: int) -> dict[str, Any]:
    """An object of this depth."""
    found: dict[str, Any] = {}
    for _ in range(levels - 1):
        found = {"a": found}
    return found


def all_stored(request: pb.BulkPutFactsRequest, context: grpc.ServicerContext) -> pb.BulkPutFactsResponse:
    """A line that stores every fact of a batch."""
    receipts = (common_pb2.WriteReceipt(id=each.fact.key) for each in request.requests)
    return pb.BulkPutFactsResponse(results=[pb.PutFactResult(receipt=receipt) for receipt in receipts])


@given(OBJECTS)
def test_an_object_comes_back_the_same_and_in_one_order(value: dict[str, Any]) -> None:
    sent = object_to_pb("value", value)
    back = object_from_pb(type(sent).FromString(sent.SerializeToString()))

    assert json.dumps(back, sort_keys=True) == json.dumps(back)
    assert back == value


def test_whole_numbers_come_back_as_integers_and_no_object_or_list_is_lost() -> None:
    value = {"a": 5, "b": 5.0, "c": 0.5, "d": 2**53, "e": {}, "f": [], "g": [[], {}], "h": True}
    back = object_from_pb(object_to_pb("value", value))

    assert back == value
    assert [type(back[key]) for key in "abcdh"] == [int, int, float, int, bool]


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ([], "value: must be an object with texts as keys, not list"),
        ({"a": 2**53 + 1}, "value.a: must be within 2^53, either way; write a larger number as text"),
        ({"a": {"b": [1, {"c": object()}]}}, "value.a.b[1].c: must be what JSON can hold, not object"),
        ({"a": float("nan")}, "value.a: must be finite"),
        ({1: "a"}, "value key: must be text, not int"),
        ({"a": "\ud800"}, "value.a: must be valid Unicode; character 0 is a lone surrogate"),
    ],
)
def test_a_value_that_is_not_json_is_refused_with_its_path(value: Any, said: str) -> None:
    with Client("127.0.0.1:1") as client, pytest.raises(ValueError) as raised:
        client.facts.put(ADA, "k", value)

    assert isinstance(raised.value, mnemon.InvalidArgumentError)
    assert str(raised.value) == said


def test_an_object_may_be_as_deep_as_the_server_allows_and_no_deeper() -> None:
    assert object_from_pb(object_to_pb("value", nested(32))) == nested(32)
    with pytest.raises(mnemon.InvalidArgumentError, match="32 levels deep at most"):
        object_to_pb("value", nested(33))
    with pytest.raises(mnemon.InvalidArgumentError, match="32 levels deep at most"):
        object_to_pb("value", nested(31) | {"list": [[nested(30)]]})


def test_the_fields_set_by_the_server_are_read() -> None:
    sent = pb.Fact(namespace=ADA, key="tea", revision=3)
    version = sent.versions.add(revision=2, value=object_to_pb("value", {"n": 1}))
    version.update_time.FromDatetime(NOON)
    sent.expire_time.FromDatetime(NOON)
    fact = read(Fact, sent)

    assert (fact.revision, fact.expire_time, fact.ttl) == (3, NOON, None)
    assert fact.versions == (mnemon.FactVersion(2, {"n": 1}, NOON),)
    assert fact.to_dict()["versions"][0]["update_time"] == NOON.isoformat()
    assert fact.to_dict()["ttl_s"] is None
    assert Fact(ADA, "k", {}, ttl=timedelta(minutes=1.5)).to_dict()["ttl_s"] == 90


@pytest.mark.parametrize(
    ("call", "field"),
    [
        (lambda facts: facts.put("user", "k", {}), "namespace"),
        (lambda facts: facts.get(("user", 5.5), "k"), "namespace[1]"),
        (lambda facts: facts.get(ADA, 5), "key"),
        (lambda facts: facts.get_many([(ADA, "k"), "k"]), "names[1]"),
        (lambda facts: facts.get_many([("ada", "k")]), "names[0].namespace"),
        (lambda facts: facts.put(ADA, "k", {}, index=[]), "index"),
        (lambda facts: facts.put(ADA, "k", {}, index="title"), "index"),
        (lambda facts: facts.put(ADA, "k", {}, mode="insert"), "mode"),
        (lambda facts: facts.put(ADA, "k", {}, ttl=60), "ttl"),
        (lambda facts: facts.put(ADA, "k", {}, create_time=datetime(2026, 5, 1)), "create_time"),
        (lambda facts: facts.search("x", namespace="ada"), "namespace"),
        (lambda facts: facts.search("x", namespace=ADA, where=["a"]), "where"),
        (lambda facts: facts.search("x", namespace=ADA, where={5: "a"}), "where"),
        (lambda facts: facts.search("x", namespace=ADA, where={"n": {"$near": 5}}), "where.n"),
        (lambda facts: facts.search("x", namespace=ADA, where={"n": {}}), "where.n"),
        (lambda facts: facts.search("x", namespace=ADA, where={"n": None}), "where.value.n"),
        (lambda facts: facts.search("x", namespace=ADA, where={"n": {"$in": 5}}), "where.value.n"),
        (lambda facts: facts.search("x", namespace=ADA, limit=0), "limit"),
        (lambda facts: facts.search("x", namespace=ADA, view="all"), "view"),
        (lambda facts: facts.search("x", namespace=ADA, mode="best"), "mode"),
        (lambda facts: next(facts.list("ada")), "namespace"),
        (lambda facts: next(facts.list_namespaces(prefix="ada")), "prefix"),
        (lambda facts: facts.delete("ada", "k"), "namespace"),
    ],
)
def test_an_invalid_argument_is_refused_and_named(call: Any, field: str) -> None:
    with Client("127.0.0.1:1") as client, pytest.raises(mnemon.InvalidArgumentError) as raised:
        call(client.facts)

    assert raised.value.violations[0].field == field


def test_a_search_sends_every_argument() -> None:
    with scripted_server(lambda *_: pb.SearchFactsResponse()) as (address, server), Client(address) as client:
        client.facts.search("tea", namespace=ADA)
        client.facts.search(
            namespace=(),
            subtree=True,
            where={"n": {"$gte": 3, "$nin": [5, 7.5]}, "tags": ["a", "b"], "done": False},
            vector=[1.0],
            limit=3,
            offset=4,
            mode="vector",
            min_score=0.5,
            view="ids",
        )
        client.facts.search("tea", namespace=ADA, where=F("metadata.topic").contains("tea") | (F("value.n") == 3))

    plain, full, expressed = server.requests
    assert (plain.query, list(plain.filter.namespace), plain.limit, plain.mode) == ("tea", ["user", "ada"], 10, 0)
    assert not plain.filter.HasField("filter") and not plain.filter.subtree
    assert plain.view == common_pb2.VIEW_STANDARD
    assert (list(full.filter.namespace), full.filter.subtree) == ([], True)
    tags = compare("value.tags", "EQ")
    tags.condition.values.add().string_list_value.values.extend(["a", "b"])
    assert full.filter.filter == all_of(
        compare("value.n", "GTE", 3), compare("value.n", "NIN", 5, 7.5), tags, compare("value.done", "EQ", False)
    )
    either = any_of(compare("metadata.topic", "CONTAINS", "tea"), compare("value.n", "EQ", 3))
    assert expressed.filter.filter == either
    assert (list(full.vector), full.limit, full.offset, full.min_score) == ([1.0], 3, 4, 0.5)
    assert (full.mode, full.view) == (common_pb2.SEARCH_MODE_VECTOR, common_pb2.VIEW_IDS)


def _found(*_: Any) -> pb.SearchFactsResponse:
    match = pb.FactMatch(
        fact=pb.Fact(namespace=ADA, key="tea", value=object_to_pb("v", {"n": 5})), score={"vector": 0.5}
    )
    diagnostics = common_pb2.SearchDiagnostics(mode=common_pb2.SEARCH_MODE_HYBRID, exact=True)
    return pb.SearchFactsResponse(results=[match, pb.FactMatch()], diagnostics=diagnostics)


def test_an_answer_is_a_sequence_of_its_results_with_diagnostics() -> None:
    with scripted_server(_found) as (address, _), Client(address) as client:
        answer = client.facts.search("tea", namespace=ADA)

    first, second = answer
    assert (len(answer), answer[0], answer[1:]) == (2, first, (second,))
    assert (first.namespace, first.key, first.value, first.score) == (ADA, "tea", {"n": 5}, 0.0)
    assert (first.similarity, first.keyword_score) == (0.5, None)
    assert (second.score, second.similarity, second.keyword_score) == (None, None, None)
    assert answer.diagnostics.exact
    assert json.loads(answer.to_json())["results"][0]["value"] == {"n": 5}


def test_lists_read_every_page_with_the_same_arguments_even_from_iterators() -> None:
    def page(request: Any, context: grpc.ServicerContext) -> Any:
        following = "" if request.page_token else "next"
        if isinstance(request, pb.ListFactsRequest):
            return pb.ListFactsResponse(facts=[pb.Fact(key="k")], next_page_token=following)
        return pb.ListNamespacesResponse(namespaces=[pb.FactNamespace(labels=ADA)], next_page_token=following)

    with scripted_server(page) as (address, server), Client(address) as client:
        found = list(client.facts.list(iter(ADA), where={"n": 5}, versions=True, page_size=1))
        spaces = list(client.facts.list_namespaces(prefix=iter(["user"]), suffix=("*",), max_depth=2))

    assert [fact.key for fact in found] == ["k", "k"]
    assert spaces == [ADA, ADA]
    assert {(tuple(each.filter.namespace), each.page_size, each.show_versions) for each in server.requests[:2]} == {
        (ADA, 1, True)
    }
    assert {(tuple(each.prefix), tuple(each.suffix), each.max_depth) for each in server.requests[2:]} == {
        (("user",), ("*",), 2)
    }


def test_a_bulk_keeps_the_order_and_a_bad_fact_fails_alone() -> None:
    items: list[Any] = [Fact(ADA, "a", {}), "b", (Fact(ADA, "c", {}), [0.5]), Fact("ada", "d", {})]  # type: ignore[arg-type]
    with scripted_server(all_stored) as (address, server), Client(address) as client:
        results = list(client.facts.put_many(items, mode="create"))

    assert [(result.position, result.key) for result in results] == [(0, "a"), (1, ""), (2, "c"), (3, "")]
    assert [type(results[number].error) for number in (1, 3)] == [mnemon.InvalidArgumentError] * 2
    first, third = server.requests[0].requests
    assert first.mode == third.mode == pb.PUT_MODE_CREATE
    assert list(third.embedding) == [0.5]


def test_a_fact_can_be_sent_as_it_was_read() -> None:
    read = Fact(ADA, "tea", {}, revision=7, expire_time=NOON, versions=(mnemon.FactVersion(6, {}, NOON),))
    request = records.put_like(read, mode="upsert", ack="durable")

    assert (request.fact.revision, request.fact.HasField("expire_time"), len(request.fact.versions)) == (0, False, 0)
