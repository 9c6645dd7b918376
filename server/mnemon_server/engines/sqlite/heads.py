"""The metadata keys that make the heads of a vault's records.

The vault keeps them, because a passage can only be removed from the keyword index by the words that it came with.
"""

import json
from functools import lru_cache

import apsw

from mnemon_server.domain.encoding import decode_metadata
from mnemon_server.ranking.heads import NO_HEADS, Heads

KEYS = "head_keys"
"""The key in `meta`; vaults without it have no heads."""


def stored_heads(connection: apsw.Connection) -> Heads:
    """The heads of the vault's records."""
    return _heads(connection.execute("SELECT value FROM meta WHERE key = ?", (KEYS,)).get)


def store_heads(connection: apsw.Connection, heads: Heads) -> None:
    """Sets the heads of the vault's records, all of which must be embedded and indexed with them."""
    connection.execute("INSERT OR REPLACE INTO meta (key, value) VALUES (?, ?)", (KEYS, json.dumps(heads.keys)))


def passage_text(heads: Heads, content: str, metadata: str, start: int, stop: int) -> str:
    """The text of a passage as it is embedded and indexed; `metadata` is as stored."""
    return heads.passage({} if start or not heads.keys else decode_metadata(metadata), content, start, stop)


@lru_cache(16)
def _heads(keys: str | None) -> Heads:
    return Heads(tuple(json.loads(keys))) if keys else NO_HEADS
