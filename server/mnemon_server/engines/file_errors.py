"""What the operating system says of files, in the product's words."""

import contextlib
import errno
import logging
from collections.abc import Iterator

from mnemon_server.domain.errors import StorageFailedError, StorageFullError

log = logging.getLogger(__name__)

_FULL = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})


@contextlib.contextmanager
def translated(action: str, name: str) -> Iterator[None]:
    """Turns errors of the operating system into the product's; the log says which it was.

    Raises:
        StorageFullError: no space is left.
        StorageFailedError: any other error of the operating system.
    """
    try:
        yield
    except OSError as error:
        raise storage_error(action, name, error) from error


def storage_error(action: str, name: str, error: OSError) -> StorageFullError | StorageFailedError:
    """The product's error for one of the operating system, such as "could not append to {name}"."""
    # A reader may come a moment after a file was rewritten under another name; who misses one for good says so.
    log.log(logging.INFO if error.errno == errno.ENOENT else logging.ERROR, "could not %s %s: %s", action, name, error)
    what = f"could not {action} {name}"
    if error.errno in _FULL:
        return StorageFullError(f"{what}: no space is left on the disk; free some, or enlarge it")
    return StorageFailedError(f"{what}: the disk failed ({errno.errorcode.get(error.errno or 0, 'unknown error')})")
