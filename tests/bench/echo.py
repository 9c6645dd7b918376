"""A bare `grpc.aio` server that echoes requests: the baseline for our server.

python -m tests.bench.echo 127.0.0.1:50052
"""

import asyncio
import signal
import sys
from typing import Any

from grpc import aio
from mnemon.v1 import (
    common_pb2,
    episodic_pb2,
    episodic_pb2_grpc,
    facts_pb2,
    facts_pb2_grpc,
    memory_pb2,
    memory_pb2_grpc,
    semantic_pb2,
    semantic_pb2_grpc,
)
from mnemon_server.transport.options import STREAMS_PER_CONNECTION_MAX


class Echo(memory_pb2_grpc.MemoryServiceServicer):
    """The same messages as the real service, parsed and written, without any work."""

    def __init__(self) -> None:
        self._memory = memory_pb2.Memory()

    async def CreateMemory(self, request: Any, context: Any) -> Any:  # noqa: N802
        """Answers with the memory of the request."""
        self._memory = request.memory
        return memory_pb2.CreateMemoryResponse(memory=request.memory)

    async def BulkCreateMemories(self, requests: Any, context: Any) -> Any:  # noqa: N802
        """Answers with a receipt for each memory."""
        async for request in requests:
            receipt = common_pb2.WriteReceipt(id="0" * 36, revision=1, commit_time={"seconds": 1})
            results = [memory_pb2.CreateMemoryResult(receipt=receipt) for _ in request.requests]
            yield memory_pb2.BulkCreateMemoriesResponse(results=results)

    async def GetMemory(self, request: Any, context: Any) -> Any:  # noqa: N802
        """Answers with the newest memory."""
        return memory_pb2.GetMemoryResponse(memory=self._memory)

    async def SearchMemories(self, request: Any, context: Any) -> Any:  # noqa: N802
        """Answers with the newest memory, repeated to the requested number of results."""
        match = memory_pb2.MemoryMatch(memory=self._memory, score={"relevance": 0.9})
        return memory_pb2.SearchMemoriesResponse(results=[match] * request.limit)


class SemanticEcho(semantic_pb2_grpc.SemanticMemoryServiceServicer):
    """The same for statements."""

    def __init__(self) -> None:
        self._match = semantic_pb2.SemanticMatch()

    async def SaveSemanticMemory(self, request: Any, context: Any) -> Any:  # noqa: N802
        """Answers with the statement of the request."""
        self._match = semantic_pb2.SemanticMatch(memory=request.memory, score={"relevance": 0.9})
        return semantic_pb2.SaveSemanticMemoryResponse(memory=request.memory)

    async def SearchSimilar(self, request: Any, context: Any) -> Any:  # noqa: N802
        """Answers with the newest statement, repeated to the requested number of results."""
        return semantic_pb2.SearchSimilarResponse(results=[self._match] * request.limit)


class EpisodicEcho(episodic_pb2_grpc.EpisodicMemoryServiceServicer):
    """The same for events of the timeline."""

    def __init__(self) -> None:
        self._event = episodic_pb2.EpisodicEvent()
        self._window: episodic_pb2.QueryWindowResponse | None = None

    async def RecordEvent(self, request: Any, context: Any) -> Any:  # noqa: N802
        """Answers with a receipt."""
        self._event, self._window = request.event, None
        return episodic_pb2.RecordEventResponse(receipt=_receipt())

    async def BulkRecordEvents(self, requests: Any, context: Any) -> Any:  # noqa: N802
        """Answers with a receipt for each event."""
        async for request in requests:
            results = [episodic_pb2.RecordEventResult(receipt=_receipt()) for _ in request.requests]
            yield episodic_pb2.BulkRecordEventsResponse(results=results)

    async def QueryWindow(self, request: Any, context: Any) -> Any:  # noqa: N802
        """Answers with the newest event, fifty times."""
        if self._window is None:
            self._window = episodic_pb2.QueryWindowResponse(results=[episodic_pb2.EventMatch(event=self._event)] * 50)
        return self._window


class FactEcho(facts_pb2_grpc.FactServiceServicer):
    """The same for facts."""

    def __init__(self) -> None:
        self._fact = facts_pb2.Fact()

    async def PutFact(self, request: Any, context: Any) -> Any:  # noqa: N802
        """Answers with the fact of the request."""
        self._fact = request.fact
        return facts_pb2.PutFactResponse(fact=request.fact)

    async def GetFact(self, request: Any, context: Any) -> Any:  # noqa: N802
        """Answers with the newest fact."""
        return facts_pb2.GetFactResponse(fact=self._fact)


def _receipt() -> episodic_pb2.EventReceipt:
    return episodic_pb2.EventReceipt(
        event_id="0" * 36, sequence=1 << 20, segment_id=1 << 20, commit_time={"seconds": 1}
    )


async def serve(address: str) -> None:
    """Serves until SIGTERM."""
    stopped = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stopped.set)
    # As many streams on a connection as ours takes.
    server = aio.server(options=[("grpc.max_concurrent_streams", STREAMS_PER_CONNECTION_MAX)])
    memory_pb2_grpc.add_MemoryServiceServicer_to_server(Echo(), server)
    semantic_pb2_grpc.add_SemanticMemoryServiceServicer_to_server(SemanticEcho(), server)
    episodic_pb2_grpc.add_EpisodicMemoryServiceServicer_to_server(EpisodicEcho(), server)
    facts_pb2_grpc.add_FactServiceServicer_to_server(FactEcho(), server)
    server.add_insecure_port(address)
    await server.start()
    await stopped.wait()
    await server.stop(None)


if __name__ == "__main__":
    import uvloop

    uvloop.run(serve(sys.argv[1]))
