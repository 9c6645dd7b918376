"""The reference vault: plain Python, without storage on disk. The shortest implementation of the contract."""

from mnemon_server.engines.in_memory.vault import InMemoryVault

__all__ = ["InMemoryVault"]
