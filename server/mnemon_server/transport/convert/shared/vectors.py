"""Vectors that clients send."""

import sys
from array import array
from collections.abc import Sequence

from mnemon.v1 import memory_pb2 as pb


def vector_from_pb(values: Sequence[float]) -> "array[float] | None":
    """The vector, as 32-bit floats; None if it is unset."""
    if not values:
        return None
    # Written out, a message ends with its numbers as they lie in memory. For 384 of them that takes 5 microseconds,
    # making an object of each one 30, and checking and storing those another 30.
    written = pb.SearchMemoriesRequest(vector=values).SerializeToString()
    vector = array("f", written[-4 * len(values) :])
    if sys.byteorder == "big":
        vector.byteswap()
    return vector
