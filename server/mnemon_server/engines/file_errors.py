"""Translates file errors of the operating system into errors of the product."""

import contextlib
import errno
import logging
from collections.abc import Iterator

from mnemon_server.domain.errors import StorageFailedError, StorageFullError

log = logging.getLogger(__name__)

_FULL = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})


@contextlib.contextmanager
def translated(action: str, name: str) -> Iterator[None]:
    """Translates errors of the operating system, and logs the original.

    Raises:
        StorageFullError: the disk is full.
        StorageFailedError: any other error of the operating system.
    """
    try:
        yield
    except OSError as error:
        raise storage_error(action, name, error) from error


def storage_error(action: str, name: str, error: OSError) -> StorageFullError | StorageFailedError:
    """The product's error for an operating system error. Its message begins with "could not {action} {name}"."""
    # A missing file is usually harmless: a reader opened it just as it was rewritten under another name. A reader for
    # whom it is an error reports that itself.
    log.log(logging.INFO if error.errno == errno.ENOENT else logging.ERROR, "could not %s %s: %s", action, name, error)
    what = f"could not {action} {name}"
    if error.errno in _FULL:
        return StorageFullError(f"{what}: no space is left on the disk; free some space, or enlarge it")
    return StorageFailedError(f"{what}: the disk failed ({errno.errorcode.get(error.errno or 0, 'unknown error')})")
