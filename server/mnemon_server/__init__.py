"""The Mnemon server: a gRPC server that gives AI agents a memory."""

__version__ = "0.1.0"
