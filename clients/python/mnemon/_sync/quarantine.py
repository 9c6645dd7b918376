# Generated from _async/quarantine.py by `make generate`: change that file instead.
"""The blocking client's object for quarantines."""

import builtins

from mnemon._messages.translation import read, request
from mnemon._sync.service import Service, Stub
from mnemon._values import quarantine
from mnemon.v1 import quarantine_pb2 as pb
from mnemon.v1.quarantine_pb2_grpc import QuarantineServiceStub


class Quarantines(Service):
    """Sources whose records are hidden from all callers, as `client.quarantine`; for admins of the whole tenant."""

    _stub = Stub(QuarantineServiceStub)

    def add(
        self, origin: str, origin_name: str = "", *, reason: str = "", timeout: float | None = None
    ) -> quarantine.QuarantineReceipt:
        """Hides all records from a source, such as ("web", "example.com"), until they are released or erased.

        Without `origin_name`, it is every tool, file or site of that origin. Calling again changes only the reason, and
        only if one is given. `counts` of the receipt is empty if no record comes from there: the name may be wrong.
        """
        asked = request(pb.QuarantineOriginRequest, origin=origin, origin_name=origin_name, reason=reason)
        return read(quarantine.QuarantineReceipt, self._call(self._stub.QuarantineOrigin, asked, timeout))

    def release(
        self, origin: str, origin_name: str = "", *, allow_missing: bool = False, timeout: float | None = None
    ) -> quarantine.QuarantineReceipt:
        """Shows the records of a source again, unchanged.

        Raises QuarantineNotFoundError if it is not in quarantine, unless `allow_missing`.
        """
        asked = request(pb.ReleaseOriginRequest, origin=origin, origin_name=origin_name, allow_missing=allow_missing)
        return read(quarantine.QuarantineReceipt, self._call(self._stub.ReleaseOrigin, asked, timeout))

    def list(self, *, timeout: float | None = None) -> builtins.list[quarantine.Quarantine]:
        """Returns all sources in quarantine, oldest first."""
        response = self._call(self._stub.ListQuarantines, pb.ListQuarantinesRequest(), timeout)
        return [read(quarantine.Quarantine, each) for each in response.quarantines]
