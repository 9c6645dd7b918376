"""Counts of a tenant's records."""

from collections.abc import Mapping
from contextlib import aclosing

from mnemon_server.domain.archive import ArchiveHeader, ExportSelection
from mnemon_server.domain.kinds import RecordKind
from mnemon_server.services.vaults import OpenVault


async def stored_records(vault: OpenVault) -> Mapping[RecordKind, int]:
    """Records by kind, without those that are deleted or have expired: what an export would begin with.

    Raises:
        IndexWarmingError: the timeline is not loaded yet.
    """
    async with aclosing(vault.archive.export(ExportSelection(), vectors=False)) as messages:
        header = await anext(messages)
    assert isinstance(header, ArchiveHeader)  # noqa: S101 - an export begins with it
    return header.counts
