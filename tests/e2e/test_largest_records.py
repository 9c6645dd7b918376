"""A record of the largest allowed size fits into the messages of every call that carries it."""

from typing import Any

import pytest
from mnemon.v1 import archive_pb2, changes_pb2, common_pb2, facts_pb2, memory_pb2
from mnemon.v1 import knowledge_store_pb2 as pb

from tests.support.server import Connection, failure_of, violations, whole_server

METADATA = {f"k{i}": common_pb2.MetadataValue(string_value="m" * 65_536) for i in range(16)}
CONTENT = "largest " + "z" * ((1 << 20) - 8)


async def test_the_largest_document_can_be_indexed_read_found_listed_watched_and_exported(
    connection: Connection,
) -> None:
    store = connection.store
    document = pb.Document(doc_id="largest", content=CONTENT, metadata=METADATA)
    await store.IndexDocument(pb.IndexDocumentRequest(document=document))
    assert (await store.GetDocument(pb.GetDocumentRequest(doc_id="largest"))).document.content == CONTENT
    found = (await store.SearchDocuments(pb.SearchDocumentsRequest(query="largest"))).results
    assert [result.document.content for result in found] == [CONTENT]
    listed = await store.ListDocuments(pb.ListDocumentsRequest(view="VIEW_FULL"))
    assert [each.content for each in listed.documents] == [CONTENT]
    await _told_and_exported(connection, lambda event: event.document.content)


async def test_the_largest_memory_can_be_created_read_found_watched_and_exported(connection: Connection) -> None:
    memory = memory_pb2.Memory(content=CONTENT, metadata=METADATA)
    created = await connection.memories.CreateMemory(memory_pb2.CreateMemoryRequest(memory=memory))
    memory_id = created.receipt.id
    found = await connection.memories.GetMemory(memory_pb2.GetMemoryRequest(memory_id=memory_id))
    assert found.memory.content == CONTENT
    searched = await connection.memories.SearchMemories(memory_pb2.SearchMemoriesRequest(query="largest"))
    assert [result.memory.content for result in searched.results] == [CONTENT]
    await _told_and_exported(connection, lambda event: event.memory.content)


async def test_the_largest_fact_can_be_put_read_watched_and_exported(connection: Connection) -> None:
    fact = facts_pb2.Fact(namespace=["n"], key="largest", metadata=METADATA)
    numbers = [0.25] * 99_000  # an object has at most 100,000 values
    rest = "x" * ((1 << 20) - 100 - len(numbers) * len("0.25,"))
    fact.value.update({"content": f"largest {rest}", "numbers": numbers})
    await connection.facts.PutFact(facts_pb2.PutFactRequest(fact=fact))
    found = (await connection.facts.GetFact(facts_pb2.GetFactRequest(namespace=["n"], key="largest"))).fact
    assert list(found.value["numbers"]) == numbers
    several = await connection.facts.BatchGetFacts(
        facts_pb2.BatchGetFactsRequest(names=[{"namespace": ["n"], "key": "largest"}])
    )
    assert len(several.facts) == 1
    await _told_and_exported(connection, lambda event: event.fact.key)


async def test_the_largest_searched_text_of_a_fact_survives_an_export_and_import(
    connection: Connection, tmp_path_factory: pytest.TempPathFactory
) -> None:
    words = " ".join(f"word{i}" for i in range(200_000))[: (1 << 20) - 100]
    fact = facts_pb2.Fact(namespace=["n"], key="largest", metadata=METADATA)
    fact.value.update({"content": words})
    await connection.facts.PutFact(facts_pb2.PutFactRequest(fact=fact), timeout=120)
    parts = [part async for part in connection.archive.ExportRecords(archive_pb2.ExportRecordsRequest())]
    async with whole_server(tmp_path_factory.mktemp("other")) as other:
        start = archive_pb2.ImportStart(header=parts[0].header)
        requests = [archive_pb2.ImportRecordsRequest(start=start)]
        requests += [archive_pb2.ImportRecordsRequest(records=part.records.records) for part in parts[1:]]
        results = [result async for answer in other.archive.ImportRecords(iter(requests)) for result in answer.results]
        assert [result.WhichOneof("outcome") for result in results] == ["done"]
        query = facts_pb2.SearchFactsRequest(query="word77", filter=facts_pb2.FactFilter(namespace=["n"]))
        found = (await other.facts.SearchFacts(query)).results
        assert [result.fact.value["content"] for result in found] == [words]
        assert found[0].fact.metadata == METADATA


async def test_metadata_above_the_limit_is_refused_by_name(connection: Connection) -> None:
    metadata = {**METADATA, "more": common_pb2.MetadataValue(string_value="x")}
    document = pb.Document(doc_id="larger", content="x", metadata=metadata)
    refused = await failure_of(connection.store.IndexDocument(pb.IndexDocumentRequest(document=document)))
    assert violations(refused) == {"document.metadata"}


async def _told_and_exported(connection: Connection, content: Any) -> None:
    page = await connection.changes.ListChanges(changes_pb2.ListChangesRequest(view=changes_pb2.CHANGE_VIEW_FULL))
    watch = connection.changes.WatchChanges(
        changes_pb2.WatchChangesRequest(earliest=True, view=changes_pb2.CHANGE_VIEW_FULL)
    )
    assert (await watch.read()).HasField("started")
    [told] = (await watch.read()).batch.changes
    assert content(told)
    assert content(page.changes[0]) == content(told)
    watch.cancel()
    parts = [part async for part in connection.archive.ExportRecords(archive_pb2.ExportRecordsRequest())]
    assert sum(len(part.records.records) for part in parts) == 1
