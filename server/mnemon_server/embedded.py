"""A vault inside this process: a normal server on a private socket, with a client connected to it.

    with open_embedded("data") as memory:
        memory.facts.put(("user", "ada"), "seat", {"content": "Ada prefers window seats."})

The client can do everything that it can with a separate server, with the same guarantees. The server runs on a thread
with its own event loop. Its socket is in a folder that only this user can access.
"""

import asyncio
import tempfile
import threading
from collections.abc import AsyncIterator, Iterator, Mapping
from concurrent.futures import Future
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import replace
from os import PathLike
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

from mnemon_server import app
from mnemon_server.commands.serving import loop_factory
from mnemon_server.config.settings import Settings, settings_from_arguments
from mnemon_server.domain.errors import ConfigurationError
from mnemon_server.logs import leave_logs_to_the_program

if TYPE_CHECKING:
    from mnemon import AsyncClient, Client

BACKEND = "local"
"""The default index for documents: one that needs no process of its own."""
_SOCKET = "mnemon.sock"


@contextmanager
def open_embedded(data_dir: str | PathLike[str], **settings: Any) -> Iterator["Client"]:
    """A client of the vault in a folder. Both are closed at the end of the block.

    Args:
        data_dir: the folder. No other process may use it at the same time.
        settings: settings of `mnemon-server` by name, except `listen`. No file and no environment variable is read.

    Raises:
        ConfigurationError: a setting is invalid, or the folder is not available, e.g. used by another process.
        EmbeddingError: the model is not available. The message says how to get it.
    """
    from mnemon import Client

    leave_logs_to_the_program()
    with _Serving(data_dir, settings) as address, Client(address) as client:
        yield client


@asynccontextmanager
async def open_embedded_async(data_dir: str | PathLike[str], **settings: Any) -> AsyncIterator["AsyncClient"]:
    """Like `open_embedded`, with a client for the running event loop. The server uses another one."""
    from mnemon import AsyncClient

    leave_logs_to_the_program()
    serving = _Serving(data_dir, settings)
    try:
        address = await asyncio.to_thread(serving.start)
        async with AsyncClient(address) as client:
            yield client
    finally:
        await asyncio.to_thread(serving.stop)


class _Serving:
    """A server on a thread with its own event loop. As a context manager, it returns the server's address."""

    def __init__(self, data_dir: str | PathLike[str], arguments: Mapping[str, Any]) -> None:
        chosen = _settings(data_dir, arguments)
        # No other user can access a folder that is created this way.
        self._folder = tempfile.TemporaryDirectory(prefix="mnemon-")
        self._settings = replace(chosen, listen=f"unix:{self._folder.name}/{_SOCKET}")
        self._task: Future[asyncio.Task[None]] = Future()
        self._ready: Future[None] = Future()
        self._thread = threading.Thread(target=self._run, name="mnemon-embedded", daemon=True)

    def __enter__(self) -> str:
        try:
            return self.start()
        except BaseException:
            self.stop()
            raise

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def start(self) -> str:
        """Starts the server and returns its address. Raises the error if it cannot start. Blocks."""
        self._thread.start()
        self._ready.result()
        return self._settings.listen

    def stop(self) -> None:
        """Shuts the server down gracefully, even while it starts. Blocks. Further calls have no effect."""
        if self._thread.ident is not None:
            task = self._task.result()
            # The loop is closed if the server has already ended.
            with suppress(RuntimeError):
                task.get_loop().call_soon_threadsafe(task.cancel)
            self._thread.join()
        self._folder.cleanup()

    def _run(self) -> None:
        try:
            with asyncio.Runner(loop_factory=loop_factory()) as runner:
                runner.run(self._serve())
        except BaseException as error:  # noqa: BLE001 - the caller that waits for the start gets the error
            if not self._ready.done():
                self._ready.set_exception(error)

    async def _serve(self) -> None:
        task = asyncio.current_task()
        assert task is not None  # noqa: S101 - a running coroutine belongs to a task
        self._task.set_result(task)
        async with app.running_server(self._settings, report=_ignore_progress):
            self._ready.set_result(None)
            await asyncio.Event().wait()


def _settings(data_dir: str | PathLike[str], arguments: Mapping[str, Any]) -> Settings:
    if "listen" in arguments:
        raise ConfigurationError("an embedded vault listens on a private socket: omit listen")
    return settings_from_arguments({"knowledge_store_backend": BACKEND, **arguments, "data_dir": Path(data_dir)})


def _ignore_progress(_: str) -> None:
    """Ignores progress reports."""
