"""The page of metrics: each figure moves when what it measures happens."""

import re
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import httpx
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc
from mnemon.v1 import changes_pb2, changes_pb2_grpc, common_pb2, episodic_pb2
from mnemon.v1 import memory_pb2 as pb

from tests.support.access import bearer, make_key
from tests.support.measured import Key, key, measured
from tests.support.repository import ROOT
from tests.support.server import eventually, whole_server

MEMORIES = "mnemon.v1.MemoryService"


def creation(content: str = "Ada likes tea") -> pb.CreateMemoryRequest:
    """A request to store a memory."""
    return pb.CreateMemoryRequest(memory=pb.Memory(content=content))


def grown(before: dict[Key, float], after: dict[Key, float], *keys: Key) -> list[float]:
    """By how much samples have grown."""
    return [after.get(each, 0.0) - before.get(each, 0.0) for each in keys]


async def test_calls_are_counted_by_method_and_status(tmp_path: Path) -> None:
    async with measured(tmp_path) as server:
        for _ in range(2):
            await server.connection.memories.CreateMemory(creation())
        await server.connection.memories.GetMemory(pb.GetMemoryRequest(memory_id="none")).code()
        for number in range(3):
            await server.connection.channel.unary_unary(f"/mnemon.v1.Invented/Method{number}")(b"").code()
        page = await server.page()
    created = {"service": MEMORIES, "method": "CreateMemory", "code": "OK"}
    missing = {"service": MEMORIES, "method": "GetMemory", "code": "NOT_FOUND"}
    assert page[key("rpc_seconds_count", **created)] == page[key("rpc_seconds_bucket", le="+Inf", **created)] == 2
    assert page[key("rpc_seconds_count", **missing)] == 1
    assert page[key("rpc_seconds_sum", **created)] > 0
    # Clients could invent any number of names.
    assert page[key("rpc_seconds_count", service="unknown", method="unknown", code="UNIMPLEMENTED")] == 3
    assert not [name for name, labels in page if "Invented" in str(labels)]


async def test_calls_of_health_and_reflection_are_not_counted(tmp_path: Path) -> None:
    async with measured(tmp_path) as server:
        channel = server.connection.channel
        assert await health_pb2_grpc.HealthStub(channel).Check(health_pb2.HealthCheckRequest())
        asked = iter([reflection_pb2.ServerReflectionRequest(list_services="")])
        assert [one async for one in reflection_pb2_grpc.ServerReflectionStub(channel).ServerReflectionInfo(asked)]
        await server.connection.memories.CreateMemory(creation())
        page = await server.page()
    assert {dict(labels)["service"] for _, labels in page if "service" in dict(labels)} == {MEMORIES}


async def test_streams_commits_and_the_delay_of_watchers_are_measured(tmp_path: Path) -> None:
    watch = {"service": "mnemon.v1.ChangeService", "method": "WatchChanges", "direction": "sent"}
    counts = (key("stream_messages_total", **watch), key("stream_bytes_total", **watch), key("watch_lag_seconds_count"))
    commits = (key("commit_writes_sum"), key("commit_seconds_count"), key("embedding_batch_texts_sum"))
    async with measured(tmp_path) as server:
        stream: Any = changes_pb2_grpc.ChangeServiceStub(server.connection.channel).WatchChanges(
            changes_pb2.WatchChangesRequest()
        )
        assert (await stream.read()).HasField("started")
        before = await server.page()
        await server.connection.memories.CreateMemory(creation())
        while not (await stream.read()).HasField("batch"):
            pass
        after = await server.page()
        assert after[key("streams_open")] == 1
        messages, size, lags = grown(before, after, *counts)
        assert messages >= 1 and size > 50 and lags == 1
        assert all(each >= 1 for each in grown(before, after, *commits))
        assert after[key("embedding_batch_seconds_count")] > before[key("embedding_batch_seconds_count")]
        stream.cancel()

        async def is_closed() -> bool:
            return (await server.page())[key("streams_open")] == 0

        await eventually(is_closed)

        async def requests() -> AsyncIterator[pb.BulkCreateMemoriesRequest]:
            yield pb.BulkCreateMemoriesRequest(requests=[creation("Ada likes cake"), creation("Ada has a boat")])

        assert [each async for each in server.connection.memories.BulkCreateMemories(requests())]
        bulk = {"service": MEMORIES, "method": "BulkCreateMemories", "direction": "received"}
        assert (await server.page())[key("stream_messages_total", **bulk)] == 1


async def test_what_vaults_hold_is_shown(tmp_path: Path) -> None:
    async with measured(tmp_path, bridge_enabled=False) as server:
        stored = await server.connection.memories.CreateMemory(creation())
        event = episodic_pb2.EpisodicEvent(
            event_type="conversation", content="Ada moved to Bern", importance=0.9, scope=common_pb2.Scope(user="ada")
        )
        event.event_time.FromDatetime(datetime(2024, 1, 1, tzinfo=UTC))
        await server.connection.episodic.RecordEvent(episodic_pb2.RecordEventRequest(event=event))
        page = await server.page()
        assert page[key("index_vectors", collection="memory", state="live")] == 1
        assert page[key("index_bytes", collection="memory")] >= 4 * 384
        assert page[key("vaults_open")] == 1
        assert page[key("bridge_waiting_events")] == 1
        await server.connection.memories.DeleteMemory(pb.DeleteMemoryRequest(memory_id=stored.memory.memory_id))
        assert (await server.page())[key("index_vectors", collection="memory", state="live")] == 0
        assert page[("process_open_fds", ())] > 0


async def test_tenants_have_figures_of_their_own(tmp_path: Path) -> None:
    secrets = {tenant: make_key(tmp_path, "writer", tenant=tenant) for tenant in ("acme", "bolt")}
    limited = {"authentication": ("api_key",), "quotas_per_tenant": ("calls_per_second=0.001", "calls_burst=3")}
    async with measured(tmp_path, **limited) as server:
        for tenant, secret in secrets.items():
            for _ in range(3 if tenant == "acme" else 5):
                await server.connection.memories.CreateMemory(creation(), metadata=bearer(secret)).code()
        page = await server.page()
    assert [page[key("tenant_calls_total", tenant=tenant)] for tenant in secrets] == [3, 3]
    assert [page[key("tenant_refused_calls_total", tenant=tenant)] for tenant in secrets] == [0, 2]
    assert page[key("tenant_embedding_seconds_total", tenant="acme")] > 0


async def test_the_document_has_every_metric_of_the_page_and_no_other(tmp_path: Path) -> None:
    document = (ROOT / "server/MONITORING.md").read_text(encoding="utf-8")
    async with measured(tmp_path) as server, httpx.AsyncClient(base_url=server.url) as client:
        await server.connection.memories.CreateMemory(creation())
        shown = set(re.findall(r"^# TYPE (mnemon_\w+) ", (await client.get("/metrics")).text, re.MULTILINE))
    assert shown == set(re.findall(r"^\| `(mnemon_\w+)` ", document, re.MULTILINE))


async def test_without_an_address_nothing_is_measured(tmp_path: Path) -> None:
    async with whole_server(tmp_path) as connection:
        assert connection.server.metrics_address is None


async def test_only_pages_are_served_there(tmp_path: Path) -> None:
    async with measured(tmp_path) as server, httpx.AsyncClient(base_url=server.url) as client:
        assert [(await client.get(path)).status_code for path in ("/healthz", "/readyz")] == [200, 200]
        assert (await client.post(f"/{MEMORIES}/CountMemories", json={})).status_code == 404
        # Another website could otherwise let its name point to this machine.
        assert (await client.get("/metrics", headers={"host": "evil.example"})).status_code == 421
        assert await server.connection.memories.CountMemories(pb.CountMemoriesRequest())
