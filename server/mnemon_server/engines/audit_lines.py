"""How calls become lines of the audit log: JSON with sorted keys, each with a keyed hash of itself and all before it.

Every write of every caller passes here, so what stays the same from call to call of a caller is encoded once.
"""

import hashlib
import json
from collections.abc import Iterable, Mapping
from json.encoder import encode_basestring_ascii as quoted
from typing import Any, NamedTuple

from mnemon_server.domain.access.audit import AuditEntry

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


class AuditLines:
    """Encodes lines under the key of a log."""

    def __init__(self, key: bytes) -> None:
        self._key = key
        self._constant: dict[tuple[str, ...], tuple[str, str]] = {}

    def encoded(self, entries: Iterable[AuditEntry | Mapping[str, Any]], after: Place) -> tuple[list[bytes], Place]:
        """The lines of entries that follow a place, and the place of the last one."""
        sequence, chain, lines = *after, []
        for entry in entries:
            sequence += 1
            if isinstance(entry, AuditEntry):
                line = self._line(entry, sequence)
            else:
                line = line_of({"sequence": sequence, **entry})
            chain = self.chain(chain, line)
            # Adds the hash to the encoded object, without encoding it again.
            lines.append(b'{"chain":"%b",%b' % (chain.encode(), line[1:]))
        return lines, Place(sequence, chain)

    def chain(self, before: str, line: bytes) -> str:
        """The hash of a line that does not have it yet, and of all before it."""
        return hashlib.blake2b(before.encode() + line, key=self._key, digest_size=_HASH_BYTES).hexdigest()

    def hash_of(self, tenant: str, record_id: str) -> str:
        """Replaces the id of a record."""
        text = f"{tenant}\0{record_id}".encode()
        return hashlib.blake2b(text, key=self._key, digest_size=_ID_BYTES).hexdigest()

    def _line(self, entry: AuditEntry, sequence: int) -> bytes:
        named = entry.code, entry.method, entry.peer, entry.subject, entry.tenant
        before, after = self._constant.get(named) or self._remember(named)
        hashes = '","'.join([self.hash_of(entry.tenant, one) for one in entry.records])
        records = f'"records":["{hashes}"],' if hashes else ""
        time = entry.time.isoformat(timespec="milliseconds").replace("+00:00", "Z")
        request_id = quoted(entry.request_id)
        return f'{before}{records}"request_id":{request_id},"sequence":{sequence},{after}"time":"{time}"}}\n'.encode()

    def _remember(self, named: tuple[str, ...]) -> tuple[str, str]:
        code, method, peer, subject, tenant = named
        before = {"code": code, "method": method} | ({"peer": peer} if peer else {})
        after = {name: value for name, value in (("subject", subject), ("tenant", tenant)) if value}
        if len(self._constant) >= _CALLERS_MAX:
            self._constant.clear()
        self._constant[named] = found = (
            f"{_ENCODE(before)[:-1]},",
            "".join(f"{quoted(name)}:{quoted(value)}," for name, value in after.items()),
        )
        return found


def line_of(body: Mapping[str, Any]) -> bytes:
    """A line without its hash."""
    return f"{_ENCODE(body)}\n".encode()
