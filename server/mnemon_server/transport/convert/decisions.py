"""Conflicts, decisions about them, and the statistics of mergers as messages. Clients only read these."""

from collections.abc import Iterable
from typing import Any

from mnemon.v1 import decisions_pb2 as pb

from mnemon_server.domain.conflicts import (
    FACTOR_WEIGHTS,
    ArbitrationResult,
    Conflict,
    ContentStrategy,
    Decision,
    MergeStatistics,
)
from mnemon_server.transport.convert.shared.fields import filled
from mnemon_server.wire.enums import numbers_of

_FACTORS_TO_PB = {name: pb.FactorType.Value(f"FACTOR_TYPE_{name.upper()}") for name in FACTOR_WEIGHTS}
CONTENT_STRATEGIES_TO_PB = numbers_of(pb.ContentStrategy, ContentStrategy)


def fill_conflicts(target: Any, conflicts: Iterable[Conflict], room: int) -> bool:
    """Writes conflicts into a repeated field, in their order and up to `room` bytes; returns whether there are more."""
    for conflict in conflicts:
        room -= filled(target.add(), conflict).ByteSize()
        if room < 0:
            del target[-1]
            return True
    return False


def fill_arbitration(target: pb.Arbitration, result: ArbitrationResult) -> None:
    """Writes a decision between two statements into a message of its own."""
    filled(target, result, factors=())
    for factor in result.factors:
        filled(target.factors.add(), factor, type=_FACTORS_TO_PB.get(factor.name, pb.FACTOR_TYPE_UNSPECIFIED))


def fill_statistics(target: pb.MergeStatistics, statistics: MergeStatistics) -> None:
    """Writes what a merge did into a message of its own."""
    # The message is set even if all of its fields are 0.
    target.SetInParent()
    filled(target, statistics)


def fill_decision(target: pb.Decision, decision: Decision) -> None:
    """Writes a decision into a message of its own."""
    filled(target, decision, arbitration=None)
    fill_arbitration(target.arbitration, decision.arbitration)
