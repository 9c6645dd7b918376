"""Memories, whose confidence fades with time."""
