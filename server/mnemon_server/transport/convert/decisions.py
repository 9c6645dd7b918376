"""Conflicts, and the factors of decisions about them, as messages. Clients only read these."""

from collections.abc import Iterable
from typing import Any

from mnemon.v1 import decisions_pb2 as pb

from mnemon_server.domain.conflicts import FACTOR_WEIGHTS, Conflict, Factor
from mnemon_server.transport.convert.shared.fields import filled, writes

_FACTORS_TO_PB = {name: pb.FactorType.Value(f"FACTOR_TYPE_{name.upper()}") for name in FACTOR_WEIGHTS}


def fill_conflicts(target: Any, conflicts: Iterable[Conflict], room: int) -> bool:
    """Writes conflicts into a repeated field, in their order and up to `room` bytes; returns whether there are more."""
    for conflict in conflicts:
        room -= filled(target.add(), conflict).ByteSize()
        if room < 0:
            del target[-1]
            return True
    return False


@writes(pb.ArbitrationFactor)
def _fill_factor(target: pb.ArbitrationFactor, factor: Factor) -> None:
    filled(target, factor, type=_FACTORS_TO_PB.get(factor.name, pb.FACTOR_TYPE_UNSPECIFIED))
