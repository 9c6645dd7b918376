"""The Mnemon server: one gRPC service that remembers for agents."""

__version__ = "0.1.0"
