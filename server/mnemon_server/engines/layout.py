"""The layout of a data folder: one number, in every database of it."""

from pathlib import Path

import apsw

from mnemon_server.domain.errors import ConfigurationError

LAYOUT = 25
"""Raise it with every change of what is stored. Only this one is read: archives bring records from one to another."""


class EarlierLayoutError(ConfigurationError):
    """An earlier version wrote the file."""

    def __init__(self, path: Path) -> None:
        super().__init__(
            f"an earlier version of Mnemon wrote {str(path)!r}: export what the folder holds with that version, by "
            "`mnemon export`, import it with this one into another data folder, by `mnemon import`, and make new API "
            "keys there, by `mnemon-server keys create`"
        )


def is_new(connection: apsw.Connection, path: Path, application: int) -> bool:
    """Whether a database has no tables yet.

    Raises:
        ConfigurationError: another program wrote it, or a version with another layout.
    """
    if not connection.execute("SELECT count(*) FROM sqlite_schema").get:
        return True
    if connection.pragma("application_id") != application:
        raise ConfigurationError(f"{str(path)!r} is not a database of Mnemon; set another data_dir")
    layout = int(connection.pragma("user_version"))
    if layout > LAYOUT:
        raise ConfigurationError(
            f"{str(path)!r} has layout {layout}, and this program knows layout {LAYOUT}: a newer Mnemon wrote it; run "
            "that version"
        )
    if layout < LAYOUT:
        raise EarlierLayoutError(path)
    return False


def mark(connection: apsw.Connection, application: int) -> None:
    """Marks a new database, within the transaction that creates its tables."""
    connection.pragma("application_id", application)
    connection.pragma("user_version", LAYOUT)
