# Generated from _async/grants.py by `make generate`: change that file instead.
"""The blocking client's object for grants."""

from collections.abc import Iterable, Iterator

from mnemon._local_time import Moment
from mnemon._messages.translation import read, request
from mnemon._sync.service import Service, Stub
from mnemon._values.access import Grant, GrantPage
from mnemon._values.documents import Scope
from mnemon.v1 import access_pb2 as pb
from mnemon.v1.access_pb2_grpc import AccessServiceStub


class Grants(Service):
    """Records that callers share with each other, as `client.grants`, on a server with authentication.

    A caller that is bound to users or namespaces shares its records; an admin shares all.
    """

    _stub = Stub(AccessServiceStub)

    def add(
        self,
        subject: str,
        *,
        scope: Scope | None = None,
        namespace: Iterable[str] = (),
        access: str = "read",
        expire_time: Moment | None = None,
        timeout: float | None = None,
    ) -> Grant:
        """Shares the records of a scope, or the facts in a namespace such as ("user", "ada"), and returns the grant.

        `subject` is "user:bob" for every caller that is bound to this user alone, or a caller as `who_am_i` names it,
        such as "key:1f3a5c7e9b0d2f46". `access` is "read" or "write". `expire_time` is a `datetime`, a `date`, which
        counts to its end, a `timedelta` from now, or a text such as "2027-01-31" or "30d". Without it, the grant lasts
        until it is revoked.

        An admin's grant takes effect at once, any other once it is accepted. Sharing the same records with the same
        subject again replaces the access and the time.
        """
        asked = request(
            pb.CreateGrantRequest,
            subject=subject,
            scope=scope,
            namespace=namespace,
            access=access,
            expire_time=expire_time,
        )
        return read(Grant, (self._call(self._stub.CreateGrant, asked, timeout)).grant)

    def list(self, *, page_size: int = 0, timeout: float | None = None) -> Iterator[Grant]:
        """Yields the grants to the caller and of the caller's records, in the order of their creation; for an admin,
        all of the tenant. `timeout` applies to each page.
        """
        return self._items(self.list_page, page_size=page_size, timeout=timeout)

    def list_page(self, *, page_size: int = 0, page_token: str = "", timeout: float | None = None) -> GrantPage:
        """Returns one page of grants: 100 if `page_size` is 0, at most 1,000."""
        asked = request(pb.ListGrantsRequest, page_size=page_size, page_token=page_token)
        return read(GrantPage, self._call(self._stub.ListGrants, asked, timeout))

    def accept(self, grant_id: str, *, timeout: float | None = None) -> Grant:
        """Puts a grant into effect for everyone to whom it was granted.

        Raises GrantNotFoundError if the caller sees no such grant.
        """
        asked = request(pb.AcceptGrantRequest, grant_id=grant_id)
        return read(Grant, (self._call(self._stub.AcceptGrant, asked, timeout)).grant)

    def revoke(self, grant_id: str, *, allow_missing: bool = False, timeout: float | None = None) -> None:
        """Ends a grant that the caller gave or received.

        Raises GrantNotFoundError if the caller sees no such grant, unless `allow_missing`.
        """
        asked = request(pb.RevokeGrantRequest, grant_id=grant_id, allow_missing=allow_missing)
        self._call(self._stub.RevokeGrant, asked, timeout)
