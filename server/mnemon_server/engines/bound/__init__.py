"""A vault as a caller with bounds sees it: other records do not exist in it."""

from mnemon_server.engines.bound.vault import BoundVault

__all__ = ["BoundVault"]
