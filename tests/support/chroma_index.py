"""Chroma indexes for tests, and inspection of their child processes, files and servers."""

import fcntl
import json
import os
import signal
import sys
import termios
import time
import urllib.request
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from mnemon_server.engines.chroma import ChromaIndex, ChromaSettings
from mnemon_server.engines.promises.values import Vector

from tests.contract.vector_index import DIMENSION, MODEL
from tests.support.chroma_server import ChromaServer

API = "/api/v2/tenants/default_tenant/databases/default_database/collections"


_TERMS: dict[str, Any] = {"collection": "documents", "dimension": DIMENSION, "model_identity": MODEL}


def embedded(folder: Path, *, limits: Mapping[str, float] = {}, **options: Any) -> ChromaIndex:
    """An index embedded in `folder`, with its limits of time."""
    return ChromaIndex(ChromaSettings(path=folder / "chroma", **limits), **(_TERMS | options))


def served(server: ChromaServer, **options: Any) -> ChromaIndex:
    """An index on the server."""
    return ChromaIndex(ChromaSettings(host=server.host, port=server.port), **(_TERMS | options))


def wait_until(condition: Callable[[], bool], timeout_s: float = 60.0) -> None:
    """Waits until the condition is true. Fails if it takes too long."""
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, "the condition did not come true in time"
        time.sleep(0.02)


def kill_child(index: ChromaIndex, number: int = signal.SIGKILL) -> None:
    """Ends the child with a signal and waits until the index has noticed."""
    pid = index.child_pid
    assert pid is not None
    os.kill(pid, number)
    wait_until(lambda: index.child_pid is None)


def stop_child(index: ChromaIndex) -> int:
    """Stops the child, so that it no longer answers. Returns its process id."""
    pid = index.child_pid
    assert pid is not None
    os.kill(pid, signal.SIGSTOP)
    wait_until(lambda: Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "T")
    return pid


def unread_bytes(pid: int) -> int:
    """How many bytes lie in the pipes that the process reads."""
    descriptors = Path(f"/proc/{pid}/fd")
    pipes = [path for path in descriptors.iterdir() if str(path.readlink()).startswith("pipe:") and _is_read(path)]
    return sum(_waiting_bytes(path) for path in pipes)


def _is_read(descriptor: Path) -> bool:
    info = descriptor.parent.with_name("fdinfo") / descriptor.name
    flags = next(line for line in info.read_text().splitlines() if line.startswith("flags:"))
    return int(flags.split()[1], 8) & os.O_ACCMODE == os.O_RDONLY


def _waiting_bytes(descriptor: Path) -> int:
    opened = os.open(descriptor, os.O_RDONLY | os.O_NONBLOCK)
    try:
        return int.from_bytes(fcntl.ioctl(opened, termios.FIONREAD, bytes(4)), sys.byteorder)
    finally:
        os.close(opened)


def quarantined(folder: Path) -> list[str]:
    """Names of the folders that were moved aside."""
    return sorted(place.name for place in (folder / "quarantine").glob("*"))


def files_with(folder: Path, needle: bytes) -> list[str]:
    """Names of the files that hold these bytes."""
    return sorted(file.name for file in folder.rglob("*") if file.is_file() and needle in file.read_bytes())


def files_with_vector(folder: Path, vector: Vector) -> list[str]:
    """Files that hold the vector's first numbers as float32, at any offset and up to rounding."""
    start, needle = vector[0], vector[:8]

    def holds(data: bytes) -> bool:
        numbers = np.frombuffer(data[: len(data) // 4 * 4], "<f4")
        with np.errstate(invalid="ignore"):
            places = np.flatnonzero(np.abs(numbers - start) < 1e-6)
        return any(np.allclose(numbers[i : i + 8], needle, atol=1e-6) for i in places if i + 8 <= len(numbers))

    files = [file for file in folder.rglob("*") if file.is_file()]
    return sorted(file.name for file in files if any(holds(file.read_bytes()[offset:]) for offset in range(4)))


def truncate(file: Path) -> None:
    """Cuts the file in half."""
    os.truncate(file, file.stat().st_size // 2)


def request(server: ChromaServer, path: str, body: dict[str, Any]) -> Any:
    """What the server answers to any client of its HTTP interface."""
    call = urllib.request.Request(
        f"http://{server.host}:{server.port}{API}{path}",
        json.dumps(body).encode(),
        {"Content-Type": "application/json"},
    )
    with urllib.request.urlopen(call, timeout=60) as answer:
        return json.load(answer)
