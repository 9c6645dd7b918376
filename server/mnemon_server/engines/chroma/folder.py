"""The folder of an embedded Chroma: a lock for one process at a time, a seal over its files, and quarantine."""

import fcntl
import json
import os
import shutil
import time
import zlib
from datetime import datetime
from pathlib import Path

from mnemon_server.engines.chroma.protocol import CollectionError, Failure
from mnemon_server.engines.private import create_folder

_LOCK_POLL_S = 0.05
_READ_BYTES = 1 << 20
_DRAFT = ".tmp"


class LockedFolder:
    """A folder locked for this process until `close`. The lock file is beside the folder and outlives its removal."""

    def __init__(self, path: Path, *, wait_s: float) -> None:
        """Locks the folder, creates it if needed, and waits for a previous owner. Raises CollectionError (BUSY)."""
        self.path = path
        create_folder(path.parent)
        self._lock = os.open(path.with_name(f"{path.name}.lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            self._wait_for_lock(wait_s)
            path.mkdir(exist_ok=True, mode=0o700)
            self._identity = path.stat().st_ino
        except BaseException:
            os.close(self._lock)
            raise

    def check_present(self) -> None:
        """Raises CollectionError (DAMAGED) if the locked folder no longer exists."""
        if not self.path.exists() or self.path.stat().st_ino != self._identity:
            raise CollectionError(Failure.DAMAGED, "the folder was removed or replaced")

    def break_seal(self) -> None:
        """Compares the files with the seal of the last clean shutdown, if there is one, and removes the seal.

        Native code trusts these files: a single flipped bit can crash it, or cause wrong answers. Raises
        CollectionError (DAMAGED).
        """
        if (problem := damage_of(self.path)) is not None:
            raise CollectionError(Failure.DAMAGED, problem)
        _seal_of(self.path).unlink(missing_ok=True)

    def seal(self) -> None:
        """Records checksums of the files. Call it when nothing writes to them any more."""
        seal = _seal_of(self.path)
        draft = seal.with_suffix(_DRAFT)
        draft.write_text(json.dumps(_checksums(self.path)))
        draft.replace(seal)

    def close(self) -> None:
        """Unlocks the folder for the next process."""
        os.close(self._lock)

    def _wait_for_lock(self, wait_s: float) -> None:
        deadline = time.monotonic() + wait_s
        while True:
            try:
                fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return
            except BlockingIOError:
                if time.monotonic() > deadline:
                    message = f"another process still holds the folder after {wait_s:g} s"
                    raise CollectionError(Failure.BUSY, message) from None
                time.sleep(_LOCK_POLL_S)


def damage_of(path: Path) -> str | None:
    """What differs from the seal of the last clean shutdown; None if nothing does, or if there is no seal."""
    if not (path / "chroma.sqlite3").exists() and any(path.iterdir()):
        return "the database file is missing, but other files exist"
    try:
        sealed = json.loads(_seal_of(path).read_text())
    except FileNotFoundError:
        return None
    except ValueError as error:
        return f"the seal cannot be read: {error}"
    return None if sealed == _checksums(path) else "files differ from the last clean shutdown"


def _seal_of(path: Path) -> Path:
    return path / "mnemon-seal.json"


def _checksums(path: Path) -> dict[str, list[int]]:
    """Size and CRC-32 of every file except the seal."""
    own = {_seal_of(path), _seal_of(path).with_suffix(_DRAFT)}
    files = sorted(file for file in path.rglob("*") if file.is_file() and file not in own)
    return {str(file.relative_to(path)): [file.stat().st_size, _crc32(file)] for file in files}


def quarantine(path: Path, now: datetime) -> Path | None:
    """Moves a damaged folder into `quarantine` beside it, and returns its new path; None if the folder did not exist.

    The next `remove_quarantined` deletes it.
    """
    if not path.exists():
        return None
    room = path.parent / "quarantine"
    room.mkdir(exist_ok=True, mode=0o700)
    stem = f"{path.name}-{now:%Y%m%dT%H%M%S%fZ}"
    target = next(
        place
        for number in range(1, 1_000)
        if not (place := room / (stem if number == 1 else f"{stem}-{number}")).exists()
    )
    path.rename(target)
    return target


def empty(path: Path) -> None:
    """Deletes the folder with its content. The process that used it must have ended.

    It is renamed first, because a partly deleted folder would count as damaged.
    """
    doomed = path.with_name(f"{path.name}.removed")
    if doomed.exists():
        shutil.rmtree(doomed)
    if path.exists():
        path.rename(doomed)
        shutil.rmtree(doomed)


def remove_quarantined(path: Path) -> None:
    """Deletes what `quarantine` moved aside for this folder. All of it is derived from the records."""
    for folder in path.parent.glob(f"quarantine/{path.name}-[0-9]*T*Z*"):
        shutil.rmtree(folder)


def _crc32(file: Path) -> int:
    checksum = 0
    with file.open("rb") as stream:
        while block := stream.read(_READ_BYTES):
            checksum = zlib.crc32(block, checksum)
    return checksum
