"""How much of what was removed may still be in files."""

from typing import TypedDict

from mnemon_server.engines.promises.records import RecordEngine
from mnemon_server.services.search.index_applier import IndexApplier


class RemovalCounts(TypedDict):
    """What a status says of it."""

    removal_pending_count: int
    removal_out_of_reach_count: int


def removal_counts(records: RecordEngine, applier: IndexApplier | None) -> RemovalCounts:
    """What is to leave the files of the server, and what is in those of a server of somebody else."""
    pending, out_of_reach = records.removals_pending(), 0
    if applier is not None and applier.index.belongs_to_records:
        # A document may wait for both.
        pending = max(pending, applier.removals())
    elif applier is not None:
        out_of_reach = applier.removals()
    return {"removal_pending_count": pending, "removal_out_of_reach_count": out_of_reach}
