"""The names of what was erased, as keyed hashes: tombstones, which tell again what must not come back.

A tombstone is the HMAC-SHA256 of a kind and an id, a user, or a namespace, with a secret of the vault. Without the
secret and a guess of the id, it tells nothing. A record is erased if a tombstone of it, of its user or of its namespace
is not older than the record: an id that is used again after the erasure is another record.
"""

import hmac
import os
from collections.abc import Iterator, Sequence
from datetime import datetime
from functools import lru_cache

from mnemon_server.domain.access.grants import subject_users
from mnemon_server.domain.clock import EPOCH
from mnemon_server.domain.collections import DECISIONS
from mnemon_server.domain.documents import Document
from mnemon_server.domain.erasure import SECRET
from mnemon_server.domain.events import Event
from mnemon_server.domain.history import stored_version
from mnemon_server.domain.kinds import RecordKind
from mnemon_server.domain.namespaces import Namespace, decode_namespace, encode_namespace
from mnemon_server.engines.promises.vault import VaultTransaction

_SECRET_BYTES = 32
_REMEMBERED = 65_536

Named = tuple[Sequence[bytes], datetime | None]
"""The tombstones that would tell that a record was erased, and when it was created; None if that is not known."""


class Names:
    """Makes tombstones with the secret of a vault."""

    def __init__(self, secret: bytes) -> None:
        self._secret = secret
        # The same users and ids occur again and again.
        self._key = lru_cache(_REMEMBERED)(self._digest)

    def user(self, user: str) -> bytes:
        """The tombstone of a user."""
        return self._key("user", user)

    def namespace(self, namespace: Namespace) -> bytes:
        """The tombstone of a namespace and those below it."""
        return self._key("namespace", encode_namespace(namespace))

    def record(self, kind: RecordKind, record_id: str) -> bytes:
        """The tombstone of a record."""
        return self._key(kind.value, record_id)

    def any_of(self, text: str) -> Iterator[bytes]:
        """The tombstones of everything that may have this name."""
        yield self.user(text)
        yield from (self.record(kind, text) for kind in RecordKind)

    def of_namespace(self, labels: Sequence[str]) -> Iterator[bytes]:
        """The tombstones that would tell that the facts in a namespace were erased."""
        yield from (self.namespace(Namespace.stored(labels[: n + 1])) for n in range(len(labels)))
        yield from map(self.user, labels)

    def of_document(self, kind: RecordKind, document: Document) -> list[bytes]:
        """The tombstones that would tell that a record was erased."""
        keys = [self.record(kind, document.doc_id)]
        if kind is RecordKind.VERSION:
            record = stored_version(document).document
            return keys + self.of_document(RecordKind(str(document.fields["kind"])), record)
        if document.scope.user:
            keys.append(self.user(document.scope.user))
        if kind is RecordKind.GRANT:
            keys += map(self.user, subject_users(str(document.fields["subject"])))
        if namespace := str(document.fields.get("namespace") or ""):
            keys += self.of_namespace(decode_namespace(namespace))
        if kind is RecordKind.DECISION:
            ids = (document.fields.get(field.name) for field in DECISIONS.fields)
            keys += [self.record(RecordKind.SEMANTIC, each) for each in ids if isinstance(each, str) and each]
        return keys

    def of_event(self, event: Event) -> list[bytes]:
        """The tombstones that would tell that an event was erased."""
        user = [self.user(event.scope.user)] if event.scope.user else []
        return [self.record(RecordKind.EVENT, event.event_id), *user]

    def _digest(self, kind: str, text: str) -> bytes:
        return hmac.digest(self._secret, f"{kind}\0{text}".encode("utf-8", "surrogatepass"), "sha256")


def names_of(tx: VaultTransaction) -> Names:
    """The names in a vault, whose secret is made with the first erasure."""
    secret = tx.value(SECRET) or os.urandom(_SECRET_BYTES).hex()
    tx.set_value(SECRET, secret)
    return Names(bytes.fromhex(secret))


def known_names(tx: VaultTransaction) -> Names | None:
    """The names in a vault; None if nothing was ever erased."""
    secret = tx.value(SECRET)
    return Names(bytes.fromhex(secret)) if secret else None


def erased_among(tx: VaultTransaction, named: Sequence[Named]) -> list[bool]:
    """Which of these records were erased."""
    times = tx.tombstones(list({key for keys, _ in named for key in keys}))
    return [is_erased(one, times) for one in named]


def erased_events(tx: VaultTransaction, events: Sequence[Event]) -> list[bool]:
    """Which of these events were erased after they had been recorded."""
    names = known_names(tx)
    if names is None:
        return [False] * len(events)
    recorded = (event.record_time if event.record_time != EPOCH else None for event in events)
    return erased_among(tx, [(names.of_event(event), time) for event, time in zip(events, recorded, strict=True)])


def is_erased(named: Named, times: dict[bytes, datetime]) -> bool:
    """Whether one of the tombstones with these times is not older than the record."""
    keys, created = named
    return any(key in times and (created is None or created <= times[key]) for key in keys)
