"""Records in one SQLite file."""

from mnemon_server.engines.sqlite.vault import SQLiteVault

__all__ = ["SQLiteVault"]
