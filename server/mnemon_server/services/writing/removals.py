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
    out_of_reach = 0 if applier is None else applier.removals()
    return {"removal_pending_count": records.removals_pending(), "removal_out_of_reach_count": out_of_reach}
