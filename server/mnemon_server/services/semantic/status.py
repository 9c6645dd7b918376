"""How the index of statements is, as far as the records know."""

from mnemon_server.domain.errors import MnemonError
from mnemon_server.domain.semantic import IndexState, IndexStatus
from mnemon_server.engines.base import RecordEngine


def read_status(records: RecordEngine, *, is_warm: bool, capacity: int, write_latency_target_s: float) -> IndexStatus:
    """The status without what holds writes back; tries to open the records anew where they failed. Blocks.

    Raises whatever reading the records does.
    """
    problem = _failure(records)
    usage, stats = records.vector_usage(), records.stats()
    in_graph = usage.graph_count + usage.building_count
    state = IndexState.READY if is_warm else IndexState.WARMING
    return IndexStatus(
        state=IndexState.DEGRADED if problem else state,
        message=problem or ("" if is_warm else warming_message(records)),
        record_count=stats.passage_count,
        superseded_count=stats.document_count - stats.passage_count,
        indexed_count=stats.passage_count if is_warm else min(in_graph, stats.passage_count),
        total_count=stats.passage_count,
        capacity=capacity,
        write_latency_target_s=write_latency_target_s,
        memory_bytes=usage.bytes,
        graph_count=usage.graph_count,
        snapshot_time=usage.snapshot_time,
    )


def warming_message(records: RecordEngine) -> str:
    """How far the index has come."""
    usage, total = records.vector_usage(), records.stats().passage_count
    indexed = min(usage.graph_count + usage.building_count, total)
    return f"the index is warming up: it has {indexed:,} of {total:,} vectors"


def _failure(records: RecordEngine) -> str:
    if records.failure():
        try:
            records.recover()
        except MnemonError as error:
            return str(error)
    return ""
