"""The asyncio client's object for erasures."""

import builtins
from collections.abc import Callable, Iterable

from mnemon._async.service import AsyncService, Stub
from mnemon._messages.calls import erase_to_pb
from mnemon._messages.translation import read
from mnemon._values import documents, erasures, filters
from mnemon.shared.errors import UnavailableError
from mnemon.v1 import erase_pb2 as pb
from mnemon.v1.erase_pb2_grpc import EraseServiceStub


class AsyncErasures(AsyncService):
    """Erasures that leave no byte, as `client.erasures`; for admins of the whole tenant.

    An erasure is about a `user` with everything that is theirs, or about a `namespace` of facts and those below it, or
    about the records of a `kind` (see RecordKind) that have this `scope` and match `where`.
    """

    _stub = Stub(EraseServiceStub)

    async def run(
        self,
        *,
        user: str = "",
        namespace: Iterable[str] = (),
        kind: str = "",
        scope: documents.Scope | None = None,
        where: filters.Filter | None = None,
        origin: str = "",
        origin_name: str = "",
        revoke_keys: bool = False,
        on_progress: Callable[[erasures.EraseProgress], object] | None = None,
        request_id: str | None = None,
        timeout: float | None = None,
    ) -> erasures.ErasureReceipt:
        """Erases, and returns the signed receipt. Calls `on_progress` on the way.

        The subject is a `user`, a `namespace` of facts, everything that comes from an `origin` (with `origin_name`,
        such as "web" and "example.com"), or what `scope` and `where` select of a `kind`.

        `revoke_keys` ends the API keys that are bound to the user or the namespace; otherwise they stay valid, and
        `out_of_reach` of the receipt names them. Once removal has begun, the server completes it, whatever happens
        to this call. A call with the same `request_id` follows it, or returns its receipt; do not put the name of the
        subject into it. There is no deadline unless `timeout` sets one for the whole erasure.
        """
        request = erase_to_pb(
            user, namespace, kind, scope, where, origin, origin_name, request_id, revoke_keys=revoke_keys
        )
        async for message in self._stream(self._stub.Erase, request, timeout):
            if message.HasField("receipt"):
                return read(erasures.ErasureReceipt, message.receipt)
            if on_progress is not None:
                on_progress(read(erasures.EraseProgress, message.progress))
        raise UnavailableError("the server ended the erasure without a receipt; call again with the same request_id")

    async def count(
        self,
        *,
        user: str = "",
        namespace: Iterable[str] = (),
        kind: str = "",
        scope: documents.Scope | None = None,
        where: filters.Filter | None = None,
        origin: str = "",
        origin_name: str = "",
        timeout: float | None = None,
    ) -> dict[str, int]:
        """Returns how much `run` would erase, by kind of record; erases nothing."""
        request = erase_to_pb(user, namespace, kind, scope, where, origin, origin_name, dry_run=True)
        counts: dict[str, int] = {}
        async for message in self._stream(self._stub.Erase, request, timeout):
            counts = {each.store: each.count for each in message.dry_run.counts}
        return counts

    async def list(self, *, timeout: float | None = None) -> builtins.list[erasures.ErasureReceipt]:
        """Returns the receipts of all erasures, oldest first."""
        response = await self._call(self._stub.ListErasures, pb.ListErasuresRequest(), timeout)
        return [read(erasures.ErasureReceipt, each) for each in response.receipts]

    async def key(self, *, timeout: float | None = None) -> bytes:
        """Returns the public key that verifies receipts: Ed25519, 32 bytes."""
        response = await self._call(self._stub.GetErasureKey, pb.GetErasureKeyRequest(), timeout)
        return response.public_key
