"""The knowledge store over gRPC: each promise of the proto's comments, against a real server."""

import asyncio
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import grpc
import pytest
from google.rpc import error_details_pb2
from grpc import aio
from mnemon.v1 import common_pb2, errors_pb2
from mnemon.v1 import knowledge_store_pb2 as pb

from tests.support.server import Connection, detail, failure_of, reason, stream_end, until, whole_server


@pytest.fixture
def store(connection: Connection) -> Any:
    """The stub of its knowledge store."""
    return connection.store


def metadata(**values: str | int | float | bool) -> dict[str, common_pb2.MetadataValue]:
    """Metadata of plain values."""
    kinds = {str: "string_value", bool: "bool_value", int: "int_value", float: "double_value"}
    return {key: common_pb2.MetadataValue(**{kinds[type(value)]: value}) for key, value in values.items()}


def index(doc_id: str, content: str = "some text", **fields: Any) -> pb.IndexDocumentRequest:
    """A request to store a document. `terms` are further fields of the request."""
    terms = fields.pop("terms", {})
    return pb.IndexDocumentRequest(document=pb.Document(doc_id=doc_id, content=content, **fields), **terms)


async def test_a_document_comes_back_as_it_was_sent(store: Any) -> None:
    sent = pb.Document(
        doc_id="note/1 🦉",
        content="Ada prefers window seats.",
        metadata={
            **metadata(text="5", whole=5, number=5.0, truth=True),
            "tags": common_pb2.MetadataValue(string_list_value={"values": ["a", "b"]}),
        },
        scope={"user": "ada", "project": "trip"},
    )
    sent.metadata["when"].timestamp_value.FromDatetime(datetime(2026, 1, 2, 3, 4, 5, 678, UTC))
    receipt = (await store.IndexDocument(pb.IndexDocumentRequest(document=sent))).receipt
    assert (receipt.id, receipt.outcome, receipt.revision) == (sent.doc_id, common_pb2.WRITE_OUTCOME_CREATED, 1)

    got = (await store.GetDocument(pb.GetDocumentRequest(doc_id=sent.doc_id))).document
    assert (got.content, got.metadata, got.scope) == (sent.content, sent.metadata, sent.scope)
    assert (got.revision, got.passage_count, len(got.embeddings)) == (1, 1, 0)
    assert got.create_time == got.update_time == receipt.commit_time


async def test_a_document_is_replaced_as_a_whole_unless_it_is_the_same(store: Any) -> None:
    await store.IndexDocument(index("a", metadata=metadata(old=1, kept="x")))
    replaced = (await store.IndexDocument(index("a", "new text", metadata=metadata(kept="y")))).receipt
    assert (replaced.outcome, replaced.revision) == (common_pb2.WRITE_OUTCOME_REPLACED, 2)
    got = (await store.GetDocument(pb.GetDocumentRequest(doc_id="a"))).document
    assert got.content == "new text"
    assert dict(got.metadata) == metadata(kept="y")
    same = (await store.IndexDocument(index("a", "new text", metadata=metadata(kept="y")))).receipt
    assert (same.outcome, same.revision) == (common_pb2.WRITE_OUTCOME_UNCHANGED, 2)


async def test_each_view_returns_what_its_comment_says(store: Any) -> None:
    await store.IndexDocument(index("a", "word " * 1000))
    views = ["VIEW_IDS", "VIEW_UNSPECIFIED", "VIEW_STANDARD", "VIEW_FULL"]
    got = [(await store.GetDocument(pb.GetDocumentRequest(doc_id="a", view=view))).document for view in views]
    assert got[0] == pb.Document(doc_id="a", revision=1)
    assert [bool(document.content) for document in got] == [False, True, True, True]
    assert [len(document.embeddings) for document in got[:3]] == [0, 0, 0]
    full = got[3]
    assert len(full.embeddings) == full.passage_count > 1
    dimension = (await store.CheckHealth(pb.CheckHealthRequest())).embedding_model.dimension
    for embedding in full.embeddings:
        assert len(embedding.values) == dimension
        assert sum(x * x for x in embedding.values) == pytest.approx(1, abs=1e-5)
    for view, expected in zip(views, got, strict=True):
        [listed] = (await store.ListDocuments(pb.ListDocumentsRequest(view=view))).documents
        [found] = (await store.SearchDocuments(pb.SearchDocumentsRequest(query="word", view=view))).results
        assert listed == found.document == expected
        assert found.score.relevance > 0
        assert (found.source, found.HasField("passage")) == ("" if view == "VIEW_IDS" else "local", True)


async def test_a_missing_document_is_not_found_and_named(store: Any) -> None:
    error = await failure_of(store.GetDocument(pb.GetDocumentRequest(doc_id="nothing")))
    assert (error.code(), reason(error)) == (grpc.StatusCode.NOT_FOUND, "DOCUMENT_NOT_FOUND")
    assert detail(error, error_details_pb2.ResourceInfo).resource_name == "nothing"


async def test_a_request_id_makes_a_repeated_call_harmless(store: Any) -> None:
    request = index("a", terms={"request_id": "once"})
    first = (await store.IndexDocument(request)).receipt
    again = (await store.IndexDocument(request)).receipt
    assert (first.replayed, again.replayed) == (False, True)
    assert (again.outcome, again.revision, again.commit_time) == (first.outcome, first.revision, first.commit_time)
    error = await failure_of(store.IndexDocument(index("a", "else", terms={"request_id": "once"})))
    assert (error.code(), reason(error)) == (grpc.StatusCode.ALREADY_EXISTS, "REQUEST_ID_REUSED")


async def test_a_stale_revision_is_aborted_with_both_figures(store: Any) -> None:
    await store.IndexDocument(index("a", terms={"expected_revision": 0}))
    error = await failure_of(store.IndexDocument(index("a", "new", terms={"expected_revision": 0})))
    assert (error.code(), reason(error)) == (grpc.StatusCode.ABORTED, "REVISION_MISMATCH")
    info = detail(error, error_details_pb2.ErrorInfo)
    assert dict(info.metadata) == {"expected_revision": "0", "actual_revision": "1"}
    stale = await failure_of(store.DeleteDocument(pb.DeleteDocumentRequest(doc_id="a", expected_revision=7)))
    assert stale.code() is grpc.StatusCode.ABORTED
    deleted = (await store.DeleteDocument(pb.DeleteDocumentRequest(doc_id="a", expected_revision=1))).receipt
    assert deleted.outcome == common_pb2.WRITE_OUTCOME_DELETED


async def test_an_expected_revision_of_a_missing_document_is_not_found(store: Any) -> None:
    for call in (
        store.IndexDocument(index("a", terms={"expected_revision": 1})),
        store.DeleteDocument(pb.DeleteDocumentRequest(doc_id="a", expected_revision=1)),
    ):
        error = await failure_of(call)
        assert (error.code(), reason(error)) == (grpc.StatusCode.NOT_FOUND, "DOCUMENT_NOT_FOUND")
    allowed = pb.DeleteDocumentRequest(doc_id="a", expected_revision=1, allow_missing=True)
    assert (await store.DeleteDocument(allowed)).receipt.outcome == common_pb2.WRITE_OUTCOME_MISSING


async def test_a_deleted_document_is_gone_and_a_missing_one_is_an_error_unless_allowed(store: Any) -> None:
    await store.IndexDocument(index("a", "unmistakable"))
    await store.DeleteDocument(pb.DeleteDocumentRequest(doc_id="a"))
    assert (await failure_of(store.GetDocument(pb.GetDocumentRequest(doc_id="a")))).code() is grpc.StatusCode.NOT_FOUND
    assert not (await store.SearchDocuments(pb.SearchDocumentsRequest(query="unmistakable"))).results
    error = await failure_of(store.DeleteDocument(pb.DeleteDocumentRequest(doc_id="a")))
    assert (error.code(), reason(error)) == (grpc.StatusCode.NOT_FOUND, "DOCUMENT_NOT_FOUND")
    allowed = (await store.DeleteDocument(pb.DeleteDocumentRequest(doc_id="a", allow_missing=True))).receipt
    assert allowed.outcome == common_pb2.WRITE_OUTCOME_MISSING


async def test_a_search_finds_by_word_best_first_and_says_how(store: Any) -> None:
    await store.IndexDocument(index("owls", "Owls hunt mice at night.", metadata=metadata(source="zoo")))
    await store.IndexDocument(index("trains", "The night train leaves at nine."))
    await store.IndexDocument(index("bread", "Knead the dough, then let it rest."))
    for mode in (common_pb2.SEARCH_MODE_UNSPECIFIED, common_pb2.SEARCH_MODE_KEYWORD, common_pb2.SEARCH_MODE_VECTOR):
        answer = await store.SearchDocuments(pb.SearchDocumentsRequest(query="owls hunt mice", mode=mode))
        assert answer.results[0].document.doc_id == "owls"
        scores = [result.score.relevance for result in answer.results]
        assert scores == sorted(scores, reverse=True)
        assert all(0 <= score <= 1 for score in scores)
        assert answer.diagnostics.mode == (mode or common_pb2.SEARCH_MODE_HYBRID)
        assert answer.diagnostics.exact
        best = answer.results[0]
        assert best.score.HasField("vector") is (mode != common_pb2.SEARCH_MODE_KEYWORD)
        assert best.score.HasField("keyword") is (mode != common_pb2.SEARCH_MODE_VECTOR)
        assert best.source == "zoo"
    hybrid = await store.SearchDocuments(pb.SearchDocumentsRequest(query="night train"))
    assert next(r.source for r in hybrid.results if r.document.doc_id == "trains") == "local"


async def test_a_limit_is_five_by_default_and_at_most_a_hundred(store: Any) -> None:
    await _index_many(store, [index(f"d{i}", f"common word {i}") for i in range(110)])
    for limit, count in ((None, 5), (0, 5), (7, 7), (100, 100), (101, 100), (2**31 - 1, 100)):
        answer = await store.SearchDocuments(pb.SearchDocumentsRequest(query="common word", limit=limit))
        assert len(answer.results) == answer.diagnostics.returned == count


async def test_filters_compare_numbers_by_value_and_unknown_keys_are_named(store: Any) -> None:
    await store.IndexDocument(index("whole", metadata=metadata(n=5)))
    await store.IndexDocument(index("text", metadata=metadata(n="5")))

    async def search(**filters: Any) -> tuple[set[str], set[str]]:
        answer = await store.SearchDocuments(pb.SearchDocumentsRequest(query="some text", filters=filters))
        assert all(ignored.reason for ignored in answer.ignored_filters)
        return {r.document.doc_id for r in answer.results}, {ignored.key for ignored in answer.ignored_filters}

    assert await search(**metadata(n=5)) == await search(**metadata(n=5.0)) == ({"whole"}, set())
    assert await search(**metadata(n="5")) == ({"text"}, set())
    both = {"whole", "text"}
    assert await search(**metadata(nobody_has_it=1)) == (both, {"nobody_has_it"})
    assert await search(**{"$or": common_pb2.MetadataValue(int_value=1)}) == (both, {"$or"})


async def test_scope_filters_by_the_fields_that_are_set(store: Any) -> None:
    await store.IndexDocument(index("a", scope={"user": "ada", "project": "x"}))
    await store.IndexDocument(index("b", scope={"user": "bob", "project": "x"}))
    for scope, expected in (({"user": "ada"}, 1), ({"project": "x"}, 2), ({"user": "ad"}, 0), ({}, 2)):
        assert (await store.CountDocuments(pb.CountDocumentsRequest(filter={"scope": scope}))).count == expected


async def test_a_minimum_score_leaves_out_lower_ones(store: Any) -> None:
    await store.IndexDocument(index("near", "owls hunt mice"))
    await store.IndexDocument(index("far", "bread and butter"))
    answer = await store.SearchDocuments(pb.SearchDocumentsRequest(query="owls hunt mice", min_score=0.9))
    assert [result.document.doc_id for result in answer.results] == ["near"]


async def test_pages_hold_every_document_once_in_order_of_first_indexing(store: Any) -> None:
    await _index_many(store, [index(f"d{i:03}") for i in range(25)])
    await store.IndexDocument(index("d003", "replaced, and where it was"))
    pages = await _pages(store, pb.ListDocumentsRequest(page_size=10))
    assert [len(page.documents) for page in pages] == [10, 10, 5]
    assert [document.doc_id for page in pages for document in page.documents] == [f"d{i:03}" for i in range(25)]


async def test_page_sizes_are_a_hundred_by_default_and_at_most_a_thousand(store: Any) -> None:
    await _index_many(store, [index(f"d{i}") for i in range(1001)])
    assert len((await store.ListDocuments(pb.ListDocumentsRequest())).documents) == 100
    largest = await store.ListDocuments(pb.ListDocumentsRequest(page_size=5000))
    assert (len(largest.documents), bool(largest.next_page_token)) == (1000, True)
    error = await failure_of(store.ListDocuments(pb.ListDocumentsRequest(page_size=-1)))
    assert error.code() is grpc.StatusCode.INVALID_ARGUMENT


async def test_a_page_ends_at_four_mebibytes(store: Any) -> None:
    text = "x" * 900_000
    for i in range(10):
        await store.IndexDocument(index(f"d{i}", f"{i}{text}"))
    for view in ("VIEW_STANDARD", "VIEW_FULL"):
        pages = await _pages(store, pb.ListDocumentsRequest(view=view))
        assert all(page.ByteSize() <= 4 << 20 for page in pages)
        assert [document.doc_id for page in pages for document in page.documents] == [f"d{i}" for i in range(10)]


async def test_a_page_token_is_valid_for_its_own_query_only(store: Any) -> None:
    await _index_many(store, [index(f"d{i}", metadata=metadata(n=1)) for i in range(5)])
    token = (await store.ListDocuments(pb.ListDocumentsRequest(page_size=2))).next_page_token
    larger = await store.ListDocuments(pb.ListDocumentsRequest(page_size=3, page_token=token))
    assert [document.doc_id for document in larger.documents] == ["d2", "d3", "d4"]
    for other in (
        pb.ListDocumentsRequest(page_token=token, filters=metadata(n=1)),
        pb.ListDocumentsRequest(page_token=token, filter={"scope": {"user": "ada"}}),
        pb.ListDocumentsRequest(page_token=token, view="VIEW_FULL"),
        pb.ListDocumentsRequest(page_token=token[:-4]),
        pb.ListDocumentsRequest(page_token=f"{token}{token}"),
    ):
        error = await failure_of(store.ListDocuments(other))
        assert (error.code(), reason(error)) == (grpc.StatusCode.INVALID_ARGUMENT, "INVALID_PAGE_TOKEN")
        assert detail(error, error_details_pb2.BadRequest).field_violations[0].field == "page_token"


async def test_a_filter_of_another_type_than_the_stored_values_finds_nothing_and_is_named(store: Any) -> None:
    tags = common_pb2.MetadataValue(string_list_value={"values": ["x"]})
    await store.IndexDocument(index("a", metadata=metadata(year=2020) | {"tags": tags}))
    with_number = "no document has this key with {}, only with a number"
    with_list = "no document has this key with text, only with a list of texts, which `filter` compares"
    for filters, told in (
        (metadata(year="2020"), ("year", with_number.format("text"))),
        (metadata(year=True, unknown=1), ("year", with_number.format("true or false"))),
        (
            metadata(tags="x"),
            ("tags", with_list),
        ),
        (metadata(year=2020) | {"tags": common_pb2.MetadataValue()}, ("tags", "must be text, a whole number")),
    ):
        answers = [
            await store.SearchDocuments(pb.SearchDocumentsRequest(query="some text", filters=filters)),
            await store.ListDocuments(pb.ListDocumentsRequest(filters=filters)),
            await store.CountDocuments(pb.CountDocumentsRequest(filters=filters)),
        ]
        assert (list(answers[0].results), list(answers[1].documents), answers[2].count) == ([], [], 0)
        for answer in answers:
            [unmatched] = answer.unmatched_filters
            assert (unmatched.key, unmatched.reason[: len(told[1])]) == told
            assert [each.key for each in answer.ignored_filters] == ["unknown"] * ("unknown" in filters)


async def test_a_bulk_delete_removes_matching_documents_and_a_dry_run_none(store: Any) -> None:
    await _index_many(store, [index(f"d{i}", metadata=metadata(even=i % 2 == 0)) for i in range(10)])
    filters = metadata(even=True)
    dry = await store.DeleteDocuments(pb.DeleteDocumentsRequest(filters=filters, dry_run=True))
    assert (dry.deleted_count, (await store.CountDocuments(pb.CountDocumentsRequest())).count) == (5, 10)
    request = pb.DeleteDocumentsRequest(filters=filters, request_id="once")
    real, again = await store.DeleteDocuments(request), await store.DeleteDocuments(request)
    assert (real.deleted_count, real.replayed, again.deleted_count, again.replayed) == (5, False, 5, True)
    assert (await store.CountDocuments(pb.CountDocumentsRequest())).count == 5


@pytest.mark.parametrize("dry_run", [False, True])
async def test_a_bulk_delete_by_a_filter_that_no_document_can_match_is_refused(store: Any, *, dry_run: bool) -> None:
    await store.IndexDocument(index("a", metadata=metadata(year=2020)))
    for filters, field in (
        (metadata(year=2020, unknown=1), "filters.unknown"),
        (metadata(year="2020"), "filters.year"),
        ({"$or": common_pb2.MetadataValue(int_value=1)}, "filters.$or"),
    ):
        error = await failure_of(store.DeleteDocuments(pb.DeleteDocumentsRequest(filters=filters, dry_run=dry_run)))
        assert (error.code(), reason(error)) == (grpc.StatusCode.INVALID_ARGUMENT, "INVALID_ARGUMENT")
        [violation] = detail(error, error_details_pb2.BadRequest).field_violations
        assert violation.field == field
    assert (await store.DeleteDocuments(pb.DeleteDocumentsRequest(filters=metadata(year=2021)))).deleted_count == 0
    assert (await store.CountDocuments(pb.CountDocumentsRequest())).count == 1


async def test_a_bulk_delete_can_be_repeated_after_it_deleted_the_last_document_with_a_key(
    store: Any,
) -> None:
    await store.IndexDocument(index("a", metadata=metadata(topic="x")))
    request = pb.DeleteDocumentsRequest(filters=metadata(topic="x"), request_id="once")
    first, again = await store.DeleteDocuments(request), await store.DeleteDocuments(request)
    assert (first.deleted_count, again.deleted_count, again.replayed) == (1, 1, True)


async def test_the_typed_filter_expresses_more_than_equality(store: Any) -> None:
    for year in (2019, 2020, 2021):
        await store.IndexDocument(index(f"d{year}", metadata=metadata(year=year), scope={"user": "ada"}))
    await store.IndexDocument(index("other", metadata=metadata(year=2021), scope={"user": "bob"}))
    since = {"field": "metadata.year", "comparator": "COMPARATOR_GTE", "values": [{"int_value": 2020}]}
    by_id = {"field": "doc_id", "comparator": "COMPARATOR_EQ", "values": [{"string_value": "d2021"}]}
    which = {"scope": {"user": "ada"}, "filter": {"condition": since}}
    searched = await store.SearchDocuments(pb.SearchDocumentsRequest(query="some text", filter=which))
    listed = await store.ListDocuments(pb.ListDocumentsRequest(filter=which))
    assert {match.document.doc_id for match in searched.results} == {"d2020", "d2021"}
    assert [document.doc_id for document in listed.documents] == ["d2020", "d2021"]
    both = pb.CountDocumentsRequest(filter=which, filters=metadata(year=2020))
    assert (await store.CountDocuments(both)).count == 1
    which = {"filter": {"none_of": {"filters": [{"condition": by_id}]}}, "scope": {"user": "ada"}}
    deleted = await store.DeleteDocuments(pb.DeleteDocumentsRequest(filter=which))
    assert deleted.deleted_count == 2
    left = (await store.ListDocuments(pb.ListDocumentsRequest(view="VIEW_IDS"))).documents
    assert [document.doc_id for document in left] == ["d2021", "other"]


async def test_a_vector_finds_the_nearest_documents(store: Any) -> None:
    await store.IndexDocument(index("owls", "Owls hunt mice at night."))
    await store.IndexDocument(index("bread", "Knead the dough, then let it rest."))
    full = await store.GetDocument(pb.GetDocumentRequest(doc_id="owls", view="VIEW_FULL"))
    vector = [2 * x for x in full.document.embeddings[0].values]
    answer = await store.SearchDocuments(pb.SearchDocumentsRequest(vector=vector))
    assert answer.diagnostics.mode == common_pb2.SEARCH_MODE_VECTOR
    assert answer.results[0].document.doc_id == "owls"
    assert answer.results[0].score.vector == pytest.approx(1, abs=1e-5)
    both = await store.SearchDocuments(pb.SearchDocumentsRequest(query="dough", vector=vector))
    assert both.diagnostics.mode == common_pb2.SEARCH_MODE_HYBRID
    assert {match.document.doc_id for match in both.results} == {"owls", "bread"}
    error = await failure_of(store.SearchDocuments(pb.SearchDocumentsRequest(vector=vector[1:])))
    [violation] = detail(error, error_details_pb2.BadRequest).field_violations
    assert (error.code(), violation.field) == (grpc.StatusCode.INVALID_ARGUMENT, "vector")


async def test_a_bulk_stream_answers_each_message_in_order_and_a_bad_document_fails_alone(store: Any) -> None:
    requests = [
        pb.BulkIndexDocumentsRequest(
            requests=[index(f"d{i}-{j}", "" if (i, j) == (1, 2) else f"text {i} {j}") for j in range(i + 1)]
        )
        for i in range(6)
    ]
    requests[1].requests.append(index("d1-2", "x", metadata={"unset": common_pb2.MetadataValue()}))
    requests[2].requests.append(pb.IndexDocumentRequest())
    responses = [response async for response in store.BulkIndexDocuments(iter(requests))]
    sent = [[item.document.doc_id for item in request.requests] for request in requests]
    assert [[result.doc_id for result in response.results] for response in responses] == sent
    failed = {
        result.doc_id: {violation.field for violation in result.error.violations}
        for response in responses
        for result in response.results
        if result.HasField("error")
    }
    assert failed == {"d1-2": {"document.metadata.unset"}, "": {"document"}}
    error = responses[2].results[-1].error
    assert error.code == grpc.StatusCode.INVALID_ARGUMENT.value[0]
    assert error.reason == errors_pb2.ERROR_REASON_INVALID_ARGUMENT
    assert (await store.CountDocuments(pb.CountDocumentsRequest())).count == 21


async def test_changes_of_one_document_in_one_stream_keep_their_order(store: Any) -> None:
    texts = [f"version {i} " + "long " * (2000 if i % 2 == 0 else 1) for i in range(12)]
    requests = [pb.BulkIndexDocumentsRequest(requests=[index("same", text)]) for text in texts]
    responses = [response async for response in store.BulkIndexDocuments(iter(requests))]
    assert [response.results[0].receipt.revision for response in responses] == list(range(1, 13))
    assert (await store.GetDocument(pb.GetDocumentRequest(doc_id="same"))).document.content == texts[-1]


async def test_an_empty_bulk_message_ends_the_stream_after_the_earlier_answers(store: Any) -> None:
    stream = store.BulkIndexDocuments(
        iter([pb.BulkIndexDocumentsRequest(requests=[index("a")]), pb.BulkIndexDocumentsRequest()])
    )
    responses, error = await stream_end(stream)
    assert [response.results[0].doc_id for response in responses] == ["a"]
    assert (error.code(), reason(error)) == (grpc.StatusCode.INVALID_ARGUMENT, "INVALID_ARGUMENT")


async def test_a_bulk_stream_answers_before_it_is_closed(store: Any) -> None:
    stream = store.BulkIndexDocuments()
    for i in range(3):
        await stream.write(pb.BulkIndexDocumentsRequest(requests=[index(f"d{i}")]))
        assert (await stream.read()).results[0].receipt.id == f"d{i}"
    await stream.done_writing()
    assert await stream.read() is aio.EOF


async def test_a_client_that_leaves_a_bulk_stream_does_not_harm_the_server(connection: Connection) -> None:
    store = connection.store
    for _ in range(10):
        stream = store.BulkIndexDocuments()
        for i in range(5):
            await stream.write(pb.BulkIndexDocumentsRequest(requests=[index(f"d{i}", "word " * 500)]))
        stream.cancel()
    await until(lambda: connection.server.open_streams == 0)
    assert (await store.IndexDocument(index("after"))).receipt.outcome == common_pb2.WRITE_OUTCOME_CREATED


async def test_many_clients_at_once_each_get_their_own_answer(store: Any) -> None:
    await asyncio.gather(*(store.IndexDocument(index(f"d{i}", f"unique{i} text")) for i in range(100)))
    answers = await asyncio.gather(
        *(store.SearchDocuments(pb.SearchDocumentsRequest(query=f"unique{i}", limit=1)) for i in range(100))
    )
    assert [answer.results[0].document.doc_id for answer in answers] == [f"d{i}" for i in range(100)]


async def test_a_backend_without_an_index_cannot_rebuild_one(store: Any) -> None:
    _, error = await stream_end(store.RebuildIndex(pb.RebuildIndexRequest()))
    assert (error.code(), reason(error)) == (grpc.StatusCode.FAILED_PRECONDITION, "INVALID_OPERATION")


async def test_health_describes_the_store(store: Any) -> None:
    await store.IndexDocument(index("a"))
    health = await store.CheckHealth(pb.CheckHealthRequest())
    assert (health.state, health.message, health.backend) == (common_pb2.STATE_READY, "", "local")
    assert (health.document_count, health.passage_count, health.pending_count) == (1, 1, 0)
    assert (health.embedding_model.name, health.collection) == ("hashing", "knowledge")


async def test_an_answer_larger_than_a_message_says_what_to_ask_for(tmp_path: Path) -> None:
    async with whole_server(tmp_path, max_message_mib=1) as connected:
        for i in range(3):
            await connected.store.IndexDocument(index(f"d{i}", f"{i} " + "word " * 100_000))
        error = await failure_of(connected.store.SearchDocuments(pb.SearchDocumentsRequest(query="word")))
        assert (error.code(), reason(error)) == (grpc.StatusCode.RESOURCE_EXHAUSTED, "MESSAGE_TOO_LARGE")
        ids = pb.SearchDocumentsRequest(query="word", view="VIEW_IDS")
        assert len((await connected.store.SearchDocuments(ids)).results) == 3


async def _index_many(store: Any, requests: list[pb.IndexDocumentRequest]) -> None:
    messages = [pb.BulkIndexDocumentsRequest(requests=requests[i : i + 1000]) for i in range(0, len(requests), 1000)]
    async for response in store.BulkIndexDocuments(iter(messages)):
        assert all(result.HasField("receipt") for result in response.results)


async def _pages(store: Any, request: pb.ListDocumentsRequest) -> list[pb.ListDocumentsResponse]:
    pages = []
    while True:
        pages.append(await store.ListDocuments(request))
        if not pages[-1].next_page_token:
            return pages
        request.page_token = pages[-1].next_page_token
