"""Many vectors in little memory: the signs and the rounded components of each, from which searches pick candidates.

Start with `QuantizedVectors`. `block.py` stores the vectors, `sign_search.py` their signs by similarity.
"""

from mnemon_server.engines.quantized.block import RoundedVectors, round_vectors
from mnemon_server.engines.quantized.quantized_vectors import QuantizedVectors
from mnemon_server.engines.quantized.signs import words_per_vector

__all__ = ["QuantizedVectors", "RoundedVectors", "round_vectors", "words_per_vector"]
