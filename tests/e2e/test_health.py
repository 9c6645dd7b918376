"""Health: what the standard service reports while the server starts, serves, fails, recovers and stops."""

import asyncio
import socket
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, closing
from pathlib import Path
from typing import Any

import grpc
import pytest
from grpc_health.v1 import health_pb2
from mnemon.v1 import common_pb2
from mnemon.v1 import knowledge_store_pb2 as pb
from mnemon_server.domain.access import DEFAULT_TENANT
from mnemon_server.domain.collections import DOCUMENTS
from mnemon_server.embedding.batcher import EmbeddingBatcher
from mnemon_server.embedding.factory import HashingEmbedder
from mnemon_server.engines.sqlite_vault import SQLiteVault
from mnemon_server.services.documents.store import DocumentStore
from mnemon_server.services.vaults import OpenVault, VaultPool

from tests.support.faulty_vfs import FaultyVFS
from tests.support.open_vaults import open_vault_with
from tests.support.server import (
    Connection,
    bare_server,
    failure_of,
    health_of,
    reason,
    run_command,
    until,
    whole_server,
)

SERVICE = "mnemon.v1.KnowledgeStoreService"
READY_NAMES = (
    "",
    "readiness",
    SERVICE,
    "mnemon.v1.MemoryService",
    "mnemon.v1.SemanticMemoryService",
    "mnemon.v1.ConflictService",
    "mnemon.v1.RulesService",
    "mnemon.v1.EpisodicMemoryService",
    "mnemon.v1.BridgeService",
    "mnemon.v1.FactService",
    "mnemon.v1.ToolService",
    "mnemon.v1.ArchiveService",
    "mnemon.v1.BackupService",
    "mnemon.v1.EraseService",
    "mnemon.v1.QuarantineService",
    "mnemon.v1.RecallService",
    "mnemon.v1.ConversationService",
    "mnemon.v1.ChangeService",
    "mnemon.v1.ServerService",
    "mnemon.v1.AccessService",
    "mnemon.v1.TenantService",
)


@pytest.fixture
def disk(request: pytest.FixtureRequest) -> Iterator[FaultyVFS]:
    """A disk that can be made to fail. SQLite's encryption keeps its name for good, so each test has its own."""
    disk = FaultyVFS(request.node.name)
    yield disk
    disk.unregister()


async def test_a_starting_server_is_alive_but_not_ready() -> None:
    async with bare_server() as connection:
        assert await _all(connection) == {"liveness": "SERVING", **dict.fromkeys(READY_NAMES, "NOT_SERVING")}
        error = await failure_of(connection.store.GetDocument(pb.GetDocumentRequest(doc_id="a")))
        assert (error.code(), reason(error)) == (grpc.StatusCode.UNAVAILABLE, "NOT_SERVING")
        assert ("grpc-retry-pushback-ms", "1000") in tuple(error.trailing_metadata())
        answer = await connection.store.CheckHealth(pb.CheckHealthRequest())
        assert (answer.state, answer.message) == (common_pb2.STATE_UNAVAILABLE, "the server is starting")


async def test_a_server_with_an_open_store_serves_under_every_name(tmp_path: Path) -> None:
    async with whole_server(tmp_path) as connection:
        names = ("liveness", *READY_NAMES)
        assert await _all(connection) == dict.fromkeys(names, "SERVING")
        for name in names:
            assert await health_of(connection, name) == "SERVING"


async def test_a_stopping_server_reports_it_first(tmp_path: Path) -> None:
    async with whole_server(tmp_path) as connection:
        watch = connection.health.Watch(health_pb2.HealthCheckRequest(service=SERVICE))
        assert (await watch.read()).status == health_pb2.HealthCheckResponse.SERVING
        await connection.server.shut_down()
        assert (await watch.read()).status == health_pb2.HealthCheckResponse.NOT_SERVING


async def test_a_store_with_a_failed_disk_is_alive_but_not_ready_until_it_recovers(
    tmp_path: Path, disk: FaultyVFS
) -> None:
    async with _served_from(tmp_path, disk) as connection:
        watch = connection.health.Watch(health_pb2.HealthCheckRequest(service=SERVICE))
        assert (await watch.read()).status == health_pb2.HealthCheckResponse.SERVING

        # The disk fails once, and the files on it cannot be opened for a while afterwards.
        database, aside = tmp_path / "records.db", tmp_path / "aside.db"
        database.rename(aside)
        database.mkdir()
        disk.fail_sync_at = disk.syncs + 1
        document = pb.Document(doc_id="a", content="text")
        error = await failure_of(connection.store.IndexDocument(pb.IndexDocumentRequest(document=document)))
        assert (error.code(), reason(error)) == (grpc.StatusCode.UNAVAILABLE, "STORAGE_FAILED")
        assert (await watch.read()).status == health_pb2.HealthCheckResponse.NOT_SERVING
        assert await _all(connection) == {"liveness": "SERVING", **dict.fromkeys(READY_NAMES, "NOT_SERVING")}

        database.rmdir()
        aside.rename(database)
        assert (await watch.read()).status == health_pb2.HealthCheckResponse.SERVING
        watch.cancel()


async def test_a_full_disk_is_unhealthy_until_it_has_room_again(tmp_path: Path, disk: FaultyVFS) -> None:
    async with _served_from(tmp_path, disk) as connection:
        watch = connection.health.Watch(health_pb2.HealthCheckRequest(service=SERVICE))
        assert (await watch.read()).status == health_pb2.HealthCheckResponse.SERVING
        disk.fail_write_at, disk.failures = disk.writes + 1, 1_000_000
        document = pb.Document(doc_id="a", content="text")
        error = await failure_of(connection.store.IndexDocument(pb.IndexDocumentRequest(document=document)))
        assert reason(error) == "STORAGE_FULL"
        answer = await connection.store.CheckHealth(pb.CheckHealthRequest())
        assert answer.state == common_pb2.STATE_UNAVAILABLE
        assert "no space is left on the disk" in answer.message
        assert (await watch.read()).status == health_pb2.HealthCheckResponse.NOT_SERVING

        disk.fail_write_at = 0
        assert (await watch.read()).status == health_pb2.HealthCheckResponse.SERVING
        watch.cancel()


async def test_health_answers_while_documents_are_indexed_at_full_load(tmp_path: Path) -> None:
    async with whole_server(tmp_path) as connection:
        text = "All work and no play makes Jack a dull boy. " * 500
        requests = [
            pb.BulkIndexDocumentsRequest(
                requests=[
                    pb.IndexDocumentRequest(document=pb.Document(doc_id=f"{i}-{j}", content=f"{i} {j} {text}"))
                    for j in range(20)
                ]
            )
            for i in range(4)
        ]
        stream = connection.store.BulkIndexDocuments(iter(requests))
        checks = 0
        receiving = asyncio.create_task(_read_all(stream))
        while not receiving.done():
            assert await health_of(connection) == "SERVING"
            checks += 1
        # If checks had to wait for the work, there would be one for each of the four messages.
        assert checks > 10
        responses = await receiving
        assert [len(response.results) for response in responses] == [20] * 4
        assert all(result.HasField("receipt") for response in responses for result in response.results)


async def test_the_health_command_prints_serving_or_the_reason(tmp_path: Path) -> None:
    # The check runs so rarely that the status set here stays.
    async with whole_server(tmp_path, health_check_interval_s=3_600) as connection:
        address = str(connection.server.address)
        well = await asyncio.to_thread(run_command, "health", "--address", address)
        assert (well.returncode, well.stdout.strip()) == (0, "SERVING")
        from_settings = await asyncio.to_thread(run_command, "health", MNEMON_LISTEN=address)
        assert from_settings.returncode == 0
        unknown = await asyncio.to_thread(run_command, "health", "--address", address, "--service", "no.such")
        assert (unknown.returncode, "NOT_FOUND" in unknown.stdout) == (1, True)
        connection.server.health.set_ready(ready=False)
        ill = await asyncio.to_thread(run_command, "health", "--address", address)
        assert (ill.returncode, ill.stdout.strip()) == (1, "NOT_SERVING")
    # A port that is bound, so that no other program takes it, and where no one listens.
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{bound.getsockname()[1]}"
        gone = await asyncio.to_thread(run_command, "health", "--address", address, "--timeout", "1")
    assert (gone.returncode, f"no answer from {address}" in gone.stdout) == (1, True)


async def test_a_watcher_that_joined_late_sees_readiness_come_back() -> None:
    async with bare_server() as connection:
        watch = connection.health.Watch(health_pb2.HealthCheckRequest(service="readiness"))
        assert (await watch.read()).status == health_pb2.HealthCheckResponse.NOT_SERVING
        connection.server.health.set_ready(ready=True)
        assert (await watch.read()).status == health_pb2.HealthCheckResponse.SERVING
        watch.cancel()
        await until(lambda: connection.server.open_streams == 0)


async def _read_all(stream: Any) -> list[Any]:
    return [response async for response in stream]


@asynccontextmanager
async def _served_from(folder: Path, disk: FaultyVFS) -> AsyncIterator[Connection]:
    """A server of a store on this disk, which looks at its health all the time."""
    embedder = HashingEmbedder()
    model = embedder.model
    vault = SQLiteVault(folder, model_identity=model.identity, dimension=model.dimension, vfs=disk.name)
    with closing(vault):
        async with (
            EmbeddingBatcher(embedder) as batcher,
            DocumentStore(vault.collection(DOCUMENTS), batcher) as store,
            _pool_of(store) as vaults,
            bare_server(health_check_interval_s=0.02) as connection,
        ):
            await connection.server.serve(vaults)
            yield connection


@asynccontextmanager
async def _pool_of(store: DocumentStore) -> AsyncIterator[VaultPool]:
    """A pool whose only vault has this store and nothing else."""

    async def close() -> None:
        """Does nothing: the test closes the store."""

    async def open_vault(tenant: str) -> OpenVault:
        return open_vault_with(store, close)

    async with VaultPool(open_vault, open_max=1, idle_s=None) as vaults:
        async with vaults.use(DEFAULT_TENANT):
            pass
        yield vaults


async def _all(connection: Connection) -> dict[str, str]:
    answer = await connection.health.List(health_pb2.HealthListRequest())
    name = health_pb2.HealthCheckResponse.ServingStatus.Name
    return {service: name(status.status) for service, status in answer.statuses.items()}
