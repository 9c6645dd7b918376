"""Where a call spends the server's time, function by function, by py-spy (`pip install py-spy`).

    python -m tests.bench.profile_calls get [--size 100000] [--seconds 20] [--gil] [--folder FOLDER]

`get` and `create` have 64 in flight; searches come one at a time; `bulk` loads further memories while hybrid searches
go on. With `--gil`, only what holds the interpreter lock counts; otherwise, every thread that does not wait for work.
The memories are those of `tests.bench.scale`, whose folders can be used here, too.

"Own" is the time in a function itself and in the C code that it calls; "below" also counts the functions that it calls.
"""

import asyncio
import shutil
import subprocess
import tempfile
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Iterator
from contextlib import contextmanager
from itertools import cycle
from pathlib import Path
from typing import Any, NamedTuple

import click
import grpc
from mnemon.v1 import common_pb2, memory_pb2, memory_pb2_grpc

from tests.bench import loads, machine
from tests.bench.processes import MnemonServer
from tests.bench.scale_calls import Caller, search_requests, searching_beside
from tests.bench.scale_data import USER_SIZE, Corpus, memory_id

RATE_HZ = 200
IN_A_ROW = 2_000
ADDED = 2_000
SHOWN = 25
_PRODUCT = "mnemon_server/"
_WAITING = {
    ("_worker", "concurrent/futures/thread.py"),
    *((name, "threading.py") for name in ("wait", "Condition.wait", "EpisodicEvent.wait", "run", "Thread.run")),
    *((name, "engines/sqlite/writer.py") for name in ("_gather", "Writer._gather")),
}
"""Where threads wait for work; gRPC's own does so in the C code that `run` calls. py-spy cannot tell on every machine
that they are asleep, nor on every interpreter the class of a method."""


class Frame(NamedTuple):
    """A function on a stack."""

    name: str
    path: str
    """From the package on."""

    @classmethod
    def read(cls, text: str) -> "Frame":
        """As py-spy writes it: `name (path)`."""
        name, _, path = text.rpartition(" (")
        path = path.removesuffix(")").rpartition(":")[0] or path.removesuffix(")")
        return cls(name, path[path.find(_PRODUCT) + len(_PRODUCT) :] if _PRODUCT in path else path)

    def __str__(self) -> str:
        return f"`{self.name}`, {self.path}"

    @property
    def waits(self) -> bool:
        """Whether a thread in the function itself has nothing to do."""
        return any(self.name == name and self.path.endswith(path) for name, path in _WAITING)

    @property
    def part(self) -> str:
        """The part of the server that it belongs to."""
        first, *others = self.path.split("/")
        if first in ("transport", "services", "engines", "ranking", "embedding", "domain", "wire"):
            return "/".join([first, *others[:1]]) if first in ("transport", "services", "engines") else first
        return "the event loop, and what the runtime does on it" if self.path == "asyncio/runners.py" else "libraries"


class Profile:
    """Samples of the server's stacks."""

    def __init__(self, lines: Iterable[str]) -> None:
        """`lines` are in py-spy's format "raw": a stack, from its root, and its number of samples."""
        self.total = 0
        self.own: Counter[Frame] = Counter()
        self.below: Counter[Frame] = Counter()
        self.threads: Counter[str] = Counter()
        self.parts: Counter[str] = Counter()
        for line in lines:
            stack, _, seen = line.rpartition(" ")
            thread, *names = stack.split(";")
            frames, count = [Frame.read(name) for name in names], int(seen)
            if frames[-1].waits:
                continue
            self.total += count
            self.threads[thread.partition(": ")[2].rstrip("0123456789_-") or thread] += count
            self.own[frames[-1]] += count
            self.parts[frames[-1].part] += count
            self.below.update(dict.fromkeys(frames, count))

    def tables(self) -> str:
        """Shares by thread, by part of the server and by function."""
        functions = [f"| {frame} | {self._share(n)} | {self._share(self.below[frame])} |" for frame, n in self._most()]
        return "\n".join(
            [
                *self._table("thread", self.threads),
                "",
                *self._table("own time in", self.parts),
                "",
                "| function | own | below |",
                "| --- | --- | --- |",
                *functions,
            ]
        )

    def _most(self) -> list[tuple[Frame, int]]:
        return self.own.most_common(SHOWN)

    def _table(self, what: str, counts: Counter[str]) -> Iterator[str]:
        yield from (f"| {what} | share |", "| --- | --- |")
        yield from (f"| {name} | {self._share(count)} |" for name, count in counts.most_common(SHOWN))

    def _share(self, count: int) -> str:
        return f"{100 * count / self.total:.1f} %"


class Load:
    """Makes calls of one kind until it is told to stop."""

    def __init__(self, server: MnemonServer, corpus: Corpus, size: int) -> None:
        self._server, self._corpus, self._size = server, corpus, size
        self._users = max(1, size // USER_SIZE)

    def of_kind(self, kind: str) -> Callable[[Callable[[], bool]], None]:
        """The load of this kind."""
        return {"get": self._get, "create": self._create, "bulk": self._bulk}.get(kind) or (
            lambda is_over: self._search(kind, is_over)
        )

    def _get(self, is_over: Callable[[], bool]) -> None:
        gets = [memory_pb2.GetMemoryRequest(memory_id=memory_id(number * 7919 % self._size)) for number in range(500)]
        self._in_flight(lambda stub, number: stub.GetMemory(gets[number % len(gets)]), is_over)

    def _create(self, is_over: Callable[[], bool]) -> None:
        [block] = self._corpus.blocks(0, IN_A_ROW)
        creates = loads.create_requests(block.vectors)
        self._in_flight(lambda stub, number: stub.CreateMemory(creates[number]), is_over)

    def _in_flight(self, call: Callable[[Any, int], Awaitable[Any]], is_over: Callable[[], bool]) -> None:
        while not is_over():
            asyncio.run(loads.calls_per_second(self._server.address, call, IN_A_ROW))

    def _search(self, kind: str, is_over: Callable[[], bool]) -> None:
        requests = list(search_requests(self._corpus, text=kind != "vector", vector=kind != "words"))
        for number, request in enumerate(requests):
            if kind == "words":
                request.mode = common_pb2.SEARCH_MODE_KEYWORD
            if kind == "user":
                request.filter.scope.user = f"u{number * 13 % self._users}"
        with grpc.insecure_channel(self._server.address) as channel:
            stub = memory_pb2_grpc.MemoryServiceStub(channel)
            for request in cycle(requests):
                if is_over():
                    return
                stub.SearchMemories(request)

    def _bulk(self, is_over: Callable[[], bool]) -> None:
        with (
            searching_beside(self._server.address, self._corpus),
            Caller(self._server, self._corpus, self._size) as caller,
        ):
            first = caller.count()
            while not is_over():
                caller.fill(list(self._corpus.blocks(first, first + ADDED)), lambda _: None)
                first += ADDED


@contextmanager
def _filled(folder: Path | None, corpus: Corpus, size: int) -> Iterator[MnemonServer]:
    """A server with `size` memories."""
    home = Path(tempfile.mkdtemp(prefix="mnemon-bench-")) if folder is None else folder / str(size)
    home.mkdir(parents=True, exist_ok=True)
    server = MnemonServer(home)
    try:
        with Caller(server, corpus, size) as caller:
            if (stored := caller.count()) < size:
                caller.fill(list(corpus.blocks(stored, size)), lambda _: None)
        server.wait_until_idle()
        yield server
    finally:
        server.stop()
        if folder is None:
            shutil.rmtree(home)


def _record(server: MnemonServer, load: Callable[[Callable[[], bool]], None], seconds: int, *, gil: bool) -> Profile:
    with tempfile.NamedTemporaryFile("r", encoding="utf-8") as file:
        options = ["--format", "raw", "--function", "--threads", "--rate", str(RATE_HZ), *(["--gil"] if gil else [])]
        command = ["py-spy", "record", "--pid", str(server.pid), "--duration", str(seconds), "--output", file.name]
        with subprocess.Popen([*command, *options], stdout=subprocess.DEVNULL) as recorder:
            load(lambda: recorder.poll() is not None)
        return Profile(file.read().splitlines())


@click.command()
@click.argument("kind", type=click.Choice(["get", "create", "hybrid", "user", "vector", "words", "bulk"]))
@click.option("--size", default=100_000, show_default=True, help="Memories in the vault.")
@click.option("--seconds", default=20, show_default=True, help="How long it is recorded.")
@click.option("--gil", is_flag=True, help="Counts only what holds the interpreter lock.")
@click.option("--folder", type=click.Path(path_type=Path), help="Where the vault stays; see `tests.bench.scale`.")
def main(kind: str, size: int, seconds: int, folder: Path | None, *, gil: bool) -> None:
    """Prints where the server spends the time of calls of one KIND; `user`: hybrid search of one user's memories."""
    if shutil.which("py-spy") is None:
        raise click.UsageError("py-spy is not on the PATH: pip install py-spy")
    corpus = Corpus()
    with _filled(folder, corpus, size) as server:
        profile = _record(server, Load(server, corpus, size).of_kind(kind), seconds, gil=gil)
    click.echo(f"{machine.describe()}\n\n{kind}, {size:,} memories; {profile.total:,} samples\n\n{profile.tables()}")


if __name__ == "__main__":
    main()
