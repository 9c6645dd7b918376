"""Passages and rankings, for whatever is searched."""
