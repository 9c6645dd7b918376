"""Requests that are wrong are refused with every field that is wrong, and the others cost next to nothing."""

import time
from collections.abc import Callable
from typing import Any

import pytest
from google.protobuf.timestamp_pb2 import Timestamp
from mnemon.v1 import common_pb2
from mnemon.v1 import knowledge_store_pb2 as pb
from mnemon_server.domain.errors import InvalidArgumentError
from mnemon_server.transport.checks import documents as checks
from mnemon_server.transport.convert.shared.reading import check_bulk


def value(**kind: Any) -> common_pb2.MetadataValue:
    """A metadata value."""
    return common_pb2.MetadataValue(**kind)


def fields(check: Callable[[Any], None], request: Any) -> list[str]:
    """The fields that the check finds fault with."""
    try:
        check(request)
    except InvalidArgumentError as error:
        return [violation.field for violation in error.violations]
    return []


def test_a_document_is_required() -> None:
    assert fields(checks.check_index_document, pb.IndexDocumentRequest()) == ["document"]


def test_everything_that_is_wrong_with_a_document_is_named_at_once() -> None:
    document = pb.Document(
        doc_id="a\nb",
        content=" ",
        metadata={
            "unset": value(),
            "late": value(timestamp_value=Timestamp(seconds=10**13)),
            "chroma:x": value(int_value=1),
            "nan": value(double_value=float("nan")),
            "fine": value(bool_value=True),
        },
    )
    request = pb.IndexDocumentRequest(document=document, request_id="r" * 129, expected_revision=-1, ack=9)
    assert sorted(fields(checks.check_index_document, request)) == [
        "ack",
        "document.content",
        "document.doc_id",
        "document.metadata",
        "document.metadata.late",
        "document.metadata.nan",
        "document.metadata.unset",
        "expected_revision",
        "request_id",
    ]


@pytest.mark.parametrize(("count", "wrong"), [(0, ["requests"]), (1, []), (1000, []), (1001, ["requests"])])
def test_a_bulk_message_holds_one_to_a_thousand_documents(count: int, wrong: list[str]) -> None:
    request = pb.BulkIndexDocumentsRequest(requests=[pb.IndexDocumentRequest()] * count)
    assert fields(lambda run: check_bulk(run.requests), request) == wrong


@pytest.mark.parametrize(
    ("request_fields", "wrong"),
    [
        ({}, []),
        ({"query": "x" * 65_536, "limit": 2**31 - 1}, []),
        ({"query": "é" * 32_769}, ["query"]),
        ({"limit": -1}, ["limit"]),
        ({"min_score": -0.1}, ["min_score"]),
        ({"min_score": 1.1}, ["min_score"]),
        ({"min_score": float("nan")}, ["min_score"]),
        ({"mode": 17, "view": 18}, ["mode", "view"]),
        ({"filters": {"": value(), "$or": value(string_list_value={}), "x" * 99: value(int_value=1)}}, []),
        ({"filters": {f"key{i}": value(int_value=i) for i in range(65)}}, ["filters"]),
        ({"filter": {"scope": {"user": "u" * 300}}}, ["filter.scope.user"]),
        ({"filter": {"filter": {}}}, ["filter.filter"]),
        ({"filter": {"filter": {"condition": {"field": "nobody", "comparator": 1}}}}, ["filter.filter.nobody"] * 2),
    ],
)
def test_searches_are_checked_and_filters_that_are_not_valid_let_through(
    request_fields: dict[str, Any], wrong: list[str]
) -> None:
    assert fields(checks.check_search_documents, pb.SearchDocumentsRequest(**request_fields)) == wrong


@pytest.mark.parametrize(
    ("doc_id", "wrong"),
    [("", True), ("a", False), ("x" * 512, False), ("é" * 257, True), ("a\0", True), ("a\x85", True)],
)
def test_an_id_is_1_to_512_bytes_without_control_characters(doc_id: str, *, wrong: bool) -> None:
    expected = ["doc_id"] if wrong else []
    assert fields(checks.check_get_document, pb.GetDocumentRequest(doc_id=doc_id)) == expected
    assert fields(checks.check_delete_document, pb.DeleteDocumentRequest(doc_id=doc_id)) == expected


def test_a_negative_page_size_is_refused_and_a_large_one_is_not() -> None:
    assert fields(checks.check_list_documents, pb.ListDocumentsRequest(page_size=-1)) == ["page_size"]
    assert fields(checks.check_list_documents, pb.ListDocumentsRequest(page_size=2**31 - 1)) == []


@pytest.mark.parametrize(
    ("request_fields", "wrong"),
    [
        ({}, ["filters"]),
        ({"filter": {"scope": {"user": ""}}}, ["filters"]),
        ({"dry_run": True}, ["filters"]),
        ({"filter": {"scope": {"user": "ada"}}}, []),
        ({"filters": {"topic": value(string_value="x")}}, []),
        ({"filters": {"$or": value(string_value="x")}}, ["filters.$or"]),
        ({"filters": {"topic": value()}}, ["filters.topic"]),
        ({"filters": {"topic": value(string_list_value={"values": ["a"]})}}, ["filters.topic"]),
    ],
)
def test_a_bulk_delete_must_say_what_it_means(request_fields: dict[str, Any], wrong: list[str]) -> None:
    assert fields(checks.check_delete_documents, pb.DeleteDocumentsRequest(**request_fields)) == wrong


def test_trap_10_checking_a_request_costs_microseconds() -> None:
    search = pb.SearchDocumentsRequest(
        query="where does ada like to sit?",
        filters={"topic": value(string_value="travel")},
        filter={"scope": {"user": "ada"}},
    )
    index = pb.IndexDocumentRequest(document=pb.Document(doc_id="note", content="text " * 100, metadata=search.filters))
    for check, request in ((checks.check_search_documents, search), (checks.check_index_document, index)):
        rounds = 200
        started = time.thread_time()
        for _ in range(rounds):
            check(request)
        assert (time.thread_time() - started) / rounds < 0.001
