"""Calls about what was known at a moment in the past."""

from collections.abc import Awaitable
from datetime import datetime
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from mnemon_server.domain.errors import NotFoundError
from mnemon_server.domain.kinds import VERSIONED, RecordKind
from mnemon_server.transport.convert.shared.reader import Reader

if TYPE_CHECKING:
    from mnemon_server.services.vaults import OpenVault

Result = TypeVar("Result")


class Known(NamedTuple):
    """A vault at the moment that a request asks about, and whether something of that moment may be missing."""

    vault: "OpenVault"
    is_incomplete: bool

    async def found(self, reading: Awaitable[Result]) -> Result:
        """The result of a read. The error that a record does not exist says if that may be for want of history."""
        try:
            return await reading
        except NotFoundError as error:
            if self.is_incomplete:
                error.args = (f"{error}; what was known at as_of_time is not complete",)
            raise


def as_of(request: Any) -> datetime | None:
    """The moment that a request asks about; None for now."""
    if not request.HasField("as_of_time"):
        return None
    reader = Reader()
    moment = reader.as_of(request)
    reader.finish()
    return moment


async def known(vault: "OpenVault", request: Any, kind: RecordKind | None = None) -> Known:
    """The vault at the moment that a request asks about, for records of a kind; None stands for all kinds."""
    moment = as_of(request)
    if moment is None:
        return Known(vault, is_incomplete=False)
    kinds = VERSIONED if kind is None else (kind,)
    return Known(vault.at(moment), await vault.history.is_incomplete(kinds, moment))
