"""Quotas of tenants and callers: one at its limit is refused with details, and the other does not notice."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc
import pytest
from google.rpc import error_details_pb2
from grpc import aio
from mnemon.v1 import (
    access_pb2,
    access_pb2_grpc,
    changes_pb2,
    changes_pb2_grpc,
    memory_pb2,
    memory_pb2_grpc,
    tools_pb2,
    tools_pb2_grpc,
)
from mnemon_server.domain.access.quotas import Quotas
from mnemon_server.domain.errors import ConfigurationError
from mnemon_server.transport.interceptors.limiter import stores_records

from tests.support.access import bearer, guarded_server, make_key, methods, open_call, path_of
from tests.support.command import run
from tests.support.server import WAIT_S, Connection, detail, eventually, failure_of, reason, whole_server

ADMINISTRATION = {
    *("CreateKey", "RotateKey", "RevokeKey", "CreateTenant", "UpdateTenant"),
    *("CreateGrant", "AcceptGrant", "RevokeGrant"),
    *("RegisterRule", "UpdateRule", "LoadRules", "ResetRules"),
    *("UpdateRoutingPolicy", "PauseBridge", "ResumeBridge", "RebuildIndex", "CompactTimeline"),
}


@asynccontextmanager
async def two_tenants(folder: Path, **settings: Any) -> AsyncIterator[tuple[Connection, str, str]]:
    """A server, and a key of each of the tenants "acme" and "other"."""
    acme, other = (make_key(folder, "admin", tenant=tenant) for tenant in ("acme", "other"))
    async with guarded_server(folder, **settings) as connection:
        yield connection, acme, other


async def watch(connection: Connection, secret: str) -> Any:
    """A stream that has begun."""
    stub = changes_pb2_grpc.ChangeServiceStub(connection.channel)  # type: ignore[no-untyped-call]
    stream = stub.WatchChanges(changes_pb2.WatchChangesRequest(), metadata=bearer(secret))
    await asyncio.wait_for(stream.read(), WAIT_S)
    return stream


def who_am_i(connection: Connection, secret: str) -> Any:
    stub = access_pb2_grpc.AccessServiceStub(connection.channel)  # type: ignore[no-untyped-call]
    return stub.WhoAmI(access_pb2.WhoAmIRequest(), metadata=bearer(secret), timeout=WAIT_S)


async def ended(call: Any) -> aio.AioRpcError:
    """The error of a call whose request is never sent."""
    return await asyncio.wait_for(failure_of(call.read()), WAIT_S)


def assert_refused(error: aio.AioRpcError, subject: str, quota: str, *, waiting_helps: bool = True) -> None:
    assert (error.code(), reason(error)) == (grpc.StatusCode.RESOURCE_EXHAUSTED, "QUOTA_EXCEEDED")
    (violation,) = detail(error, error_details_pb2.QuotaFailure).violations
    assert violation.subject == subject
    assert violation.description.startswith(f"{quota} is ")
    assert dict(detail(error, error_details_pb2.ErrorInfo).metadata).keys() == {"quota", "limit", "used"}
    retry = detail(error, error_details_pb2.RetryInfo)
    assert (retry is not None and retry.retry_delay.ToMilliseconds() > 0) == waiting_helps


async def test_a_stream_over_the_limit_is_refused_at_once_and_other_tenants_go_on(tmp_path: Path) -> None:
    async with two_tenants(tmp_path, quotas_per_tenant=("open_streams=2",)) as (connection, acme, other):
        streams = [await watch(connection, acme) for _ in range(2)]
        watching = next(method for method in methods() if method.name == "WatchChanges")
        assert_refused(await ended(open_call(connection.channel, watching, acme)), "tenant:acme", "open_streams")
        streams.append(await watch(connection, other))
        assert (await who_am_i(connection, acme)).tenant == "acme"

        connection.server.accounts.set_quotas({"acme": Quotas(open_streams=3)})
        streams.append(await watch(connection, acme))
        assert_refused(await ended(open_call(connection.channel, watching, acme)), "tenant:acme", "open_streams")
        streams.pop().cancel()
        await eventually(lambda: _has_streams(connection, "acme", 2))
        streams.append(await watch(connection, acme))
        for stream in streams:
            stream.cancel()
        await eventually(lambda: _has_streams(connection, "acme", 0))


async def _has_streams(connection: Connection, tenant: str, count: int) -> bool:
    return connection.server.accounts.usage_of(tenant).open_streams == count


async def test_every_method_is_refused_before_its_request_is_read(tmp_path: Path) -> None:
    quotas = ("calls_per_second=0.001",)
    async with two_tenants(tmp_path, quotas_per_tenant=quotas) as (connection, acme, other):
        assert (await who_am_i(connection, acme)).tenant == "acme"
        mine = [method for method in methods() if method.containing_service.name != "TenantService"]
        for method in mine:
            error = await ended(open_call(connection.channel, method, acme))
            assert_refused(error, "tenant:acme", "calls_per_second")
        assert (await who_am_i(connection, other)).tenant == "other"
        usage = connection.server.accounts.usage_of("acme")
        assert (usage.calls, usage.refused_calls) == (1, len(mine))
        assert (usage.concurrent_calls, usage.open_streams, usage.bytes_in_flight) == (0, 0, 0)


async def test_one_caller_of_a_tenant_at_its_limit_does_not_concern_the_others(tmp_path: Path) -> None:
    one, two = (make_key(tmp_path, "admin", tenant="acme") for _ in range(2))
    async with guarded_server(tmp_path, quotas_per_caller=("calls_per_second=0.001",)) as connection:
        subject = (await who_am_i(connection, one)).subject
        assert_refused(await failure_of(who_am_i(connection, one)), f"caller:{subject}", "calls_per_second")
        assert (await who_am_i(connection, two)).tenant == "acme"


async def test_requests_that_are_not_sent_yet_count_as_calls_of_their_tenant(tmp_path: Path) -> None:
    async with two_tenants(tmp_path, quotas_per_tenant=("concurrent_calls=3",)) as (connection, acme, other):
        create = next(method for method in methods() if method.name == "CreateMemory")
        waiting = [open_call(connection.channel, create, acme) for _ in range(3)]
        await eventually(lambda: _has_calls(connection, 3))
        assert_refused(await failure_of(who_am_i(connection, acme)), "tenant:acme", "concurrent_calls")
        assert (await who_am_i(connection, other)).tenant == "other"
        for call in waiting:
            call.cancel()
        await eventually(lambda: _has_calls(connection, 0))
        assert (await who_am_i(connection, acme)).tenant == "acme"


async def _has_calls(connection: Connection, count: int) -> bool:
    return connection.server.accounts.usage_of("acme").concurrent_calls == count


async def test_requests_in_work_are_limited_by_their_size(tmp_path: Path) -> None:
    async with two_tenants(tmp_path, quotas_per_tenant=("mib_in_flight=1",)) as (connection, acme, other):
        connection.server.accounts.of_tenant("acme").hold(1 << 20)
        assert_refused(await failure_of(who_am_i(connection, acme)), "tenant:acme", "mib_in_flight")
        assert (await who_am_i(connection, other)).tenant == "other"
        connection.server.accounts.of_tenant("acme").give(1 << 20)
        connection.server.accounts.of_tenant("acme").count_answer(1 << 20)
        assert_refused(await failure_of(who_am_i(connection, acme)), "tenant:acme", "mib_in_flight")
        connection.server.accounts.of_tenant("acme").count_answer(-1 << 20)
        assert (await who_am_i(connection, acme)).tenant == "acme"


async def test_a_tenant_that_has_used_its_seconds_of_embedding_still_reads_and_deletes(tmp_path: Path) -> None:
    quotas = ("embedding_seconds_per_minute=0.000001",)
    async with two_tenants(tmp_path, quotas_per_tenant=quotas) as (connection, acme, other):
        memories = memory_pb2_grpc.MemoryServiceStub(connection.channel)  # type: ignore[no-untyped-call]

        def create(secret: str, text: str) -> Any:
            memory = memory_pb2.Memory(content=text)
            return memories.CreateMemory(memory_pb2.CreateMemoryRequest(memory=memory), metadata=bearer(secret))

        made = await create(acme, "the first")
        assert_refused(await failure_of(create(acme, "another")), "tenant:acme", "embedding_seconds_per_minute")
        await create(other, "the first of another")
        memory_id = made.memory.memory_id
        got = await memories.GetMemory(memory_pb2.GetMemoryRequest(memory_id=memory_id), metadata=bearer(acme))
        assert got.memory.content == "the first"
        await memories.DeleteMemory(memory_pb2.DeleteMemoryRequest(memory_id=memory_id), metadata=bearer(acme))
        assert connection.server.accounts.usage_of("acme").embedding_seconds > 0


@pytest.mark.parametrize(("quota", "room"), [("records", Quotas(records=100)), ("disk_mib", Quotas(disk_mib=1_000))])
async def test_a_tenant_that_is_full_reads_searches_and_deletes_until_it_has_room(
    tmp_path: Path, quota: str, room: Quotas
) -> None:
    quotas = ("records=2",) if quota == "records" else ("disk_mib=0.001",)
    async with two_tenants(tmp_path, quotas_per_tenant=quotas) as (connection, acme, _):
        accounts = connection.server.accounts
        # What is stored is measured every second: there is room until the bulk stream is open.
        accounts.set_quotas({"acme": room})
        memories = memory_pb2_grpc.MemoryServiceStub(connection.channel)  # type: ignore[no-untyped-call]

        def create(secret: str, text: str) -> Any:
            memory = memory_pb2.Memory(content=text)
            return memories.CreateMemory(memory_pb2.CreateMemoryRequest(memory=memory), metadata=bearer(secret))

        made = [await create(acme, "the first")]
        if quota == "records":
            made.append(await create(acme, "the second"))
        bulk = memories.BulkCreateMemories(metadata=bearer(acme))
        await eventually(lambda: _has_streams(connection, "acme", 1))
        accounts.set_quotas({})

        async def is_full() -> bool:
            usage = accounts.usage_of("acme")
            return usage.records == 2 if quota == "records" else bool(usage.disk_bytes)

        await eventually(is_full)
        assert_refused(await failure_of(create(acme, "another")), "tenant:acme", quota, waiting_helps=False)
        for method in methods():
            if stores_records(path_of(method)):
                assert_refused(
                    await ended(open_call(connection.channel, method, acme)), "tenant:acme", quota, waiting_helps=False
                )
        # Of a stream that was open before, what comes next is refused.
        request = memory_pb2.BulkCreateMemoriesRequest(
            requests=[memory_pb2.CreateMemoryRequest(memory=memory_pb2.Memory(content="in bulk"))]
        )
        await bulk.write(request)
        assert_refused(
            await asyncio.wait_for(failure_of(bulk.read()), WAIT_S), "tenant:acme", quota, waiting_helps=False
        )
        # So is what a tool stores.
        tools = tools_pb2_grpc.ToolServiceStub(connection.channel)  # type: ignore[no-untyped-call]
        call = tools_pb2.CallToolRequest(tool="manage_memory")
        call.arguments.update({"content": "by a tool", "action": "create"})
        call.context.config.update({"user_id": "ada"})
        refused = await failure_of(tools.CallTool(call, metadata=bearer(acme)))
        assert_refused(refused, "tenant:acme", quota, waiting_helps=False)

        memory_id = made[0].memory.memory_id
        await memories.GetMemory(memory_pb2.GetMemoryRequest(memory_id=memory_id), metadata=bearer(acme))
        search = memory_pb2.SearchMemoriesRequest(query="the first")
        assert (await memories.SearchMemories(search, metadata=bearer(acme))).results
        await memories.DeleteMemory(memory_pb2.DeleteMemoryRequest(memory_id=memory_id), metadata=bearer(acme))

        if quota == "records":
            # What can be undeleted counts until it is purged.
            await memories.PurgeMemories(memory_pb2.PurgeMemoriesRequest(only_deleted=True), metadata=bearer(acme))

            async def has_room() -> bool:
                return accounts.usage_of("acme").records == 1

            await eventually(has_room)
        else:
            accounts.set_quotas({"acme": room})
        await create(acme, "another")


def test_every_method_that_writes_is_known_to_store_records_or_not_to() -> None:
    writing = {method.name for method in methods() if method.GetOptions().idempotency_level != 1}
    storing = {method.name for method in methods() if stores_records(path_of(method))}
    beyond = {method for method in writing - storing if not method.startswith(("Delete", "Purge", "Prune", "Erase"))}
    # Keys, tenants, rules and quarantines have limits of their own; tools are refused when they store.
    limited = {"QuarantineOrigin", "ReleaseOrigin", "CallTool", "ExecuteText"}
    assert beyond <= ADMINISTRATION | limited | {"UnmergeMemory", "ReinforceMemory", "RenewFacts"}
    assert {"CreateMemory", "BulkPutFacts", "RecordEvent", "ImportRecords", "MergeMemories"} <= storing


async def test_a_quota_that_is_not_valid_stops_the_start(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"quotas_per_tenant.*NAME=NUMBER"):
        async with whole_server(tmp_path, quotas_per_tenant=("streams=1",)):
            pass


async def test_a_command_whose_note_is_refused_has_its_answer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    quotas = ("calls_per_second=0.01", "calls_burst=1")
    async with two_tenants(tmp_path, quotas_per_tenant=quotas) as (connection, acme, other):
        for secret, *command in ((acme, "memories"), (other, "timeline", "--type", "trip")):
            monkeypatch.setenv("MNEMON_API_KEY", secret)
            done = await asyncio.to_thread(run, str(connection.server.address), *command, "--user", "nobody")
            assert (done.returncode, done.stderr) == (0, "")
