"""Opens the audit log."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from mnemon_server.assembly.settings import is_in_memory
from mnemon_server.config.settings import Settings
from mnemon_server.engines.audit_file import AuditFile
from mnemon_server.services.access.audit import AuditLog


@asynccontextmanager
async def open_audit(settings: Settings) -> AsyncIterator[AuditLog | None]:
    """The audit log; None if the settings want none, or keep nothing on disk.

    Raises:
        ConfigurationError: its folder cannot be used.
    """
    if settings.audit_log == "off" or is_in_memory(settings):
        yield None
        return
    file = await asyncio.to_thread(AuditFile, settings.data_dir)
    async with AuditLog(file) as log:
        yield log
