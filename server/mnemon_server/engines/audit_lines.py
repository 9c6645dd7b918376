"""How calls become lines of the audit log: JSON, of which the last that is written has a keyed hash of all before it.

Every write of every caller passes here, so what stays the same from call to call of a caller is encoded once, and lines
that are written together share one hash.
"""

import hashlib
import json
import re
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from json.encoder import encode_basestring_ascii as quoted
from typing import NamedTuple

from mnemon_server.domain.access.audit import AuditEntry, LeftOut

START = "0" * 64
"""The predecessor's hash for the first lines."""
_HASH_BYTES, _ID_BYTES = 32, 16
_CALLERS_MAX = 4_096
"""Calls whose constant parts are remembered: of a caller, a connection, a method and a status."""
SEALED = re.compile(rb'\{"chain":"([0-9a-f]{64})",(.*\n)')
"""A line that has the hash, and the rest of it. No text within another line begins so: quotes are escaped."""


PERSON = re.compile(r"(jwt:[^:]*:|mtls:).+")
"""The subject of a caller who may be a person."""


class Place(NamedTuple):
    """Where a log ends: the sequence number of a line that has a hash, and the hash."""

    sequence: int = 0
    chain: str = START


_Constant = tuple[str, hashlib.blake2b]
"""The common part of the lines of a caller's calls, as text; and the hash of an id of the caller's tenant,
before the id. Garbage collections look through no plain tuples."""


class AuditLines:
    """Encodes lines under the key of a log. For one thread at a time."""

    def __init__(self, key: bytes) -> None:
        self._key = key
        self._constant: dict[tuple[str, ...], _Constant] = {}
        self._second, self._second_text = -1, ""

    def encoded(self, entries: Sequence[AuditEntry | LeftOut], after: Place) -> tuple[bytes, Place]:
        """The lines of entries, at least one, that follow a place; and the place of the last, which has the hash."""
        lines = [self._line(number, entry).encode() for number, entry in enumerate(entries, after.sequence + 1)]
        chain = self.chain(after.chain, lines)
        lines[-1] = b'{"chain":"%b",%b' % (chain.encode(), lines[-1][1:])
        return b"".join(lines), Place(after.sequence + len(lines), chain)

    def chain(self, before: str, lines: Iterable[bytes]) -> str:
        """The hash of lines that were written together, as they are without it, and of all before them."""
        # One by one: together, they would be too large for the processor's caches.
        found = hashlib.blake2b(before.encode(), key=self._key, digest_size=_HASH_BYTES)
        for line in lines:
            found.update(line)
        return found.hexdigest()

    def hash_of(self, tenant: str, record_id: str) -> str:
        """Replaces the id of a record."""
        return _hash(self._id_hash(tenant), record_id)

    def name_of(self, subject: str) -> str:
        """The name of a caller in logs. The subject of a token or a certificate may be a person, so it is hashed."""
        return PERSON.sub(lambda found: found[1] + self.hash_of("", subject), subject)

    def _line(self, sequence: int, entry: AuditEntry | LeftOut) -> str:
        second, ms = divmod(entry.time_ms, 1_000)
        if second != self._second:
            self._second, self._second_text = second, _rfc3339(second)
        start = f'{{"sequence":{sequence},"time":"{self._second_text}.{ms:03}Z"'
        if isinstance(entry, LeftOut):
            return f'{start},"left_out":{entry.calls}}}\n'
        named = entry.code, entry.method, entry.peer, entry.subject, entry.tenant
        constant, id_hash = self._constant.get(named) or self._remember(named)
        return f'{start},{constant},"request_id":{quoted(entry.request_id)}{_records(id_hash, entry.records)}}}\n'

    def _remember(self, named: tuple[str, ...]) -> _Constant:
        names = zip(("code", "method", "peer", "subject", "tenant"), named, strict=True)
        shown = {name: value for name, value in names if value or name in ("code", "method")}
        if len(self._constant) >= _CALLERS_MAX:
            self._constant.clear()
        text = json.dumps(shown, separators=(",", ":"))[1:-1]
        self._constant[named] = found = text, self._id_hash(named[-1])
        return found

    def _id_hash(self, tenant: str) -> hashlib.blake2b:
        return hashlib.blake2b(f"{tenant}\0".encode(), key=self._key, digest_size=_ID_BYTES)


def _rfc3339(second: int) -> str:
    """A time in UTC, without its zone."""
    return datetime.fromtimestamp(second, UTC).replace(tzinfo=None).isoformat()


def _hash(before: hashlib.blake2b, record_id: str) -> str:
    found = before.copy()
    found.update(record_id.encode())
    return found.hexdigest()


def _records(before: hashlib.blake2b, ids: Sequence[str]) -> str:
    """The part of a line that has the hashes of ids, each once; empty without any."""
    text = ""
    for one in ids:
        if one and (found := _hash(before, one)) not in text:
            text = f'{text},"{found}"' if text else f',"records":["{found}"'
    return text and f"{text}]"
