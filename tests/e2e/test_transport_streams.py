"""Traps 4 to 6 of a server on grpc.aio: streams that are not read, not ended, or all cancelled."""

import asyncio
import gc
import json
import time
from pathlib import Path

import grpc
import pytest
from grpc import aio
from grpc_health.v1 import health_pb2
from mnemon_server.logs import configure_logging

from tests.support.handlers import Misbehaving, method, path
from tests.support.server import bare_server, health_of, reason, stream_end, until

STREAMS = 200
GRACE_S = 180.0
"""A server that waited for the streams would take this long. A third of it is far less than that on any machine."""


async def test_trap_4_a_shutdown_is_fast_with_many_open_streams_and_tells_each_of_them() -> None:
    handlers = Misbehaving()
    async with bare_server(handlers, shutdown_grace_s=GRACE_S) as connection:
        streams = [method(connection.channel, "idle")(b"") for _ in range(STREAMS)]
        assert [len(await stream.read()) for stream in streams] == [1] * STREAMS
        started = time.monotonic()
        await connection.server.shut_down()
        assert time.monotonic() - started < GRACE_S / 3
        for stream in streams:
            messages, error = await stream_end(stream)
            assert (messages, error.code(), reason(error)) == ([], grpc.StatusCode.UNAVAILABLE, "NOT_SERVING")
    assert handlers.cleaned_up == STREAMS


async def test_trap_4_health_watches_hear_not_serving_and_do_not_hold_up_a_shutdown() -> None:
    async with bare_server(shutdown_grace_s=GRACE_S) as connection:
        connection.server.health.set_ready(ready=True)
        watches = [connection.health.Watch(health_pb2.HealthCheckRequest(service="")) for _ in range(20)]
        for watch in watches:
            assert (await watch.read()).status == health_pb2.HealthCheckResponse.SERVING
        started = time.monotonic()
        await connection.server.shut_down()
        assert time.monotonic() - started < GRACE_S / 3
        for watch in watches:
            messages, error = await stream_end(watch)
            assert [message.status for message in messages] == [health_pb2.HealthCheckResponse.NOT_SERVING]
            assert (error.code(), reason(error)) == (grpc.StatusCode.UNAVAILABLE, "NOT_SERVING")


async def test_trap_4_calls_in_work_are_finished_before_the_server_ends() -> None:
    handlers = Misbehaving()
    async with bare_server(handlers, shutdown_grace_s=GRACE_S) as connection:
        call = method(connection.channel, "wait")(b"")
        await until(lambda: handlers.waiting == 1)
        ending = asyncio.create_task(connection.server.shut_down())
        await until(lambda: connection.server.is_shutting_down)
        handlers.release.set()
        assert await call == b"released"
        await ending


async def test_trap_4_streams_are_refused_once_the_others_have_been_ended() -> None:
    handlers = Misbehaving()
    async with bare_server(handlers, shutdown_grace_s=GRACE_S) as connection:
        call = method(connection.channel, "wait")(b"")
        await until(lambda: handlers.waiting == 1)
        ending = asyncio.create_task(connection.server.shut_down())
        await until(lambda: connection.server.is_shutting_down)
        _, error = await stream_end(method(connection.channel, "idle")(b""))
        # CANCELLED is the runtime's word for what it had taken and not begun; clients read it as UNAVAILABLE.
        assert error.code() in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.CANCELLED)
        handlers.release.set()
        await call
        await ending
    assert handlers.opened == 0


async def test_trap_5_a_reader_that_stalls_is_cut_and_costs_little_memory() -> None:
    handlers = Misbehaving()
    async with bare_server(handlers, stream_write_timeout_s=0.5) as connection:
        stream = method(connection.channel, "flood")(b"1000")
        await stream.read()
        await until(lambda: connection.server.open_streams == 0)
        produced = handlers.produced
        messages, error = await stream_end(stream)
    # What was written before the cut arrives, and then the reason.
    assert 100 < len(messages) + 1 <= produced + 1
    assert produced * 1000 < 16 << 20
    assert (error.code(), reason(error)) == (grpc.StatusCode.RESOURCE_EXHAUSTED, "SLOW_READER")


async def test_trap_5_a_stalled_reader_does_not_hold_up_others() -> None:
    async with bare_server(Misbehaving(), stream_write_timeout_s=30.0, shutdown_grace_s=GRACE_S) as connection:
        stalled = method(connection.channel, "flood")(b"100000")
        await stalled.read()
        async with aio.insecure_channel(str(connection.server.address)) as channel:
            for _ in range(50):
                assert await method(channel, "echo")(b"hello", timeout=60) == b"hello"
        started = time.monotonic()
        await connection.server.shut_down()
        assert time.monotonic() - started < GRACE_S / 3


async def test_readers_that_leave_during_a_message_are_not_logged_as_an_incident(
    capsys: pytest.CaptureFixture[str],
) -> None:
    configure_logging(log_format="json", level="info")
    handlers = Misbehaving()
    async with bare_server(handlers, streams_max=4 * STREAMS) as connection:
        streams = [method(connection.channel, "flood")(b"700000") for _ in range(STREAMS)]
        await until(lambda: connection.server.open_streams == STREAMS)
        for stream in streams:
            stream.cancel()
        await until(lambda: connection.server.open_streams == 0)
        assert await method(connection.channel, "echo")(b"hello") == b"hello"
    lines = [json.loads(line) for line in capsys.readouterr().err.splitlines() if line.startswith("{")]
    assert [line for line in lines if line["event"] == "incident"] == []
    assert {line["code"] for line in lines if line.get("method") == path("flood")} == {"CANCELLED"}


async def test_a_write_that_the_runtime_refuses_is_an_incident_and_no_cancellation(
    capsys: pytest.CaptureFixture[str],
) -> None:
    configure_logging(log_format="json", level="info")
    handlers = Misbehaving()
    async with bare_server(handlers, stream_write_timeout_s=0.5) as connection:
        stream = method(connection.channel, "write_during_a_write")(b"700000")
        await until(lambda: handlers.cleaned_up == 1)
        messages, error = await stream_end(stream)
    assert ([len(message) for message in messages], error.code()) == ([700_000], grpc.StatusCode.INTERNAL)
    assert reason(error) == "INTERNAL"
    lines = [json.loads(line) for line in capsys.readouterr().err.splitlines() if line.startswith("{")]
    assert len([line for line in lines if line["event"] == "incident"]) == 1


async def test_a_stream_may_be_longer_than_the_default_deadline() -> None:
    async with bare_server(Misbehaving(), default_deadline_s=0.05) as connection:
        stream = method(connection.channel, "echo_stream")()
        started = time.monotonic()
        while time.monotonic() - started < 0.2:
            await stream.write(b"still here")
            assert await stream.read() == b"still here"
        await stream.done_writing()
        assert await stream.read() is aio.EOF


async def test_trap_6_cancelled_streams_give_back_everything() -> None:
    handlers = Misbehaving()
    async with bare_server(handlers, streams_max=7) as connection:
        idle = method(connection.channel, "idle")
        await _open_and_cancel(idle, 50)  # creates what is created only once
        gc.collect()
        before = _resident_bytes()
        await _open_and_cancel(idle, 1000)
        await until(lambda: handlers.cleaned_up == handlers.opened)
        gc.collect()
        # Each one carried 64 KiB. If they were kept, that would be 62 MiB.
        assert _resident_bytes() - before < 20 << 20
        assert connection.server.open_streams == 0
        # The slots were returned as well.
        streams = [idle(b"") for _ in range(7)]
        assert [len(await stream.read()) for stream in streams] == [1] * 7
        assert await health_of(connection, "liveness") == "SERVING"


async def _open_and_cancel(idle: aio.UnaryStreamMultiCallable, count: int) -> None:
    for _ in range(count):
        stream = idle(b"65536")
        while len(await stream.read()) != 65536:
            raise AssertionError("not what was asked for")
        stream.cancel()


def _resident_bytes() -> int:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * 4096
