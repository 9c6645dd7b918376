"""Many vectors in little memory: the signs and the rounded components of each, from which searches pick candidates.

Start with `QuantizedVectors`. `block.py` stores the vectors, `proposals.py` picks the candidates.
"""

from mnemon_server.engines.quantized.quantized_vectors import QuantizedVectors

__all__ = ["QuantizedVectors"]
