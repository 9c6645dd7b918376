"""The conflict service over gRPC: what is missing, and what is decided, listed and undone."""

from typing import Any

import grpc
from google.protobuf.timestamp_pb2 import Timestamp
from google.rpc import error_details_pb2
from grpc import aio
from mnemon.v1 import conflicts_pb2 as pb
from mnemon.v1 import decisions_pb2, semantic_pb2

from tests.support.semantic_messages import by_id, contents_known, given, know, save, statement
from tests.support.server import Connection, bare_server, detail, failure_of, reason

NOBODY = "00000000-0000-4000-8000-000000000000"


def told(error: aio.AioRpcError) -> tuple[grpc.StatusCode, str]:
    """The status code and reason of an error."""
    return error.code(), reason(error)


async def move(semantic: Any, *cities: str) -> list[semantic_pb2.SaveSemanticMemoryResponse]:
    """Saves where Ada lives now. Each statement is more important than the last, so the newest is kept."""
    policy = semantic_pb2.CONFLICT_POLICY_RESOLVE
    return [
        await semantic.SaveSemanticMemory(
            save(f"Ada lives in {city} now.", importance=rank / 10, conflict_policy=policy)
        )
        for rank, city in enumerate(cities, 1)
    ]


async def decisions_of(conflicts: Any, **request: Any) -> list[decisions_pb2.Decision]:
    """The decisions that a request selects, page by page."""
    found: list[decisions_pb2.Decision] = []
    while True:
        page = await conflicts.ListDecisions(pb.ListDecisionsRequest(**request))
        found += page.decisions
        if not page.next_page_token:
            return found
        request["page_token"] = page.next_page_token


async def test_a_missing_record_is_not_found(connection: Connection) -> None:
    conflicts = connection.conflicts
    missing = grpc.StatusCode.NOT_FOUND, "MEMORY_NOT_FOUND"
    assert (
        told(await failure_of(conflicts.DetectConflicts(pb.DetectConflictsRequest(candidate=by_id(NOBODY))))) == missing
    )
    first = pb.MemoryReference(memory_id=NOBODY, expected_revision=1)
    merge = pb.MergeMemoriesRequest(first=first, second=by_id(NOBODY.replace("0", "1")))
    assert told(await failure_of(conflicts.MergeMemories(merge))) == missing
    assert told(await failure_of(conflicts.UnmergeMemory(pb.UnmergeMemoryRequest(memory_id=NOBODY)))) == missing
    unknown = await failure_of(conflicts.UnmergeMemory(pb.UnmergeMemoryRequest(decision_id=NOBODY)))
    assert told(unknown) == (grpc.StatusCode.NOT_FOUND, "DECISION_NOT_FOUND")
    assert detail(unknown, error_details_pb2.ResourceInfo).resource_name == NOBODY
    preview = pb.PreviewResolutionRequest(memory=statement("a"), rule="no such rule")
    assert told(await failure_of(conflicts.PreviewResolution(preview))) == (
        grpc.StatusCode.NOT_FOUND, "RULE_NOT_FOUND",
    )  # fmt: skip


async def test_conflicts_are_counted_in_full_and_returned_up_to_the_limit(connection: Connection) -> None:
    known = await know(connection.semantic, *(f"Ada lives in {city} now." for city in ("Rome", "Oslo", "Bern")))
    request = pb.DetectConflictsRequest(candidate=given("Ada lives in Berlin now."), limit=2)
    answer = await connection.conflicts.DetectConflicts(request)
    assert (len(answer.conflicts), answer.total_count, answer.rule) == (2, 3, "default")
    severities = [conflict.severity for conflict in answer.conflicts]
    assert severities == sorted(severities, reverse=True)
    stored = pb.DetectConflictsRequest(candidate=by_id(known[0].memory_id))
    found = {conflict.memory_id for conflict in (await connection.conflicts.DetectConflicts(stored)).conflicts}
    assert found == {memory.memory_id for memory in known[1:]}
    strict = pb.DetectConflictsRequest(
        candidate=given("Ada lives in Berlin now."), detection={"signals": [decisions_pb2.SIGNAL_TYPE_IMPORTANCE]}
    )
    assert (await connection.conflicts.DetectConflicts(strict)).total_count == 0


async def test_a_preview_equals_the_later_save_and_changes_nothing(connection: Connection) -> None:
    semantic, conflicts = connection.semantic, connection.conflicts
    await move(semantic, "Berlin")
    rome = {"content": "Ada lives in Rome now.", "importance": 0.9, "create_time": Timestamp(seconds=1_700_000_000)}
    request = pb.PreviewResolutionRequest(memory=statement(**rome))
    preview = await conflicts.PreviewResolution(request)
    assert preview == await conflicts.PreviewResolution(request)
    assert (preview.decision.decision_id, preview.decision.candidate_id) == ("", "")
    assert await contents_known(semantic) == ["Ada lives in Berlin now."]
    assert await decisions_of(conflicts) == []
    policy = semantic_pb2.CONFLICT_POLICY_RESOLVE
    saved = await semantic.SaveSemanticMemory(save(**rome, conflict_policy=policy))
    assert saved.memory.content == preview.memory.content
    for field in ("action", "strategy", "winner", "loser"):
        assert getattr(saved.decision.arbitration, field) == getattr(preview.decision.arbitration, field)
    known = await conflicts.PreviewResolution(pb.PreviewResolutionRequest(memory=statement("Ada lives in Rome now.")))
    assert (known.duplicate, known.memory.memory_id) == (True, saved.memory.memory_id)


async def test_a_merge_of_stored_statements_is_one_decision_that_can_be_undone_once(connection: Connection) -> None:
    semantic, conflicts = connection.semantic, connection.conflicts
    first, second = await know(semantic, "Ada has a cat.", "Ada has a dog.")
    request = pb.MergeMemoriesRequest(first=by_id(first.memory_id), second=by_id(second.memory_id), dry_run=True)
    dry = await conflicts.MergeMemories(request)
    assert (dry.memory.memory_id, dry.HasField("decision")) == ("", False)
    assert await contents_known(semantic) == ["Ada has a cat.", "Ada has a dog."]
    request.dry_run = False
    request.second.expected_revision = second.revision + 1
    changed = await failure_of(conflicts.MergeMemories(request))
    assert told(changed) == (grpc.StatusCode.ABORTED, "REVISION_MISMATCH")
    request.second.expected_revision, request.request_id = second.revision, "once"
    merged = await conflicts.MergeMemories(request)
    assert (merged.memory.content, merged.statistics, merged.rule) == (dry.memory.content, dry.statistics, "default")
    assert list(merged.memory.merged_from) == [first.memory_id, second.memory_id]
    assert merged.decision.arbitration.action == decisions_pb2.ARBITRATION_ACTION_MERGE
    assert await contents_known(semantic) == [merged.memory.content]
    assert (await conflicts.MergeMemories(request)).memory.memory_id == merged.memory.memory_id
    again = await failure_of(
        conflicts.MergeMemories(pb.MergeMemoriesRequest(first=request.first, second=by_id(second.memory_id)))
    )
    assert told(again) == (grpc.StatusCode.FAILED_PRECONDITION, "INVALID_OPERATION")

    undo = pb.UnmergeMemoryRequest(memory_id=merged.memory.memory_id)
    undone = await conflicts.UnmergeMemory(undo)
    assert sorted(memory.content for memory in undone.restored) == ["Ada has a cat.", "Ada has a dog."]
    assert (undone.removed_id, undone.decision.HasField("revert_time")) == (merged.memory.memory_id, True)
    assert await contents_known(semantic) == ["Ada has a cat.", "Ada has a dog."]
    undo = pb.UnmergeMemoryRequest(decision_id=merged.decision.decision_id)
    assert told(await failure_of(conflicts.UnmergeMemory(undo))) == (
        grpc.StatusCode.FAILED_PRECONDITION, "INVALID_OPERATION",
    )  # fmt: skip


async def test_decisions_are_listed_newest_first_page_by_page_and_by_record(
    connection: Connection,
) -> None:
    semantic, conflicts = connection.semantic, connection.conflicts
    saved = await move(semantic, "Berlin", "Rome", "Oslo", "Bern")
    newest_first = [answer.decision.decision_id for answer in reversed(saved[1:])]
    assert [decision.decision_id for decision in await decisions_of(conflicts, page_size=2)] == newest_first
    assert await decisions_of(conflicts, user="bob") == []
    rome = saved[1].memory.memory_id
    about = await decisions_of(conflicts, user="ada", memory_id=rome)
    assert [decision.decision_id for decision in about] == newest_first[1:]
    assert {rome in (one.candidate_id, one.existing_id, one.result_id) for one in about} == {True}
    page = await conflicts.ListDecisions(pb.ListDecisionsRequest(page_size=1))
    other = pb.ListDecisionsRequest(user="ada", page_size=1, page_token=page.next_page_token)
    assert told(await failure_of(conflicts.ListDecisions(other))) == (
        grpc.StatusCode.INVALID_ARGUMENT, "INVALID_PAGE_TOKEN",
    )  # fmt: skip


async def test_no_method_answers_before_the_vaults_are_open() -> None:
    async with bare_server() as server:
        error = await failure_of(server.conflicts.ListDecisions(pb.ListDecisionsRequest()))
        assert told(error) == (grpc.StatusCode.UNAVAILABLE, "NOT_SERVING")
