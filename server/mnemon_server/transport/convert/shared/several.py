"""Repeated fields with many records, written while other calls are answered."""

from collections.abc import Callable, Iterable
from typing import Any, TypeVar

from mnemon_server.services.background.offload import Pause

Record = TypeVar("Record")


async def fill_each(target: Any, records: Iterable[Record], fill: Callable[[Any, Record], object]) -> None:
    """Writes records into a repeated field, one message each, by `fill`; yields to other calls."""
    add, pause = target.add, Pause()
    for record in records:
        fill(add(), record)
        await pause.where_due()
