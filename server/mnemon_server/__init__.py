"""The Mnemon server: a gRPC server that gives AI agents a memory."""

from mnemon._version import __version__

__all__ = ["__version__"]
