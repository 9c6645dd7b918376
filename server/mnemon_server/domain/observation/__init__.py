"""Observation of a server's parts: figures, and spans of traced calls."""
