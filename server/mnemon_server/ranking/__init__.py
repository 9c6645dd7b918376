"""Keyword analysis, word weights and the fusion of rankings, shared by all engines."""
