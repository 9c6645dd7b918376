# Generated from _async/keys.py by `make generate`: change that file instead.
"""The blocking client's object for API keys."""

from collections.abc import Iterable, Iterator
from datetime import timedelta

from mnemon._messages.translation import read, request
from mnemon._sync.service import Service, Stub
from mnemon._values import access
from mnemon.v1 import access_pb2 as pb
from mnemon.v1.access_pb2_grpc import AccessServiceStub


class Keys(Service):
    """API keys of the caller's tenant, as `client.keys`; for admins, on a server with authentication.

    Operators name the `tenant` whose keys they mean; without it, they mean the keys of operators.
    """

    _stub = Stub(AccessServiceStub)

    def add(
        self,
        name: str,
        *,
        role: str,
        ttl: timedelta | None = None,
        tenant: str = "",
        users: Iterable[str] = (),
        namespaces: Iterable[str] = (),
        origins: Iterable[str] = (),
        timeout: float | None = None,
    ) -> access.KeySecret:
        """Makes a key, and returns it with its secret, which cannot be shown again.

        `name` says what it is for, `role` is "reader", "writer", "admin" or "operator". Without `ttl` it is valid until
        it is revoked. Calling again makes another key.

        `users` and `namespaces` bind the key: for its holder only the records of these users exist, and only the facts
        in these namespaces, such as "user.ada", and below them. "*" stands for all of a kind.
        With `origins`, such as ["web"] for a scraper, its holder can write and change only records from these origins.
        """
        bounds = {"users": users, "namespaces": namespaces, "origins": origins}
        asked = request(pb.CreateKeyRequest, name=name, role=role, ttl=ttl, tenant=tenant, **bounds)
        return read(access.KeySecret, self._call(self._stub.CreateKey, asked, timeout, repeatable=False))

    def list(self, *, tenant: str = "", page_size: int = 0, timeout: float | None = None) -> Iterator[access.ApiKey]:
        """Yields all keys in the order of their creation, without their secrets. `timeout` applies to each page."""
        return self._items(self.list_page, tenant=tenant, page_size=page_size, timeout=timeout)

    def list_page(
        self, *, tenant: str = "", page_size: int = 0, page_token: str = "", timeout: float | None = None
    ) -> access.KeyPage:
        """Returns one page of keys: 100 if `page_size` is 0, at most 1,000."""
        asked = request(pb.ListKeysRequest, tenant=tenant, page_size=page_size, page_token=page_token)
        return read(access.KeyPage, self._call(self._stub.ListKeys, asked, timeout))

    def rotate(
        self, key_id: str, *, overlap: timedelta | None = None, tenant: str = "", timeout: float | None = None
    ) -> access.KeySecret:
        """Gives a key a new secret. The one before remains valid for `overlap`, by default a day.

        Raises KeyNotFoundError if the tenant has no such key.
        """
        asked = request(pb.RotateKeyRequest, key_id=key_id, overlap=overlap, tenant=tenant)
        return read(access.KeySecret, self._call(self._stub.RotateKey, asked, timeout, repeatable=False))

    def revoke(
        self, key_id: str, *, tenant: str = "", allow_missing: bool = False, timeout: float | None = None
    ) -> None:
        """Ends a key for good. Raises KeyNotFoundError if the tenant has no such key, unless `allow_missing`."""
        asked = request(pb.RevokeKeyRequest, key_id=key_id, tenant=tenant, allow_missing=allow_missing)
        self._call(self._stub.RevokeKey, asked, timeout)
