"""Spans of time of which something was removed from the history: they say that it is missing, and never what."""

import hmac
from collections.abc import Iterator
from datetime import datetime
from itertools import accumulate

import apsw

from mnemon_server.domain.clock import to_microseconds
from mnemon_server.domain.collections import FACTS, VERSIONS
from mnemon_server.domain.documents import Document
from mnemon_server.domain.history import HistorySettings
from mnemon_server.engines.sqlite.query import fetch, stored_meta
from mnemon_server.engines.sqlite.tables import Tables

# ruff: noqa: S608 - table and column names are constants; all input is bound

CREATE_STATEMENT = """
CREATE TABLE history_gap (
  kind TEXT NOT NULL,
  owner BLOB NOT NULL,
  start INTEGER NOT NULL,
  stop INTEGER NOT NULL,
  PRIMARY KEY (kind, owner)
) STRICT, WITHOUT ROWID"""
"""By kind of record and by owner: a keyed hash of a user, or of a namespace or one above it; empty for all. Times are
microseconds.
"""
SINCE = "history.since"
"""The key in `meta` of the time since when history is kept, in microseconds; missing while it is not kept."""

_NOTE = (
    "INSERT INTO history_gap VALUES (?, ?, ?, ?) ON CONFLICT (kind, owner)"
    " DO UPDATE SET start = min(start, excluded.start), stop = max(stop, excluded.stop)"
)
_SPANS = "SELECT 1 FROM history_gap WHERE kind = ? AND owner = ? AND start <= ? AND stop > ?"
_SPAN = f"SELECT kind, user, namespace, since, until FROM {Tables(VERSIONS).documents} WHERE position = ?"


def begin(connection: apsw.Connection, settings: HistorySettings, *, now: int, is_new: bool) -> None:
    """Notes since when history is kept. Call it whenever the file is opened, within a transaction."""
    if not settings:
        connection.execute("DELETE FROM meta WHERE key = ?", (SINCE,))
    else:
        connection.execute("INSERT OR IGNORE INTO meta (key, value) VALUES (?, ?)", (SINCE, 0 if is_new else now))


def is_within(connection: apsw.Connection, secret: bytes, kind: str, owner: str, at: datetime) -> bool:
    """Whether something of that moment was removed, of a user, of an encoded namespace or, if `owner` is empty, of any;
    or whether no history was kept.
    """
    since = stored_meta(connection, SINCE)
    moment = to_microseconds(at)
    if since is None or moment < since:
        return True
    spans = fetch(connection, _SPANS, (kind, owner_key(secret, owner), moment, moment))
    return bool(spans)


def note_version(connection: apsw.Connection, secret: bytes, position: int) -> None:
    """Notes that the version at this position is being removed."""
    [(kind, user, namespace, since, until)] = fetch(connection, _SPAN, (position,))
    _note(connection, secret, kind, namespace or user, since, until)


def note_record(connection: apsw.Connection, secret: bytes, kind: str, record: Document, now: int) -> None:
    """Notes that a record is being removed without a version of it."""
    owner = str(record.fields.get("namespace") or "") or record.scope.user
    since = now if record.update_time is None else to_microseconds(record.update_time)
    _note(connection, secret, kind, owner, since, now)


def owner_key(secret: bytes, owner: str) -> bytes:
    """The key of a user, or of an encoded namespace; of all, if it is empty."""
    return hmac.digest(secret, f"history\0{owner}".encode("utf-8", "surrogatepass"), "sha256")[:16] if owner else b""


def _note(connection: apsw.Connection, secret: bytes, kind: str, owner: str, start: int, stop: int) -> None:
    if start < stop:
        owners = ("", *(_and_above(owner) if kind == FACTS.name else [owner] if owner else []))
        connection.executemany(_NOTE, [(kind, owner_key(secret, each), start, stop) for each in owners])


def _and_above(namespace: str) -> Iterator[str]:
    """An encoded namespace and those above it."""
    return accumulate(f"{label}." for label in namespace.removesuffix(".").split("."))
