"""How calls become lines of the audit log: JSON with sorted keys, each with a keyed hash of itself and all before it.

Every write of every caller passes here, so what stays the same from call to call of a caller is encoded once.
"""

import hashlib
import json
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from json.encoder import encode_basestring_ascii as quoted
from typing import Any, NamedTuple

from mnemon_server.domain.access.audit import AuditEntry, LeftOut

START = "0" * 64
"""The predecessor's hash for the first line."""
_HASH_BYTES, _ID_BYTES = 32, 16
_CALLERS_MAX = 4_096
"""Calls whose constant parts are remembered: of a caller, a connection, a method and a status."""
_ENCODE = json.JSONEncoder(sort_keys=True, ensure_ascii=True, separators=(",", ":")).encode


class Place(NamedTuple):
    """Where a log ends: the sequence number of a line, and its hash."""

    sequence: int = 0
    chain: str = START


_Constant = tuple[str, str, hashlib.blake2b]
"""What the lines of a caller's calls have in common: all before the ids of records; all between the sequence number and
the time; the hash of an id of the caller's tenant, before the id. Garbage collections look through no plain tuples."""


class AuditLines:
    """Encodes lines under the key of a log. For one thread at a time."""

    def __init__(self, key: bytes) -> None:
        self._key = key
        self._constant: dict[tuple[str, ...], _Constant] = {}
        self._second, self._second_text = -1, ""

    def encoded(self, entries: Iterable[AuditEntry | LeftOut], after: Place) -> tuple[bytes, Place]:
        """The lines of entries that follow a place, and the place of the last one."""
        sequence, chain, lines = *after, []
        for entry in entries:
            sequence += 1
            if isinstance(entry, AuditEntry):
                line = self._line(entry, sequence)
            else:
                line = f'{{"left_out":{entry.calls},"sequence":{sequence},"time":"{self._time(entry.time_ms)}"}}\n'
            chain = self.chain(chain, line)
            # Adds the hash to the encoded object, without encoding it again.
            lines.append(f'{{"chain":"{chain}",{line[1:]}')
        return "".join(lines).encode(), Place(sequence, chain)

    def chain(self, before: str, line: str) -> str:
        """The hash of a line that does not have it yet, and of all before it."""
        return hashlib.blake2b(f"{before}{line}".encode(), key=self._key, digest_size=_HASH_BYTES).hexdigest()

    def hash_of(self, tenant: str, record_id: str) -> str:
        """Replaces the id of a record."""
        return _hash(self._id_hash(tenant), record_id)

    def _line(self, entry: AuditEntry, sequence: int) -> str:
        time_ms, tenant, subject, peer, method, code, request_id, records = entry
        named = code, method, peer, subject, tenant
        before, after, id_hash = self._constant.get(named) or self._remember(named)
        hashes = '","'.join([_hash(id_hash, one) for one in records])
        ids = f'"records":["{hashes}"],' if hashes else ""
        time = self._time(time_ms)
        return f'{before}{ids}"request_id":{quoted(request_id)},"sequence":{sequence},{after}"time":"{time}"}}\n'

    def _remember(self, named: tuple[str, ...]) -> _Constant:
        code, method, peer, subject, tenant = named
        before = {"code": code, "method": method} | ({"peer": peer} if peer else {})
        after = {name: value for name, value in (("subject", subject), ("tenant", tenant)) if value}
        if len(self._constant) >= _CALLERS_MAX:
            self._constant.clear()
        shown_after = "".join(f"{quoted(name)}:{quoted(value)}," for name, value in after.items())
        self._constant[named] = found = f"{_ENCODE(before)[:-1]},", shown_after, self._id_hash(tenant)
        return found

    def _id_hash(self, tenant: str) -> hashlib.blake2b:
        return hashlib.blake2b(f"{tenant}\0".encode(), key=self._key, digest_size=_ID_BYTES)

    def _time(self, time_ms: int) -> str:
        """RFC 3339, in UTC."""
        second, ms = divmod(time_ms, 1_000)
        if second != self._second:
            self._second = second
            self._second_text = datetime.fromtimestamp(second, UTC).replace(tzinfo=None).isoformat()
        return f"{self._second_text}.{ms:03}Z"


def _hash(before: hashlib.blake2b, record_id: str) -> str:
    found = before.copy()
    found.update(record_id.encode())
    return found.hexdigest()


def line_of(body: Mapping[str, Any]) -> str:
    """A line without its hash."""
    return f"{_ENCODE(body)}\n"
