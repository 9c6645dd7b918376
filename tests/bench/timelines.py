"""Timelines for measurements: filled over gRPC, sealed, and opened again."""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from time import monotonic, perf_counter, sleep
from typing import Any

import apsw
import click
import grpc
from grpc import aio
from mnemon.v1 import episodic_pb2, episodic_pb2_grpc
from mnemon_server.engines.sqlite_vault import SQLiteVault

from tests.bench.timeline_events import TimelineEvents
from tests.support.databases import open_database
from tests.support.timeline_messages import bulk

BULK_SIZE = 1_000
FLAGS = ("--no-bridge-enabled", "--no-timeline-embeddings")
"""What the bridge makes of events is measured elsewhere, and so are embeddings: a million vectors take hours."""
SEAL_TIMEOUT_S = 600.0

Stub = episodic_pb2_grpc.EpisodicMemoryServiceStub


def fill(address: str, events: TimelineEvents, advance: Callable[[int], None]) -> None:
    """Records all of these events through one stream."""
    asyncio.run(_fill(address, events, advance))


async def _fill(address: str, events: TimelineEvents, advance: Callable[[int], None]) -> None:
    async with aio.insecure_channel(address) as channel:

        async def requests() -> Any:
            for batch in events.batches(0, events.count, BULK_SIZE):
                yield bulk(batch)

        async for answer in Stub(channel).BulkRecordEvents(requests()):
            check(answer)
            advance(len(answer.results))


def check(answer: episodic_pb2.BulkRecordEventsResponse) -> None:
    """Raises ClickException if an event was not recorded."""
    if not answer.results[0].HasField("receipt"):
        raise click.ClickException(f"an event was not recorded: {answer.results[0].error}")


def read_files(folder: Path) -> float:
    """Seconds for reading all segments."""
    started = perf_counter()
    for path in folder.glob("*.segment"):
        path.read_bytes()
    return perf_counter() - started


def wait_for_sealing(address: str) -> None:
    """Waits until only the active segment is in records.db."""
    deadline = monotonic() + SEAL_TIMEOUT_S
    with grpc.insecure_channel(address) as channel:
        with suppress(StopIteration):
            for _ in Stub(channel).CompactTimeline(episodic_pb2.CompactTimelineRequest()):
                pass
        while Stub(channel).GetTimelineStatus(episodic_pb2.GetTimelineStatusRequest()).unsealed_count:
            if monotonic() > deadline:
                raise click.ClickException("the segments were not sealed in time")
            sleep(0.1)


def warm_start(vault: Path) -> float:
    """Seconds from opening a vault until its timeline answers."""
    started = perf_counter()
    opened = SQLiteVault(vault, model_identity=_model_identity(vault), dimension=384)
    try:
        if not opened.events.wait_until_warm(60.0):
            raise click.ClickException("the timeline was not warm in time")
        return perf_counter() - started
    finally:
        opened.close()


def _model_identity(vault: Path) -> str:
    connection = open_database(vault / "records.db", flags=apsw.SQLITE_OPEN_READONLY)
    try:
        return str(connection.execute("SELECT value FROM meta WHERE key = 'embedding_model'").get)
    finally:
        connection.close()


def made(folder: Path) -> Path:
    """The folder, which is created."""
    folder.mkdir(parents=True)
    return folder


def timed(call: Callable[[], Any]) -> tuple[float, Any]:
    """Seconds, and the result."""
    started = perf_counter()
    result = call()
    return perf_counter() - started, result
