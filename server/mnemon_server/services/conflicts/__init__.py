"""Conflicts between statements: how they are found, arbitrated and merged, and how decisions are undone."""
