"""Tenants whose streams wait: more of them than vaults may be open, and each is answered and told of everything."""

import asyncio
from pathlib import Path
from typing import Any

import grpc
from mnemon.v1 import archive_pb2, changes_pb2, episodic_pb2, facts_pb2, memory_pb2, semantic_pb2
from mnemon.v1 import knowledge_store_pb2 as store_pb2

from tests.support.access import bearer, guarded_server
from tests.support.churn import make_tenants
from tests.support.episodic_messages import happened
from tests.support.server import WAIT_S, Connection

TENANTS, OPEN_MAX, ROUNDS = 4, 2, 2


class Tenant:
    """A tenant that holds one stream of each kind that lasts as long as its client wants."""

    def __init__(self, connection: Connection, secret: str) -> None:
        self.connection, self.metadata = connection, bearer(secret)
        earliest = changes_pb2.WatchChangesRequest(earliest=True)
        self.watches = [
            connection.changes.WatchChanges(request, metadata=self.metadata)
            for request in (earliest, changes_pb2.WatchChangesRequest())
        ]
        self.bulk = [
            call(metadata=self.metadata)
            for call in (
                connection.store.BulkIndexDocuments,
                connection.memories.BulkCreateMemories,
                connection.semantic.BulkSaveSemanticMemories,
                connection.facts.BulkPutFacts,
                connection.episodic.BulkRecordEvents,
                connection.archive.ImportRecords,
            )
        ]

    async def begin(self) -> None:
        for watch in self.watches:
            assert (await watch.read()).HasField("started")

    async def write(self, number: int) -> None:
        """Writes on each stream, and makes a call."""
        text = f"note {number}"
        archived = archive_pb2.ArchivedRecord(kind="RECORD_KIND_DOCUMENT", id=f"imported {number}", content=text)
        requests: list[Any] = [
            store_pb2.BulkIndexDocumentsRequest(requests=[{"document": {"doc_id": text, "content": text}}]),
            memory_pb2.BulkCreateMemoriesRequest(requests=[{"memory": {"content": text}}]),
            semantic_pb2.BulkSaveSemanticMemoriesRequest(
                requests=[{"memory": {"content": text, "scope": {"user": "ada"}}}]
            ),
            facts_pb2.BulkPutFactsRequest(
                requests=[{"fact": {"namespace": ["notes"], "key": text, "value": {"n": 1}}}]
            ),
            episodic_pb2.BulkRecordEventsRequest(requests=[{"event": happened(text)}]),
            archive_pb2.ImportRecordsRequest(start={}, records=[archived]),
        ]
        for stream, request in zip(self.bulk, requests, strict=True):
            await stream.write(request)
            [result] = (await stream.read()).results
            assert not result.HasField("error"), result
        event = episodic_pb2.RecordEventRequest(event=happened(f"call {number}"))
        await self.connection.episodic.RecordEvent(event, metadata=self.metadata)

    async def told(self, count: int) -> list[list[int]]:
        """The positions of the changes that each watch tells, until it has told as many changes."""
        return await asyncio.gather(*(changes_of(watch, count) for watch in self.watches))


async def changes_of(watch: Any, count: int) -> list[int]:
    found: list[int] = []
    while len(found) < count:
        found += [change.sequence for change in (await watch.read()).batch.changes]
    return found


async def test_idle_streams_of_many_tenants_keep_no_tenant_out_and_tell_everything(tmp_path: Path) -> None:
    secrets = await make_tenants(tmp_path, TENANTS)
    async with guarded_server(tmp_path, vaults_open_max=OPEN_MAX) as connection, asyncio.timeout(4 * WAIT_S):
        tenants = [Tenant(connection, secret) for secret in secrets]
        await asyncio.gather(*(tenant.begin() for tenant in tenants))
        for number in range(ROUNDS):
            await asyncio.gather(*(tenant.write(number) for tenant in tenants))
            for tenant in tenants:
                for told in await tenant.told(7):
                    assert len(set(told)) == 7 and told == sorted(told)
        for tenant in tenants:
            for stream in tenant.bulk:
                await stream.done_writing()
                assert await stream.read() is grpc.aio.EOF
