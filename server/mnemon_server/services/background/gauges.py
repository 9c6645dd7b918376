"""Gauges of an open vault: its records and its pending work."""

from collections.abc import Mapping
from dataclasses import dataclass

from mnemon_server.engines.promises.values import VectorUsage


@dataclass(frozen=True, slots=True)
class VaultGauges:
    """The state of one open vault."""

    waiting_writes: int
    """Writes that wait for a transaction."""
    waiting_texts: int
    """Texts of all tenants that have no vector yet."""
    vectors: Mapping[str, VectorUsage]
    """How the vectors of each collection are held, by its name."""
    pending_changes: Mapping[str, int]
    """Changes that the external index of a collection has not seen yet, for collections that have one."""
    bridge_waiting: int
    """Changes of events that the bridge has not handled yet."""
