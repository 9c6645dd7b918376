"""A server inside this process, on a private socket: what `mnemon.Mnemon` and `mnemon.AsyncMnemon` connect to.

The server runs on a thread with its own event loop. Its socket is in a folder that only this user can access.
"""

import asyncio
import os

# Imported before the exit callback is registered: callbacks run in reverse order, and the one of this module forbids
# new work in every thread pool.
import shutil
import tempfile
import threading
from collections.abc import Mapping
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import replace
from os import PathLike
from pathlib import Path
from typing import Any

from mnemon_server import app
from mnemon_server.assembly.settings import is_in_memory
from mnemon_server.commands.serving import loop_factory
from mnemon_server.config.loading import settings_from_arguments
from mnemon_server.config.settings import SETTINGS, Settings
from mnemon_server.config.values import parse_value
from mnemon_server.domain.errors import ConfigurationError
from mnemon_server.engines.private import refused
from mnemon_server.logs import leave_logs_to_the_program
from mnemon_server.transport.listening import SOCKET_BYTES_MAX

BACKEND = "local"
"""The default index for documents: one that needs no process of its own."""
_SOCKET = "mnemon.sock"

_running: set["EmbeddedServer"] = set()
_starting = threading.Lock()
_copies: list["EmbeddedServer"] = []
"""The parent's servers after a fork. They are never freed, since that would close what the parent uses."""
_has_started = False
_is_copy = False
"""True in a child of a process that had started a server: it lacks the gRPC threads that every later server needs."""


class EmbeddedServer:
    """A server on a thread of this process. It stops at the latest when the main thread ends."""

    def __init__(self, data_dir: str | PathLike[str], arguments: Mapping[str, Any], *, opened_at: str) -> None:
        """Starts the server and returns before it serves.

        Args:
            data_dir: the folder of the vault. No other server may use it at the same time.
            arguments: settings by name, except for the addresses. No file and no environment variable is read.
            opened_at: where the program opens the vault, for the error of a second opening.

        Raises:
            ConfigurationError: a setting is invalid, or this program already has the folder open.
        """
        chosen = _settings(data_dir, arguments)
        leave_logs_to_the_program()
        self.folder = chosen.data_dir
        self._opened_at = opened_at
        self._shares_folder = is_in_memory(chosen)
        self._task: Future[asyncio.Task[None]] = Future()
        self._ready: Future[None] = Future()
        self._stop_requested = threading.Lock()
        self._thread = threading.Thread(target=self._run, name="mnemon-embedded", daemon=True)
        with _starting:
            _check_process()
            self._wait_for_the_folder()
            self._socket_folder = _socket_folder()
            self._settings = replace(chosen, listen=f"unix:{self._socket_folder}/{_SOCKET}")
            _running.add(self)
            self._thread.start()

    @property
    def address(self) -> str:
        """The address of the socket."""
        return self._settings.listen

    def wait_until_ready(self) -> None:
        """Blocks until the server serves. Raises the error if it cannot start."""
        self._ready.result()

    def request_stop(self) -> None:
        """Lets the server shut down gracefully, even while it starts. Does not block. Further calls have no effect."""
        # Locked once and never released. A second cancellation would interrupt the shutdown.
        if self._stop_requested.acquire(blocking=False):
            self._task.add_done_callback(_cancel)

    def stop(self) -> None:
        """Shuts the server down gracefully. Blocks until it has. Further calls have no effect."""
        self.request_stop()
        self._thread.join()

    def _wait_for_the_folder(self) -> None:
        """Waits until a server of the same folder has shut down. Raises ConfigurationError for one that goes on."""
        if self._shares_folder:
            return
        for other in [each for each in _running.copy() if each.folder == self.folder and not each._shares_folder]:
            if not other._stop_requested.locked():
                raise ConfigurationError(
                    f"the vault in {str(self.folder)!r} is already open in this program: it was opened at "
                    f"{other._opened_at}; use that object, or close it first"
                )
            other._thread.join()

    def _run(self) -> None:
        failure: BaseException | None = None
        try:
            with asyncio.Runner(loop_factory=loop_factory()) as runner:
                runner.run(self._serve())
        except OSError as error:
            failure = refused(error)
        except BaseException as error:  # noqa: BLE001 - the caller that waits for the start gets the error
            failure = error
        shutil.rmtree(self._socket_folder, ignore_errors=True)
        _running.discard(self)
        if not self._ready.done():
            self._ready.set_exception(failure)

    async def _serve(self) -> None:
        task = asyncio.current_task()
        assert task is not None  # noqa: S101 - a running coroutine belongs to a task
        self._task.set_result(task)
        async with app.running_server(self._settings, report=_ignore_progress, private=True):
            self._ready.set_result(None)
            await asyncio.Event().wait()


def _cancel(future: Future[asyncio.Task[None]]) -> None:
    task = future.result()
    # The loop is closed if the server has already ended.
    with suppress(RuntimeError):
        task.get_loop().call_soon_threadsafe(task.cancel)


def _leave_to_the_parent() -> None:
    """Gives up all servers in the child of a fork: their threads are not there, and their files are the parent's."""
    global _starting, _is_copy
    _starting, _is_copy = threading.Lock(), _is_copy or _has_started
    for server in _running:
        server._stop_requested.acquire(blocking=False)
    _copies.extend(_running)
    _running.clear()


os.register_at_fork(after_in_child=_leave_to_the_parent)


def _stop_all() -> None:
    servers = list(_running)
    for server in servers:
        server.request_stop()
    for server in servers:
        server.stop()


# Not `atexit`, which is too late: thread pools take no work by then, and a graceful shutdown needs them.
threading._register_atexit(_stop_all)  # type: ignore[attr-defined]


def _check_process() -> None:
    global _has_started  # noqa: PLW0603 - it says something of the process
    if _is_copy:
        raise ConfigurationError(
            "a vault cannot be opened here: this process was forked from one that had opened a vault before. Open it "
            "after the fork alone, or start the process anew (multiprocessing: start method 'spawn' or 'forkserver')"
        )
    _has_started = True


def _settings(data_dir: str | PathLike[str], arguments: Mapping[str, Any]) -> Settings:
    for name in ("listen", "http_listen", "metrics_listen"):
        if name in arguments:
            raise ConfigurationError(f"an embedded vault listens on a private socket: omit {name}")
    if data_dir == ":memory:":
        raise ConfigurationError(
            "':memory:' would be a folder of this name: a vault is in files, which a temporary folder removes: "
            "with tempfile.TemporaryDirectory() as folder, Mnemon(folder) as memory"
        )
    # The program may change its working directory later.
    folder = parse_value(SETTINGS["data_dir"], os.fspath(data_dir), "argument").resolve()
    return settings_from_arguments({"knowledge_store_backend": BACKEND, **arguments, "data_dir": folder})


def _socket_folder() -> str:
    """A new folder that no other user can access."""
    try:
        folder = Path(tempfile.mkdtemp(prefix="mnemon-"))
    except OSError as error:
        raise ConfigurationError(f"the vault's socket needs a temporary folder: {error}; set TMPDIR to one") from error
    if len(os.fsencode(folder / _SOCKET)) > SOCKET_BYTES_MAX:
        folder.rmdir()
        raise ConfigurationError(
            f"the path of a socket may have {SOCKET_BYTES_MAX} bytes, and that of the vault, in {folder}, would have "
            "more: set TMPDIR to a folder with a shorter path"
        )
    return str(folder)


def _ignore_progress(_: str) -> None:
    """Ignores progress reports."""
