"""Traps 3 and 9 of a server on grpc.aio: limits, deadlines, and health that answers through all of it."""

import asyncio
import time
from typing import Any

import grpc
import pytest
from google.rpc import error_details_pb2
from grpc_health.v1 import health_pb2
from grpc_reflection.v1alpha import reflection_pb2

from tests.support.handlers import Misbehaving, method
from tests.support.server import Connection, bare_server, detail, failure_of, health_of, reason, stream_end, until


async def test_trap_3_health_answers_while_every_slot_is_taken() -> None:
    handlers = Misbehaving()
    async with bare_server(handlers, unary_calls_max=3, streams_max=2) as connection:
        calls = [method(connection.channel, "wait")(b"") for _ in range(3)]
        streams = [method(connection.channel, "idle")(b"") for _ in range(2)]
        await until(lambda: (handlers.waiting, handlers.opened) == (3, 2))

        refused = await failure_of(method(connection.channel, "echo")(b""))
        _, refused_stream = await stream_end(method(connection.channel, "idle")(b""))
        for error in (refused, refused_stream):
            assert (error.code(), reason(error)) == (grpc.StatusCode.RESOURCE_EXHAUSTED, "TOO_MANY_REQUESTS")
            assert detail(error, error_details_pb2.RetryInfo).retry_delay.ToMilliseconds() > 0

        assert await health_of(connection, "liveness") == "SERVING"
        watch = connection.health.Watch(health_pb2.HealthCheckRequest(service="liveness"))
        assert (await watch.read()).status == health_pb2.HealthCheckResponse.SERVING
        assert (await connection.health.List(health_pb2.HealthListRequest())).statuses
        assert await _reflects(connection)

        handlers.release.set()
        assert await asyncio.gather(*calls) == [b"released"] * 3
        assert await method(connection.channel, "echo")(b"again") == b"again"
        for stream in streams:
            stream.cancel()


async def test_trap_3_streams_take_no_slots_of_single_calls() -> None:
    handlers = Misbehaving()
    async with bare_server(handlers, unary_calls_max=1, streams_max=5) as connection:
        streams = [method(connection.channel, "idle")(b"") for _ in range(5)]
        await until(lambda: handlers.opened == 5)
        assert await method(connection.channel, "echo")(b"x") == b"x"
        for stream in streams:
            stream.cancel()


async def test_a_call_without_a_deadline_gets_the_servers() -> None:
    handlers = Misbehaving()
    async with bare_server(handlers, default_deadline_s=0.2) as connection:
        error = await failure_of(method(connection.channel, "wait")(b""))
        assert (error.code(), reason(error)) == (grpc.StatusCode.DEADLINE_EXCEEDED, "DEADLINE_EXCEEDED")
        assert handlers.waiting == 0


async def test_calls_that_overlap_each_get_the_whole_of_the_servers_deadline() -> None:
    handlers = Misbehaving()
    async with bare_server(handlers, default_deadline_s=0.4) as connection:
        begins: list[float] = []
        calls = []
        for _ in range(3):
            await until(lambda: not begins or time.monotonic() - begins[-1] > 0.15)
            begins.append(time.monotonic())
            calls.append(asyncio.create_task(_failed_at(method(connection.channel, "wait")(b""))))
        ends = await asyncio.gather(*calls)
        assert all(end - begin >= 0.39 for begin, end in zip(begins, ends, strict=True))
        assert handlers.waiting == 0
        # And after a pause without any call, the next one is watched again.
        assert (await failure_of(method(connection.channel, "wait")(b""))).code() is grpc.StatusCode.DEADLINE_EXCEEDED


async def test_a_call_with_a_deadline_keeps_its_own() -> None:
    handlers = Misbehaving()
    async with bare_server(handlers, default_deadline_s=0.05) as connection:
        call = method(connection.channel, "wait")(b"", timeout=20)
        await until(lambda: handlers.waiting == 1)
        started = time.monotonic()
        await until(lambda: time.monotonic() - started > 0.2)
        handlers.release.set()
        assert await call == b"released"


async def test_a_handler_is_cancelled_when_its_client_has_left() -> None:
    handlers = Misbehaving()
    async with bare_server(handlers, unary_calls_max=1) as connection:
        call = method(connection.channel, "wait")(b"")
        await until(lambda: handlers.waiting == 1)
        call.cancel()
        await until(lambda: handlers.waiting == 0)
        assert await method(connection.channel, "echo")(b"free") == b"free"


@pytest.mark.parametrize("service", ["no.such.Service", "Liveness"])
async def test_the_health_of_an_unknown_service_is_not_found(service: str) -> None:
    async with bare_server() as connection:
        error = await failure_of(connection.health.Check(health_pb2.HealthCheckRequest(service=service)))
        assert error.code() is grpc.StatusCode.NOT_FOUND
        watch = connection.health.Watch(health_pb2.HealthCheckRequest(service=service))
        assert (await watch.read()).status == health_pb2.HealthCheckResponse.SERVICE_UNKNOWN
        watch.cancel()


async def _reflects(connection: Connection) -> bool:
    call = connection.channel.stream_stream(
        "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo",
        request_serializer=reflection_pb2.ServerReflectionRequest.SerializeToString,
        response_deserializer=reflection_pb2.ServerReflectionResponse.FromString,
    )()
    await call.write(reflection_pb2.ServerReflectionRequest(list_services=""))
    answer = await call.read()
    await call.done_writing()
    return bool(answer.list_services_response.service)


async def _failed_at(call: Any) -> float:
    assert (await failure_of(call)).code() is grpc.StatusCode.DEADLINE_EXCEEDED
    return time.monotonic()
