"""Where this platform keeps a user's files."""

from pathlib import Path

import platformdirs

_NAME = "mnemon"


def user_data_folder() -> Path:
    """The user's folder for data; on Linux, `~/.local/share/mnemon`."""
    return platformdirs.user_data_path(_NAME, appauthor=False)


def user_cache_folder() -> Path:
    """The user's folder of converted models, which all servers of the user share; on Linux, `~/.cache/mnemon`."""
    return platformdirs.user_cache_path(_NAME, appauthor=False)
