"""Invalid requests to the fact service are refused, and every invalid field is named, whatever its error."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
from google.protobuf.duration_pb2 import Duration
from google.protobuf.struct_pb2 import Struct, Value
from google.protobuf.timestamp_pb2 import Timestamp
from mnemon.v1 import common_pb2
from mnemon.v1 import facts_pb2 as pb
from mnemon_server.domain.errors import InvalidArgumentError
from mnemon_server.domain.namespaces import Namespace
from mnemon_server.domain.records import AckLevel
from mnemon_server.transport.convert import facts as requests

from tests.support.refusals import refused_fields

NO_TIME = Timestamp(seconds=10**13)
UNSET = common_pb2.MetadataValue()
UNSET_VALUE = Struct(fields={"a": Value()})
ADA = ("user", "ada")


def value(read: Any) -> Any:
    """What was read, perhaps by a function that yields to other calls."""
    return asyncio.run(read) if isinstance(read, Coroutine) else read


def test_a_fact_is_required() -> None:
    assert refused_fields(requests.read_put, pb.PutFactRequest()) == ["fact"]


def test_every_invalid_field_of_a_fact_is_named_at_once() -> None:
    fact = pb.Fact(
        namespace=["user", "a\0b", ""],
        key="k" * 513,
        value=UNSET_VALUE,
        metadata={
            "unset": UNSET,
            "late": common_pb2.MetadataValue(timestamp_value=NO_TIME),
            "nan": common_pb2.MetadataValue(double_value=float("nan")),
            "fine": common_pb2.MetadataValue(bool_value=True),
        },
        create_time=NO_TIME,
        update_time=NO_TIME,
        ttl=Duration(seconds=1, nanos=-1),
        index=pb.FactIndex(paths=["a..b"]),
    )
    request = pb.PutFactRequest(
        fact=fact, mode=9, ack=9, embedding=[float("inf")], expected_revision=-1, request_id="r" * 129
    )
    assert refused_fields(requests.read_put, request) == [
        "ack",
        "embedding",
        "expected_revision",
        "fact.create_time",
        "fact.index.paths[0]",
        "fact.key",
        "fact.metadata.late",
        "fact.metadata.nan",
        "fact.metadata.unset",
        "fact.namespace[1]",
        "fact.namespace[2]",
        "fact.ttl",
        "fact.update_time",
        "fact.value",
        "mode",
        "request_id",
    ]


def test_a_fact_without_a_value_and_a_namespace_is_refused_for_both() -> None:
    assert refused_fields(requests.read_put, pb.PutFactRequest(fact={})) == ["fact.namespace", "fact.value"]


def test_every_invalid_field_of_a_search_is_named_at_once() -> None:
    request = pb.SearchFactsRequest(
        filter=pb.FactFilter(namespace=["\0"], filter={"condition": {"field": "value.rank"}}),
        query="q" * (64 * 1024 + 1),
        vector=[float("nan")],
        limit=-1,
        offset=-1,
        mode=9,
        min_score=2,
        view=9,
    )
    assert refused_fields(requests.read_search, request) == [
        "filter.filter.condition.comparator",
        "filter.namespace[0]",
        "limit",
        "min_score",
        "mode",
        "offset",
        "query",
        "vector",
        "view",
    ]


@pytest.mark.parametrize(
    ("read", "request_type"),
    [
        (requests.read_search, pb.SearchFactsRequest),
        (requests.read_list, pb.ListFactsRequest),
        (requests.read_deletions, pb.DeleteFactsRequest),
    ],
)
def test_a_filter_is_required_and_its_errors_are_named(read: Callable[[Any], Any], request_type: Any) -> None:
    assert refused_fields(read, request_type()) == ["filter"]
    with pytest.raises(InvalidArgumentError, match="unless subtree is set: it would mean every fact"):
        read(request_type(filter={}))
    assert refused_fields(read, request_type(filter={"subtree": True})) == []
    assert refused_fields(read, request_type(filter={"subtree": True, "filter": {}})) == ["filter.filter"]
    both = pb.FactFilter(namespace=["a\0b"], filter={"all_of": {}})
    assert refused_fields(read, request_type(filter=both)) == ["filter.filter.all_of.filters", "filter.namespace[0]"]


def test_a_bad_page_size_is_named_beside_the_filter() -> None:
    request = pb.ListFactsRequest(filter={}, page_size=-1)
    assert refused_fields(requests.read_list, request) == ["filter.namespace", "page_size"]
    assert refused_fields(requests.read_list, pb.ListFactsRequest(filter={"subtree": True}, page_size=-1)) == [
        "page_size"
    ]
    assert refused_fields(requests.read_namespaces, pb.ListNamespacesRequest(page_size=-1)) == ["page_size"]


def test_invalid_names_are_identified_by_their_position() -> None:
    names = [pb.FactName(namespace=ADA, key="k"), pb.FactName(namespace=["a\0b"], key=""), pb.FactName(key="k")]
    assert refused_fields(requests.read_names, pb.BatchGetFactsRequest(names=names)) == [
        "names[1].key",
        "names[1].namespace[0]",
        "names[2].namespace",
    ]
    assert value(requests.read_names(pb.BatchGetFactsRequest(names=names[:1]))) == [(Namespace(ADA), "k")]


@pytest.mark.parametrize("count", [0, 1001])
def test_the_number_of_names_is_limited_and_at_least_one(count: int) -> None:
    names = [pb.FactName(namespace=ADA, key="k")] * count
    assert refused_fields(requests.read_names, pb.BatchGetFactsRequest(names=names)) == ["names"]
    assert refused_fields(requests.read_renewal, pb.RenewFactsRequest(names=names)) == ["names"]


def test_a_bad_request_id_of_a_renewal_is_named_beside_the_names() -> None:
    request = pb.RenewFactsRequest(names=[pb.FactName(key="k")], request_id="r" * 129)
    assert refused_fields(requests.read_renewal, request) == ["names[0].namespace", "request_id"]


def test_every_error_of_a_single_fact_is_named() -> None:
    assert refused_fields(requests.read_name, pb.GetFactRequest(namespace=["a", "b\0c"])) == ["key", "namespace[1]"]
    assert requests.read_name(pb.GetFactRequest(namespace=ADA, key="k")) == ADA
    request = pb.DeleteFactRequest(key="k", expected_revision=-1, request_id="r" * 129, ack=9)
    assert refused_fields(requests.read_deletion, request) == ["ack", "expected_revision", "namespace", "request_id"]
    assert refused_fields(requests.read_deletion, pb.DeleteFactRequest(namespace=ADA, key="k", ack=9)) == ["ack"]
    right = pb.DeleteFactRequest(namespace=ADA, key="k", ack=common_pb2.ACK_LEVEL_SEARCHABLE)
    assert requests.read_deletion(right) == (ADA, AckLevel.SEARCHABLE)


def test_a_bad_request_id_of_a_deletion_by_filter_is_named_too() -> None:
    request = pb.DeleteFactsRequest(filter={}, request_id="r" * 129)
    assert refused_fields(requests.read_deletions, request) == ["filter.namespace", "request_id"]
