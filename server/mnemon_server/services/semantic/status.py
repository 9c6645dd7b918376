"""The status of the index of statements, as far as the records know it, and the answers about its snapshots."""

import json
from datetime import datetime

from mnemon_server.domain.clock import from_microseconds, to_microseconds
from mnemon_server.domain.errors import MnemonError
from mnemon_server.domain.semantic import IndexState, IndexStatus, Snapshot
from mnemon_server.engines.promises.records import RecordEngine
from mnemon_server.engines.promises.values import RecordStats
from mnemon_server.engines.promises.vault import TransactionReceipt

WARMING = "the index is warming up"


def read_status(
    records: RecordEngine, *, is_warm: bool, capacity: int, write_latency_target_s: float, judge_failed_count: int
) -> IndexStatus:
    """The status without the reasons that hold writes back. If the records failed, opens them again. Blocks.

    Raises the errors of reading the records.
    """
    problem = _failure(records)
    usage, stats = records.vector_usage(), records.stats()
    in_graph = usage.graph_count + usage.building_count
    state = IndexState.READY if is_warm else IndexState.STARTING
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
        judge_failed_count=judge_failed_count,
    )


def warming_message(records: RecordEngine) -> str:
    """The progress of the index while it is being loaded or built."""
    usage, total = records.vector_usage(), records.stats().passage_count
    indexed = min(usage.graph_count + usage.building_count, total)
    return f"{WARMING}: it has {indexed:,} of {total:,} vectors"


def snapshot_answer(time: datetime | None, stats: RecordStats) -> str:
    """The stored answer to a request for a snapshot."""
    if time is not None:
        return json.dumps([to_microseconds(time), ""])
    return json.dumps([None, f"an index without a graph needs no snapshot (statements: {stats.passage_count:,})"])


def snapshot_of(receipt: TransactionReceipt) -> Snapshot:
    """The answer, whether to the first call or to a replay."""
    microseconds, message = json.loads(receipt.answer)
    time = None if microseconds is None else from_microseconds(microseconds)
    return Snapshot(time, message, receipt.replayed)


def _failure(records: RecordEngine) -> str:
    if records.failure():
        try:
            records.recover()
        except MnemonError as error:
            return str(error)
    return ""
