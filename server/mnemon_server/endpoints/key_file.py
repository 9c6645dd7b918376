"""Reads the key of an endpoint from a file, so that it is in no list of processes, environment or configuration."""

import os
import re
import stat
from pathlib import Path

from mnemon_server.domain.errors import ConfigurationError

_BYTES_MAX = 8192
_OPEN_TO_OTHERS = stat.S_IWGRP | stat.S_IRWXO
_KEY = re.compile(r"[\x21-\x7e]+")


def read_key(path: Path) -> str:
    """The key in a file, without surrounding whitespace. The messages of its errors do not contain it.

    Raises:
        ConfigurationError: the file is missing, others may read it, or it does not hold one line of visible ASCII.
    """
    key = read_private(path)
    if len(key) > _BYTES_MAX or not _KEY.fullmatch(key):
        raise ConfigurationError(f"the key file {path} must hold the key alone, in one line of ASCII without spaces")
    return key


def read_private(path: Path) -> str:
    """The first 8 KiB of a file, as ASCII without surrounding whitespace.

    Raises:
        ConfigurationError: the file is missing, or others may read it.
    """
    try:
        with path.open("rb") as file:
            mode = os.fstat(file.fileno()).st_mode
            content = file.read(_BYTES_MAX + 1)
    except OSError as error:
        raise ConfigurationError(f"the key file {path} cannot be read: {error.strerror}") from error
    if mode & _OPEN_TO_OTHERS:
        raise ConfigurationError(
            f"the key file {path} has mode {stat.S_IMODE(mode):04o}, so other users may read or change it; "
            f"run `chmod 600 {path}`"
        )
    return content.decode("ascii", "replace").strip()
