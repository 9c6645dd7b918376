"""Traps 3 and 9 of a server on grpc.aio: limits, deadlines, and health that answers through all of it."""

import asyncio
import time
from contextlib import AsyncExitStack
from statistics import median
from typing import Any

import grpc
import pytest
from google.rpc import error_details_pb2
from grpc import aio
from grpc_health.v1 import health_pb2
from grpc_reflection.v1alpha import reflection_pb2
from mnemon_server.logs import configure_logging
from mnemon_server.transport.interceptors import grpc_calls as cancellations

from tests.support.handlers import Misbehaving, method, path
from tests.support.http2 import RawConnection, raw_connection
from tests.support.server import (
    Connection,
    bare_server,
    detail,
    eventually,
    failure_of,
    health_of,
    reason,
    stream_end,
    until,
)

REFUSED = (grpc.StatusCode.RESOURCE_EXHAUSTED, "TOO_MANY_REQUESTS")
OWN_CONNECTION = (("grpc.use_local_subchannel_pool", 1),)


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


async def test_one_connection_cannot_take_the_slots_of_all_others() -> None:
    handlers = Misbehaving()
    async with (
        bare_server(handlers, streams_max=32, unary_calls_max=32) as connection,
        aio.insecure_channel(str(connection.server.address), OWN_CONNECTION) as other,
    ):
        greedy = [method(connection.channel, "idle")(b"") for _ in range(40)]
        calls = [method(connection.channel, "wait")(b"") for _ in range(40)]
        await until(lambda: sum(each.done() for each in (*greedy, *calls)) == 24)
        await until(lambda: (handlers.waiting, handlers.opened) == (28, 28))
        ends = [(await stream_end(stream))[1] for stream in greedy if stream.done()]
        ends += [await failure_of(call) for call in calls if call.done()]
        assert {(error.code(), reason(error)) for error in ends} == {REFUSED}

        modest = [method(other, "idle")(b"") for _ in range(3)]
        assert [len(await stream.read()) for stream in modest] == [1] * 3
        assert [await method(other, "echo")(b"x") for _ in range(20)] == [b"x"] * 20
        handlers.release.set()
        assert sorted({await call for call in calls if not call.done()}) == [b"released"]
        for stream in (*greedy, *modest):
            stream.cancel()


async def test_a_call_without_a_deadline_gets_the_servers() -> None:
    handlers = Misbehaving()
    async with bare_server(handlers, default_deadline_s=0.2) as connection:
        error = await failure_of(method(connection.channel, "wait")(b""))
        assert (error.code(), reason(error)) == (grpc.StatusCode.DEADLINE_EXCEEDED, "DEADLINE_EXCEEDED")
        assert handlers.waiting == 0


async def test_overlapping_calls_each_get_the_servers_full_deadline() -> None:
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
        # The deadline also applies to the next call after a pause without calls.
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


async def test_a_request_that_never_ends_times_out_and_takes_no_slot() -> None:
    async with (
        bare_server(Misbehaving(), request_timeout_s=2.0, unary_calls_max=1) as connection,
        raw_connection(str(connection.server.address)) as raw,
    ):
        half = [await raw.begin(path("echo"), announced=4 << 20, sent=100_000) for _ in range(3)]
        half.append(await raw.begin(path("idle"), announced=4 << 20, sent=0))
        assert await method(connection.channel, "echo")(b"x") == b"x"
        ends = [await raw.end_of(call) for call in half]
    assert {end["grpc-status"] for end in ends} == {str(grpc.StatusCode.DEADLINE_EXCEEDED.value[0])}
    assert {end["grpc-message"] for end in ends} == {"the request did not arrive within 2 s"}


async def test_calls_reset_before_their_request_leave_no_line_in_the_log(
    capsys: pytest.CaptureFixture[str],
) -> None:
    configure_logging(log_format="json", level="info")
    async with bare_server(Misbehaving()) as connection:
        async with raw_connection(str(connection.server.address)) as raw:
            for _ in range(50):
                await raw.begin(path("echo"), announced=100, sent=10)
        assert await method(connection.channel, "echo")(b"x") == b"x"
    assert capsys.readouterr().err.count('"event": "rpc"') == 1


async def test_calls_reset_as_they_begin_use_up_the_streams_of_their_connection(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # However busy the machine is, the others come in time, and streams are left when further ones are opened.
    monkeypatch.setattr(cancellations, "OTHERS_S", 600.0)
    monkeypatch.setattr(cancellations, "PER_SECOND", 200)
    async with (
        bare_server(Misbehaving()) as connection,
        raw_connection(str(connection.server.address)) as raw,
    ):
        echo = method(connection.channel, "echo")
        assert await echo(b"x") == b"x"
        await raw.greeted()
        await raw.open(path("echo"), 600, reset=True)
        # It comes after them, so that they have reached the server's code once it is answered.
        assert await echo(b"x") == b"x"
        await raw.open(path("echo"), 500)
        assert await raw.refused() > 0
        assert await echo(b"x") == b"x"
        # They end after three seconds.
        await eventually(lambda: _answers(raw))


async def test_a_connection_alone_may_cancel_as_many_calls_as_it_likes() -> None:
    async with (
        bare_server(Misbehaving()) as connection,
        raw_connection(str(connection.server.address)) as raw,
    ):
        await raw.greeted()
        await raw.open(path("echo"), 500, reset=True)
        assert await _answers(raw)
        await raw.open(path("echo"), 400)
        assert await raw.refused() == 0


async def test_a_request_that_is_far_too_large_is_refused_before_it_is_sent() -> None:
    async with (
        bare_server(Misbehaving()) as connection,
        raw_connection(str(connection.server.address)) as raw,
    ):
        end = await raw.end_of(await raw.begin(path("echo"), announced=30 << 20, sent=0))
    assert end["grpc-status"] == str(grpc.StatusCode.RESOURCE_EXHAUSTED.value[0])


async def test_answers_that_are_not_read_are_bounded_and_leave_room_for_those_of_others() -> None:
    async with (
        bare_server(Misbehaving()) as connection,
        raw_connection(str(connection.server.address)) as raw,
    ):
        for _ in range(60):
            await raw.call(path("large"), b"1000000")
        refused = str(grpc.StatusCode.RESOURCE_EXHAUSTED.value[0])
        # At most 24 MiB are kept for all callers, and seven eighths of them for one: 22 answers, in any order.
        assert {end["grpc-status"] for end in await raw.ends(60 - 22)} == {refused}
        assert len(await method(connection.channel, "large")(b"2000000")) == 2_000_000


async def test_unread_messages_are_bounded_for_each_stream() -> None:
    handlers = Misbehaving()
    async with (
        bare_server(handlers, channel_options=OWN_CONNECTION) as connection,
        raw_connection(str(connection.server.address)) as raw,
    ):
        call = asyncio.create_task(raw.begin(path("deaf"), announced=3 << 20, sent=1 << 20))
        await until(lambda: handlers.opened == 1)
        done, _ = await asyncio.wait([call], timeout=0.5)
        assert not done
        call.cancel()


async def test_connections_beyond_the_maximum_are_closed() -> None:
    async with bare_server(connections_max=3) as connection:
        assert await health_of(connection, "liveness") == "SERVING"
        async with AsyncExitStack() as stack:
            # The first is that of the channel.
            for _ in range(2):
                await (await stack.enter_async_context(raw_connection(str(connection.server.address)))).greeted()
            with pytest.raises((AssertionError, ConnectionResetError)):
                async with raw_connection(str(connection.server.address)) as surplus:
                    await surplus.greeted()
        assert await health_of(connection, "liveness") == "SERVING"


async def test_all_connections_up_to_the_maximum_can_be_had() -> None:
    async with bare_server(connections_max=80) as connection, AsyncExitStack() as stack:
        taken = 0
        # Each listener has its share. A client whose connection is closed comes again, and then to another one.
        while taken < 80:
            raw = await stack.enter_async_context(raw_connection(str(connection.server.address)))
            taken += await _is_welcome(raw)
        for _ in range(40):
            surplus = await stack.enter_async_context(raw_connection(str(connection.server.address)))
            assert not await _is_welcome(surplus)


async def test_a_burst_of_calls_on_one_connection_holds_up_few_others() -> None:
    # Threads of the runtime bring the calls, on a busy machine now and then those of the others long after the burst.
    # If these had no turns of their own, they would come last each time.
    assert min(crowds := [await _crowd_before_others() for _ in range(5)]) < 200, crowds


async def _crowd_before_others() -> float:
    """How many of a burst of 500 calls are usually waiting when a call of another connection has been answered."""
    handlers = Misbehaving()
    async with bare_server(handlers) as connection, AsyncExitStack() as stack:
        address = str(connection.server.address)
        crowd, *others = [await stack.enter_async_context(raw_connection(address)) for _ in range(9)]
        for other in others:
            await other.greeted()
        await crowd.calls(path("wait"), 500)
        waits = await asyncio.gather(*(_crowd_before(other, handlers) for other in others))
        await until(lambda: handlers.waiting > 400)
        handlers.release.set()
        return median(waits)


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
    answer: Any = await call.read()
    await call.done_writing()
    return bool(answer.list_services_response.service)


async def _failed_at(call: Any) -> float:
    assert (await failure_of(call)).code() is grpc.StatusCode.DEADLINE_EXCEEDED
    return time.monotonic()


async def test_each_of_many_calls_at_once_knows_how_large_its_own_request_is() -> None:
    async with bare_server(Misbehaving()) as connection:
        sizes = [0, 1, 100_000, 7, 3_000_000] * 10
        told = await asyncio.gather(*(method(connection.channel, "size")(bytes(size)) for size in sizes))
    assert [int(answer) for answer in told] == sizes


async def _answers(raw: RawConnection) -> bool:
    return bool(await raw.end_of(await raw.call(path("echo"), b"x")))


async def _is_welcome(raw: RawConnection) -> bool:
    """Whether the server keeps a new connection."""
    try:
        await raw.greeted()
    except (AssertionError, ConnectionResetError):
        return False
    return True


async def _crowd_before(raw: RawConnection, handlers: Misbehaving) -> int:
    """How many calls of others are waiting when a call has been answered."""
    await raw.end_of(await raw.call(path("echo"), b""))
    return handlers.waiting
