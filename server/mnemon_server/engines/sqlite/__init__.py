"""Records in one SQLite file."""

from mnemon_server.engines.sqlite.records import SQLiteRecordEngine

__all__ = ["SQLiteRecordEngine"]
