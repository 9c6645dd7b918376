"""Memories, whose confidence fades."""
