"""Change feeds that allow the vault to be closed for another tenant while they wait."""

from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any

from mnemon_server.domain.access.bounds import Bounds
from mnemon_server.domain.errors import TooManyVaultsError
from mnemon_server.domain.feed import WatchQuery
from mnemon_server.services.feed.feed import Render, Watcher
from mnemon_server.services.limits.outbox import Sending
from mnemon_server.services.vaults import VaultPool


async def watch(
    vaults: VaultPool, tenant: str, bounds: Bounds, query: WatchQuery, render: Render, sending: Sending | None = None
) -> AsyncGenerator[Any, None]:
    """Yields the messages of `ChangeFeed.watch`.

    Nothing happens in a closed vault. Once it is open again, for a call of the tenant or because there is room, the
    watch continues where it was, so that it misses no change and reports none twice.

    Raises the errors of `VaultPool.use` and of `ChangeFeed.watch`.
    """
    with vaults.watched(tenant, bounds) as place:
        watcher = Watcher(place)
        while True:
            try:
                async with (
                    place as vault,
                    aclosing(vault.feed.watch(query, render, watcher, sending)) as messages,
                ):
                    async for message in messages:
                        with place.resting():
                            yield message
                        del message  # See `StreamWriter`.
                        if place.is_lost:
                            break
            except TooManyVaultsError:
                if not watcher.cursor:
                    raise
            while not await place.wait_for_changes(watcher.position, watcher.progress_time):
                yield watcher.progress()
