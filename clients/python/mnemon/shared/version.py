"""The version of the client, and of the server that is released with it."""

__version__ = "0.1.0"
