"""Confidence: its value for each policy and age. A filter by confidence agrees with it to the microsecond."""

import math
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from mnemon_server.domain.confidence import DEFAULT_DECAY, ConfidenceModel, oldest_age
from mnemon_server.domain.errors import ConfigurationError
from mnemon_server.domain.filters import matches
from mnemon_server.domain.memories import Decay, DecayCurve, DecayPolicy, Memory
from mnemon_server.domain.records import MetadataValue

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
HOUR, MICROSECOND = timedelta(hours=1), timedelta(microseconds=1)
STABLE, REINFORCEABLE, CONTEXTUAL = DecayPolicy.STABLE, DecayPolicy.REINFORCEABLE, DecayPolicy.CONTEXTUAL
LINEAR = {policy: Decay(decay.half_life, DecayCurve.LINEAR) for policy, decay in DEFAULT_DECAY.items()}


def memory(policy: DecayPolicy, *, created: float, reinforced: float | None = None) -> Memory:
    """A memory that was created and reinforced this many hours ago."""
    return Memory(
        "m",
        "text",
        decay_policy=policy,
        create_time=NOW - created * HOUR,
        reinforce_time=None if reinforced is None else NOW - reinforced * HOUR,
    )


def is_kept(expression_of: ConfidenceModel, bound: float, remembered: Memory, time: datetime) -> bool:
    """Whether a filter by confidence keeps the memory."""
    values: dict[str, MetadataValue | None] = {
        "decay_policy": remembered.decay_policy.value,
        "create_time": remembered.create_time,
        "reinforce_time": remembered.reinforce_time,
    }
    return matches(expression_of.at_least(bound, time), values.get)


@pytest.mark.parametrize(
    ("policy", "created", "reinforced", "confidence"),
    [
        (STABLE, 0, None, 1.0),
        (STABLE, 10 * 8760, None, 1.0),
        (REINFORCEABLE, 0, None, 1.0),
        (REINFORCEABLE, 720, None, 0.5),
        (REINFORCEABLE, 360, None, math.sqrt(0.5)),
        (REINFORCEABLE, 1440, None, 0.25),
        (REINFORCEABLE, 7200, None, 1 / 1024),
        (REINFORCEABLE, 7200, 0, 1.0),
        (REINFORCEABLE, 7200, 720, 0.5),
        (CONTEXTUAL, 168, None, 0.5),
        (CONTEXTUAL, 24, None, 0.5 ** (1 / 7)),
        (CONTEXTUAL, 336, 1, 0.25),
        (REINFORCEABLE, -5, None, 1.0),
        (CONTEXTUAL, -1000, None, 1.0),
        (REINFORCEABLE, 720 * 2000, None, 0.0),
    ],
)
def test_confidence_halves_with_every_half_life(
    policy: DecayPolicy, created: float, reinforced: float | None, confidence: float
) -> None:
    remembered = memory(policy, created=created, reinforced=reinforced)
    assert ConfidenceModel(DEFAULT_DECAY).at(remembered, NOW) == pytest.approx(confidence, rel=1e-12, abs=0)


@pytest.mark.parametrize(
    ("policy", "created", "confidence"),
    [
        (STABLE, 5000, 1.0),
        (REINFORCEABLE, 0, 1.0),
        (REINFORCEABLE, 360, 0.75),
        (REINFORCEABLE, 720, 0.5),
        (REINFORCEABLE, 1440, 0.0),
        (REINFORCEABLE, 9999, 0.0),
        (CONTEXTUAL, 84, 0.75),
        (CONTEXTUAL, 252, 0.25),
        (CONTEXTUAL, -84, 1.0),
    ],
)
def test_linear_confidence_is_one_half_at_the_half_life_and_ends_at_zero(
    policy: DecayPolicy, created: float, confidence: float
) -> None:
    assert ConfidenceModel(LINEAR).at(memory(policy, created=created), NOW) == pytest.approx(confidence, abs=1e-15)


def test_naive_times_are_utc() -> None:
    naive = Memory("m", "text", decay_policy=CONTEXTUAL, create_time=datetime(2026, 2, 22, 12))
    model = ConfidenceModel(DEFAULT_DECAY)
    assert model.at(naive, NOW) == 0.5
    assert model.at(memory(CONTEXTUAL, created=168), NOW.replace(tzinfo=None)) == 0.5


@pytest.mark.parametrize("half_life", [timedelta(0), -HOUR])
def test_a_half_life_must_be_positive(half_life: timedelta) -> None:
    with pytest.raises(ConfigurationError, match="half-life"):
        Decay(half_life)


def test_a_policy_without_a_half_life_is_named() -> None:
    with pytest.raises(ConfigurationError, match="contextual"):
        ConfidenceModel({REINFORCEABLE: Decay(HOUR)})


decays = st.builds(
    Decay,
    st.timedeltas(min_value=MICROSECOND, max_value=timedelta(days=40_000)),
    st.sampled_from(DecayCurve),
)


@given(decay=decays, bound=st.floats(0.0, 1.0))
@example(decay=DEFAULT_DECAY[REINFORCEABLE], bound=1.0)
@example(decay=LINEAR[REINFORCEABLE], bound=0.0)
@example(decay=DEFAULT_DECAY[CONTEXTUAL], bound=5e-324)
def test_the_oldest_age_is_the_last_with_the_confidence(decay: Decay, bound: float) -> None:
    oldest = oldest_age(decay, bound)
    if oldest is None:
        assert decay.confidence(timedelta(days=3_600_000)) >= bound
    else:
        assert decay.confidence(oldest) >= bound > decay.confidence(oldest + MICROSECOND)


@given(
    reinforceable=decays,
    contextual=decays,
    policy=st.sampled_from(DecayPolicy),
    bound=st.floats(0.0, 1.0),
    off=st.integers(-3, 3),
    other=st.none() | st.timedeltas(min_value=timedelta(days=-30), max_value=timedelta(days=3000)),
)
def test_a_filter_by_confidence_keeps_exactly_the_right_memories(
    reinforceable: Decay,
    contextual: Decay,
    policy: DecayPolicy,
    bound: float,
    off: int,
    other: timedelta | None,
) -> None:
    model = ConfidenceModel({REINFORCEABLE: reinforceable, CONTEXTUAL: contextual})
    decay = {REINFORCEABLE: reinforceable, CONTEXTUAL: contextual}.get(policy)
    age = min((decay and oldest_age(decay, bound)) or timedelta(0), timedelta(days=700_000))
    at_the_bound = NOW - age + off * MICROSECOND
    for created, reinforced in [(at_the_bound, None), (NOW - (other or HOUR), at_the_bound), (at_the_bound, NOW)]:
        remembered = Memory("m", "t", decay_policy=policy, create_time=created, reinforce_time=reinforced)
        assert is_kept(model, bound, remembered, NOW) == (model.at(remembered, NOW) >= bound)


@given(decay=decays, bound=st.floats(0.001, 1.0))
def test_a_memory_is_below_the_threshold_from_its_fade_time_on(decay: Decay, bound: float) -> None:
    model = ConfidenceModel({REINFORCEABLE: decay, CONTEXTUAL: decay})
    remembered = memory(CONTEXTUAL, created=0)
    fades = model.fade_time(remembered, bound)
    assert fades is not None
    assert model.at(remembered, fades) < bound <= model.at(remembered, fades - MICROSECOND)


def test_a_stable_memory_never_fades() -> None:
    assert ConfidenceModel(DEFAULT_DECAY).fade_time(memory(STABLE, created=9e5), 1.0) is None


@pytest.mark.parametrize(
    ("decay", "remembered", "sentence"),
    [
        (DEFAULT_DECAY, memory(STABLE, created=9), "Confidence is 1, because a stable memory does not fade."),
        (
            DEFAULT_DECAY,
            memory(REINFORCEABLE, created=999, reinforced=36),
            (
                "Confidence is 0.9659 = 0.5 ^ (36.0 h / 720 h): "
                "a reinforceable memory, 36.0 h after its last reinforcement."
            ),
        ),
        (
            LINEAR,
            memory(CONTEXTUAL, created=400, reinforced=3),
            (
                "Confidence is 0.0000 = 1 - 400.0 h / (2 * 168 h), and never less than 0: "
                "a contextual memory, 400.0 h after its creation."
            ),
        ),
    ],
)
def test_an_explanation_shows_the_figures(decay: dict[DecayPolicy, Decay], remembered: Memory, sentence: str) -> None:
    assert ConfidenceModel(decay).explain(remembered, NOW) == sentence
