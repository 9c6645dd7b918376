"""A collection on a ChromaDB server as a vector index."""

from mnemon_server.engines.chroma.client import ChromaSettings
from mnemon_server.engines.chroma.index import ChromaIndex

__all__ = ["ChromaIndex", "ChromaSettings"]
