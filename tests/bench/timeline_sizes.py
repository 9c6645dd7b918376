"""How a timeline grows: reads, starts, erasing, memory and disk at several numbers of events.

Each size has a server of its own, whose events are of one user per thousand, within a year. Times are wall times over
gRPC, medians, and for the window that agents ask for most also the 99th percentile.
"""

import statistics
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from time import monotonic, perf_counter, sleep
from typing import Any

import click
import grpc
from mnemon.v1 import common_pb2, episodic_pb2
from rich.console import Console

from tests.bench import machine
from tests.bench.processes import EchoServer, MnemonServer
from tests.bench.texts import written
from tests.bench.timeline_events import TimelineEvents
from tests.bench.timelines import FLAGS, Stub, fill, made, read_files, timed, wait_for_sealing, warm_start

DAYS, EVER_DAYS = 365, 36_500
USER_EVENTS = 1_000
CALLS, WINDOWS = 100, 1_000
"""Calls of a query of one user, and of the windows of one; a query of everybody gets a tenth of the calls."""
SETTLE_TIMEOUT_S = 7_200.0
SEGMENTS = Path("data/tenants/default/timeline")

Cells = dict[str, str]
"""The column of one size: values by the names of rows."""


def measure_sizes(sizes: Sequence[int], seed: int, command: str, console: Console) -> str:
    """Measures all sizes, and returns the table."""
    columns: list[Cells] = []
    for size in sizes:
        with tempfile.TemporaryDirectory(prefix="mnemon-bench-") as folder:
            began = perf_counter()
            columns.append(_Size(Path(folder), size, seed).run())
            console.print(f"{size:,} events took {perf_counter() - began:,.0f} s: {columns[-1]}")
    heads = ["what", *(f"{size:,}" for size in sizes)]
    lines = [heads, ["---"] * len(heads)]
    lines += [[what, *(column[what] for column in columns)] for what in columns[0]]
    note = (
        f"Events within {DAYS} days, {USER_EVENTS:,} of each user; {WINDOWS:,} windows of a user, {CALLS} of each other"
        " call, a tenth for everybody's."
    )
    return "\n".join([machine.describe(), "", f"    {command}", "", note, "", *map(_line, lines), ""])


class _Size:
    """One size, in its own folder."""

    def __init__(self, folder: Path, size: int, seed: int) -> None:
        self._folder = folder
        self._workload = written(seed)
        self._events = TimelineEvents(size, max(1, size // USER_EVENTS), DAYS, seed, self._workload.next_texts)
        self._cells: Cells = {}

    def run(self) -> Cells:
        """Measures everything; returns the column."""
        empty, started = _started(made(self._folder / "empty"))
        floor = empty.resident_bytes()
        empty.stop()
        home = made(self._folder / "timeline")
        server, _ = _started(home)
        try:
            self._fill(server.address)
            server.kill()
            server, restarted = _started(home)
            self._cells["start after kill -9, beside that of an empty vault"] = f"{restarted:.1f} s, {started:.1f} s"
            _settle(server.address)
            wait_for_sealing(server.address)
            server.stop()
            server, _ = _started(home)
            server.wait_until_idle()
            self._sizes(server, floor, home)
            self._query(server.address)
            self._erase(server.address)
        finally:
            server.stop()
        self._start(home)
        return self._cells

    def _fill(self, address: str) -> None:
        began = perf_counter()
        fill(address, self._events, lambda _: None)
        filled = perf_counter() - began
        _settle(address)
        self._cells["recorded in bulk"] = f"{self._events.count / filled:,.0f}/s"
        self._cells["until words and segments are complete"] = f"{perf_counter() - began - filled:,.0f} s more"

    def _sizes(self, server: MnemonServer, floor: int, home: Path) -> None:
        count = self._events.count
        resident = (server.resident_bytes() - floor) / count
        disk = sum(path.stat().st_size for path in (home / "data").rglob("*") if path.is_file())
        self._cells["resident memory of an event"] = f"{resident:.1f} bytes"
        self._cells["disk of an event, its row in segments"] = (
            f"{disk / count:,.0f} bytes, {_bytes_of(home / SEGMENTS) / count:,.0f} bytes"
        )

    def _query(self, address: str) -> None:
        echo = EchoServer(self._folder)
        try:
            with grpc.insecure_channel(address) as channel, grpc.insecure_channel(echo.address) as bare:
                self._ask(Stub(channel), Stub(bare))
        finally:
            echo.stop()

    def _ask(self, server: Any, bare: Any) -> None:
        bare.RecordEvent(episodic_pb2.RecordEventRequest(event=self._events.event(0)))
        texts = self._workload.next_queries(CALLS)
        windows = _milliseconds(lambda i: server.QueryWindow(self._window(i, 30)), WINDOWS)
        took, slow = statistics.median(windows), statistics.quantiles(windows, n=100)[98]
        echoed = _median(lambda i: bare.QueryWindow(self._window(i, 30)), WINDOWS)
        self._cells["a user's last 30 days, top 50"] = f"{took:.2f} ms, p99 {slow:.2f} ms, {took / echoed:.1f} x echo"
        newest = server.QueryWindow(self._window(None, 30)).results[0].event.event_id
        few = CALLS // 10
        for what, count, call in (
            ("everybody's last 30 days, top 50", few, lambda i: server.QueryWindow(self._window(None, 30))),
            ("words, a user's", CALLS, lambda i: server.QueryWindow(self._window(i, EVER_DAYS, texts[i]))),
            ("words, everybody's last 30 days", few, lambda i: server.QueryWindow(self._window(None, 30, texts[i]))),
            ("words, everybody's", few, lambda i: server.QueryWindow(self._window(None, EVER_DAYS, texts[i]))),
            ("counts of a user", CALLS, lambda i: server.SummarizeRange(self._summary(i))),
            ("counts of everybody", few, lambda i: server.SummarizeRange(self._summary(None))),
            ("an event by its id", CALLS, lambda i: server.GetEvent(episodic_pb2.GetEventRequest(event_id=newest))),
            ("GetTimelineStatus", CALLS, lambda i: _status(server)),
        ):
            self._cells[what] = f"{_median(call, count):.2f} ms"

    def _erase(self, address: str) -> None:
        """Prunes one user's events, and waits until no file has them."""
        request = episodic_pb2.PruneEventsRequest()
        request.filter.scope.user = self._events.user(7)
        with grpc.insecure_channel(address) as channel:
            took, answer = timed(lambda: Stub(channel).PruneEvents(request))
            began = perf_counter()
            _settle(address)
            self._cells["pruning a user's events, until erased"] = (
                f"{took * 1e3:.0f} ms for {answer.pruned_count:,}, {perf_counter() - began:.1f} s"
            )

    def _start(self, home: Path) -> None:
        read = statistics.median(read_files(home / SEGMENTS) for _ in range(3))
        start = statistics.median(warm_start((home / SEGMENTS).parent) for _ in range(3))
        self._cells["warm start, in process"] = f"{start:.2f} s, {start / read:.1f} x reading the segments"

    def _window(self, user: int | None, days: int, text: str | None = None) -> episodic_pb2.QueryWindowRequest:
        request = episodic_pb2.QueryWindowRequest(last_days=days, limit=50, query=text)
        request.mode = common_pb2.SEARCH_MODE_KEYWORD if text else common_pb2.SEARCH_MODE_UNSPECIFIED
        if user is not None:
            request.filter.scope.user = self._events.user(user)
        return request

    def _summary(self, user: int | None) -> episodic_pb2.SummarizeRangeRequest:
        request = episodic_pb2.SummarizeRangeRequest()
        if user is not None:
            request.filter.scope.user = self._events.user(user)
        return request


def _started(folder: Path) -> tuple[MnemonServer, float]:
    """A server whose timeline answers, and the seconds that it took."""
    began = perf_counter()
    server = MnemonServer(folder, *FLAGS)
    with grpc.insecure_channel(server.address) as channel:
        while _status(Stub(channel)).state != common_pb2.STATE_READY:
            sleep(0.01)
    return server, perf_counter() - began


def _settle(address: str) -> None:
    """Waits until all words are in the text index, at most one segment is open, and nothing removed is left."""
    deadline = monotonic() + SETTLE_TIMEOUT_S
    with grpc.insecure_channel(address) as channel:
        while True:
            status = _status(Stub(channel))
            waiting = status.text_pending_count + status.removal_pending_count
            if not waiting and status.unsealed_count <= 100_000:
                return
            if monotonic() > deadline:
                raise click.ClickException("the background work did not end in time")
            sleep(0.1)


def _status(server: Any) -> episodic_pb2.GetTimelineStatusResponse:
    status: episodic_pb2.GetTimelineStatusResponse = server.GetTimelineStatus(episodic_pb2.GetTimelineStatusRequest())
    return status


def _median(call: Callable[[int], Any], count: int) -> float:
    """The median of the milliseconds of calls."""
    return statistics.median(_milliseconds(call, count))


def _milliseconds(call: Callable[[int], Any], count: int) -> list[float]:
    """The milliseconds of calls, after one that does not count."""
    call(0)
    return [timed(lambda number=number: call(number))[0] * 1e3 for number in range(count)]


def _bytes_of(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.glob("*.segment"))


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"
