"""The status of the memory service, of its records and of its vector index."""

from mnemon_server.domain.documents import HealthStatus
from mnemon_server.domain.errors import MnemonError
from mnemon_server.domain.filters import RecordFilter
from mnemon_server.domain.memories import MemoryStatus
from mnemon_server.engines.promises.records import RecordEngine
from mnemon_server.services.search.index_applier import status_of_index
from mnemon_server.services.search.settings import VectorBackend
from mnemon_server.services.shared.removals import removal_counts

EMBEDDED = "embedded"


def read_status(records: RecordEngine, backend: VectorBackend, problem: str) -> MemoryStatus:
    """The status, with the index's problem. If the records failed, opens them again.

    Blocks, and raises if they cannot be read.
    """
    applier = backend.applier
    if unreadable := _records_problem(records):
        return unhealthy(backend, unreadable)
    usage = records.vector_usage()
    return MemoryStatus(
        status=status_of_index(problem),
        error=problem,
        backend=backend.name,
        host=_host(backend),
        collection=backend.collection,
        memory_count=records.count_documents(RecordFilter()),
        deleted_count=records.count_documents(RecordFilter(hidden=True)),
        flat_count=usage.flat_count,
        graph_count=usage.graph_count,
        dead_count=usage.dead_count,
        index_bytes=usage.bytes,
        snapshot_time=usage.snapshot_time,
        pending=applier.pending() if applier else 0,
        **removal_counts(records, applier),
    )


def unhealthy(backend: VectorBackend, problem: str) -> MemoryStatus:
    """The status of a service that cannot answer."""
    return MemoryStatus(
        status=HealthStatus.UNHEALTHY,
        error=problem,
        backend=backend.name,
        host=_host(backend),
        collection=backend.collection,
    )


def _host(backend: VectorBackend) -> str:
    return backend.applier.index.host if backend.applier else EMBEDDED


def _records_problem(records: RecordEngine) -> str:
    if records.failure():
        try:
            records.recover()
        except MnemonError as error:
            return str(error)
    return ""
