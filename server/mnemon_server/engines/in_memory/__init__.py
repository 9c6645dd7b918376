"""The reference vault: plain Python, nothing kept on disk. The contract in its shortest form."""

from mnemon_server.engines.in_memory.vault import InMemoryVault

__all__ = ["InMemoryVault"]
