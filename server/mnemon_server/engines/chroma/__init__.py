"""ChromaDB as a vector index: embedded in a supervised child process, or a server over HTTP."""

from mnemon_server.engines.chroma.index import ChromaIndex
from mnemon_server.engines.chroma.settings import ChromaSettings

__all__ = ["ChromaIndex", "ChromaSettings"]
