"""Tenants, keys, vaults and streams that come and go leave nothing behind: no file, thread, task, slot or memory."""

import asyncio
import gc
import os
from collections.abc import Sequence
from itertools import cycle, islice, pairwise
from pathlib import Path
from typing import Any

import grpc
import pytest
from mnemon.v1 import changes_pb2 as pb
from mnemon.v1.knowledge_store_pb2 import BulkIndexDocumentsRequest, Document, IndexDocumentRequest

from tests.support.access import bearer, guarded_server, make_key
from tests.support.churn import MIB_MORE, Churn, Held, held_at_rest, make_tenants
from tests.support.server import Connection, eventually, failure_of, reason, until

TENANTS, OPEN_MAX, TURNS = 6, 5, 4
TIMERS = 1_000
"""More than all others that the event loop has."""
DOCUMENT = Document(doc_id="note", content="Ada sits by the window.")
STREAMS_MAX, SHARE = 8, 7
"""One caller may have seven of eight slots."""


async def test_tenants_that_come_and_go_leave_nothing_behind(tmp_path: Path) -> None:
    secrets = await make_tenants(tmp_path, TENANTS)
    async with guarded_server(tmp_path, vaults_open_max=OPEN_MAX, vault_idle_s=0.2) as connection:
        load, samples, objects = Churn(str(connection.server.address), secrets, seed=1), list[Held](), list[int]()
        for _ in range(TURNS):
            calls = await load.turn()
            samples.append(await held_at_rest(os.getpid(), tmp_path))
            objects.append(await count_objects())
        # A leak grows in each turn: with each tenant, or by more than ten objects for each call. Pools and caches grow
        # in one and shrink in another, also pools of earlier tests, and of threads on a busy machine.
        files, threads, mib = (least_growth(each) for each in zip(*samples, strict=True))
        assert files < TENANTS and threads < TENANTS and mib < MIB_MORE, samples
        assert least_growth(objects) < calls, objects
        assert connection.server.open_streams == 0


def least_growth(counts: Sequence[float]) -> float:
    """By how much something has grown in each turn at least."""
    return min(after - before for before, after in pairwise(counts))


async def count_objects() -> int:
    """The objects in this process that may refer to others; tasks, accounts and connections are among them."""
    # The event loop keeps cancelled timers, and the contexts of their calls, until most of its timers are cancelled.
    loop = asyncio.get_running_loop()
    for _ in range(TIMERS):
        loop.call_later(3_600, loop.stop).cancel()
    await asyncio.sleep(0)
    gc.collect()
    return len(gc.get_objects())


async def test_cancelled_streams_leave_nothing(tmp_path: Path) -> None:
    await cancel_streams(tmp_path, 300)


@pytest.mark.slow
@pytest.mark.timeout(900)
async def test_thirty_thousand_cancelled_streams_leave_nothing(tmp_path: Path) -> None:
    await cancel_streams(tmp_path, 30_000)


async def cancel_streams(folder: Path, count: int) -> None:
    secrets = [make_key(folder, "admin", tenant=tenant) for tenant in ("ada", "bob")]
    settings: dict[str, Any] = {"streams_max": STREAMS_MAX, "quotas_per_caller": (f"open_streams={SHARE}",)}
    async with guarded_server(folder, **settings) as connection:
        await cancel(connection, secrets, 200)  # makes what is made only once
        tasks, objects, memory = len(asyncio.all_tasks()), await count_objects(), resident_bytes()
        await cancel(connection, secrets, count)

        async def are_few() -> bool:
            return await count_objects() - objects < min(count, 1_000)

        # The server hears of the last ones a moment later.
        await until(lambda: len(asyncio.all_tasks()) <= tasks)
        # What the audit log has not written yet goes within a second.
        await eventually(are_few)
        assert resident_bytes() - memory < 20 << 20
        for tenant in ("ada", "bob"):
            usage = connection.server.accounts.usage_of(tenant)
            assert (usage.open_streams, usage.bytes_in_flight) == (0, 0)
        watches = [watch(connection, secrets[0]) for _ in range(SHARE)]
        for each in watches:
            assert (await each.read()).HasField("started")
        refused = await failure_of(watch(connection, secrets[0]).read())
        assert (refused.code(), reason(refused)) == (grpc.StatusCode.RESOURCE_EXHAUSTED, "QUOTA_EXCEEDED")


async def cancel(connection: Connection, secrets: list[str], count: int) -> None:
    """Opens streams of several kinds and cancels them: before they begin, or once they have.

    Cancelled streams have their slots a moment longer, so that some are refused; these leave nothing either.
    """
    kinds = (begun_watch, watch, begun_import)

    async def worker(secret: str) -> None:
        for kind in islice(cycle(kinds), count // 6):
            try:
                call = kind(connection, secret)
                (await call if asyncio.iscoroutine(call) else call).cancel()
            except grpc.aio.AioRpcError as error:
                if error.code() is not grpc.StatusCode.RESOURCE_EXHAUSTED:
                    raise

    await asyncio.gather(*(worker(secret) for secret in secrets for _ in range(3)))
    await until(lambda: connection.server.open_streams == 0)


def watch(connection: Connection, secret: str) -> Any:
    return connection.changes.WatchChanges(pb.WatchChangesRequest(), metadata=bearer(secret))


async def begun_watch(connection: Connection, secret: str) -> Any:
    call = watch(connection, secret)
    assert (await call.read()).HasField("started")
    return call


async def begun_import(connection: Connection, secret: str) -> Any:
    call = connection.store.BulkIndexDocuments(metadata=bearer(secret))
    await call.write(BulkIndexDocumentsRequest(requests=[IndexDocumentRequest(document=DOCUMENT)]))
    assert len((await call.read()).results) == 1
    return call


def resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096
