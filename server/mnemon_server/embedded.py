"""A vault inside of this process: the ordinary server on a socket of its own, and the client of the SDK to it.

    with open_embedded("data") as memory:
        memory.facts.put(("user", "ada"), "seat", {"content": "Ada prefers window seats."})

Everything that a client does on a server it does here, with the same promises. The server runs in a thread, on an event
loop of its own; its socket lies in a folder that only this user can open.
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
"""What indexes documents unless a setting says so: nothing that needs a process of its own."""
_SOCKET = "mnemon.sock"


@contextmanager
def open_embedded(data_dir: str | PathLike[str], **settings: Any) -> Iterator["Client"]:
    """A client of the vault in a folder; both are closed with the block.

    Args:
        data_dir: the folder; no other process may use it meanwhile.
        settings: those of `mnemon-server` by their names, but for `listen`. No file and no environment is read.

    Raises:
        ConfigurationError: a setting is wrong, or the folder cannot be had, as where another process uses it.
        EmbeddingError: the model cannot be had; the message says the ways to get it.
    """
    from mnemon import Client

    leave_logs_to_the_program()
    with _Serving(data_dir, settings) as address, Client(address) as client:
        yield client


@asynccontextmanager
async def open_embedded_async(data_dir: str | PathLike[str], **settings: Any) -> AsyncIterator["AsyncClient"]:
    """The same with a client for the running event loop, which the server does not run on."""
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
    """A server on a thread with an event loop of its own. A context manager that gives its address."""

    def __init__(self, data_dir: str | PathLike[str], arguments: Mapping[str, Any]) -> None:
        chosen = _settings(data_dir, arguments)
        # Nobody else can open a folder that is made this way.
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
        """The address, once it serves; raises what keeps it from that. Blocks."""
        self._thread.start()
        self._ready.result()
        return self._settings.listen

    def stop(self) -> None:
        """Ends it politely, also while it starts. Blocks. Calling it again does nothing."""
        if self._thread.ident is not None:
            task = self._task.result()
            # Where it has ended already, its loop is closed.
            with suppress(RuntimeError):
                task.get_loop().call_soon_threadsafe(task.cancel)
            self._thread.join()
        self._folder.cleanup()

    def _run(self) -> None:
        try:
            with asyncio.Runner(loop_factory=loop_factory()) as runner:
                runner.run(self._serve())
        except BaseException as error:  # noqa: BLE001 - whoever waits for the start is told
            if not self._ready.done():
                self._ready.set_exception(error)

    async def _serve(self) -> None:
        task = asyncio.current_task()
        assert task is not None  # noqa: S101 - a coroutine that runs is one's
        self._task.set_result(task)
        async with app.running_server(self._settings, report=_say_nothing):
            self._ready.set_result(None)
            await asyncio.Event().wait()


def _settings(data_dir: str | PathLike[str], arguments: Mapping[str, Any]) -> Settings:
    if "listen" in arguments:
        raise ConfigurationError("an embedded vault listens on a socket of its own: leave out listen")
    return settings_from_arguments({"knowledge_store_backend": BACKEND, **arguments, "data_dir": Path(data_dir)})


def _say_nothing(_: str) -> None:
    """For a program that did not ask how a start goes on."""
