"""Partial updates of a document over gRPC."""

from typing import Any

import grpc
import pytest_asyncio
from google.rpc import error_details_pb2
from mnemon.v1 import common_pb2
from mnemon.v1 import knowledge_store_pb2 as pb

from tests.support.memory_messages import metadata
from tests.support.server import Connection, detail, failure_of, reason


@pytest_asyncio.fixture
async def store(connection: Connection) -> Any:
    """The stub of its knowledge store, which holds one document."""
    document = pb.Document(
        doc_id="note", content="tea at four", metadata=metadata(myKey=1, my_key=2), scope={"user": "ada"}
    )
    await connection.store.IndexDocument(pb.IndexDocumentRequest(document=document))
    return connection.store


def update(*mask: str, doc_id: str = "note", document: dict[str, Any] | None = None, **fields: Any) -> Any:
    """A request to change the document."""
    request = pb.UpdateDocumentRequest(document=pb.Document(doc_id=doc_id, **(document or {})), **fields)
    request.update_mask.paths.extend(mask)
    return request


async def stored(store: Any) -> pb.Document:
    return (await store.GetDocument(pb.GetDocumentRequest(doc_id="note"))).document


async def violations(store: Any, request: pb.UpdateDocumentRequest) -> dict[str, str]:
    error = await failure_of(store.UpdateDocument(request))
    assert (error.code(), reason(error)) == (grpc.StatusCode.INVALID_ARGUMENT, "INVALID_ARGUMENT")
    return {v.field: v.description for v in detail(error, error_details_pb2.BadRequest).field_violations}


async def test_keys_of_metadata_are_set_and_removed_by_their_own_names(store: Any) -> None:
    request = update(set_metadata=metadata(myKey="new", other=True), remove_metadata=["my_key", "nobody"])
    receipt = (await store.UpdateDocument(request)).receipt
    assert (receipt.id, receipt.outcome, receipt.revision) == ("note", common_pb2.WRITE_OUTCOME_REPLACED, 2)
    document = await stored(store)
    assert dict(document.metadata) == metadata(myKey="new", other=True)
    assert (document.content, document.scope.user, document.revision) == ("tea at four", "ada", 2)


async def test_fields_are_replaced_as_the_mask_names_them(store: Any) -> None:
    changed = {"content": "coffee", "metadata": metadata(only=1), "scope": {"project": "x"}}
    await store.UpdateDocument(update("content", "metadata", "scope.project", document=changed))
    document = await stored(store)
    assert (document.content, dict(document.metadata)) == ("coffee", metadata(only=1))
    assert document.scope == common_pb2.Scope(user="ada", project="x")
    found = (await store.SearchDocuments(pb.SearchDocumentsRequest(query="coffee"))).results
    assert [result.document.doc_id for result in found] == ["note"]
    await store.UpdateDocument(update("scope"))
    assert (await stored(store)).scope == common_pb2.Scope()


async def test_a_request_id_and_a_revision_guard_a_change(store: Any) -> None:
    request = update(set_metadata=metadata(n=1), request_id="once", expected_revision=1)
    first = (await store.UpdateDocument(request)).receipt
    again = (await store.UpdateDocument(request)).receipt
    assert (first.replayed, again.replayed, again.revision) == (False, True, 2)
    reused = await failure_of(store.UpdateDocument(update(set_metadata=metadata(n=2), request_id="once")))
    assert reason(reused) == "REQUEST_ID_REUSED"
    stale = await failure_of(store.UpdateDocument(update(set_metadata=metadata(n=2), expected_revision=1)))
    assert (stale.code(), reason(stale)) == (grpc.StatusCode.ABORTED, "REVISION_MISMATCH")
    for expected in (None, 1):
        missing = update(doc_id="none", set_metadata=metadata(n=2), expected_revision=expected)
        error = await failure_of(store.UpdateDocument(missing))
        assert (error.code(), reason(error)) == (grpc.StatusCode.NOT_FOUND, "DOCUMENT_NOT_FOUND")
    assert (await stored(store)).metadata["n"].int_value == 1


async def test_a_path_into_metadata_is_refused_with_advice(store: Any) -> None:
    found = await violations(store, update("metadata.my_key", document={"metadata": metadata(my_key=3)}))
    assert "use set_metadata and remove_metadata for single keys" in found["update_mask"]
    assert dict((await stored(store)).metadata) == metadata(myKey=1, my_key=2)


async def test_errors_in_an_update_are_named(store: Any) -> None:
    cases = [
        (update(), "update_mask", "must name what to change"),
        (update("revision"), "update_mask", "is set by the server"),
        (update("nonsense"), "update_mask", "is not a field that can be changed"),
        (update(*["content"] * 129, document={"content": "x"}), "update_mask", "at most 128"),
        (update("content"), "document.content", "must not be blank"),
        (update("scope.user", document={"scope": {"user": "u" * 300}}), "document.scope.user", "at most 256 bytes"),
        (update("metadata", document={"metadata": {"a": common_pb2.MetadataValue()}}), "document.metadata.a", "null"),
        (update(set_metadata={"a": common_pb2.MetadataValue()}, ack=9), "set_metadata.a", "null"),
        (update(set_metadata=metadata(a=1), ack=9), "ack", "not known"),
        (update(set_metadata=metadata(a=1), remove_metadata=["a"]), "remove_metadata[0]", "is also in set_metadata"),
        (update("metadata", set_metadata=metadata(a=1)), "update_mask", "replaces all metadata"),
        (update(remove_metadata=["$bad"]), "remove_metadata[0]", "must be 1 to 64 characters"),
        (update(remove_metadata=[f"k{n}" for n in range(65)]), "remove_metadata", "at most 64 keys"),
        (update(doc_id="", set_metadata=metadata(a=1)), "document.doc_id", "must be 1 to 512 bytes"),
        (update(set_metadata=metadata(a=1), request_id="r" * 200), "request_id", "at most 128"),
        (pb.UpdateDocumentRequest(), "document", "is required"),
    ]
    for request_, field, said in cases:
        assert said in (await violations(store, request_))[field]
        assert (await stored(store)).revision == 1
