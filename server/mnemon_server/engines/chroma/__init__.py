"""ChromaDB as a vector index: embedded in a supervised child process, or a server over HTTP."""

from mnemon_server.engines.chroma.index import ChromaIndex

__all__ = ["ChromaIndex"]
