"""The parent's side of the child process: starts it, sends requests, and notices at once when it ends."""

import io
import itertools
import logging
import os
import select
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Mapping
from concurrent.futures import Future
from typing import Any, BinaryIO, cast

from mnemon_server.engines.chroma.protocol import (
    BrokenFrameError,
    CollectionError,
    Failure,
    Frame,
    Operation,
    encode_frame,
    read_frame,
)

# Chroma reads settings from the environment, and a proxy could read the traffic to the server. So only these are passed
# on.
_ENVIRONMENT_KEPT = (
    *("PATH", "HOME", "TMPDIR", "LANG", "LC_ALL", "LD_LIBRARY_PATH", "VIRTUAL_ENV"),
    *("PYTHONPATH", "PYTHONHOME", "SSL_CERT_FILE", "SSL_CERT_DIR"),
)
_STDERR_LINES_KEPT = 40
_EXIT_TIMEOUT_S = 5.0  # time from closing the pipe to the end of the process

logger = logging.getLogger(__name__)


class ChildGoneError(Exception):
    """The child ended before it answered. `returncode` is negative if a signal ended it."""

    def __init__(self, returncode: int | None) -> None:
        self.returncode = returncode
        super().__init__(f"the process of the vector index ended with {returncode}")


class ChildTimeoutError(Exception):
    """The child did not answer in time."""


class ChildProcess:
    """A running child process. Thread-safe."""

    def __init__(self) -> None:
        """Starts the child. Its first answer comes after its imports, which take about a second."""
        self._process = _started(_environment(os.environ))
        self._inbound = io.BufferedReader(cast(io.RawIOBase, self._process.stdout))
        self._outbound = cast(BinaryIO, self._process.stdin)
        os.set_blocking(self._outbound.fileno(), False)
        self._ids = itertools.count(1)
        self._writing = threading.Lock()
        self._waiting: dict[int, Future[Frame]] = {}
        self._waiting_lock = threading.Lock()
        self._gone = self._killed = False
        self._stderr_tail: deque[str] = deque(maxlen=_STDERR_LINES_KEPT)
        self._listener = threading.Thread(target=self._listen, name="chroma-answers", daemon=True)
        self._stderr_reader = threading.Thread(target=self._read_stderr, name="chroma-stderr", daemon=True)
        self._listener.start()
        self._stderr_reader.start()

    @property
    def pid(self) -> int:
        """The process id of the child."""
        return self._process.pid

    @property
    def alive(self) -> bool:
        """Whether the child still answers."""
        return not self._gone

    @property
    def returncode(self) -> int | None:
        """The exit code of the child, negative for a signal; None while it runs."""
        return self._process.poll()

    def call(
        self, operation: Operation, header: Mapping[str, Any], payload: bytes = b"", *, timeout_s: float
    ) -> tuple[dict[str, Any], bytes]:
        """Sends a request and waits for the answer; returns its result and payload.

        Raises CollectionError (the request failed), ChildGoneError, and ChildTimeoutError.
        """
        identity, answer = next(self._ids), Future[Frame]()
        with self._waiting_lock:
            if self._gone:
                raise ChildGoneError(self._process.poll())
            self._waiting[identity] = answer
        try:
            self._send(Frame({"id": identity, "op": operation, **header}, payload), timeout_s)
            frame = answer.result(timeout_s)
        except TimeoutError:
            raise ChildTimeoutError(f"no answer to {operation} within {timeout_s:g} s") from None
        finally:
            with self._waiting_lock:
                self._waiting.pop(identity, None)
        if "failure" in frame.header:
            raise CollectionError(Failure(frame.header["failure"]), frame.header["message"])
        return frame.header["result"], frame.payload

    def stop(self, *, timeout_s: float) -> None:
        """Lets the child finish its requests and end. Kills it if that takes longer than `timeout_s`."""
        if self._writing.acquire(timeout=timeout_s):
            self._outbound.close()
            self._writing.release()
        try:
            self._process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            logger.warning("the process of the vector index did not end within %g s and is killed", timeout_s)
        self.kill()

    def kill(self) -> None:
        """Kills the child, and releases all resources."""
        self._killed = True
        self._process.kill()
        self._listener.join()
        self._stderr_reader.join()
        with self._writing:
            self._outbound.close()

    def _send(self, frame: Frame, timeout_s: float) -> None:
        deadline = time.monotonic() + timeout_s
        if not self._writing.acquire(timeout=timeout_s):
            raise TimeoutError
        try:
            _write_within(self._outbound.fileno(), encode_frame(frame), deadline)
        except (BrokenPipeError, ValueError):  # the child has ended, or `stop` closed the pipe
            self._listener.join(_EXIT_TIMEOUT_S)
            raise ChildGoneError(self._process.poll()) from None
        finally:
            self._writing.release()

    def _listen(self) -> None:
        try:
            while (frame := read_frame(self._inbound)) is not None:
                with self._waiting_lock:
                    answer = self._waiting.pop(frame.header["id"], None)
                if answer is not None:
                    answer.set_result(frame)
        except (BrokenFrameError, ValueError) as error:
            logger.warning("the process of the vector index sent an invalid frame and is killed: %s", error)
            self._process.kill()
        self._on_exit()

    def _on_exit(self) -> None:
        """Called when the pipe has ended: fails all open requests."""
        returncode = self._process.wait()
        with self._waiting_lock:
            self._gone = True
            unanswered = list(self._waiting.values())
            self._waiting.clear()
        if returncode != 0 and not self._killed:
            logger.warning(
                "the process of the vector index ended with %s: %s", returncode, "\n".join(self._stderr_tail)
            )
        for answer in unanswered:
            answer.set_exception(ChildGoneError(returncode))
        self._inbound.close()

    def _read_stderr(self) -> None:
        with cast(BinaryIO, self._process.stderr) as stderr:
            for line in stderr:
                text = line.decode(errors="replace").rstrip()
                self._stderr_tail.append(text)
                logger.info("child %d: %s", self._process.pid, text)


def _started(environment: Mapping[str, str]) -> "subprocess.Popen[bytes]":
    # What the imports make stays. Collections that look through it again and again take a fifth of their time.
    program = "import gc; gc.disable(); from mnemon_server.engines.chroma.child import main; main()"
    return subprocess.Popen(  # noqa: S603 - all arguments are constants
        [sys.executable, "-X", "faulthandler", "-c", program],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environment,
        start_new_session=True,  # Ctrl-C must only reach the parent
        bufsize=0,
    )


def _environment(own: Mapping[str, str]) -> dict[str, str]:
    passed_on = {name: own[name] for name in _ENVIRONMENT_KEPT if name in own}
    # BLAS threads are useless here, because this process does no matrix multiplication.
    return passed_on | {"ANONYMIZED_TELEMETRY": "False", "OTEL_SDK_DISABLED": "true", "OPENBLAS_NUM_THREADS": "1"}


def _write_within(descriptor: int, data: bytes, deadline: float) -> None:
    """Writes all data to a non-blocking pipe, or raises TimeoutError, so that a hanging child cannot block its
    parent.
    """
    writable = select.poll()
    writable.register(descriptor, select.POLLOUT)
    rest = memoryview(data)
    while rest:
        if not writable.poll(max(0.0, deadline - time.monotonic()) * 1000):
            raise TimeoutError
        try:
            rest = rest[os.write(descriptor, rest) :]
        except BlockingIOError:  # the pipe has less room than one atomic write
            continue
