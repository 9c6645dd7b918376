"""Checks vectors that callers give, and turns them into bytes."""

import math
from collections.abc import Iterable, Sequence

import numpy as np

from mnemon_server.domain.errors import FieldViolation
from mnemon_server.services.search.embedded_passages import squared_length


def vector_violations(vector: Sequence[float] | None, dimension: int, field: str) -> Iterable[FieldViolation]:
    """Violations in a vector that a caller gives."""
    if vector is None:
        return
    if len(vector) != dimension:
        yield FieldViolation(field, f"must have {dimension} numbers, as the server's model gives, not {len(vector)}")
        return
    exact = np.array(vector, np.float64)
    # Takes a third of the time of the exact answer, and is true for almost all vectors.
    if 0.0 < squared_length(exact) < math.inf:
        return
    # The greatest number answers both questions: it is not finite if any number is not.
    greatest = float(np.abs(exact).max())
    if not math.isfinite(greatest):
        yield FieldViolation(field, "must contain only finite numbers")
    elif greatest == 0.0:
        yield FieldViolation(field, "must not be all zeros: such a vector has no direction")


def vector_bytes(vector: Sequence[float] | None) -> bytes:
    """A vector as part of the key of a request; empty if the request has none."""
    return b"" if vector is None else np.array(vector, "<f8").tobytes()
