"""Semantic memory: statements about users."""
