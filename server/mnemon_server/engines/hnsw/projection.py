"""Projects vectors to fewer components for the graph, while nearly preserving their distances."""

import numpy as np
from numpy.typing import NDArray

SAMPLE_MAX = 10_000
"""Maximum number of vectors from which the directions are computed."""

_FLOAT_ERROR = 1e-3


class ProjectionError(Exception):
    """The directions are not orthonormal."""


class Projection:
    """A projection onto orthonormal directions. It keeps a vector's components along them and loses the rest."""

    def __init__(self, directions: NDArray[np.float32]) -> None:
        """`directions` has the shape (width, dimension)."""
        self.directions = directions

    @property
    def width(self) -> int:
        """The number of components of a projected vector."""
        return len(self.directions)

    def apply(self, vectors: NDArray[np.float32]) -> NDArray[np.float32]:
        """Projects vectors of shape (..., dimension) to shape (..., width)."""
        # Not `@`: BLAS threads wait for each other in busy loops, and would take the cores from other threads.
        projected: NDArray[np.float32] = np.vecdot(vectors[..., None, :], self.directions)
        return projected

    def lost_share(self, vectors: NDArray[np.float32]) -> float:
        """The mean share of the squared length that the projection loses, for unit vectors of shape (n, dimension)."""
        kept = np.square(self.apply(vectors)).sum(axis=1, dtype=np.float64)
        return 1.0 - float(kept.mean()) if len(vectors) else 0.0

    def check(self) -> None:
        """Raises ProjectionError if the directions are not orthonormal."""
        # Check the bound first: infinite or huge values would overflow in the products.
        if not (np.abs(self.directions) <= 1.0 + _FLOAT_ERROR).all():
            raise ProjectionError("a direction of the projection is longer than one")
        products = self.directions @ self.directions.T
        if not np.allclose(products, np.eye(self.width), rtol=0.0, atol=_FLOAT_ERROR):
            raise ProjectionError("the directions of the projection are not orthonormal")


def fit_projection(sample: NDArray[np.float32], width: int) -> Projection:
    """The projection to `width` components that loses least of vectors of shape (n, dimension); the identity if `width`
    is the full dimension.
    """
    dimension = sample.shape[1]
    if width >= dimension:
        return Projection(np.eye(dimension, dtype=np.float32))
    # Not centred, because angles depend on the origin.
    _, directions = np.linalg.eigh((sample.T @ sample).astype(np.float64))
    return Projection(np.ascontiguousarray(directions[:, -width:].T, np.float32))
