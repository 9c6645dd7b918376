"""Keys that are bound to users, with statements and conflicts: what is another user's is like what does not exist."""

import re
from pathlib import Path
from typing import Any, NamedTuple

import grpc
import mnemon
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass
from grpc import aio
from mnemon.v1 import access_pb2, conflicts_pb2, semantic_pb2

from tests.support.access import bearer, guarded_server, make_key, methods, path_of

METHODS = {
    method.name: method
    for method in methods()
    if method.containing_service.name in {"SemanticMemoryService", "ConflictService"}
    and method.GetOptions().Extensions[access_pb2.reach] == access_pb2.REACH_BOUNDS
}
DURATION = re.compile(r"(seconds|nanos): \d+")


class Named(NamedTuple):
    """What a request can name."""

    user: str
    statement: str
    decision: str


NOTHING = Named("eve", "00000000-0000-4000-8000-000000000000", "11111111-1111-4111-8111-111111111111")


def requests_about(named: Named, own: str) -> dict[str, list[Message]]:
    """For each method, requests about a user, a statement and a decision; `own` is a statement of the caller."""
    semantic, conflicts = semantic_pb2, conflicts_pb2
    given = semantic.SemanticMemory(content="Trains are early.", scope={"user": named.user})
    which = semantic.SemanticMemoryFilter(scope={"user": named.user})
    save = semantic.SaveSemanticMemoryRequest(memory=given, conflict_policy=semantic.CONFLICT_POLICY_RESOLVE)
    stored, mine, new = (
        conflicts.MemoryReference(memory_id=named.statement),
        conflicts.MemoryReference(memory_id=own),
        conflicts.MemoryReference(memory=given),
    )
    one, both = [named.statement], [own, named.statement]
    return {
        "SaveSemanticMemory": [save],
        "BulkSaveSemanticMemories": [semantic.BulkSaveSemanticMemoriesRequest(requests=[save])],
        "SearchSimilar": [semantic.SearchSimilarRequest(query="trains", min_score=0.0, filter=which)],
        "GetSemanticMemory": [semantic.GetSemanticMemoryRequest(memory_id=named.statement)],
        "ListSemanticMemories": [semantic.ListSemanticMemoriesRequest(filter=which, show_superseded=True)],
        "DeleteSemanticMemories": [
            semantic.DeleteSemanticMemoriesRequest(memory_ids=one),
            semantic.DeleteSemanticMemoriesRequest(memory_ids=one, expected_revision=7),
            semantic.DeleteSemanticMemoriesRequest(memory_ids=both),
            semantic.DeleteSemanticMemoriesRequest(filter=which, dry_run=True),
        ],
        "DetectConflicts": [conflicts.DetectConflictsRequest(candidate=each) for each in (stored, new)],
        "ArbitrateConflict": [
            conflicts.ArbitrateConflictRequest(candidate=candidate, existing=existing)
            for candidate, existing in ((stored, mine), (mine, stored), (new, mine), (mine, new))
        ],
        "MergeMemories": [
            conflicts.MergeMemoriesRequest(first=stored, second=mine),
            conflicts.MergeMemoriesRequest(first=mine, second=stored),
            conflicts.MergeMemoriesRequest(first=mine, second=stored, dry_run=True),
            conflicts.MergeMemoriesRequest(first=new, second=new),
        ],
        "PreviewResolution": [conflicts.PreviewResolutionRequest(memory=given)],
        "UnmergeMemory": [
            conflicts.UnmergeMemoryRequest(memory_id=named.statement),
            conflicts.UnmergeMemoryRequest(decision_id=named.decision),
        ],
        "ListSemanticMemoryVersions": [semantic_pb2.ListSemanticMemoryVersionsRequest(memory_id=named.statement)],
        "RestoreSemanticMemoryVersion": [
            semantic_pb2.RestoreSemanticMemoryVersionRequest(memory_id=named.statement, version_id="none")
        ],
        "ListDecisions": [
            conflicts.ListDecisionsRequest(memory_id=named.statement),
            conflicts.ListDecisionsRequest(user=named.user),
        ],
    }


async def answer(channel: aio.Channel, name: str, request: Message, secret: str) -> str:
    """What a method answers to the holder of a key, as text."""
    response = GetMessageClass(METHODS[name].output_type)
    make = channel.stream_stream(path_of(METHODS[name]), type(request).SerializeToString, response.FromString)
    try:
        texts = [str(each) async for each in make(iter([request]), metadata=bearer(secret))]
    except grpc.aio.AioRpcError as error:
        return f"{error.code().name}: {error.details()}"
    return DURATION.sub("", "".join(texts))


async def contents(client: mnemon.AsyncClient) -> list[Any]:
    """All statements and decisions that a client sees."""
    return [
        [each async for each in client.semantic.list(show_superseded=True)],
        [each async for each in client.conflicts.list_decisions()],
    ]


async def decided(client: mnemon.AsyncClient, user: str) -> Named:
    """Merges two statements of the user."""
    saved = [await client.semantic.add(f"{user} likes {what}.", user=user) for what in ("early trains", "late trains")]
    first, second = (each.memory.memory_id for each in saved if each.memory)
    merged = await client.conflicts.merge(first, second)
    assert merged.decision is not None
    return Named(user, merged.memory.memory_id, merged.decision.decision_id)


async def test_statements_and_decisions_of_another_user_are_like_what_does_not_exist(tmp_path: Path) -> None:
    admin, ada, bob = (
        make_key(tmp_path, "admin"),
        *(make_key(tmp_path, "writer", "--user", name) for name in ("ada", "bob")),
    )
    async with guarded_server(tmp_path) as connection:
        address = str(connection.server.address)
        async with (
            mnemon.AsyncClient(address, api_key=admin) as of_admin,
            mnemon.AsyncClient(address, api_key=ada) as of_ada,
            mnemon.AsyncClient(address, api_key=bob) as of_bob,
        ):
            hers, his = await decided(of_ada, "ada"), await decided(of_bob, "bob")
            everything = await contents(of_admin)
            assert [len(each) for each in everything] == [6, 2]
            assert [len(each) for each in await contents(of_ada)] == [3, 1]
            foreign, missing = requests_about(hers, his.statement), requests_about(NOTHING, his.statement)
            # A new method needs a request here.
            assert set(foreign) == set(METHODS)
            for name in METHODS:
                for request, other in zip(foreign[name], missing[name], strict=True):
                    told = await answer(connection.channel, name, request, bob)
                    for one, nothing in zip(hers, NOTHING, strict=True):
                        told = told.replace(one, nothing)
                    assert told == await answer(connection.channel, name, other, bob), request
            assert await contents(of_admin) == everything
            undone = await of_ada.conflicts.unmerge(hers.decision)
            assert len(undone.restored) == 2
