"""Vectors with fewer numbers, for the graph alone: their distances stay nearly what they were."""

import numpy as np
from numpy.typing import NDArray

SAMPLE_MAX = 10_000
"""Of how many vectors the directions are computed."""

_FLOAT_ERROR = 1e-3


class ProjectionError(Exception):
    """The directions are not at right angles, or not of length one."""


class Projection:
    """Onto orthonormal directions: a projected vector keeps its parts along them, and loses the rest."""

    def __init__(self, directions: NDArray[np.float32]) -> None:
        """Onto directions of shape (width, dimension)."""
        self.directions = directions

    @property
    def width(self) -> int:
        """How many numbers a projected vector has."""
        return len(self.directions)

    def apply(self, vectors: NDArray[np.float32]) -> NDArray[np.float32]:
        """Projects vectors of shape (..., dimension) to shape (..., width)."""
        # Not `@`: the threads of BLAS spin while they wait for each other, and others want the cores.
        projected: NDArray[np.float32] = np.vecdot(vectors[..., None, :], self.directions)
        return projected

    def lost_share(self, vectors: NDArray[np.float32]) -> float:
        """Of the squared length of unit vectors of shape (n, dimension), what the projection loses, in the mean."""
        kept = np.square(self.apply(vectors)).sum(axis=1, dtype=np.float64)
        return 1.0 - float(kept.mean()) if len(vectors) else 0.0

    def check(self) -> None:
        """Raises ProjectionError where the directions are not orthonormal."""
        # The bound comes first: what is not finite or huge would overflow in the products.
        if not (np.abs(self.directions) <= 1.0 + _FLOAT_ERROR).all():
            raise ProjectionError("a direction of the projection is longer than one")
        products = self.directions @ self.directions.T
        if not np.allclose(products, np.eye(self.width), rtol=0.0, atol=_FLOAT_ERROR):
            raise ProjectionError("the directions of the projection are not orthonormal")


def fit_projection(sample: NDArray[np.float32], width: int) -> Projection:
    """Onto the directions in which vectors of shape (n, dimension) lose least; onto the axes where `width` is all."""
    dimension = sample.shape[1]
    if width >= dimension:
        return Projection(np.eye(dimension, dtype=np.float32))
    # Not centred: the origin matters where angles are compared.
    _, directions = np.linalg.eigh((sample.T @ sample).astype(np.float64))
    return Projection(np.ascontiguousarray(directions[:, -width:].T, np.float32))
