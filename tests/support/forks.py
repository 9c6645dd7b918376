"""Processes that begin as copies of one that has imported the commands, which takes seconds of processor time.

That one is Python's fork server, of which each process of the tests has one. It imports, and does nothing else: threads
and connections begin in the copies. How a command starts as a program of its own: `e2e/test_process.py`.
"""

import faulthandler
import importlib
import io
import multiprocessing
import os
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from multiprocessing import connection, reduction
from multiprocessing.process import _children  # type: ignore[attr-defined]
from pathlib import Path
from typing import Any, BinaryIO, Protocol, TextIO, cast

FORKS = multiprocessing.get_context("forkserver")
FORKS.set_forkserver_preload(
    [
        "mnemon_server.cli",
        "mnemon_server.commands.serving",
        "chromadb.cli.cli",
        "mnemon._cli.app",
        "mnemon._mcp.server",
        "tests.support.settled",
    ]
)


class Process(Protocol):
    """The part of `subprocess.Popen` that tests use."""

    @property
    def pid(self) -> int:
        """Its id."""

    def poll(self) -> int | None:
        """The exit code, negative for a signal; None while it runs."""

    def wait(self, timeout: float | None = None) -> int:
        """The exit code, once it has ended. Raises subprocess.TimeoutExpired after so many seconds."""

    def send_signal(self, sig: int) -> None:
        """Sends a signal, unless it has ended."""

    def kill(self) -> None:
        """Ends it at whatever point it is."""


class Fork:
    """One copy, in which a function runs."""

    def __init__(
        self,
        run: Callable[..., None],
        *arguments: Any,
        environment: Mapping[str, str],
        out: BinaryIO,
        err: BinaryIO | None = None,
        given: BinaryIO | None = None,
    ) -> None:
        """Starts it.

        Args:
            run: a function at the top of a module.
            arguments: what it is called with.
            environment: all variables of the process.
            out: where its standard output goes: a file that has a descriptor.
            err: the same for its standard error; None: where that of the tests goes.
            given: what it reads as its standard input; None: nothing.
        """
        streams = [_Descriptor(number, file.fileno()) for number, file in enumerate((given, out, err)) if file]
        self._process = FORKS.Process(target=_run, args=(run, arguments, Path.cwd(), dict(environment), streams))
        self._asking = threading.Lock()
        self._process.start()
        # As with `subprocess.Popen`, its owner alone waits for it; the end of the tests does not.
        _children.discard(self._process)

    @property
    def pid(self) -> int:
        """Its id."""
        assert self._process.pid is not None
        return self._process.pid

    def poll(self) -> int | None:
        """The exit code, negative for a signal; None while it runs."""
        with self._asking:
            return self._process.exitcode

    def wait(self, timeout: float | None = None) -> int:
        """The exit code, once it has ended. Raises subprocess.TimeoutExpired after so many seconds."""
        connection.wait([self._process.sentinel], timeout)
        if (code := self.poll()) is None:
            raise subprocess.TimeoutExpired(self._process.name, timeout or 0)
        return code

    def send_signal(self, sig: int) -> None:
        """Sends a signal, unless it has ended."""
        # The fork server may have waited for it, and not told so yet.
        with suppress(ProcessLookupError):
            if self.poll() is None:
                os.kill(self.pid, sig)

    def kill(self) -> None:
        """Ends it at whatever point it is."""
        self.send_signal(signal.SIGKILL)


class PipedFork(Fork):
    """One copy, with pipes to its standard streams."""

    def __init__(self, run: Callable[..., None], *arguments: Any, environment: Mapping[str, str]) -> None:
        """Starts it. Close `stdin` to end its input."""
        given, self.stdin = _pipe()
        self.stdout, out = _pipe()
        self.stderr, err = _pipe()
        with given, out, err:
            super().__init__(run, *arguments, environment=environment, given=given, out=out, err=err)


@contextmanager
def python(program: str, *words: str | Path) -> Iterator[tuple[Fork, TextIO]]:
    """A Python program, as with `python -c`, and what it prints. It is killed afterwards."""
    reading, writing = _pipe()
    with io.TextIOWrapper(io.BufferedReader(cast(io.RawIOBase, reading))) as printed:
        with writing:
            process = Fork(_run_program, program, words, environment=os.environ, out=writing)
        try:
            yield process, printed
        finally:
            process.kill()
            process.wait()


def run_python(
    program: str, *words: str | Path, folders: Sequence[Path] = (), timeout_s: float = 120
) -> subprocess.CompletedProcess[str]:
    """Runs a Python program, as with `python -c`, until it ends. It finds modules in these folders first."""
    return run_to_end(Fork, _run_program, program, words, folders, environment=os.environ, timeout_s=timeout_s)


def run_to_end(
    begin: Callable[..., Process], *arguments: Any, timeout_s: float, **options: Any
) -> subprocess.CompletedProcess[str]:
    """Starts a process, `begin(*arguments, **options, out=..., err=...)`, and returns what it printed."""
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        process = begin(*arguments, **options, out=out, err=err)
        try:
            code = process.wait(timeout_s)
        finally:
            process.kill()
        texts = [(file.seek(0), file.read().decode())[1] for file in (out, err)]
    return subprocess.CompletedProcess(arguments, code, *texts)


def start(*words: str, environment: Mapping[str, str], out: BinaryIO, err: BinaryIO, program: bool = False) -> Process:
    """Starts `mnemon-server`: as a copy, or with `program` as anybody starts it."""
    if program:
        return subprocess.Popen(
            [sys.executable, "-m", "mnemon_server", *words], env=dict(environment), stdout=out, stderr=err
        )
    return Fork(run_main, "mnemon_server.__main__", words, environment=environment, out=out, err=err)


def run_main(module: str, words: Sequence[str]) -> None:
    """Calls the `main` of a module, with these arguments of the command line."""
    sys.argv = [module, *words]
    importlib.import_module(module).main()


def _run_program(program: str, words: Sequence[str | Path], folders: Sequence[Path] = ()) -> None:
    sys.argv = ["-c", *map(str, words)]
    sys.path[:0] = map(str, folders)
    exec(program, {"__name__": "__main__"})  # noqa: S102 - a test's own


def _pipe() -> tuple[BinaryIO, BinaryIO]:
    reading, writing = os.pipe()
    return os.fdopen(reading, "rb", 0), os.fdopen(writing, "wb", 0)


class _Descriptor:
    """A descriptor that the process gets, under the number that it is to have there."""

    def __init__(self, number: int, opened: int) -> None:
        self.number, self.opened = number, opened

    def __reduce__(self) -> tuple[Any, ...]:
        return _Descriptor._received, (self.number, reduction.DupFd(self.opened))

    @staticmethod
    def _received(number: int, passed: Any) -> "_Descriptor":
        return _Descriptor(number, passed.detach())


def _run(
    run: Callable[..., None],
    arguments: Sequence[Any],
    folder: Path,
    environment: Mapping[str, str],
    streams: Sequence[_Descriptor],
) -> None:
    os.chdir(folder)
    faulthandler.enable()
    os.environ.clear()
    os.environ.update(environment)
    for stream in streams:
        os.dup2(stream.opened, stream.number)
        os.close(stream.opened)
    run(*arguments)
