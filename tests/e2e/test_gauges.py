"""Each gauge of waiting work and held resources rises and falls with what it measures."""

import asyncio
import threading
from collections.abc import Awaitable
from http.server import BaseHTTPRequestHandler
from pathlib import Path

import pytest
from mnemon.v1 import changes_pb2, changes_pb2_grpc, knowledge_store_pb2
from mnemon.v1 import memory_pb2 as pb

from tests.support.chroma_server import ChromaServer
from tests.support.embedding_endpoint import embedding, settings_for
from tests.support.measured import Key, Measured, key, measured
from tests.support.server import WAIT_S, eventually, until
from tests.support.slow_disk import slow_disk
from tests.support.tool_endpoints import tool_server

CALLS = key("calls_in_progress")
WRITES, TEXTS = key("writes_waiting"), key("embedding_waiting_texts")
LIVE, DEAD, BUILDING = (
    key("index_vectors", collection="memory", state=state) for state in ("live", "dead", "building")
)
PENDING = key("index_pending_changes", collection="document")
CONCURRENT, BYTES = (key(f"tenant_{name}", tenant="default") for name in ("concurrent_calls", "bytes_in_flight"))
STREAMS, RECORDS, DISK = (key(f"tenant_{name}", tenant="default") for name in ("open_streams", "records", "disk_bytes"))
IN_GRAPH = 40
BUILT = 10_000
"""The graph of so many takes seconds to build."""


def creation(content: str) -> pb.CreateMemoryRequest:
    """A request to store a memory."""
    return pb.CreateMemoryRequest(memory=pb.Memory(content=content))


def document(doc_id: str) -> knowledge_store_pb2.IndexDocumentRequest:
    """A request to store a document."""
    return knowledge_store_pb2.IndexDocumentRequest(document={"doc_id": doc_id, "content": "Ada likes tea"})


def shown(server: Measured, expected: dict[Key, float]) -> Awaitable[None]:
    """Waits until the page shows these."""

    async def is_so() -> bool:
        page = await server.page()
        return {name: page.get(name) for name in expected} == expected

    return eventually(is_so)


async def test_writes_that_wait_for_the_disk(tmp_path: Path) -> None:
    with slow_disk() as disk:
        async with measured(tmp_path) as server:
            await server.connection.memories.CreateMemory(creation("the vault is open"))
            await shown(server, {CALLS: 0, CONCURRENT: 0, WRITES: 0, BYTES: 0})
            disk.gate.clear()
            first = asyncio.ensure_future(server.connection.memories.CreateMemory(creation("is being written")))
            await until(lambda: disk.waiting)
            later = [server.connection.memories.CreateMemory(creation(f"waits {number}")) for number in range(3)]
            await shown(server, {CALLS: 4, CONCURRENT: 4, WRITES: 3})
            assert (await server.page())[BYTES] >= 4 * len(creation("waits 0").SerializeToString())
            disk.gate.set()
            await asyncio.gather(first, *later)
            await shown(server, {CALLS: 0, CONCURRENT: 0, WRITES: 0, BYTES: 0})


async def test_texts_that_wait_for_the_embedding_model(tmp_path: Path) -> None:
    gate, embed = threading.Event(), embedding()

    def answer(handler: BaseHTTPRequestHandler) -> None:
        assert gate.wait(WAIT_S)
        embed(handler)

    gate.set()
    with tool_server(answer) as endpoint:
        async with measured(tmp_path, **settings_for(endpoint.port)) as server:
            await server.connection.memories.CreateMemory(creation("red boat"))
            gate.clear()
            calls = [server.connection.memories.CreateMemory(creation(text)) for text in ("red", "boat", "green")]
            await shown(server, {TEXTS: 3, CALLS: 3})
            gate.set()
            await asyncio.gather(*calls)
            await shown(server, {TEXTS: 0, CALLS: 0})


async def test_vectors_that_are_removed_stay_in_a_graph_for_a_while(tmp_path: Path) -> None:
    async with measured(tmp_path, graph_vectors_min=IN_GRAPH) as server:
        stored = [await server.connection.memories.CreateMemory(creation(f"number {n}")) for n in range(IN_GRAPH)]
        ids = [each.memory.memory_id for each in stored]

        async def removed(*memory_ids: str) -> None:
            for memory_id in memory_ids:
                await server.connection.memories.DeleteMemory(pb.DeleteMemoryRequest(memory_id=memory_id))

        async def are_in_graph() -> bool:
            """Before that, removed vectors leave nothing dead."""
            index = (await server.connection.memories.GetStatus(pb.GetStatusRequest())).index
            return bool(index.graph_count == IN_GRAPH)

        await eventually(are_in_graph)
        await removed(ids.pop())
        await shown(server, {LIVE: len(ids), DEAD: 1})
        # The graph is rebuilt when a quarter of it is dead.
        await removed(*(ids.pop() for _ in range(IN_GRAPH // 4)))
        await shown(server, {LIVE: len(ids), DEAD: 0})


@pytest.mark.monitoring
async def test_vectors_of_a_graph_that_is_being_built(tmp_path: Path) -> None:
    async with measured(tmp_path, graph_vectors_min=BUILT) as server:
        requests = [creation(f"number {number}") for number in range(BUILT)]
        messages = [pb.BulkCreateMemoriesRequest(requests=requests[i : i + 1_000]) for i in range(0, BUILT, 1_000)]

        async def store() -> int:
            call = server.connection.memories.BulkCreateMemories(iter(messages))
            return sum([len(answer.results) async for answer in call])

        stored = asyncio.create_task(store())

        async def is_building() -> bool:
            return 0 < (await server.page())[BUILDING] <= BUILT

        await eventually(is_building)
        assert await stored == BUILT
        await shown(server, {LIVE: BUILT, DEAD: 0, BUILDING: 0})


async def test_what_a_tenant_with_a_quota_stores_and_has_open(tmp_path: Path) -> None:
    async with measured(tmp_path, quotas_per_tenant=("records=1000",)) as server:
        await server.connection.memories.CreateMemory(creation("one"))
        await shown(server, {RECORDS: 1, STREAMS: 0})
        assert (await server.page())[DISK] > 4096
        stub = changes_pb2_grpc.ChangeServiceStub(server.connection.channel)
        stream = stub.WatchChanges(changes_pb2.WatchChangesRequest())
        await stream.read()
        await shown(server, {STREAMS: 1})
        await server.connection.memories.CreateMemory(creation("two"))
        await shown(server, {RECORDS: 2})
        stream.cancel()
        await shown(server, {STREAMS: 0})


@pytest.mark.monitoring
async def test_changes_that_chromadb_has_not_seen(tmp_path: Path) -> None:
    with ChromaServer(tmp_path / "chroma" / "data") as chroma:
        terms = {"knowledge_store_backend": "chromadb", "chroma_host": chroma.host, "chroma_port": chroma.port}
        async with measured(tmp_path / "data", **terms) as server:
            documents = server.connection.store
            await documents.IndexDocument(document("one"))
            await shown(server, {PENDING: 0})
            chroma.hang()
            await documents.IndexDocument(document("two"))
            await shown(server, {PENDING: 1})
            chroma.go_on()
            await shown(server, {PENDING: 0})
