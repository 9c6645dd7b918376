"""Results that are larger than an answer: the best ones are returned, and the answer says that there are more."""

import asyncio
import json
from collections.abc import Sequence

from mnemon import AsyncClient, Client
from mnemon._mcp.identity import Identity
from mnemon.v1 import common_pb2, conflicts_pb2, decisions_pb2, memory_pb2, rules_pb2, semantic_pb2
from mnemon.v1 import knowledge_store_pb2 as pb

from tests.support.command import run
from tests.support.mcp_sessions import inner_session, texts_of
from tests.support.memory_messages import compare, create, metadata, where
from tests.support.semantic_messages import axis, by_id, know, save
from tests.support.server import Connection, failure_of, reason

FRUITS = ["apple", "berry", "cherry", "fig", "grape"]
RANKS = range(len(FRUITS))
FITTING = RANKS[:3]
"""Three of the records fit into one answer, and a fourth does not."""


def text_of(rank: int) -> str:
    """900 KB of content for the record at this rank. Lower ranks mention fewer fruits."""
    return " ".join([*FRUITS[rank:], f"rank{rank}", *["z" * 999] * 900])


def vector_of(rank: int) -> list[float]:
    """Its vector. Higher ranks are nearer to the first axis."""
    return axis(1.0, rank / 10)


def ranks_of(contents: Sequence[str]) -> list[int]:
    """The ranks of the records with these contents."""
    texts = [text_of(rank) for rank in RANKS]
    return [texts.index(content) for content in contents]


async def index_documents(connection: Connection) -> None:
    """Stores the documents, the best one last."""
    for rank in reversed(RANKS):
        document = pb.Document(doc_id=str(rank), content=text_of(rank), metadata=metadata(rank=rank))
        await connection.store.IndexDocument(pb.IndexDocumentRequest(document=document))


async def test_a_search_of_documents_ends_before_it_is_too_large(connection: Connection) -> None:
    await index_documents(connection)
    request = pb.SearchDocumentsRequest(query=" ".join(FRUITS), mode="SEARCH_MODE_KEYWORD")
    answer = await connection.store.SearchDocuments(request)
    assert ranks_of([result.document.content for result in answer.results]) == [*FITTING]
    assert answer.truncated

    narrow = pb.SearchDocumentsRequest(query="grape", filters=metadata(rank=4))
    answer = await connection.store.SearchDocuments(narrow)
    assert (ranks_of([result.document.content for result in answer.results]), answer.truncated) == ([4], False)


async def test_a_search_of_memories_ends_before_it_is_too_large(connection: Connection) -> None:
    for rank in reversed(RANKS):
        new = create(text_of(rank), embedding=vector_of(rank), metadata=metadata(rank=rank))
        await connection.memories.CreateMemory(new)
    request = memory_pb2.SearchMemoriesRequest(vector=axis(1.0))
    answer = await connection.memories.SearchMemories(request)
    assert ranks_of([result.memory.content for result in answer.results]) == [*FITTING]
    assert (answer.diagnostics.returned, answer.truncated) == (len(FITTING), True)
    request.view = common_pb2.VIEW_IDS
    ids = await connection.memories.SearchMemories(request)
    assert (len(ids.results), ids.truncated) == (len(RANKS), False)
    request.view = common_pb2.VIEW_STANDARD

    request.filter.CopyFrom(where(compare("metadata.rank", "GTE", 3)))
    answer = await connection.memories.SearchMemories(request)
    assert (ranks_of([result.memory.content for result in answer.results]), answer.truncated) == ([3, 4], False)


async def test_a_search_of_statements_ends_before_it_is_too_large(connection: Connection) -> None:
    for rank in reversed(RANKS):
        new = save(text_of(rank), embedding=vector_of(rank), metadata=metadata(rank=rank))
        await connection.semantic.SaveSemanticMemory(new)
    request = semantic_pb2.SearchSimilarRequest(vector=axis(1.0), limit=len(RANKS))
    answer = await connection.semantic.SearchSimilar(request)
    assert ranks_of([result.memory.content for result in answer.results]) == [*FITTING]
    assert answer.truncated
    request.view = common_pb2.VIEW_IDS
    ids = await connection.semantic.SearchSimilar(request)
    assert (len(ids.results), ids.truncated) == (len(RANKS), False)
    request.view = common_pb2.VIEW_STANDARD

    request.filter.filter.CopyFrom(compare("metadata.rank", "GTE", 3))
    answer = await connection.semantic.SearchSimilar(request)
    assert (ranks_of([result.memory.content for result in answer.results]), answer.truncated) == ([3, 4], False)


async def test_conflicts_that_share_many_words_end_before_they_are_too_large(connection: Connection) -> None:
    keywords = [f"{number:03}" + "w" * 253 for number in range(256)]
    last = await know(connection.semantic, *(f"note {number}" for number in range(60)), keywords=keywords)
    detect = conflicts_pb2.DetectConflictsRequest(candidate=by_id(last[-1].memory_id))
    answer = await connection.conflicts.DetectConflicts(detect)
    assert (answer.total_count, len(answer.conflicts) < 59, answer.truncated) == (59, True, True)
    assert 2 << 20 < answer.ByteSize() <= (3 << 20) + 1024
    detect.limit = 10
    answer = await connection.conflicts.DetectConflicts(detect)
    assert (len(answer.conflicts), answer.truncated) == (10, False)

    policy = semantic_pb2.CONFLICT_POLICY_DETECT
    saved = await connection.semantic.SaveSemanticMemory(save("one more", keywords=keywords, conflict_policy=policy))
    assert (0 < len(saved.conflicts) < 60, saved.truncated) == (True, True)
    assert saved.memory.content == "one more"


async def test_all_rules_fit_into_one_answer_and_one_request(connection: Connection) -> None:
    users = [f"{number:03}" + "u" * 250 for number in range(240)]
    wide = [{"name": f"rule {number}", "conditions": {"users": users}} for number in range(18)]
    load = rules_pb2.LoadRulesRequest(rules=wide[:16])  # type: ignore[arg-type]
    await connection.rules.LoadRules(load)
    refused = await failure_of(connection.rules.LoadRules(rules_pb2.LoadRulesRequest(rules=wide)))  # type: ignore[arg-type]
    assert (refused.code().name, reason(refused)) == ("FAILED_PRECONDITION", "INVALID_OPERATION")
    assert "1,048,576 bytes" in refused.details()
    exported = await connection.rules.ExportRules(rules_pb2.ExportRulesRequest())
    assert len(exported.rules) == 17
    assert (await connection.rules.LoadRules(rules_pb2.LoadRulesRequest(rules=exported.rules))).updated_count == 0


async def test_the_second_of_two_restored_statements_may_be_returned_by_id_only(connection: Connection) -> None:
    wide = metadata(**{f"k{number}": "m" * 65_000 for number in range(12)})
    contents = ["Ada has a cat. " + "z" * 900_000, "Ada has a dog. " + "y" * 900_000]
    first, second = await know(connection.semantic, *contents, metadata=wide)
    merge = conflicts_pb2.MergeMemoriesRequest(first=by_id(first.memory_id), second=by_id(second.memory_id))
    merge.merge.content_strategy = decisions_pb2.CONTENT_STRATEGY_REPLACE
    merged = (await connection.conflicts.MergeMemories(merge)).memory
    undone = await connection.conflicts.UnmergeMemory(conflicts_pb2.UnmergeMemoryRequest(memory_id=merged.memory_id))
    assert ([memory.content for memory in undone.restored], undone.truncated) == (contents[:1], True)
    assert list(undone.remaining_ids) == [second.memory_id]
    rest = semantic_pb2.GetSemanticMemoryRequest(memory_id=undone.remaining_ids[0])
    assert (await connection.semantic.GetSemanticMemory(rest)).memory.content == contents[1]


async def test_the_client_and_its_command_say_that_there_is_more(connection: Connection) -> None:
    await index_documents(connection)
    await asyncio.to_thread(_search_and_look, str(connection.server.address))


def _search_and_look(address: str) -> None:
    with Client(address) as client:
        whole, cut = client.documents.search("rank4", limit=1), client.documents.search("grape")
    assert [(len(answer), answer.truncated) for answer in (whole, cut)] == [(1, False), (len(FITTING), True)]
    all_shown, cut_off = run(address, "search", "rank4", "--top-k", "1"), run(address, "search", "grape")
    assert (all_shown.returncode, all_shown.stderr) == (0, "")
    assert cut_off.returncode == 0
    assert "more was found than one answer holds, which is 3 MiB" in cut_off.stderr


async def test_a_model_is_told_over_mcp_how_to_continue(connection: Connection) -> None:
    address = str(connection.server.address)
    async with AsyncClient(address) as client:
        for rank in reversed(RANKS):
            await client.facts.put(("user", "ada"), str(rank), {"content": text_of(rank)})
    query = " ".join(FRUITS)
    async with inner_session(address, Identity(user="ada")) as session:
        (cut,) = texts_of(await session.call_tool("search_memory", {"query": query, "offset": 1}))
        assert "search again with offset 4" in json.loads(cut)[-1]["value"]["[more]"]
        (rest,) = texts_of(await session.call_tool("search_memory", {"query": query, "offset": 4}))
    assert [[fact["key"] for fact in json.loads(text)] for text in (cut, rest)] == [["1", "2", "3"], ["4"]]
