"""Open vaults that hold only what a test needs."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, cast

from mnemon_server.services.vaults import OpenVault


@dataclass
class Index:
    """Stands in for a store with an index and reports what a test sets."""

    is_warm: bool = True

    @property
    def is_loading(self) -> bool:
        """Whether it is not warm yet."""
        return not self.is_warm


class NoQuarantine:
    """Stands in for the quarantines of a vault."""

    hidden = ()


def open_vault_with(
    documents: Any,
    close: Callable[[], Awaitable[None]],
    index: Index | None = None,
    timeline: Index | None = None,
    feed: Any = None,
) -> OpenVault:
    """A vault with documents and indexes, which are warm unless others are given, a feed, and nothing else."""
    nothing = cast("Any", None)
    return OpenVault(
        documents=documents,
        memories=nothing,
        semantic=cast("Any", index or Index()),
        conflicts=nothing,
        rules=nothing,
        episodic=cast("Any", timeline or Index()),
        bridge=nothing,
        facts=nothing,
        tools=nothing,
        archive=nothing,
        backups=nothing,
        erasure=nothing,
        recall=nothing,
        conversations=nothing,
        feed=feed,
        quarantine=cast("Any", NoQuarantine()),
        history=nothing,
        grants=nothing,
        model=nothing,
        vault_id="",
        page_key=b"",
        is_shadow_current=lambda: True,
        gauges=nothing,
        at=lambda time: nothing,
        within=lambda bounds: nothing,
        close=close,
    )
