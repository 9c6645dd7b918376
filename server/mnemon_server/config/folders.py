"""Where this platform keeps a user's files."""

import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import platformdirs

from mnemon_server.domain.errors import ConfigurationError


def user_data_folder() -> Path:
    """The user's folder for data; on Linux, `~/.local/share/mnemon`.

    Raises:
        ConfigurationError: the user has no home.
    """
    folder = _folder(platformdirs.user_data_path)
    if folder is None:
        raise ConfigurationError(
            f"the folder for data is not known: HOME is not set, and the user with uid {os.getuid()} has no home; set "
            "data_dir, or HOME"
        )
    return folder


def user_cache_folder() -> Path | None:
    """The user's folder of converted models, which all servers of the user share; on Linux, `~/.cache/mnemon`.

    None if the user has no home.
    """
    return _folder(platformdirs.user_cache_path)


def _folder(find: Callable[..., Path]) -> Path | None:
    with suppress(RuntimeError):  # Earlier versions of the library leave the ~ in the path instead.
        if (folder := find("mnemon", appauthor=False)).is_absolute():
            return folder
    return None
