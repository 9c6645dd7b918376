"""What the memory service promises about reads: pages, counts and searches."""

from datetime import UTC, datetime, timedelta
from typing import Any

import grpc
import pytest
from google.rpc import error_details_pb2
from mnemon.v1 import common_pb2
from mnemon.v1 import memory_pb2 as pb

from tests.support.memory_messages import contents_of, create, metadata, remember, where
from tests.support.server import Connection, detail, failure_of, reason
from tests.support.timeline_messages import stamp

HOUR = timedelta(hours=1)


async def bulk(memories: Any, requests: list[pb.CreateMemoryRequest]) -> list[str]:
    """Stores memories through the bulk stream. Returns their ids."""
    runs = [pb.BulkCreateMemoriesRequest(requests=requests[i : i + 1000]) for i in range(0, len(requests), 1000)]
    return [result.receipt.id async for answer in memories.BulkCreateMemories(iter(runs)) for result in answer.results]


async def search(memories: Any, query: str, **fields: Any) -> pb.SearchMemoriesResponse:
    """The answer to a search."""
    return await memories.SearchMemories(pb.SearchMemoriesRequest(query=query, **fields))


async def wrong_fields(call: Any) -> list[str]:
    """The fields for which the call is refused."""
    error = await failure_of(call)
    assert error.code() is grpc.StatusCode.INVALID_ARGUMENT
    return [violation.field for violation in detail(error, error_details_pb2.BadRequest).field_violations]


async def test_pages_hold_every_memory_once_in_the_order_of_creation(memories: Any) -> None:
    ids = await bulk(memories, [create(f"m{i:03}") for i in range(25)])
    await memories.DeleteMemory(pb.DeleteMemoryRequest(memory_id=ids[3]))
    pages, token = [], ""
    while not pages or token:
        page = await memories.ListMemories(pb.ListMemoriesRequest(page_size=10, page_token=token))
        pages.append([memory.memory_id for memory in page.memories])
        token = page.next_page_token
    assert [len(page) for page in pages] == [10, 10, 4]
    assert [memory_id for page in pages for memory_id in page] == ids[:3] + ids[4:]


async def test_page_sizes_are_a_hundred_by_default_and_at_most_a_thousand(memories: Any) -> None:
    await bulk(memories, [create(f"m{i}") for i in range(1001)])
    assert len((await memories.ListMemories(pb.ListMemoriesRequest())).memories) == 100
    largest = await memories.ListMemories(pb.ListMemoriesRequest(page_size=5000))
    assert (len(largest.memories), bool(largest.next_page_token)) == (1000, True)
    assert await wrong_fields(memories.ListMemories(pb.ListMemoriesRequest(page_size=-1))) == ["page_size"]


async def test_a_page_ends_at_three_mebibytes_of_content(memories: Any) -> None:
    text = "x" * 900_000
    for i in range(8):
        await bulk(memories, [create(f"{i}{text}", embedding=[1.0] * 64)])
    seen, token = [], ""
    while not seen or token:
        page = await memories.ListMemories(pb.ListMemoriesRequest(page_token=token))
        assert page.ByteSize() < 3 << 20
        seen += [memory.content[0] for memory in page.memories]
        token = page.next_page_token
    assert seen == [str(i) for i in range(8)]


async def test_a_page_token_is_valid_for_its_own_query_only(memories: Any) -> None:
    await remember(memories, *(f"m{i}" for i in range(5)), decay_policy=pb.DECAY_POLICY_CONTEXTUAL)
    token = (await memories.ListMemories(pb.ListMemoriesRequest(page_size=2))).next_page_token
    larger = await memories.ListMemories(pb.ListMemoriesRequest(page_size=3, page_token=token))
    assert [memory.content for memory in larger.memories] == ["m2", "m3", "m4"]
    later, sooner = (stamp(datetime.now(UTC) + hours * HOUR) for hours in (24 * 365, 24 * 364))
    forecast = pb.ForecastMemoriesRequest(by_time=later, page_size=2)
    forecast_token = (await memories.ForecastMemories(forecast)).next_page_token
    for call in (
        memories.ListMemories(pb.ListMemoriesRequest(page_token=token, filter=where(type="x"))),
        memories.ListMemories(pb.ListMemoriesRequest(page_token=token, show_deleted=True)),
        memories.ListMemories(pb.ListMemoriesRequest(page_token=token[:-4])),
        memories.ListMemories(pb.ListMemoriesRequest(page_token=f"{token}{token}")),
        memories.ForecastMemories(pb.ForecastMemoriesRequest(page_token=forecast_token, by_time=sooner)),
    ):
        error = await failure_of(call)
        assert (error.code(), reason(error)) == (grpc.StatusCode.INVALID_ARGUMENT, "INVALID_PAGE_TOKEN")
    rest = pb.ForecastMemoriesRequest(page_token=forecast_token, by_time=later)
    assert [f.memory.content for f in (await memories.ForecastMemories(rest)).forecasts] == ["m2", "m3", "m4"]


async def test_counts_agree_with_lists_with_and_without_deleted_memories(memories: Any) -> None:
    gone, *_ = await remember(memories, "a1", "a2", "a3", type="a")
    await remember(memories, "b1", type="b")
    await memories.DeleteMemory(pb.DeleteMemoryRequest(memory_id=gone.memory_id))
    for chosen, live, every in ((where(), 3, 4), (where(type="a"), 2, 3), (where(type="none"), 0, 0)):
        for show_deleted, expected in ((False, live), (True, every)):
            request = pb.CountMemoriesRequest(filter=chosen, show_deleted=show_deleted)
            assert (await memories.CountMemories(request)).count == expected
            assert len(await contents_of(memories, chosen, show_deleted=show_deleted)) == expected


async def test_results_come_best_first_and_say_how_they_were_compared(memories: Any) -> None:
    await remember(memories, "Owls hunt mice at night.", "The night train leaves at nine.", "Knead the dough.")
    modes = (common_pb2.SEARCH_MODE_UNSPECIFIED, common_pb2.SEARCH_MODE_KEYWORD, common_pb2.SEARCH_MODE_VECTOR)
    for mode in modes:
        answer = await search(memories, "owls hunt mice", mode=mode)
        best = answer.results[0]
        assert best.memory.content == "Owls hunt mice at night."
        scores = [match.score.relevance for match in answer.results]
        assert scores == sorted(scores, reverse=True)
        assert all(0 <= score <= 1 for score in scores)
        assert best.score.HasField("vector") is best.HasField("distance") is (mode != common_pb2.SEARCH_MODE_KEYWORD)
        assert best.score.HasField("keyword") is (mode != common_pb2.SEARCH_MODE_VECTOR)
        if best.HasField("distance"):
            assert best.distance == pytest.approx(1 - best.score.vector)
        assert answer.diagnostics.mode == (mode or common_pb2.SEARCH_MODE_HYBRID)
        assert (answer.diagnostics.exact, answer.diagnostics.returned) == (True, len(answer.results))


async def test_a_limit_of_zero_means_ten(memories: Any) -> None:
    await bulk(memories, [create(f"python fact {i}") for i in range(12)])
    assert len((await search(memories, "python fact", limit=0)).results) == 10
    assert len((await search(memories, "python fact", limit=12)).results) == 12


async def test_a_view_sets_how_much_of_a_memory_is_returned(memories: Any) -> None:
    [memory] = await remember(memories, "owls hunt mice", type="fact", metadata=metadata(a=1))
    [standard] = (await search(memories, "owls hunt mice")).results
    [ids] = (await search(memories, "owls hunt mice", view=common_pb2.VIEW_IDS)).results
    [full] = (await search(memories, "owls hunt mice", view=common_pb2.VIEW_FULL)).results
    assert (standard.memory, ids.score) == (memory, standard.score)
    assert ids.memory == pb.Memory(memory_id=memory.memory_id, confidence=1.0, revision=1)
    [embedding] = full.memory.embeddings
    assert sum(number * number for number in embedding.values) == pytest.approx(1, abs=1e-5)
    del full.memory.embeddings[:]
    assert full == standard
    [why] = (await search(memories, "owls hunt mice", view=common_pb2.VIEW_IDS, explain=True)).results
    assert (why.memory, list(why.explanation.matched_terms)) == (ids.memory, ["owl", "hunt", "mice"])


@pytest.mark.parametrize(
    ("fields", "wrong"),
    [
        ({"limit": -1}, ["limit"]),
        ({"limit": 1001}, ["limit"]),
        ({"filter": {"min_confidence": 1.1}}, ["filter.min_confidence"]),
        ({"filter": {"min_confidence": float("nan")}}, ["filter.min_confidence"]),
        ({"min_score": -0.1}, ["min_score"]),
        ({"query": "x" * 65_537}, ["query"]),
        ({"vector": [1.0]}, ["vector"]),
        ({"vector": [float("nan")] * 64}, ["vector"]),
        ({"limit": -1, "min_score": 9.0, "mode": 9, "view": 9, "filter": {"filter": {}}},
         ["mode", "filter.filter", "view", "limit", "min_score"]),
    ],
)  # fmt: skip
@pytest.mark.asyncio(loop_scope="module")
async def test_a_search_with_values_out_of_range_is_refused_by_field(
    shared: Connection, fields: Any, wrong: list[str]
) -> None:
    assert await wrong_fields(shared.memories.SearchMemories(pb.SearchMemoriesRequest(**fields))) == wrong


async def test_an_explanation_adds_up_to_the_score_and_comes_only_on_request(memories: Any) -> None:
    await remember(memories, "🦉 Owls were hunting mice at night.")
    [plain] = (await search(memories, "owls hunt mice")).results
    assert not plain.HasField("explanation")
    [match] = (await search(memories, "owls hunt mice", explain=True)).results
    said = match.explanation
    assert {part.name for part in said.parts} == {"vector", "keyword"}
    for part in said.parts:
        assert part.contribution == pytest.approx(part.score * part.weight)
    assert sum(part.contribution for part in said.parts) == pytest.approx(match.score.relevance)
    assert list(said.matched_terms) == ["owl", "hunt", "mice"]
    assert "1" in said.confidence and said.confidence.endswith(".")
    assert (said.passage_start, said.passage_end) == (0, len(match.memory.content))


async def test_an_invalid_id_is_refused(memories: Any) -> None:
    for memory_id in ("", "x" * 513, "a\nb"):
        call = memories.GetMemory(pb.GetMemoryRequest(memory_id=memory_id))
        assert await wrong_fields(call) == ["memory_id"]


async def test_memories_and_documents_are_kept_apart(connection: Connection) -> None:
    from mnemon.v1 import knowledge_store_pb2

    [memory] = await remember(connection.memories, "shared words", metadata=metadata(n=1))
    document = knowledge_store_pb2.Document(doc_id="doc", content="shared words", metadata=metadata(n=1))
    await connection.store.IndexDocument(knowledge_store_pb2.IndexDocumentRequest(document=document))
    [match] = (await search(connection.memories, "shared words")).results
    assert match.memory.memory_id == memory.memory_id
    query = knowledge_store_pb2.SearchDocumentsRequest(query="shared words")
    [result] = (await connection.store.SearchDocuments(query)).results
    assert result.document.doc_id == "doc"
    assert reason(await failure_of(connection.memories.GetMemory(pb.GetMemoryRequest(memory_id="doc")))) == (
        "MEMORY_NOT_FOUND"
    )
