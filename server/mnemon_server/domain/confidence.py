"""Confidence: computed from a memory's age on each read, or turned into a filter on its times."""

from collections.abc import Mapping
from datetime import datetime, timedelta
from functools import lru_cache

from mnemon_server.domain.clock import utc
from mnemon_server.domain.errors import ConfigurationError
from mnemon_server.domain.filters import AllOf, AnyOf, Condition, Expression, Operator
from mnemon_server.domain.memories import Decay, DecayCurve, DecayPolicy, Memory

DEFAULT_DECAY: Mapping[DecayPolicy, Decay] = {
    DecayPolicy.REINFORCEABLE: Decay(timedelta(hours=720)),
    DecayPolicy.CONTEXTUAL: Decay(timedelta(hours=168)),
}

_MICROSECOND = timedelta(microseconds=1)
_AGE_MAX = 1 << 60
"""In microseconds: 36,000 years, more than the age of any representable time."""


class ConfidenceModel:
    """How confidence decays: one decay for each policy except `stable`, which does not decay."""

    def __init__(self, decay: Mapping[DecayPolicy, Decay]) -> None:
        for policy in (DecayPolicy.REINFORCEABLE, DecayPolicy.CONTEXTUAL):
            if policy not in decay:
                raise ConfigurationError(f"the decay policy {policy} has no half-life")
        self._decay: dict[DecayPolicy, Decay] = {
            policy: decay[policy] for policy in DecayPolicy if policy is not DecayPolicy.STABLE
        }

    def at(self, memory: Memory, time: datetime) -> float:
        """The memory's confidence at a time, from 0 to 1. A naive time counts as UTC, a negative age as 0."""
        return self.of(memory.decay_policy, memory.create_time, memory.reinforce_time, time)

    def of(self, policy: DecayPolicy, created: datetime, reinforced: datetime | None, time: datetime) -> float:
        """The confidence at `time` of a memory with this policy and these times."""
        if policy is DecayPolicy.STABLE:
            return 1.0
        return self._decay[policy].confidence(utc(time) - _fades_from(policy, created, reinforced))

    def at_least(self, bound: float, time: datetime) -> Expression:
        """A filter that matches exactly the memories whose confidence at `time` is at least `bound` (0 to 1).

        The bound becomes a condition on the memory's times, with no rounding error: `at` returns less than `bound` for
        an age that is one microsecond higher than the filter accepts.
        """
        unbounded, parts = [DecayPolicy.STABLE.value], list[Expression]()
        for policy, decay in self._decay.items():
            earliest = _earliest(decay, bound, time)
            if earliest is None:
                unbounded.append(policy.value)
            else:
                parts.append(AllOf((Condition("decay_policy", Operator.EQ, (policy.value,)), _since(policy, earliest))))
        return AnyOf((Condition("decay_policy", Operator.IN, tuple(unbounded)), *parts))

    def fade_time(self, memory: Memory, bound: float) -> datetime | None:
        """When the memory's confidence falls, or fell, below `bound`; None if it never does."""
        decay = self._decay.get(memory.decay_policy)
        oldest = oldest_age(decay, bound) if decay else None
        if oldest is None:
            return None
        try:
            return _start(memory) + oldest + _MICROSECOND
        except OverflowError:
            return None

    def explain(self, memory: Memory, time: datetime) -> str:
        """A sentence that derives the memory's confidence at a time, with the figures used."""
        decay = self._decay.get(memory.decay_policy)
        if decay is None:
            return f"Confidence is 1, because a {memory.decay_policy.value} memory does not fade."
        fades_from = _start(memory)
        age, half_life = max(utc(time) - fades_from, timedelta(0)) / _HOUR, decay.half_life / _HOUR
        is_linear = decay.curve is DecayCurve.LINEAR
        formula = f"1 - {age:.1f} h / (2 * {half_life:g} h)" if is_linear else f"0.5 ^ ({age:.1f} h / {half_life:g} h)"
        since = "its creation" if fades_from == utc(memory.create_time) else "its last reinforcement"
        floor = ", and never less than 0" if is_linear and age > 2 * half_life else ""
        return (
            f"Confidence is {self.at(memory, time):.4f} = {formula}{floor}: "
            f"a {memory.decay_policy.value} memory, {age:.1f} h after {since}."
        )


_HOUR = timedelta(hours=1)


@lru_cache(maxsize=256)
def oldest_age(decay: Decay, bound: float) -> timedelta | None:
    """The greatest age, in whole microseconds, whose confidence is at least `bound` (0 to 1); None if every age's
    is.
    """
    low, high = 0, 1
    while decay.confidence(high * _MICROSECOND) >= bound:
        low, high = high, 2 * high
        if high > _AGE_MAX:
            return None
    while high - low > 1:
        middle = (low + high) // 2
        if decay.confidence(middle * _MICROSECOND) >= bound:
            low = middle
        else:
            high = middle
    return low * _MICROSECOND


def _earliest(decay: Decay, bound: float, time: datetime) -> datetime | None:
    """The earliest start of a memory whose confidence at `time` is at least `bound`; None if there is no limit."""
    oldest = oldest_age(decay, bound)
    if oldest is None:
        return None
    try:
        return utc(time) - oldest
    except OverflowError:
        return None


def _since(policy: DecayPolicy, earliest: datetime) -> Expression:
    created = Condition("create_time", Operator.GTE, (earliest,))
    if policy is DecayPolicy.CONTEXTUAL:
        return created
    never_reinforced = Condition("reinforce_time", Operator.EXISTS, (False,))
    return AnyOf((Condition("reinforce_time", Operator.GTE, (earliest,)), AllOf((never_reinforced, created))))


def _start(memory: Memory) -> datetime:
    return _fades_from(memory.decay_policy, memory.create_time, memory.reinforce_time)


def _fades_from(policy: DecayPolicy, created: datetime, reinforced: datetime | None) -> datetime:
    """The time from which a memory's age is counted. Reinforcing resets it for a reinforceable memory only."""
    return utc(reinforced if reinforced and policy is DecayPolicy.REINFORCEABLE else created)
