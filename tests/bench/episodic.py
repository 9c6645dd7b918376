"""How fast the timeline is: appends beside a bare echo and raw file appends, windows and starts at a million events.

    python -m tests.bench.episodic [--events 1000000] [--users 1000] [--output FILE]
    python -m tests.bench.episodic --sizes 1000000,3000000,10000000     # how it grows; see timeline_sizes.py

Compared operations alternate within one run. Figures are medians over calls or rounds.
"""

import asyncio
import os
import statistics
import struct
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from time import perf_counter
from typing import Any

import click
import google_crc32c
import grpc
from grpc import aio
from mnemon.v1 import episodic_pb2
from rich.console import Console
from rich.progress import Progress

from tests.bench import loads
from tests.bench.processes import EchoServer, MnemonServer
from tests.bench.ratios import Row, at_least, at_most, rate_row, report, show, time_row
from tests.bench.timeline_events import TimelineEvents
from tests.bench.timeline_sizes import measure_sizes
from tests.bench.timelines import (
    BULK_SIZE,
    FLAGS,
    Stub,
    check,
    fill,
    made,
    read_files,
    timed,
    wait_for_sealing,
    warm_start,
)
from tests.support.timeline_messages import bulk

CALLS = 2_000
BULK_EVENTS = 40_000
STREAMS = 4
"""Bulk streams at once, each with its share of the events."""
WINDOWS = 200
DAYS = 365
ECHO_GOAL, RAW_GOAL, WINDOW_GOAL, START_GOAL, RESIDENT_GOAL = 0.5, 0.2, 2.0, 3.0, 60.0
BULK_GOAL, PROCESSOR_GOAL_S, BYSTANDER_GOAL_S = 20_000.0, 40e-6, 0.1


@dataclass(slots=True)
class _Samples:
    """Events per second, one value per round. Seconds, one value per call or round. Bytes per event."""

    single: list[float] = field(default_factory=list)
    single_echo: list[float] = field(default_factory=list)
    bulk: list[float] = field(default_factory=list)
    bulk_echo: list[float] = field(default_factory=list)
    bulk_raw: list[float] = field(default_factory=list)
    bulk_processor: list[float] = field(default_factory=list)
    bulk_streams: list[float] = field(default_factory=list)
    bystander: list[float] = field(default_factory=list)
    window: list[float] = field(default_factory=list)
    window_echo: list[float] = field(default_factory=list)
    start: list[float] = field(default_factory=list)
    read: list[float] = field(default_factory=list)
    read_all: list[float] = field(default_factory=list)
    resident: float = 0.0
    index: float = 0.0


class Measurement:
    """One run, in its own folder."""

    def __init__(self, folder: Path, events: TimelineEvents, rounds: int, advance: Callable[[int], None]) -> None:
        self._folder, self._events, self._rounds, self._advance = folder, events, rounds, advance
        self._samples = _Samples()
        self._next_number = events.count

    def run(self) -> list[Row]:
        """Measures everything, and returns the table."""
        empty = MnemonServer(made(self._folder / "empty"))
        floor = empty.resident_bytes()
        empty.stop()
        folder = made(self._folder / "timeline")
        server, echo = MnemonServer(folder, *FLAGS), EchoServer(self._folder)
        try:
            for _ in range(self._rounds):
                self._append_in_flight(server.address, echo.address)
                self._append_in_bulk(server, echo.address)
                self._append_in_streams(server)
            fill(server.address, self._events, self._advance)
            wait_for_sealing(server.address)
            server.stop()
            # The memory of a server that has the events, not of one that is receiving them.
            server = MnemonServer(folder, *FLAGS)
            server.wait_until_idle()
            self._samples.resident = (server.resident_bytes() - floor) / self._events.count
            self._query(server.address, echo.address)
        finally:
            echo.stop()
            server.stop()
        self._start(folder / "data" / "tenants" / "default")
        return self._rows()

    def _append_in_flight(self, address: str, echo: str) -> None:
        requests = [episodic_pb2.RecordEventRequest(event=event) for event in self._new(CALLS)]

        async def record(stub: Any, number: int) -> None:
            await stub.RecordEvent(requests[number])

        self._samples.single_echo.append(asyncio.run(loads.calls_per_second(echo, record, CALLS, Stub)))
        self._samples.single.append(asyncio.run(loads.calls_per_second(address, record, CALLS, Stub)))

    def _append_in_bulk(self, server: MnemonServer, echo: str) -> None:
        requests = self._bulk()
        bodies = [[item.event.SerializeToString() for item in request.requests] for request in requests]
        self._samples.bulk_raw.append(BULK_EVENTS / _append_raw(self._folder / "raw", bodies))
        self._samples.bulk_echo.append(BULK_EVENTS / asyncio.run(_stream(echo, requests)))
        server.wait_until_idle()
        used = server.processor_s()
        self._samples.bulk.append(BULK_EVENTS / asyncio.run(_stream(server.address, requests)))
        # What follows the commits, such as the text index, is a part of the cost.
        server.wait_until_idle()
        self._samples.bulk_processor.append((server.processor_s() - used) / BULK_EVENTS)

    def _append_in_streams(self, server: MnemonServer) -> None:
        requests = self._bulk()
        shares = [requests[number::STREAMS] for number in range(STREAMS)]
        single = [episodic_pb2.RecordEventRequest(event=event) for event in self._new(CALLS)]
        seconds, waits = asyncio.run(_streams(server.address, shares, single))
        self._samples.bulk_streams.append(BULK_EVENTS / seconds)
        self._samples.bystander += waits

    def _bulk(self) -> list[episodic_pb2.BulkRecordEventsRequest]:
        events = self._new(BULK_EVENTS)
        return [bulk(events[start : start + BULK_SIZE]) for start in range(0, BULK_EVENTS, BULK_SIZE)]

    def _new(self, count: int) -> list[episodic_pb2.EpisodicEvent]:
        """Events that happened after all others."""
        first, self._next_number = self._next_number, self._next_number + count
        return [self._events.event(number) for number in range(first, first + count)]

    def _query(self, address: str, echo: str) -> None:
        """A user's last 30 days, the newest 50 events, alternating with an echo of the same reply."""
        with grpc.insecure_channel(address) as channel, grpc.insecure_channel(echo) as floor:
            server, bare = Stub(channel), Stub(floor)
            bare.RecordEvent(episodic_pb2.RecordEventRequest(event=self._new(1)[0]))
            for number in range(self._rounds * WINDOWS + 20):
                request = episodic_pb2.QueryWindowRequest(last_days=30, limit=50)
                request.filter.scope.user = self._events.user(number)
                echoed, _ = timed(lambda request=request: bare.QueryWindow(request))
                served, answer = timed(lambda request=request: server.QueryWindow(request))
                if len(answer.results) < 50:
                    raise click.ClickException("a user has fewer than 50 events in 30 days: take fewer users")
                if number >= 20:
                    self._samples.window_echo.append(echoed)
                    self._samples.window.append(served)
            status = server.GetTimelineStatus(episodic_pb2.GetTimelineStatusRequest())
            self._samples.index = status.index_bytes / status.event_count

    def _start(self, vault: Path) -> None:
        """The time from opening a vault until its timeline answers, alternating with reading the files' bytes."""
        for _ in range(self._rounds):
            self._samples.read_all.append(read_files(vault / "timeline"))
            self._samples.read.append(_read_indexes(vault / "timeline"))
            self._samples.start.append(warm_start(vault))

    def _rows(self) -> list[Row]:
        samples = self._samples
        size = f"{self._events.count:,} events"
        resident = samples.resident
        return [
            rate_row("append, 64 in flight", samples.single, "echo", samples.single_echo, ECHO_GOAL),
            rate_row(f"append, {BULK_SIZE:,} a message", samples.bulk, "echo", samples.bulk_echo, ECHO_GOAL),
            rate_row(f"append, {BULK_SIZE:,} a message", samples.bulk, "raw file", samples.bulk_raw, RAW_GOAL),
            *self._bulk_rows(),
            time_row(
                f"a user's last 30 days, top 50, at {size}", samples.window, "echo", samples.window_echo, WINDOW_GOAL
            ),
            time_row(f"warm start at {size}", samples.start, "reading the index frames", samples.read, START_GOAL),
            time_row(f"warm start at {size}", samples.start, "reading the segments", samples.read_all, START_GOAL),
            Row(
                f"resident memory of an event at {size}",
                f"{resident:.1f} bytes",
                f"its index alone: {samples.index:.1f} bytes",
                "",
                at_most(resident, RESIDENT_GOAL),
            ),
        ]

    def _bulk_rows(self) -> list[Row]:
        samples, what = self._samples, f"append, {BULK_SIZE:,} a message"
        rate, together = statistics.median(samples.bulk), statistics.median(samples.bulk_streams)
        processor, slowest = statistics.median(samples.bulk_processor), max(samples.bystander)
        return [
            Row(what, f"{rate:,.0f}/s", "", "", at_least(rate, BULK_GOAL, "/s")),
            Row(
                f"server's processor time for an event, {BULK_SIZE:,} a message",
                f"{processor * 1e6:.0f} µs",
                "",
                "",
                at_most(processor * 1e6, PROCESSOR_GOAL_S * 1e6, " µs"),
            ),
            Row(
                f"{what}, {STREAMS} streams", f"{together:,.0f}/s", f"1 stream: {rate:,.0f}/s", f"{together / rate:.2f}"
            ),
            Row(
                f"an append beside {STREAMS} streams, the slowest of {len(samples.bystander):,}",
                f"{slowest * 1e3:.0f} ms",
                f"p50: {statistics.median(samples.bystander) * 1e3:.0f} ms",
                "",
                at_most(slowest * 1e3, BYSTANDER_GOAL_S * 1e3, " ms"),
            ),
        ]


async def _streams(address: str, shares: Sequence[Sequence[Any]], single: Sequence[Any]) -> tuple[float, list[float]]:
    """Seconds until everything sent through several streams is acknowledged, and those of each single append meanwhile,
    sent one after the other.
    """
    waits: list[float] = []
    async with aio.insecure_channel(address) as channel:
        await channel.channel_ready()
        streams = asyncio.gather(*(_stream(address, share) for share in shares))
        for request in single:
            began = perf_counter()
            await Stub(channel).RecordEvent(request)
            waits.append(perf_counter() - began)
            if streams.done():
                break
        return max(await streams), waits


async def _stream(address: str, requests: Sequence[Any]) -> float:
    """Seconds until everything sent through one stream is acknowledged."""
    async with aio.insecure_channel(address) as channel:
        await channel.channel_ready()
        started = perf_counter()
        async for answer in Stub(channel).BulkRecordEvents(iter(requests)):
            check(answer)
        return perf_counter() - started


def _append_raw(path: Path, batches: Sequence[Sequence[bytes]]) -> float:
    """Seconds for appending framed bodies to a file, each with a checksum, with a sync for each batch."""
    started = perf_counter()
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    try:
        for bodies in batches:
            frames = [struct.pack("<II", len(body), google_crc32c.value(body)) + body for body in bodies]
            os.write(file, b"".join(frames))
            os.fdatasync(file)
    finally:
        os.close(file)
    return perf_counter() - started


def _read_indexes(folder: Path) -> float:
    """Seconds for reading as many bytes as the summaries of the segments have, which a warm start reads."""
    started = perf_counter()
    for path in folder.glob("*.segment"):
        with path.open("rb") as file:
            file.read(1 << 18)
    return perf_counter() - started


@click.command()
@click.option("--events", default=1_000_000, show_default=True, help="Events that windows are asked of.")
@click.option("--users", default=1_000, show_default=True, help="Users that they are of.")
@click.option("--rounds", default=5, show_default=True, help="Rounds of each measurement.")
@click.option("--seed", default=11, show_default=True, help="Seed of everything.")
@click.option("--sizes", help="Numbers of events, such as 1000000,3000000: measures how reads, starts and memory grow.")
@click.option("--output", type=click.Path(path_type=Path), help="File that the table is added to.")
def main(events: int, users: int, rounds: int, seed: int, sizes: str | None, output: Path | None) -> None:
    """Measures the timeline on its own servers."""
    console = Console(stderr=True)
    if sizes:
        command = " ".join(["python -m tests.bench.episodic", *sys.argv[1:]])
        table = measure_sizes([int(size) for size in sizes.split(",")], seed, command, console)
        return show(table, output)
    with (
        tempfile.TemporaryDirectory(prefix="mnemon-bench-") as folder,
        Progress(console=console, disable=not console.is_terminal, transient=True) as progress,
    ):
        task = progress.add_task("Storing", total=events)
        timeline = TimelineEvents(events, users, DAYS, seed)
        measurement = Measurement(Path(folder), timeline, rounds, lambda done: progress.advance(task, done))
        rows = measurement.run()
    note = f"{events:,} events of {users:,} users within {DAYS} days; {rounds} rounds, each with {WINDOWS} windows."
    return report(rows, "tests.bench.episodic", note, output)


if __name__ == "__main__":
    main()
