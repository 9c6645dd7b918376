"""Counts removed documents whose text may still be in files."""

from typing import TypedDict

from mnemon_server.engines.promises.records import RecordEngine
from mnemon_server.services.search.index_applier import IndexApplier


class RemovalCounts(TypedDict):
    """The counts as fields of a status."""

    removal_pending_count: int
    removal_out_of_reach_count: int


def removal_counts(records: RecordEngine, applier: IndexApplier | None) -> RemovalCounts:
    """How many removed documents are still in the server's own files, and how many in an external vector database."""
    pending, out_of_reach = records.removals_pending(), 0
    if applier is not None and applier.index.belongs_to_records:
        # The same document may still be in both, so the counts must not be added.
        pending = max(pending, applier.removals())
    elif applier is not None:
        out_of_reach = applier.removals()
    return {"removal_pending_count": pending, "removal_out_of_reach_count": out_of_reach}
