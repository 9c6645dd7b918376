"""API keys in the file `access.db`."""

import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

import apsw

from mnemon_server.domain.access import NO_TENANT, ApiKey, Role
from mnemon_server.domain.access.bounds import Bounds
from mnemon_server.domain.clock import from_microseconds, to_microseconds
from mnemon_server.domain.errors import InvalidOperationError
from mnemon_server.domain.namespaces import decode_labels, encode_namespace, namespace_labels, namespace_text
from mnemon_server.engines.access_file import AccessTable
from mnemon_server.engines.promises.keys import KeyStore, StoredKey

_READ = """
SELECT position, key_id, tenant, name, role, create_time, expire_time, last_use_time, previous_expire_time, digest,
  previous_digest, users, namespaces, origins
FROM api_key WHERE key_id = coalesce(?1, key_id) AND tenant = coalesce(?2, tenant) ORDER BY position
"""


class KeyFile(AccessTable, KeyStore):
    """The keys of a data folder."""

    def read(self) -> Sequence[StoredKey]:
        """See KeyStore."""
        with self._file.working() as connection:
            return [_stored(row) for row in connection.execute(_READ, (None, None))]

    def add(self, key: ApiKey, digest: bytes, *, tenant_keys_max: int) -> bool:
        """See KeyStore."""
        with self._file.writing() as connection:
            if key.tenant != NO_TENANT:
                _begin_tenant(connection, key)
            count: int = connection.execute("SELECT count(*) FROM api_key WHERE tenant = ?", (key.tenant,)).get
            if count >= tenant_keys_max:
                return False
            connection.execute(
                "INSERT INTO api_key"
                " (key_id, tenant, name, role, create_time, expire_time, digest, users, namespaces, origins) "
                "VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
                (
                    key.key_id,
                    key.tenant,
                    key.name,
                    int(key.role),
                    to_microseconds(key.created_at),
                    _microseconds(key.expires_at),
                    digest,
                    *_bounds(key.bounds),
                ),
            )
            return True

    def rotate(self, tenant: str, key_id: str, digest: bytes, previous_expires_at: datetime | None) -> ApiKey | None:
        """See KeyStore."""
        with self._file.writing() as connection:
            connection.execute(
                "UPDATE api_key SET previous_digest = CASE WHEN ?3 IS NULL THEN NULL ELSE digest END, "
                "previous_expire_time = ?3, digest = ?4 WHERE key_id = ?1 AND tenant = ?2",
                (key_id, tenant, _microseconds(previous_expires_at), digest),
            )
            rows = connection.execute(_READ, (key_id, tenant)).fetchall()
            return _stored(rows[0]).key if rows else None

    def remove(self, tenant: str, key_id: str) -> bool:
        """See KeyStore."""
        with self._file.writing() as connection:
            connection.execute("DELETE FROM api_key WHERE key_id = ? AND tenant = ?", (key_id, tenant))
            return connection.changes() > 0

    def rebind(self, tenant: str, key_id: str, bounds: Bounds) -> bool:
        """See KeyStore."""
        with self._file.writing() as connection:
            connection.execute(
                "UPDATE api_key SET users = ?, namespaces = ?, origins = ? WHERE key_id = ? AND tenant = ?",
                (*_bounds(bounds), key_id, tenant),
            )
            return connection.changes() > 0

    def note_uses(self, last_used_at: Mapping[str, datetime]) -> None:
        """See KeyStore."""
        with self._file.transaction() as connection:
            connection.executemany(
                "UPDATE api_key SET last_use_time = ? WHERE key_id = ?",
                [(to_microseconds(time), key_id) for key_id, time in last_used_at.items()],
            )


def _begin_tenant(connection: apsw.Connection, key: ApiKey) -> None:
    """A tenant begins with its first key."""
    connection.execute(
        "INSERT INTO tenant (tenant, create_time, update_time) VALUES (?1, ?2, ?2) ON CONFLICT DO NOTHING",
        (key.tenant, to_microseconds(key.created_at)),
    )
    if connection.execute("SELECT delete_time FROM tenant WHERE tenant = ?", (key.tenant,)).get is not None:
        raise InvalidOperationError(f"the tenant {key.tenant!r} is being deleted; try again once its files are gone")


def _stored(row: tuple[Any, ...]) -> StoredKey:
    position, key_id, tenant, name, role, created, expires, used, previous_expires, digest, previous, *bounds = row
    users, namespaces, origins = (json.loads(texts or "[]") for texts in bounds)
    key = ApiKey(
        key_id,
        tenant,
        name,
        Role(role),
        from_microseconds(created),
        expires_at=_time(expires),
        last_used_at=_time(used),
        previous_expires_at=_time(previous_expires),
        bounds=Bounds.stored(users, [*map(_decoded, namespaces)], origins),
    )
    return StoredKey(position, key, digest, previous)


def _bounds(bounds: Bounds) -> tuple[str, str, str]:
    namespaces = [*map(_encoded, bounds.namespace_texts)]
    return json.dumps(bounds.user_texts), json.dumps(namespaces), json.dumps(bounds.origins)


# A namespace is stored as facts store it: what was stored before labels could contain dots means what it meant.
def _encoded(text: str) -> str:
    return encode_namespace(namespace_labels(text)).removesuffix(".")


def _decoded(stored: str) -> str:
    return namespace_text(decode_labels(stored))


def _time(microseconds: int | None) -> datetime | None:
    return None if microseconds is None else from_microseconds(microseconds)


def _microseconds(time: datetime | None) -> int | None:
    return None if time is None else to_microseconds(time)
