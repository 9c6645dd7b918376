"""The severities of many conflicts: what `signals` computes for one comparison, for whole columns of numbers."""

from dataclasses import dataclass
from datetime import timedelta

import numpy as np
from numpy.typing import NDArray

from mnemon_server.domain.clock import to_microseconds
from mnemon_server.domain.conflicts import DetectionConfig, SignalType
from mnemon_server.domain.semantic import SemanticMemory
from mnemon_server.engines.promises.related import NO_TIME, RelatedDocuments
from mnemon_server.services.conflicts.signals import TOLERANCE

_MICROSECOND = timedelta(microseconds=1)

Fired = NDArray[np.bool_]
Scores = NDArray[np.float64]

_NONE: tuple[Fired, Scores] = (np.zeros(1, np.bool_), np.zeros(1))
"""A signal that never fires."""


@dataclass(frozen=True, slots=True)
class Severities:
    """Which of several statements conflict with a candidate, and how severely: two arrays of the same length."""

    conflicting: Fired
    severities: Scores


def severities_of(
    candidate: SemanticMemory,
    own_terms: int,
    related: RelatedDocuments,
    config: DetectionConfig,
) -> Severities:
    """The same results as `signals_of` and `severity`, except for rounding errors in the similarities of the index.

    The relation signal does not fire here, because it depends on texts.

    Args:
        candidate: the statement, with its time.
        own_terms: the number of its terms.
        related: the statements that it is compared with.
        config: the signals that count, and their thresholds.
    """
    conflicting, severities = np.zeros(len(related), np.bool_), np.zeros(len(related))
    columns = {
        SignalType.SEMANTIC: lambda: _semantic(related, config),
        SignalType.KEYWORD: lambda: _keyword(own_terms, related, config),
        SignalType.TIME: lambda: _time(candidate, related, config),
        SignalType.IMPORTANCE: lambda: _importance(candidate, related, config),
        SignalType.RELATION: lambda: _NONE,
    }
    # In the order of SignalType, as `severity` adds them.
    for signal in SignalType:
        fired, scores = columns[signal]() if signal in config.signals else _NONE
        if signal in config.deciding_signals:
            conflicting |= fired
        severities += np.where(fired, np.clip(scores, 0.0, 1.0), 0.0)
    return Severities(conflicting, severities)


def _semantic(related: RelatedDocuments, config: DetectionConfig) -> tuple[Fired, Scores]:
    return related.similarities > config.semantic_threshold + TOLERANCE, related.similarities


def _keyword(own_terms: int, related: RelatedDocuments, config: DetectionConfig) -> tuple[Fired, Scores]:
    # If neither side has terms, none are shared.
    smaller = np.maximum(np.minimum(related.term_counts, own_terms), 1)
    overlap = related.shared_terms / smaller
    return (related.shared_terms > 0) & (overlap > config.keyword_threshold + TOLERANCE), overlap


def _time(candidate: SemanticMemory, related: RelatedDocuments, config: DetectionConfig) -> tuple[Fired, Scores]:
    if candidate.create_time is None:
        return _NONE
    time, window = to_microseconds(candidate.create_time), config.time_window // _MICROSECOND
    known = related.times != NO_TIME
    deltas = np.abs(np.where(known, related.times, time) - time)
    return known & (deltas <= window), 1.0 - deltas / max(window, 1)


def _importance(candidate: SemanticMemory, related: RelatedDocuments, config: DetectionConfig) -> tuple[Fired, Scores]:
    if candidate.importance is None:
        return _NONE
    deltas, bound = np.abs(related.numbers - candidate.importance), config.importance_delta
    return deltas > bound + TOLERANCE, deltas / (1.0 - bound) if bound < 1.0 else np.ones(len(related))
