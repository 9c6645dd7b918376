"""The change feed: what happened to records."""
