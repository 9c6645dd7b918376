"""The semantic memory service over gRPC: each method, what it refuses, and the bulk stream."""

import uuid
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import grpc
import pytest
from google.protobuf.timestamp_pb2 import Timestamp
from google.rpc import error_details_pb2
from mnemon.v1 import common_pb2, errors_pb2
from mnemon.v1 import semantic_pb2 as pb

from tests.support.memory_messages import metadata
from tests.support.semantic_messages import (
    axis,
    contents_known,
    know,
    run_of,
    save,
    statement,
    status_of,
)
from tests.support.server import bare_server, detail, failure_of, reason, stream_end, violations, whole_server

NOBODY = "00000000-0000-4000-8000-000000000000"


async def get(semantic: Any, memory_id: str, **request: Any) -> pb.SemanticMemory:
    """The statement with this id."""
    return (await semantic.GetSemanticMemory(pb.GetSemanticMemoryRequest(memory_id=memory_id, **request))).memory


async def test_a_statement_is_stored_with_all_its_fields(semantic: Any) -> None:
    learnt = Timestamp(seconds=1_700_000_000, nanos=123_456_000)
    sent = statement(
        "Ada lives in Berlin.",
        summary="lives in Berlin",
        scope={"household": "home", "persona": "butler", "agent": "claude", "project": "trip"},
        importance=0.75,
        keywords=["Berlin", "home"],
        source="user",
        metadata=metadata(topic="home", rank=1, sure=0.5, old=False),
        create_time=learnt,
    )
    answer = await semantic.SaveSemanticMemory(pb.SaveSemanticMemoryRequest(memory=sent))
    stored = answer.memory
    assert str(uuid.UUID(stored.memory_id)) == stored.memory_id == answer.receipt.id
    assert (stored.revision, answer.receipt.revision, answer.duplicate) == (1, 1, False)
    assert answer.receipt.outcome == common_pb2.WRITE_OUTCOME_CREATED
    assert stored.update_time == answer.receipt.commit_time
    for field in ("content", "summary", "scope", "importance", "keywords", "source", "metadata", "create_time"):
        assert getattr(stored, field) == getattr(sent, field)
    assert await get(semantic, stored.memory_id) == stored
    assert not stored.embedding


async def test_a_statement_without_a_time_gets_the_time_of_saving(semantic: Any) -> None:
    [stored] = await know(semantic, "Ada lives in Berlin.")
    assert abs(datetime.now(UTC) - stored.create_time.ToDatetime(UTC)).total_seconds() < 60
    assert not stored.HasField("importance")


@pytest.mark.parametrize("embedding", [[1.0], axis(), axis(float("nan"))], ids=["short", "zero", "nan"])
async def test_a_vector_of_another_dimension_or_of_zeros_is_refused(semantic: Any, embedding: list[float]) -> None:
    error = await failure_of(semantic.SaveSemanticMemory(save(embedding=embedding)))
    assert violations(error) == {"embedding"}


async def test_a_missing_statement_is_not_found(semantic: Any) -> None:
    error = await failure_of(get(semantic, NOBODY))
    assert (error.code(), reason(error)) == (grpc.StatusCode.NOT_FOUND, "MEMORY_NOT_FOUND")
    assert detail(error, error_details_pb2.ResourceInfo).resource_name == NOBODY


async def test_the_rule_named_by_a_save_must_exist(semantic: Any) -> None:
    request = save(conflict_policy=pb.CONFLICT_POLICY_RESOLVE, rule="no such rule")
    error = await failure_of(semantic.SaveSemanticMemory(request))
    assert (error.code(), reason(error)) == (grpc.StatusCode.NOT_FOUND, "RULE_NOT_FOUND")
    assert await contents_known(semantic) == []


async def test_a_search_finds_statements_by_vector_and_text(semantic: Any) -> None:
    await know(semantic, "near", embedding=axis(3.0))
    await know(semantic, "nearly", embedding=axis(0.8, 0.6))
    await know(semantic, "far", embedding=axis(0.0, 1.0))
    answer = await semantic.SearchSimilar(pb.SearchSimilarRequest(vector=axis(1.0)))
    assert [match.memory.content for match in answer.results] == ["near", "nearly"]
    assert [match.score.relevance for match in answer.results] == pytest.approx([1.0, 0.8], abs=1e-6)
    assert not answer.results[0].memory.embedding
    assert [match.score.vector for match in answer.results] == [match.score.relevance for match in answer.results]
    assert not answer.results[0].score.HasField("keyword")
    ids = await semantic.SearchSimilar(pb.SearchSimilarRequest(vector=axis(1.0), view=common_pb2.VIEW_IDS))
    assert [match.memory for match in ids.results] == [
        pb.SemanticMemory(memory_id=match.memory.memory_id, revision=1) for match in answer.results
    ]
    assert [match.score for match in ids.results] == [match.score for match in answer.results]
    diagnostics = answer.diagnostics
    assert (diagnostics.total_candidates, diagnostics.filtered_by_threshold, diagnostics.exact) == (3, 1, True)
    assert (diagnostics.matched_count, diagnostics.filtered_count, diagnostics.returned) == (2, 1, 2)
    [best] = (
        await semantic.SearchSimilar(pb.SearchSimilarRequest(vector=axis(1.0), limit=1, view=common_pb2.VIEW_FULL))
    ).results
    assert list(best.memory.embedding) == pytest.approx(axis(1.0))
    await know(semantic, "Ada lives in Berlin.")
    by_text = await semantic.SearchSimilar(pb.SearchSimilarRequest(query="Ada lives in Berlin."))
    assert by_text.results[0].memory.content == "Ada lives in Berlin."
    assert by_text.results[0].score.vector == pytest.approx(1.0, abs=1e-6)
    assert not (await semantic.SearchSimilar(pb.SearchSimilarRequest(query="  "))).results
    for mode in (common_pb2.SEARCH_MODE_UNSPECIFIED, common_pb2.SEARCH_MODE_HYBRID, common_pb2.SEARCH_MODE_KEYWORD):
        asked = pb.SearchSimilarRequest(query="And in which city has Ada found a flat?", mode=mode, limit=1)
        [best] = (answer := await semantic.SearchSimilar(asked)).results
        assert best.memory.content == "Ada lives in Berlin."
        assert best.score.relevance < 0.7
        assert best.score.HasField("vector") == (mode != common_pb2.SEARCH_MODE_KEYWORD)
        assert answer.diagnostics.mode == (mode or common_pb2.SEARCH_MODE_HYBRID)
        assert answer.diagnostics.duration.ToNanoseconds() > 0
    asked = pb.SearchSimilarRequest(query="Ada", mode=common_pb2.SEARCH_MODE_KEYWORD, min_score=0.5)
    assert violations(await failure_of(semantic.SearchSimilar(asked))) == {"min_score"}
    assert violations(await failure_of(semantic.SearchSimilar(pb.SearchSimilarRequest(query="a", mode=9)))) == {"mode"}  # type: ignore[arg-type]


async def test_a_statement_shows_its_vector_on_request(semantic: Any) -> None:
    [stored] = await know(semantic, "pointing", embedding=axis(3.0, 4.0))
    shown = await get(semantic, stored.memory_id, view=common_pb2.VIEW_FULL)
    assert list(shown.embedding) == pytest.approx(axis(0.6, 0.8))
    assert await get(semantic, stored.memory_id) == stored
    ids = await get(semantic, stored.memory_id, view=common_pb2.VIEW_IDS)
    assert ids == pb.SemanticMemory(memory_id=stored.memory_id, revision=1)


async def test_an_unknown_view_is_refused(semantic: Any) -> None:
    assert violations(await failure_of(semantic.SearchSimilar(pb.SearchSimilarRequest(view=9)))) == {"view"}  # type: ignore[arg-type]
    assert violations(await failure_of(get(semantic, "some", view=9))) == {"view"}


async def test_a_limit_of_zero_is_the_default_and_a_negative_one_is_refused(semantic: Any) -> None:
    await know(semantic, *(f"fact {number}" for number in range(4)), embedding=axis(1.0))
    assert len((await semantic.SearchSimilar(pb.SearchSimilarRequest(vector=axis(1.0), limit=0))).results) == 3
    assert len((await semantic.SearchSimilar(pb.SearchSimilarRequest(vector=axis(1.0), limit=4))).results) == 4
    refused = await failure_of(semantic.SearchSimilar(pb.SearchSimilarRequest(vector=axis(1.0), limit=-1)))
    assert violations(refused) == {"limit"}


async def test_a_range_of_time_does_not_end_before_it_starts(semantic: Any) -> None:
    early, late = Timestamp(seconds=1), Timestamp(seconds=2)
    where = pb.SemanticMemoryFilter(created={"start_time": late, "end_time": early})
    calls = [
        semantic.SearchSimilar(pb.SearchSimilarRequest(query="a", filter=where)),
        semantic.ListSemanticMemories(pb.ListSemanticMemoriesRequest(filter=where)),
        semantic.DeleteSemanticMemories(pb.DeleteSemanticMemoriesRequest(filter=where)),
    ]
    for call in calls:
        assert violations(await failure_of(call)) == {"filter.created.end_time"}


async def test_pages_hold_every_statement_once_in_the_order_of_saving(semantic: Any) -> None:
    await know(semantic, *(f"fact {i}" for i in range(7)))
    await know(semantic, "of bob", user="bob")
    where = pb.SemanticMemoryFilter(scope={"user": "ada"})
    request = pb.ListSemanticMemoriesRequest(filter=where, page_size=3)
    found, tokens = [], []
    while True:
        page = await semantic.ListSemanticMemories(request)
        found.append([memory.content for memory in page.memories])
        if not page.next_page_token:
            break
        request.page_token = page.next_page_token
        tokens.append(page.next_page_token)
    assert found == [["fact 0", "fact 1", "fact 2"], ["fact 3", "fact 4", "fact 5"], ["fact 6"]]
    other = pb.ListSemanticMemoriesRequest(page_size=3, page_token=tokens[0])
    error = await failure_of(semantic.ListSemanticMemories(other))
    assert (error.code(), reason(error)) == (grpc.StatusCode.INVALID_ARGUMENT, "INVALID_PAGE_TOKEN")
    negative = pb.ListSemanticMemoriesRequest(page_size=-1)
    assert violations(await failure_of(semantic.ListSemanticMemories(negative))) == {"page_size"}


async def test_statements_are_deleted_by_their_ids_or_by_a_filter_and_a_dry_run_deletes_nothing(semantic: Any) -> None:
    first, second, third = await know(semantic, "first", "second", "third")
    await know(semantic, "of bob", user="bob")
    ids = [first.memory_id, second.memory_id, NOBODY]
    request = pb.DeleteSemanticMemoriesRequest(memory_ids=ids, allow_missing=True, dry_run=True)
    dry = await semantic.DeleteSemanticMemories(request)
    assert (dry.deleted_count, dry.replayed, len(await contents_known(semantic))) == (2, False, 4)
    assert not (dry.receipts or dry.HasField("commit_time"))
    request = pb.DeleteSemanticMemoriesRequest(memory_ids=ids, allow_missing=True, request_id="once")
    answer = await semantic.DeleteSemanticMemories(request)
    deleted, missing = common_pb2.WRITE_OUTCOME_DELETED, common_pb2.WRITE_OUTCOME_MISSING
    assert [(one.id, one.outcome) for one in answer.receipts] == [*zip(ids, (deleted, deleted, missing), strict=True)]
    assert (answer.deleted_count, answer.receipts[0].revision, answer.replayed) == (2, 1, False)
    again = await semantic.DeleteSemanticMemories(request)
    assert (again.deleted_count, again.replayed, again.commit_time) == (2, True, answer.commit_time)
    assert all(one.replayed and one.commit_time == answer.commit_time for one in again.receipts)
    assert await contents_known(semantic) == ["third", "of bob"]
    request.memory_ids[:] = [third.memory_id]
    error = await failure_of(semantic.DeleteSemanticMemories(request))
    assert (error.code(), reason(error)) == (grpc.StatusCode.ALREADY_EXISTS, "REQUEST_ID_REUSED")
    where = pb.SemanticMemoryFilter(scope={"user": "ada"})
    both = pb.DeleteSemanticMemoriesRequest(memory_ids=ids, filter=where)
    assert violations(await failure_of(semantic.DeleteSemanticMemories(both))) == {"filter"}
    answer = await semantic.DeleteSemanticMemories(pb.DeleteSemanticMemoriesRequest(filter=where))
    assert (answer.deleted_count, await contents_known(semantic)) == (1, ["of bob"])


async def test_missing_ids_are_named_and_nothing_is_deleted(semantic: Any) -> None:
    [known] = await know(semantic, "known")
    request = pb.DeleteSemanticMemoriesRequest(memory_ids=[known.memory_id, NOBODY, "nothing"])
    for dry_run in (True, False):
        request.dry_run = dry_run
        error = await failure_of(semantic.DeleteSemanticMemories(request))
        assert (error.code(), reason(error)) == (grpc.StatusCode.NOT_FOUND, "MEMORY_NOT_FOUND")
        assert NOBODY in error.details() and "nothing" in error.details()
        assert known.memory_id not in error.details()
    assert await contents_known(semantic) == ["known"]


async def test_a_statement_is_deleted_only_at_the_expected_revision(semantic: Any) -> None:
    [known] = await know(semantic, "known")
    request = pb.DeleteSemanticMemoriesRequest(memory_ids=[known.memory_id], expected_revision=known.revision + 1)
    error = await failure_of(semantic.DeleteSemanticMemories(request))
    assert (error.code(), reason(error)) == (grpc.StatusCode.ABORTED, "REVISION_MISMATCH")
    unknown = pb.DeleteSemanticMemoriesRequest(memory_ids=[NOBODY], expected_revision=1)
    error = await failure_of(semantic.DeleteSemanticMemories(unknown))
    assert (error.code(), reason(error)) == (grpc.StatusCode.NOT_FOUND, "MEMORY_NOT_FOUND")
    several = pb.DeleteSemanticMemoriesRequest(memory_ids=[known.memory_id, NOBODY], expected_revision=1)
    assert violations(await failure_of(semantic.DeleteSemanticMemories(several))) == {"expected_revision"}
    request.expected_revision = known.revision
    assert (await semantic.DeleteSemanticMemories(request)).deleted_count == 1


async def test_a_repeated_save_gets_the_first_answer_and_the_same_content_is_stored_once(semantic: Any) -> None:
    request = save("Ada lives in Berlin.", request_id="once")
    first = await semantic.SaveSemanticMemory(request)
    again = await semantic.SaveSemanticMemory(request)
    assert (again.receipt.replayed, again.duplicate, again.memory) == (True, False, first.memory)
    error = await failure_of(semantic.SaveSemanticMemory(save("Ada lives in Rome.", request_id="once")))
    assert (error.code(), reason(error)) == (grpc.StatusCode.ALREADY_EXISTS, "REQUEST_ID_REUSED")
    same = await semantic.SaveSemanticMemory(save("  Ada  lives in Berlin. "))
    assert (same.duplicate, same.memory.memory_id) == (True, first.memory.memory_id)
    assert same.receipt.outcome == common_pb2.WRITE_OUTCOME_UNCHANGED
    assert await contents_known(semantic) == ["Ada lives in Berlin."]


async def test_where_conflicts_matter_a_full_stop_or_a_small_first_letter_makes_no_other_statement(
    semantic: Any,
) -> None:
    policies = (pb.CONFLICT_POLICY_DETECT, pb.CONFLICT_POLICY_RESOLVE)
    [known] = await know(semantic, "Ada works at Ibm")
    for content in ("Ada works at Ibm.", "ada  works at Ibm", "ada works at Ibm!"):
        for policy in policies:
            again = await semantic.SaveSemanticMemory(save(content, conflict_policy=policy))
            assert (again.duplicate, again.memory.memory_id) == (True, known.memory_id)
            assert not again.conflicts and not again.HasField("decision")

    for content in ("Ada works at IBM", "Ada works at IBM?"):
        corrected = await semantic.SaveSemanticMemory(save(content, conflict_policy=pb.CONFLICT_POLICY_RESOLVE))
        assert not corrected.duplicate
        assert await contents_known(semantic) == [content]


async def test_a_save_names_the_conflicts_or_resolves_them_as_its_policy_says(semantic: Any) -> None:
    [berlin] = await know(semantic, "Ada lives in Berlin now.", importance=0.2)
    detect = save("Ada lives in Rome now.", importance=0.9, conflict_policy=pb.CONFLICT_POLICY_DETECT)
    detected = await semantic.SaveSemanticMemory(detect)
    assert [conflict.memory_id for conflict in detected.conflicts] == [berlin.memory_id]
    assert not detected.HasField("decision")
    resolve = save("Ada lives in Oslo now.", importance=1.0, conflict_policy=pb.CONFLICT_POLICY_RESOLVE)
    resolved = await semantic.SaveSemanticMemory(resolve)
    decision = resolved.decision
    assert (decision.conflict_count, decision.result_id) == (2, resolved.memory.memory_id)
    loser = await get(semantic, decision.existing_id)
    assert loser.superseded_by == resolved.memory.memory_id
    contents = await contents_known(semantic)
    assert loser.content not in contents
    assert len(contents) == 2
    assert loser.content in await contents_known(semantic, show_superseded=True)


async def test_each_statement_of_a_bulk_stream_succeeds_or_fails_alone(semantic: Any) -> None:
    requests = [
        run_of(save("one"), save(" "), save("one"), save("two", request_id="r")),
        run_of(save("two", user="bob"), save("three", request_id="r")),
    ]
    first, second = [response async for response in semantic.BulkSaveSemanticMemories(iter(requests))]
    one, blank, repeated, two = first.results
    assert one.saved.receipt.outcome == common_pb2.WRITE_OUTCOME_CREATED
    assert (blank.error.code, blank.error.reason) == (3, errors_pb2.ERROR_REASON_INVALID_ARGUMENT)
    assert [violation.field for violation in blank.error.violations] == ["memory.content"]
    assert (repeated.saved.duplicate, repeated.saved.receipt.id) == (True, one.saved.receipt.id)
    assert two.saved.receipt.outcome == common_pb2.WRITE_OUTCOME_CREATED
    of_bob, reused = second.results
    assert not of_bob.saved.duplicate
    assert reused.error.reason == errors_pb2.ERROR_REASON_REQUEST_ID_REUSED
    assert await contents_known(semantic) == ["one", "two", "two"]


async def test_a_bulk_stream_keeps_the_order_of_a_users_statements(semantic: Any) -> None:
    # The first message takes longest to embed, and the others still wait for it.
    texts = [" ".join(f"word{i} {j}" for j in range(2000 if i == 0 else 1)) for i in range(40)]
    responses = [
        response
        async for response in semantic.BulkSaveSemanticMemories(run_of(save(text)) for text in [*texts, texts[0]])
    ]
    assert await contents_known(semantic) == texts
    assert responses[-1].results[0].saved.duplicate
    assert responses[-1].results[0].saved.receipt.id == responses[0].results[0].saved.receipt.id


async def test_a_bulk_stream_says_how_conflicts_were_decided(semantic: Any) -> None:
    saves = [
        save(f"Ada lives in {city} now.", importance=importance, conflict_policy=pb.CONFLICT_POLICY_RESOLVE)
        for city, importance in (("Berlin", 0.2), ("Rome", 0.9))
    ]
    [response] = [response async for response in semantic.BulkSaveSemanticMemories(iter([run_of(*saves)]))]
    first, second = response.results
    assert (first.saved.decision_id, str(uuid.UUID(second.saved.decision_id))) == ("", second.saved.decision_id)
    assert await contents_known(semantic) == ["Ada lives in Rome now."]


@pytest.mark.parametrize("count", [0, 1001])
async def test_an_empty_or_too_long_run_ends_the_stream(semantic: Any, count: int) -> None:
    call = semantic.BulkSaveSemanticMemories(iter([run_of(save("kept")), run_of(*[save()] * count)]))
    responses, error = await stream_end(call)
    assert (len(responses), violations(error)) == (1, {"requests"})


async def test_the_status_has_the_count_and_the_capacity(tmp_path: Path) -> None:
    async with whole_server(tmp_path, semantic_capacity=7, semantic_write_latency_target_ms=1500.0) as server:
        await know(server.semantic, "Ada lives in Berlin now.", importance=0.2)
        resolve = save("Ada lives in Rome now.", importance=0.9, conflict_policy=pb.CONFLICT_POLICY_RESOLVE)
        await server.semantic.SaveSemanticMemory(resolve)
        status = await status_of(server.semantic)
        assert (status.state, status.message) == (common_pb2.STATE_READY, "")
        assert (status.record_count, status.superseded_count, status.capacity) == (1, 1, 7)
        assert status.write_latency_target.ToMilliseconds() == 1500
        assert 0 < status.write_latency.ToNanoseconds() < 10**10
        assert (status.graph_count, status.memory_bytes > 0) == (0, True)


async def test_a_snapshot_is_written_on_request_or_has_a_reason_why_not(tmp_path: Path) -> None:
    async with whole_server(tmp_path / "few") as server:
        await know(server.semantic, "one")
        answer = await server.semantic.CreateSnapshot(pb.CreateSnapshotRequest())
        assert not answer.HasField("snapshot_time")
        assert answer.message == "an index without a graph needs no snapshot (statements: 1)"
        once = pb.CreateSnapshotRequest(request_id="once")
        first = await server.semantic.CreateSnapshot(once)
        await know(server.semantic, "two")
        again = await server.semantic.CreateSnapshot(once)
        assert (again.message, again.replayed, first.replayed) == (first.message, True, False)


async def test_only_the_status_answers_before_the_vaults_are_open() -> None:
    async with bare_server() as server:
        status = await status_of(server.semantic)
        assert (status.state, status.message) == (common_pb2.STATE_STARTING, "the server is starting")
        calls = [
            server.semantic.SaveSemanticMemory(save()),
            server.semantic.SearchSimilar(pb.SearchSimilarRequest(query="a")),
            server.semantic.CreateSnapshot(pb.CreateSnapshotRequest()),
        ]
        for call in calls:
            error = await failure_of(call)
            assert (error.code(), reason(error)) == (grpc.StatusCode.UNAVAILABLE, "NOT_SERVING")
