"""How fast the timeline is: appends beside a bare echo and raw file appends, windows and starts at a million events.

    python -m tests.bench.episodic [--events 1000000] [--users 1000] [--output FILE]

Compared operations alternate within one run. Figures are medians over calls or rounds.
"""

import asyncio
import os
import statistics
import struct
import sys
import tempfile
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from time import monotonic, perf_counter, sleep
from typing import Any

import apsw
import click
import google_crc32c
import grpc
from grpc import aio
from mnemon.v1 import episodic_pb2, episodic_pb2_grpc
from mnemon_server.engines.sqlite_vault import SQLiteVault
from mnemon_server.engines.timeline.format.files import OsFiles
from mnemon_server.engines.timeline.format.segment_reader import SegmentReader
from rich.console import Console
from rich.progress import Progress

from tests.bench import loads
from tests.bench.processes import EchoServer, MnemonServer
from tests.bench.speed import Row, markdown
from tests.bench.timeline_events import TimelineEvents
from tests.support.timeline_messages import bulk

CALLS = 2_000
BULK_EVENTS, BULK_SIZE = 40_000, 1_000
WINDOWS = 200
DAYS = 365
FLAGS = ("--no-bridge-enabled",)
"""What the bridge makes of events is measured elsewhere: it would embed a good part of them meanwhile."""

SEAL_TIMEOUT_S = 600.0
ECHO_GOAL, RAW_GOAL, WINDOW_GOAL, START_GOAL, RESIDENT_GOAL = 0.5, 0.2, 2.0, 3.0, 60.0

_Stub = episodic_pb2_grpc.EpisodicMemoryServiceStub


@dataclass(slots=True)
class _Samples:
    """Events per second, one value per round. Seconds, one value per call or round. Bytes per event."""

    single: list[float] = field(default_factory=list)
    single_echo: list[float] = field(default_factory=list)
    bulk: list[float] = field(default_factory=list)
    bulk_echo: list[float] = field(default_factory=list)
    bulk_raw: list[float] = field(default_factory=list)
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
        empty = MnemonServer(_made(self._folder / "empty"))
        floor = empty.resident_bytes()
        empty.stop()
        folder = _made(self._folder / "timeline")
        server, echo = MnemonServer(folder, *FLAGS), EchoServer(self._folder)
        try:
            for _ in range(self._rounds):
                self._append_in_flight(server.address, echo.address)
                self._append_in_bulk(server.address, echo.address)
            asyncio.run(self._fill(server.address))
            _wait_for_sealing(server.address)
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

        self._samples.single_echo.append(asyncio.run(loads.calls_per_second(echo, record, CALLS, _Stub)))
        self._samples.single.append(asyncio.run(loads.calls_per_second(address, record, CALLS, _Stub)))

    def _append_in_bulk(self, address: str, echo: str) -> None:
        events = self._new(BULK_EVENTS)
        requests = [bulk(events[start : start + BULK_SIZE]) for start in range(0, BULK_EVENTS, BULK_SIZE)]
        bodies = [[item.event.SerializeToString() for item in request.requests] for request in requests]
        self._samples.bulk_raw.append(BULK_EVENTS / _append_raw(self._folder / "raw", bodies))
        self._samples.bulk_echo.append(BULK_EVENTS / asyncio.run(_stream(echo, requests)))
        self._samples.bulk.append(BULK_EVENTS / asyncio.run(_stream(address, requests)))

    def _new(self, count: int) -> list[episodic_pb2.EpisodicEvent]:
        """Events that happened after all others."""
        first, self._next_number = self._next_number, self._next_number + count
        return [self._events.event(number) for number in range(first, first + count)]

    async def _fill(self, address: str) -> None:
        async with aio.insecure_channel(address) as channel:

            async def requests() -> Any:
                for batch in self._events.batches(0, self._events.count, BULK_SIZE):
                    yield bulk(batch)

            async for answer in _Stub(channel).BulkRecordEvents(requests()):
                _check(answer)
                self._advance(len(answer.results))

    def _query(self, address: str, echo: str) -> None:
        """A user's last 30 days, the newest 50 events, alternating with an echo of the same reply."""
        with grpc.insecure_channel(address) as channel, grpc.insecure_channel(echo) as floor:
            server, bare = _Stub(channel), _Stub(floor)
            bare.RecordEvent(episodic_pb2.RecordEventRequest(event=self._new(1)[0]))
            for number in range(self._rounds * WINDOWS + 20):
                request = episodic_pb2.QueryWindowRequest(last_days=30, limit=50)
                request.filter.scope.user = self._events.user(number)
                echoed, _ = _timed(lambda request=request: bare.QueryWindow(request))
                served, answer = _timed(lambda request=request: server.QueryWindow(request))
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
            self._samples.read_all.append(_read_files(vault / "timeline"))
            self._samples.read.append(_read_indexes(vault / "timeline"))
            self._samples.start.append(_warm_start(vault))

    def _rows(self) -> list[Row]:
        samples = self._samples
        size = f"{self._events.count:,} events"
        resident = samples.resident
        return [
            _rate("append, 64 in flight", samples.single, "echo", samples.single_echo, ECHO_GOAL),
            _rate(f"append, {BULK_SIZE:,} a message", samples.bulk, "echo", samples.bulk_echo, ECHO_GOAL),
            _rate(f"append, {BULK_SIZE:,} a message", samples.bulk, "raw file", samples.bulk_raw, RAW_GOAL),
            _time(
                f"a user's last 30 days, top 50, at {size}", samples.window, "echo", samples.window_echo, WINDOW_GOAL
            ),
            _time(f"warm start at {size}", samples.start, "reading the index frames", samples.read, START_GOAL),
            _time(f"warm start at {size}", samples.start, "reading the segments", samples.read_all, START_GOAL),
            Row(
                f"resident memory of an event at {size}",
                f"{resident:.1f} bytes",
                f"its index alone: {samples.index:.1f} bytes",
                "",
                f"<= {RESIDENT_GOAL:g}: {'met' if resident <= RESIDENT_GOAL else 'missed'}",
            ),
        ]


async def _stream(address: str, requests: Sequence[Any]) -> float:
    """Seconds until everything sent through one stream is acknowledged."""
    async with aio.insecure_channel(address) as channel:
        await channel.channel_ready()
        started = perf_counter()
        async for answer in _Stub(channel).BulkRecordEvents(iter(requests)):
            _check(answer)
        return perf_counter() - started


def _check(answer: episodic_pb2.BulkRecordEventsResponse) -> None:
    if not answer.results[0].HasField("receipt"):
        raise click.ClickException(f"an event was not recorded: {answer.results[0].error}")


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


def _read_files(folder: Path) -> float:
    started = perf_counter()
    for path in folder.glob("*.segment"):
        path.read_bytes()
    return perf_counter() - started


def _wait_for_sealing(address: str) -> None:
    """Waits until only the active segment is in records.db."""
    deadline = monotonic() + SEAL_TIMEOUT_S
    with grpc.insecure_channel(address) as channel:
        with suppress(StopIteration):
            for _ in _Stub(channel).CompactTimeline(episodic_pb2.CompactTimelineRequest()):
                pass
        while _Stub(channel).GetTimelineStatus(episodic_pb2.GetTimelineStatusRequest()).unsealed_count:
            if monotonic() > deadline:
                raise click.ClickException("the segments were not sealed in time")
            sleep(0.1)


def _warm_start(vault: Path) -> float:
    started = perf_counter()
    opened = SQLiteVault(vault, model_identity=_model_identity(vault), dimension=384)
    try:
        if not opened.timeline.wait_until_warm(60.0):
            raise click.ClickException("the timeline was not warm in time")
        return perf_counter() - started
    finally:
        opened.close()


def _model_identity(vault: Path) -> str:
    connection = apsw.Connection(str(vault / "records.db"), flags=apsw.SQLITE_OPEN_READONLY)
    try:
        return str(connection.execute("SELECT value FROM meta WHERE key = 'embedding_model'").get)
    finally:
        connection.close()


def _read_indexes(folder: Path) -> float:
    """Seconds for reading the bytes that a warm start reads: the index frame of every segment."""
    files = OsFiles(folder)
    places = []
    for path in folder.glob("*.segment"):
        with SegmentReader(files, path.name, epoch=None) as reader:
            places.append((path, reader.footer.index_offset, reader.footer.index_length))
    started = perf_counter()
    for path, offset, length in places:
        with path.open("rb") as file:
            file.seek(offset)
            file.read(length)
    return perf_counter() - started


def _made(folder: Path) -> Path:
    folder.mkdir(parents=True)
    return folder


def _timed(call: Callable[[], Any]) -> tuple[float, Any]:
    started = perf_counter()
    result = call()
    return perf_counter() - started, result


def _rate(what: str, measured: list[float], beside_what: str, beside: list[float], goal: float) -> Row:
    ratio = statistics.median(one / other for one, other in zip(measured, beside, strict=True))
    return Row(
        what,
        f"{statistics.median(measured):,.0f}/s",
        f"{beside_what}: {statistics.median(beside):,.0f}/s",
        f"{ratio:.2f}",
        f">= {goal:g}: {'met' if ratio >= goal else 'missed'}",
    )


def _time(what: str, measured: list[float], beside_what: str, beside: list[float], goal: float) -> Row:
    ratio = statistics.median(measured) / statistics.median(beside)
    return Row(
        what,
        f"{statistics.median(measured) * 1e3:.2f} ms",
        f"{beside_what}: {statistics.median(beside) * 1e3:.2f} ms",
        f"{ratio:.2f}",
        f"<= {goal:g}: {'met' if ratio <= goal else 'missed'}",
    )


@click.command()
@click.option("--events", default=1_000_000, show_default=True, help="Events that windows are asked of.")
@click.option("--users", default=1_000, show_default=True, help="Users that they are of.")
@click.option("--rounds", default=5, show_default=True, help="Rounds of each measurement.")
@click.option("--seed", default=11, show_default=True, help="Seed of everything.")
@click.option("--output", type=click.Path(path_type=Path), help="File that the table is added to.")
def main(events: int, users: int, rounds: int, seed: int, output: Path | None) -> None:
    """Measures the timeline on its own servers."""
    console = Console(stderr=True)
    with (
        tempfile.TemporaryDirectory(prefix="mnemon-bench-") as folder,
        Progress(console=console, disable=not console.is_terminal, transient=True) as progress,
    ):
        task = progress.add_task("Storing", total=events)
        timeline = TimelineEvents(events, users, DAYS, seed)
        measurement = Measurement(Path(folder), timeline, rounds, lambda done: progress.advance(task, done))
        rows = measurement.run()
    command = " ".join(["python -m tests.bench.episodic", *sys.argv[1:]])
    note = f"{events:,} events of {users:,} users within {DAYS} days; {rounds} rounds, each with {WINDOWS} windows."
    table = markdown(rows, command=command, note=note)
    click.echo(table)
    if output:
        with output.open("a", encoding="utf-8") as file:
            file.write(f"\n{table}")


if __name__ == "__main__":
    main()
