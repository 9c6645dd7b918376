"""Memories and requests about them are converted to messages and back without loss."""

from datetime import UTC, datetime

from mnemon.v1 import common_pb2
from mnemon.v1 import memory_pb2 as pb
from mnemon_server.domain.documents import HealthStatus
from mnemon_server.domain.memories import (
    DecayPolicy,
    Memory,
    MemoryMatch,
    MemorySearchAnswer,
    MemoryStatus,
)
from mnemon_server.domain.records import Scope, SearchDiagnostics, SearchMode
from mnemon_server.transport.convert import memories as convert
from mnemon_server.transport.convert import memories as requests

CREATED, UPDATED, REINFORCED, DELETED = (datetime(2026, 1, day, 3, 4, 5, 678, UTC) for day in (1, 2, 3, 4))
MEMORY = Memory(
    memory_id="m-1",
    content="Ada prefers window seats.",
    scope=Scope("ada", "home", "butler", "claude", "trip"),
    personality="engineer",
    type="preference",
    is_global=True,
    decay_policy=DecayPolicy.REINFORCEABLE,
    metadata={"topic": "travel", "rank": 5, "sure": 0.5, "open": False, "tags": ("a", "b"), "seen": CREATED},
    confidence=0.75,
    revision=4,
    create_time=CREATED,
    update_time=UPDATED,
    reinforce_time=REINFORCED,
    delete_time=DELETED,
)
DIAGNOSTICS = SearchDiagnostics(mode=SearchMode.HYBRID, exact=True, scanned=9)


def message_of(memory: Memory) -> pb.Memory:
    """The memory as it is received."""
    message = pb.Memory()
    convert.fill_memory(message, memory)
    return pb.Memory.FromString(message.SerializeToString())


def test_fields_that_only_the_server_sets_are_ignored_in_requests() -> None:
    came = requests.read_create(pb.CreateMemoryRequest(memory=message_of(MEMORY))).memory
    assert (came.confidence, came.revision, came.reinforce_time, came.delete_time) == (1.0, 0, None, None)
    assert came.create_time == Memory("", "").create_time


async def test_a_match_that_was_not_compared_has_no_scores_and_a_score_of_zero_is_kept() -> None:
    bare = MemoryMatch(MEMORY, 0.5)
    whole = MemoryMatch(MEMORY, 0.25, similarity=0.0, distance=0.0, keyword_score=0.0)
    answer = await convert.answer_to_pb(MemorySearchAnswer((bare, whole), DIAGNOSTICS))
    assert (answer.diagnostics.returned, answer.diagnostics.scanned) == (2, 9)
    first, second = answer.results
    assert (first.score, first.HasField("distance")) == (common_pb2.Score(relevance=0.5), False)
    assert (second.score, second.HasField("distance")) == (common_pb2.Score(relevance=0.25, vector=0, keyword=0), True)
    assert not second.HasField("explanation")


def test_the_status_has_every_field() -> None:
    status = MemoryStatus(
        status=HealthStatus.UNHEALTHY, error="e", backend="chromadb", host="h", collection="c",
        memory_count=1, deleted_count=2, flat_count=3, graph_count=4, dead_count=5, index_bytes=6,
        snapshot_time=CREATED, pending=7, removal_pending_count=8, removal_out_of_reach_count=9,
    )  # fmt: skip
    message = convert.status_to_pb(status)
    assert (message.state, message.message, message.backend) == (common_pb2.STATE_UNAVAILABLE, "e", "chromadb")
    assert (message.host, message.collection, message.memory_count, message.deleted_count) == ("h", "c", 1, 2)
    index = message.index
    assert (index.flat_count, index.graph_count, index.dead_count) == (3, 4, 5)
    assert (index.memory_bytes, index.pending_count) == (6, 7)
    assert (index.removal_pending_count, index.removal_out_of_reach_count) == (8, 9)
    assert index.snapshot_time.ToDatetime(UTC) == CREATED
    for status, state in (("healthy", "READY"), ("starting", "STARTING"), ("degraded", "DEGRADED")):
        message = convert.status_to_pb(MemoryStatus(status=HealthStatus(status), backend="", host="", collection=""))
        assert common_pb2.State.Name(message.state) == f"STATE_{state}"
        assert not message.index.HasField("snapshot_time")
