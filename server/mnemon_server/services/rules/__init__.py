"""Merge rules: their files, their inheritance, which one applies."""
