"""Opens the tracing of calls that is configured."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from mnemon_server import __version__
from mnemon_server.config.settings import Settings

if TYPE_CHECKING:
    from mnemon_server.transport.interceptors.tracing import Tracing


@asynccontextmanager
async def open_tracing(settings: Settings) -> "AsyncIterator[Tracing | None]":
    """The tracer of calls; None if nothing is traced."""
    if not settings.trace_endpoint:
        yield None
        return
    # Imported here, because a server that traces nothing need not wait for the library.
    from mnemon_server.transport.interceptors.tracing import Tracing, collector

    exporter = collector(settings.trace_endpoint)
    async with Tracing(exporter, ratio=settings.trace_sample_ratio, version=__version__) as tracing:
        yield tracing
