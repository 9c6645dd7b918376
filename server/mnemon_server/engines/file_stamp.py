"""Tells by the time of a file whether somebody has written it, for the price of one question to the system."""

import time
from pathlib import Path

SETTLED_S = 3.0
"""A change is at least so old if the times of files tell it from further ones: some file systems count two seconds."""

Stamp = tuple[int, int, int]


def settled_stamp(path: Path) -> Stamp | None:
    """What differs once the file has changed; None if it was written just now, or cannot be seen."""
    try:
        found = path.stat()
    except OSError:
        return None
    is_settled = found.st_mtime + SETTLED_S < time.time()
    return (found.st_mtime_ns, found.st_size, found.st_ino) if is_settled else None
