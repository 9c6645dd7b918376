"""Invalid requests are refused, every invalid field is named, and valid ones are read quickly."""

from collections.abc import AsyncIterator, Awaitable, Callable
from functools import partial
from typing import Any

import pytest
import pytest_asyncio
from google.protobuf.timestamp_pb2 import Timestamp
from mnemon.v1 import common_pb2
from mnemon.v1 import knowledge_store_pb2 as pb
from mnemon_server.domain.collections import DOCUMENTS
from mnemon_server.domain.documents import Document, IndexRequest
from mnemon_server.domain.errors import DocumentNotFoundError, InvalidArgumentError
from mnemon_server.domain.records import Scope
from mnemon_server.embedding.batcher import EmbeddingBatcher
from mnemon_server.embedding.factory import HashingEmbedder
from mnemon_server.services.documents.store import DocumentStore
from mnemon_server.transport.convert import documents as requests
from mnemon_server.transport.convert.shared.reader import check_bulk, expected_revision

from tests.support.python_calls import python_calls
from tests.support.vaults import temporary_vault


def value(**kind: Any) -> common_pb2.MetadataValue:
    """A metadata value."""
    return common_pb2.MetadataValue(**kind)


async def _get(store: DocumentStore, request: pb.GetDocumentRequest) -> object:
    return await store.get(request.doc_id, view=requests.read_view(request))


async def _list(store: DocumentStore, request: pb.ListDocumentsRequest) -> object:
    where, limit, view = requests.read_list(request)
    return await store.list(where=where, limit=limit, view=view)


async def _delete(store: DocumentStore, request: pb.DeleteDocumentRequest) -> object:
    ack, revision = requests.read_deletion(request), expected_revision(request)
    return await store.delete(request.doc_id, request_id=request.request_id, expected_revision=revision, ack=ack)


async def _delete_many(store: DocumentStore, request: pb.DeleteDocumentsRequest) -> object:
    where, ack = requests.read_deletions(request)
    return await store.delete_many(where, dry_run=request.dry_run, request_id=request.request_id, ack=ack)


CALLS: dict[type, Callable[[DocumentStore, Any], Awaitable[object]]] = {
    pb.IndexDocumentRequest: lambda store, request: store.index(requests.read_index(request)),
    pb.UpdateDocumentRequest: lambda store, request: store.update(requests.read_update(request)),
    pb.SearchDocumentsRequest: lambda store, request: store.search(requests.read_search(request)),
    pb.CountDocumentsRequest: lambda store, request: store.count(requests.read_count(request)),
    pb.GetDocumentRequest: _get,
    pb.ListDocumentsRequest: _list,
    pb.DeleteDocumentRequest: _delete,
    pb.DeleteDocumentsRequest: _delete_many,
}
FILTERED = [pb.SearchDocumentsRequest, pb.ListDocumentsRequest, pb.CountDocumentsRequest, pb.DeleteDocumentsRequest]


@pytest_asyncio.fixture
async def store() -> AsyncIterator[DocumentStore]:
    """A knowledge store with one document."""
    embedder = HashingEmbedder()
    with temporary_vault(dimension=embedder.model.dimension) as vault:
        async with (
            EmbeddingBatcher(embedder) as batcher,
            DocumentStore(vault.collection(DOCUMENTS), batcher) as opened,
        ):
            await opened.index(
                IndexRequest(document=Document("note", "tea at four", {"topic": "x"}, scope=Scope("ada")))
            )
            yield opened
    embedder.close()


async def fields(store: DocumentStore, request: Any) -> list[str]:
    """The fields for which a call is refused, by the reader or by the store."""
    try:
        await CALLS[type(request)](store, request)
    except InvalidArgumentError as error:
        return [violation.field for violation in error.violations]
    except DocumentNotFoundError:
        return []
    return []


async def test_a_document_is_required(store: DocumentStore) -> None:
    assert await fields(store, pb.IndexDocumentRequest()) == ["document"]
    assert await fields(store, pb.UpdateDocumentRequest()) == ["document"]


@pytest.mark.parametrize("ack", [0, 9])
async def test_every_invalid_field_of_a_document_is_named_at_once(store: DocumentStore, ack: int) -> None:
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
        scope={"agent": "a" * 257},
    )
    request = pb.IndexDocumentRequest(document=document, request_id="r" * 129, expected_revision=-1, ack=ack)
    assert sorted(await fields(store, request)) == [
        *(["ack"] if ack else []),
        "document.content",
        "document.doc_id",
        "document.metadata",
        "document.metadata.late",
        "document.metadata.nan",
        "document.metadata.unset",
        "document.scope.agent",
        "expected_revision",
        "request_id",
    ]


async def test_only_fields_in_the_mask_of_an_update_are_checked(store: DocumentStore) -> None:
    document = pb.Document(doc_id="note", content=" ", metadata={"unset": value()}, scope={"user": "u" * 257})

    async def wrong(*paths: str, **request: Any) -> list[str]:
        message = pb.UpdateDocumentRequest(document=document, update_mask={"paths": paths}, **request)
        return sorted(await fields(store, message))

    assert await wrong("scope.agent") == []
    assert await wrong("metadata") == ["document.metadata.unset"]
    assert await wrong("scope") == ["document.scope.user"]
    unset = {"unset": value()}
    assert await wrong(set_metadata=unset, remove_metadata=[""]) == ["remove_metadata[0]", "set_metadata.unset"]
    assert await wrong("content", "metadata", "revision", ack=5, expected_revision=-1, request_id="r" * 129) == [
        "ack",
        "document.content",
        "document.metadata.unset",
        "expected_revision",
        "request_id",
        "update_mask",
    ]


@pytest.mark.parametrize(("count", "wrong"), [(0, ["requests"]), (1, []), (1000, []), (1001, ["requests"])])
def test_a_bulk_message_holds_one_to_a_thousand_documents(count: int, wrong: list[str]) -> None:
    request = pb.BulkIndexDocumentsRequest(requests=[pb.IndexDocumentRequest()] * count)
    found: list[str] = []
    try:
        check_bulk(request.requests)
    except InvalidArgumentError as error:
        found = [violation.field for violation in error.violations]
    assert found == wrong


async def test_searches_are_checked_but_invalid_filters_are_accepted(store: DocumentStore) -> None:
    cases = [
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
        (
            {"filter": {"filter": {"condition": {"field": "unknown", "comparator": 1}}}},
            ["filter.filter.condition.field", "filter.filter.condition.values"],
        ),
    ]
    for request_fields, wrong in cases:
        assert await fields(store, pb.SearchDocumentsRequest(**request_fields)) == wrong


async def test_every_invalid_field_of_a_search_is_named_at_once(store: DocumentStore) -> None:
    wrong = {"query": "é" * 32_769, "vector": [0.0], "min_score": 2.0, "filter": {"scope": {"user": "u" * 257}}}
    of_values = ["filter.scope.user", "min_score", "query", "vector"]
    assert sorted(await fields(store, pb.SearchDocumentsRequest(**wrong))) == of_values
    wrong |= {"mode": 9, "view": 9, "limit": -1}
    wrong["filter"] |= {"filter": {}}
    found = sorted(await fields(store, pb.SearchDocumentsRequest(**wrong)))
    assert found == ["filter.filter", "filter.scope.user", "limit", "min_score", "mode", "query", "vector", "view"]


@pytest.mark.parametrize("kind", FILTERED)
async def test_every_invalid_part_of_a_filter_is_named(store: DocumentStore, kind: Any) -> None:
    unknown = {"field": "nobody", "comparator": "COMPARATOR_EXISTS", "values": [value(bool_value=True)]}
    of_values = {"scope": {"user": "u" * 257}, "filter": {"condition": unknown}}
    assert await fields(store, kind(filter=of_values)) == ["filter.scope.user", "filter.filter.condition.field"]
    of_both = {"scope": {"user": "u" * 257}, "filter": {"all_of": {"filters": [{}, {"condition": unknown}]}}}
    found = await fields(store, kind(filter=of_both))
    assert found == ["filter.filter.all_of.filters[0]", "filter.scope.user"]
    filters = {f"key{i}": value(int_value=i) for i in range(65)}
    assert await fields(store, kind(filters=filters)) == ["filters"]


async def test_an_id_is_1_to_512_bytes_without_control_characters(store: DocumentStore) -> None:
    cases = [("", True), ("a", False), ("x" * 512, False), ("é" * 257, True), ("a\0", True), ("a\x85", True)]
    for doc_id, wrong in cases:
        expected = ["doc_id"] if wrong else []
        assert await fields(store, pb.GetDocumentRequest(doc_id=doc_id)) == expected
        assert await fields(store, pb.DeleteDocumentRequest(doc_id=doc_id)) == expected


@pytest.mark.parametrize("ack", [0, 9])
async def test_every_invalid_field_of_a_deletion_is_named_at_once(store: DocumentStore, ack: int) -> None:
    of_terms = ["ack"] if ack else []
    one = pb.DeleteDocumentRequest(request_id="r" * 129, expected_revision=-1, ack=ack)
    assert await fields(store, one) == [*of_terms, "doc_id", "request_id", "expected_revision"]
    many = pb.DeleteDocumentsRequest(filters={"$or": value(int_value=1)}, request_id="r" * 129, ack=ack)
    assert await fields(store, many) == [*of_terms, "filters.$or", "request_id"]


async def test_an_unknown_view_is_refused(store: DocumentStore) -> None:
    assert await fields(store, pb.GetDocumentRequest(view=9)) == ["view", "doc_id"]
    assert await fields(store, pb.ListDocumentsRequest(view=9, page_size=-1)) == ["page_size", "view"]


async def test_a_negative_page_size_is_refused_and_a_large_one_is_not(store: DocumentStore) -> None:
    assert await fields(store, pb.ListDocumentsRequest(page_size=-1)) == ["page_size"]
    assert await fields(store, pb.ListDocumentsRequest(page_size=2**31 - 1)) == []


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
async def test_a_bulk_delete_must_have_a_condition(
    store: DocumentStore, request_fields: dict[str, Any], wrong: list[str]
) -> None:
    assert await fields(store, pb.DeleteDocumentsRequest(**request_fields)) == wrong


def test_fields_that_only_the_server_sets_are_ignored_in_requests() -> None:
    message = pb.Document(doc_id="a", content="b", revision=7, passage_count=3, create_time=Timestamp(seconds=1))
    assert requests.read_index(pb.IndexDocumentRequest(document=message)).document == Document("a", "b")


def test_an_unset_revision_is_not_revision_zero() -> None:
    request = pb.IndexDocumentRequest(document=pb.Document(doc_id="a"))
    assert requests.read_index(request).expected_revision is None
    request.expected_revision = 0
    assert requests.read_index(request).expected_revision == 0


def test_a_limit_of_zero_means_five() -> None:
    assert requests.read_search(pb.SearchDocumentsRequest()).top_k == 5
    assert requests.read_search(pb.SearchDocumentsRequest(limit=7)).top_k == 7


def test_trap_10_reading_a_request_takes_few_calls() -> None:
    search = pb.SearchDocumentsRequest(
        query="where does ada like to sit?",
        filters={"topic": value(string_value="travel")},
        filter={"scope": {"user": "ada"}},
    )
    index = pb.IndexDocumentRequest(document=pb.Document(doc_id="note", content="text " * 100, metadata=search.filters))
    for read, request in ((requests.read_search, search), (requests.read_index, index)):
        read(request)
        assert python_calls(partial(read, request)) < 100
