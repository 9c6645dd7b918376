"""The process that hosts a Chroma collection. It answers the frames on its standard input, and ends when that closes.

Native code may crash when it reads damaged files. In a separate process, it cannot crash the server.
"""

import gc
import logging
import os
import signal
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import BinaryIO

from mnemon_server.engines.chroma.collection import HostedCollection, failure_of, is_damage
from mnemon_server.engines.chroma.folder import LockedFolder
from mnemon_server.engines.chroma.protocol import (
    CollectionError,
    Failure,
    Frame,
    Opened,
    OpenRequest,
    Operation,
    encode_frame,
    read_frame,
)

_SEARCH_THREADS = 4

logger = logging.getLogger(__name__)


class Host:
    """Answers requests. Searches run concurrently; everything that writes runs one at a time."""

    def __init__(self) -> None:
        self._collection: HostedCollection | None = None
        self._folder: LockedFolder | None = None
        self._sound = True
        self._operations: dict[Operation, Callable[[Frame], Frame]] = {
            Operation.OPEN: self._open,
            Operation.APPLY: lambda frame: self._opened_collection().apply(frame),
            Operation.SEARCH: lambda frame: self._opened_collection().search(frame),
            Operation.RESET: self._reset,
        }

    def answer(self, frame: Frame) -> Frame:
        """The answer to a request. Never raises."""
        identity = {"id": frame.header["id"]}
        try:
            result = self._operations[Operation(frame.header["op"])](frame)
        except BaseException as error:  # noqa: BLE001 - panics of native code are not an `Exception`
            failure = failure_of(error)
            self._sound = self._sound and failure not in (Failure.DAMAGED, Failure.FAILED)
            return Frame(identity | {"failure": failure, "message": _described(error)})
        return Frame(identity | {"result": result.header}, result.payload)

    def close(self) -> None:
        """Closes the collection. Seals its files, unless there was an unexpected error."""
        if self._collection is not None:
            self._collection.close()
        if self._folder is not None:
            if self._sound and self._collection is not None:
                self._folder.seal()
            self._folder.close()

    def _open(self, frame: Frame) -> Frame:
        request = OpenRequest(**frame.header["request"])
        try:
            self._take_folder(request)
            if self._collection is None:
                self._collection = HostedCollection(request)
            else:
                self._collection.reopen(request)
            opened = self._checked(self._collection, request)
        except BaseException as error:
            if request.path and is_damage(error):
                raise CollectionError(Failure.DAMAGED, _described(error)) from error
            raise
        return Frame(opened.to_header())

    def _take_folder(self, request: OpenRequest) -> None:
        if self._folder is not None:
            self._folder.check_present()
        elif request.path:
            self._folder = LockedFolder(Path(request.path), wait_s=request.lock_wait_s)
            self._folder.break_seal()

    def _checked(self, collection: HostedCollection, request: OpenRequest) -> Opened:
        try:
            collection.check()
        except BaseException as error:
            if request.path or not is_damage(error):
                raise
            if request.expected_generation:
                raise CollectionError(Failure.STALE, f"the server's collection is damaged: {error}") from error
            logger.warning("the server's collection is damaged and is recreated: %s", error)
            return collection.recreate(request.new_generation)
        return collection.opened()

    def _reset(self, frame: Frame) -> Frame:
        return Frame(self._opened_collection().recreate(frame.header["new_generation"]).to_header())

    def _opened_collection(self) -> HostedCollection:
        if self._collection is None:
            raise CollectionError(Failure.STALE, "no collection is open")
        return self._collection


def _described(error: BaseException) -> str:
    return str(error) if isinstance(error, CollectionError) else f"{type(error).__name__}: {error}"


def serve(inbound: BinaryIO, outbound: BinaryIO) -> None:
    """Answers every request on `inbound` until it ends, then finishes running requests and closes."""
    host, writing = Host(), threading.Lock()

    def run(frame: Frame) -> None:
        answer = host.answer(frame)
        with writing:
            outbound.write(encode_frame(answer))
            outbound.flush()

    with ThreadPoolExecutor(1, "write") as writes, ThreadPoolExecutor(_SEARCH_THREADS, "search") as searches:
        while (frame := read_frame(inbound)) is not None:
            pool = searches if frame.header["op"] == Operation.SEARCH else writes
            pool.submit(run, frame)
        writes.shutdown(wait=True, cancel_futures=True)
    host.close()


def main() -> None:
    """Entry point of the process, which imports this module without collections of garbage."""
    gc.freeze()
    gc.enable()
    logging.basicConfig(stream=sys.stderr, level=logging.WARNING, format="%(name)s: %(message)s")
    # The parent ends this process by closing the pipe. A signal to the whole process group must not interrupt a write.
    os.umask(0o077)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    inbound, outbound = _take_standard_streams()
    serve(inbound, outbound)
    # Exit without cleanup: some native threads crash when the interpreter shuts down under them.
    logging.shutdown()
    os._exit(0)


def _take_standard_streams() -> tuple[BinaryIO, BinaryIO]:
    """Reserves standard input and output for the protocol. Other output goes to standard error."""
    inbound, outbound = os.dup(0), os.dup(1)
    with open(os.devnull, "rb") as nothing:  # noqa: PTH123 - a device, not a data path
        os.dup2(nothing.fileno(), 0)
    os.dup2(2, 1)
    return os.fdopen(inbound, "rb"), os.fdopen(outbound, "wb")
