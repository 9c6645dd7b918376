"""Open vaults that hold only what a test looks at."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, cast

from mnemon_server.services.vaults import OpenVault


@dataclass
class Index:
    """Stands where a store with an index does, and says of itself what a test says."""

    is_warm: bool = True


def open_vault_with(
    documents: Any,
    close: Callable[[], Awaitable[None]],
    index: Index | None = None,
    timeline: Index | None = None,
) -> OpenVault:
    """A vault that has documents, indexes that are warm unless others are given, and nothing else."""
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
        feed=nothing,
        model=nothing,
        vault_id="",
        page_key=b"",
        close=close,
    )
